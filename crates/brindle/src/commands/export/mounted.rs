//! A device as a file of a mount.

use super::{Opened, Target};
use crate::commands::shown::{EndSignals, Showing, show_until_end, status_text};
use anyhow::Result;
use brindle_device::{Device, DeviceError, WritableDevice};
use brindle_lab::ShownDevice;
use rustix::io::Errno;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Subtype of the mount.
const SUBTYPE: &str = "brindle-export";

/// Shows a device until it is unmounted, or a signal comes.
pub(super) fn serve(opened: Opened, mountpoint: &Path, is_attached: bool) -> Result<ExitCode> {
    let signals = EndSignals::new()?;
    let (name, device, writable) = match opened.target {
        Target::Read(device) => {
            let (name, shown) = (device.name().to_owned(), Arc::clone(&device));
            let state = move |loop_device: Option<&Path>| status_text(lines(&*shown, true), loop_device);
            (name, ShownDevice::read_only(device, state), None)
        }
        Target::Write(device) => {
            let [shown, commanded] = [(); 2].map(|()| Arc::clone(&device));
            let state =
                move |loop_device: Option<&Path>| status_text(lines(shown.as_device(), false), loop_device);
            let command = move |line: &[u8]| carry_out(&*commanded, line);
            (device.name().to_owned(), ShownDevice::new(Arc::clone(&device), state, command), Some(device))
        }
    };
    show_until_end(device, Showing { mountpoint, name, subtype: SUBTYPE, is_attached }, signals)?;
    if let Some(device) = writable {
        device.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// State of a device; that of a cache has its settings and counters.
fn lines(device: &dyn Device, is_read_only: bool) -> Vec<(String, String)> {
    let report = device.report();
    if !report.is_empty() {
        return report;
    }
    let line = |name: &str, value: String| (name.to_owned(), value);
    vec![
        line("name", device.name().to_owned()),
        line("disk_bytes", device.size_bytes().to_string()),
        line("read_only", u8::from(is_read_only).to_string()),
    ]
}

/// Carries out a line of the control file: the setting of a cache, or `grow=1`.
fn carry_out(device: &dyn WritableDevice, line: &[u8]) -> Result<(), Errno> {
    let line = std::str::from_utf8(line).map_err(|_| Errno::INVAL)?.trim_end();
    let (name, value) = line.split_once('=').ok_or(Errno::INVAL)?;
    let done = match (name, value) {
        ("grow", "1") => device.refresh_size().map(drop),
        _ => device.change(name, value),
    };
    done.map_err(|error| {
        tracing::warn!("{error}");
        if matches!(error, DeviceError::Setting { .. }) { Errno::INVAL } else { Errno::IO }
    })
}
