//! `device add`.

use crate::commands::device_change::{self, UnmountedPool, refuse_member};
use crate::commands::device_word::{refuse_twice, split_class};
use crate::options::JsonOption;
use anyhow::Result;
use brindle_admin::pool::Change;
use brindle_care::device::AddOptions;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  A fast device for a mounted pool, then whatever belongs on it:
    brindle device add /dev/nvme0n1:fast /mnt
    brindle tier apply /mnt

  To a pool that is not mounted:
    brindle device add new.img --pool disk1.img disk2.img

  In place of a device that is missing:
    brindle device add new.img -o degraded --pool disk2.img
    brindle device remove missing -o degraded --pool disk2.img new.img

  In place of another device see `brindle device replace`, for one that was away `brindle device rejoin`.

EXIT STATUS
  0  success
  1  failure; devices that were added before stay added
  2  wrong usage";

/// Add devices to a pool, mounted or not
///
/// Their contents are lost; a device that holds a known format, or is in use, is refused. New chunks may use them at once,
/// existing ones stay where they are until they are balanced (`brindle balance`, `brindle tier apply`).
///
/// DEVICE:fast and DEVICE:bulk give the class of a device, which the pool stores as an allocation hint; in a pool without
/// hints, the others get hints of their present classes. On a mount of the kernel, the kernel adds them, and keeps
/// no hints.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AddCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Add devices even if they hold something
    #[arg(short, long)]
    force: bool,
    /// Don't give back the space of the devices first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    #[command(flatten)]
    unmounted: UnmountedPool,
    /// Image files or block devices, each with :fast or :bulk behind it or without; and last, unless --pool is given, a
    /// directory of the mounted pool
    #[arg(required = true, value_name = "DEVICE[:CLASS]... PATH")]
    operands: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &AddCommand) -> Result<ExitCode> {
    let AddCommand { unmounted, operands, .. } = command;
    let (devices, pool) = unmounted.with_operands(operands, "a DEVICE")?;
    let options = AddOptions { force: command.force, discard: !command.nodiscard };
    let words = devices.iter().map(|word| split_class(word)).collect::<Result<Vec<_>>>()?;
    refuse_twice(words.iter().map(|(path, _)| path.as_path()))?;
    words.iter().try_for_each(|(path, _)| refuse_member(&*pool, path))?;
    let changes: Vec<_> =
        words.into_iter().map(|(path, class)| Change::Add { path, class, options }).collect();
    device_change::run(&*pool, &changes, command.json)
}
