//! `device remove`.

use crate::commands::device_change::{self, UnmountedPool, leaving};
use crate::commands::place::Loss;
use crate::options::JsonOption;
use anyhow::Result;
use brindle_admin::pool::Change;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device remove /dev/sdb /mnt
    brindle device remove 3 --pool disk1.img disk2.img disk3.img
    brindle device remove missing -o degraded --pool disk1.img disk2.img

EXIT STATUS
  0    success
  1    failure; what was moved stays moved, the device stays in the pool, and
       the pool is whole
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; the same command goes on";

/// Remove devices from a pool, mounted or not
///
/// What lies on a device is moved to the others first, block group by block group, while files can be used; then the
/// device leaves, and its superblocks are made unrecognisable. Whatever ends it before that, a crash too, leaves a
/// whole pool with the device still in it, and the same command goes on.
///
/// Refused if fewer devices would be left than a profile in use needs. A missing device is removed too: its contents
/// are rebuilt from the others.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, visible_alias = "delete")]
pub(crate) struct RemoveCommand {
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    unmounted: UnmountedPool,
    /// Devices by path or id, or `missing` for the first that is; and last, unless --pool is given, a directory of the
    /// mounted pool
    #[arg(required = true, value_name = "DEVICE|DEVID|missing... PATH")]
    operands: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &RemoveCommand) -> Result<ExitCode> {
    let RemoveCommand { unmounted, operands, .. } = command;
    let (words, pool) = unmounted.with_operands(operands, "a device", &[], Loss::Refused)?;
    let change = |word: &PathBuf| Ok(Change::Remove(leaving(&*pool, word)?));
    let changes = words.iter().map(change).collect::<Result<Vec<_>>>()?;
    device_change::run(&*pool, &changes, command.json)
}
