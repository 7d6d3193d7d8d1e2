//! `cache destroy`: takes a cache off its SSD.

use anyhow::Result;
use brindle_cache::destroy;
use brindle_device::FileDevice;
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
    /// Destroy it with its dirty blocks, which are lost
    #[arg(short, long)]
    force: bool,
    /// The SSD
    ssd: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &DestroyCommand) -> Result<ExitCode> {
    destroy(&FileDevice::open_writable(&command.ssd)?, command.force)?;
    Ok(ExitCode::SUCCESS)
}
