//! `device ready`: all devices of a pool are there, or not.

use anyhow::Result;
use brindle_admin::health::{Search, members};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device ready /dev/sdb && mount /srv/pool

EXIT STATUS
  0  all devices are there
  1  some are missing, or the device is of no pool
  2  wrong usage";

/// Tell if all devices of a pool are there
///
/// The others are looked for among the block devices of the machine, as mount(8) does for `mount -t fuse.brindle`. udev asks
/// this, and systemd waits for all devices of a pool before it mounts it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ReadyCommand {
    /// Print the answer as a property for udev, and succeed in any case
    #[arg(long)]
    udev: bool,
    /// A device of the pool
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &ReadyCommand) -> Result<ExitCode> {
    let members = members(std::slice::from_ref(&command.device), &[], Search::WhereIncomplete)?;
    let is_ready = members.is_complete();
    let mut out = std::io::stdout().lock();
    if command.udev {
        writeln!(out, "ID_BRINDLE_READY={}", u8::from(is_ready))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !is_ready {
        writeln!(out, "{} of {} devices are there", members.found, members.expected)?;
    }
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
