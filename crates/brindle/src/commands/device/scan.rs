//! `device scan`: devices made known to the kernel, which finds the members of a pool among them.

use crate::output;
use anyhow::Result;
use brindle_admin::health::btrfs_devices;
use brindle_admin::registry::Registry;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device scan
    brindle device scan /dev/sdb /dev/sdc
    brindle device scan --forget /dev/sdb

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Make devices known to the kernel, so that it can mount their pools
///
/// Without a device all block devices with btrfs on them. Mounts of brindle need none of it: they look at the devices
/// themselves.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ScanCommand {
    /// Look at all devices, as is done anyway
    #[arg(short = 'd', long, conflicts_with = "devices")]
    all_devices: bool,
    /// Make the kernel forget the devices, or without any all that are not mounted
    #[arg(short = 'u', long, conflicts_with = "all_devices")]
    forget: bool,
    /// Block device
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs `device scan`.
pub(super) fn scan(command: &ScanCommand, is_quiet: bool) -> Result<ExitCode> {
    let registry = Registry::open()?;
    if command.forget {
        if command.devices.is_empty() {
            registry.forget(None)?;
        }
        command.devices.iter().try_for_each(|device| registry.forget(Some(device)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_named = !command.devices.is_empty();
    let devices = match is_named {
        true => command.devices.clone(),
        false => btrfs_devices().into_iter().map(|(path, _)| path).collect(),
    };
    let (mut out, mut code) = (output::stdout(), ExitCode::SUCCESS);
    for device in &devices {
        match registry.scan(device) {
            Ok(()) if is_quiet => {}
            Ok(()) => writeln!(out, "registered: {}", device.display())?,
            Err(error) => {
                output::complain(&error.into());
                code = ExitCode::FAILURE;
            }
        }
    }
    out.flush()?;
    Ok(code)
}
