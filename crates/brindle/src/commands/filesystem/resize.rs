//! `filesystem resize`.

use crate::commands::device_change;
use crate::commands::place::{Loss, administer_devices, administer_reached};
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use crate::options::JsonOption;
use anyhow::{Context, Result};
use brindle_admin::DevId;
use brindle_admin::Reach;
use brindle_admin::pool::Change;
use brindle_care::device::NewSize;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem resize 2:-10G /mnt
    truncate -s +1G disk.img && brindle filesystem resize max disk.img

EXIT STATUS
  0    success
  1    failure; what was moved stays moved, the device has the size that it had,
       and the pool is whole
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; the same command goes on";

/// Have a pool use more or less of one of its devices, mounted or not
///
/// The device itself stays as it is: it is to be made larger before, or smaller after. To shrink, everything after
/// the new end is moved first, while files remain usable; an interrupted command leaves the size as it was.
/// A device is not shrunk below 256 MiB.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ResizeCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Device (1 by default), and new size: SIZE, with or without a suffix K, M, G, T, P or E; +SIZE or -SIZE to add
    /// or remove that amount; max for all of the device
    #[arg(value_name = "[DEVID:]SIZE", allow_hyphen_values = true)]
    size: String,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &ResizeCommand) -> Result<ExitCode> {
    if command.size == "--enqueue" {
        return wrong_usage("--enqueue of btrfs: a resize begins at once, or says what runs".to_owned());
    }
    let (devid, size) = match command.size.split_once(':') {
        Some((devid, size)) => {
            (devid.parse().with_context(|| format!("'{devid}' is no device id")).or_wrong_usage()?, size)
        }
        None => (1, command.size.as_str()),
    };
    let size: NewSize = size.parse().with_context(|| format!("'{size}' is no size")).or_wrong_usage()?;
    let pool = match Reach::of(&command.paths)? {
        Reach::Devices(paths) => administer_devices(&paths, &[], &[], Loss::Refused)?,
        mount => administer_reached(mount)?,
    };
    device_change::run(&*pool, &[Change::Resize(DevId::new(devid), size)], command.json)
}
