//! `device rejoin`.

use crate::commands::device_change::{self, UnmountedPool};
use crate::commands::place::Loss;
use crate::options::JsonOption;
use anyhow::Result;
use brindle_admin::pool::Change;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device rejoin /dev/sdb /mnt
    brindle device rejoin disk1.img -o degraded --pool disk2.img

EXIT STATUS
  0    success
  1    failure; the pool is as it was, without the device
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; the same command goes on";

/// Take in again a device that was away while the pool was written without it
///
/// The pool is mounted, or opened, with -o degraded. The device is read; data that has the right checksums stays, everything
/// else is copied to it, or rebuilt, while files can be used. Until that is done the device is no part of the pool.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RejoinCommand {
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    unmounted: UnmountedPool,
    /// The device; and behind it, unless --pool is given, a directory of the mounted pool
    #[arg(required = true, value_name = "DEVICE PATH")]
    operands: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &RejoinCommand) -> Result<ExitCode> {
    let operands = &command.operands;
    let (devices, pool) = command.unmounted.with_operands(operands, "a DEVICE", operands, Loss::Accepted)?;
    let changes: Vec<_> = devices.iter().map(|path| Change::Rejoin { path: path.clone() }).collect();
    device_change::run(&*pool, &changes, command.json)
}
