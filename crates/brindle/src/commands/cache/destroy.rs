//! `cache destroy`: takes a cache off its SSD.

use anyhow::{Result, bail};
use brindle_cache::{destroy, disk_mark, remove_mark};
use brindle_device::{FileDevice, open_device};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle cache destroy /dev/sda2

EXIT STATUS
  0  there is no cache any more
  1  it is in use, has dirty blocks, or there was none
  2  wrong usage";

/// Take a cache off its SSD
///
/// Refused while blocks are dirty: load the cache and stop it, and they are on the disk.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DestroyCommand {
    /// Destroy it with its dirty blocks, which are lost; or take the mark off a disk whose SSD is lost
    #[arg(short, long)]
    force: bool,
    /// The SSD; or, with --force, a disk whose SSD is lost
    ssd: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &DestroyCommand) -> Result<ExitCode> {
    if !command.force
        && let Some(mark) = disk_mark(&*open_device(&command.ssd)?)?
    {
        bail!(
            "{} is the disk of the cache {}, not its SSD; if the SSD is lost, --force takes the mark off",
            command.ssd.display(),
            mark.name
        );
    }
    if disk_mark(&*open_device(&command.ssd)?)?.is_some() {
        remove_mark(&FileDevice::open_writable(&command.ssd)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    destroy(&FileDevice::open_writable(&command.ssd)?, command.force)?;
    Ok(ExitCode::SUCCESS)
}
