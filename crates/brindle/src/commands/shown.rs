//! Devices that are shown as a file of a mount, until a signal or `stop` ends them.

use crate::commands::mount::background;
use crate::{logging, output};
use anyhow::{Context, Result, anyhow};
use brindle_lab::{Ending, LabError, ShowOptions, ShownDevice, show};
use brindle_uapi::mount_table;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

/// Threads that take requests: each waits for the devices.
const THREADS: usize = 32;

/// Signals that end a shown device. Wanted before it is mounted: none may kill the process in between.
pub(crate) struct EndSignals(Signals);

impl EndSignals {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?))
    }
}

/// Place and manner in which a device is shown.
pub(crate) struct Showing<'s> {
    pub(crate) mountpoint: &'s Path,
    pub(crate) name: String,
    pub(crate) subtype: &'static str,
    pub(crate) is_attached: bool,
}

/// Shows a device, prints its path in the foreground, and returns when it is unmounted.
pub(crate) fn show_until_end(device: ShownDevice, showing: Showing<'_>, signals: EndSignals) -> Result<()> {
    let options = ShowOptions {
        mountpoint: showing.mountpoint.to_owned(),
        source: showing.name,
        subtype: showing.subtype,
        is_attached: showing.is_attached,
        threads: THREADS,
    };
    let served = show(Arc::new(device), &options)?;
    end_on_signal(signals.0, served.ending());
    let path = served.loop_device().map_or_else(|| served.mountpoint().join("disk"), Path::to_path_buf);
    logging::serve(served.mountpoint().display().to_string(), background::is_served())?;
    if background::is_served() {
        background::report_ready()?;
    } else {
        print_path(&path)?;
    }
    tracing::info!("serving {}, {}", path.display(), options.source);
    Ok(served.wait()?)
}

/// Lines of a state as text, with the process that serves it and its loop device.
pub(crate) fn status_text(mut lines: Vec<(String, String)>, loop_device: Option<&Path>) -> String {
    lines.push(("process".to_owned(), std::process::id().to_string()));
    lines.extend(loop_device.map(|device| ("loop_device".to_owned(), device.display().to_string())));
    lines.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

pub(crate) fn print_path(path: &Path) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}

/// Error of the end of a shown device, with the mounts that are in the way of its loop device.
pub(crate) fn explain_end(error: LabError) -> anyhow::Error {
    let LabError::Detach { device, source } = &error else { return error.into() };
    if source.kind() != ErrorKind::ResourceBusy {
        return error.into();
    }
    let mounts = mount_table::read().unwrap_or_default().into_iter().filter(|mount| mount.source == *device);
    let places: Vec<String> = mounts.map(|mount| mount.mountpoint.display().to_string()).collect();
    let device = device.display();
    if places.is_empty() {
        return anyhow!(
            "{device} is in use by another program; `lsblk {device}` and `fuser -v {device}` tell by which"
        );
    }
    anyhow!("{device} is mounted on {}; unmount it first", places.join(" and "))
}

/// Ends a mount that shows a device when a signal asks us to go. While it is used it is served on; a second signal does not wait for that.
pub(crate) fn end_on_signal(mut signals: Signals, ending: Ending) {
    std::thread::spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            ending.end_by_force();
        }
        if arrived.next().is_some() {
            logging::end();
            std::process::exit(1);
        }
    });
}
