//! `device add`.

use crate::commands::device_change::{self, UnmountedPool, refuse_member};
use crate::commands::device_word::{SaidClass, refuse_twice, split_said};
use crate::commands::place::Loss;
use crate::options::JsonOption;
use anyhow::Result;
use brindle_admin::pool::Change;
use brindle_care::device::AddOptions;
use brindle_policy::class::DeviceClasses;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  A fast device for a mounted pool, then whatever belongs on it:
    brindle device add /dev/nvme0n1:fast /mnt
    brindle tier apply /mnt

  A shingled disk, for the class of that name (`brindle tier class list`):
    brindle device add /dev/sdd:smr /mnt

  To a pool that is not mounted:
    brindle device add new.img --pool disk1.img disk2.img

  In place of a device that is missing:
    brindle device add new.img -o degraded --pool disk2.img
    brindle device remove missing -o degraded --pool disk2.img new.img

  In place of another device see `brindle device replace`, for one that was away
  `brindle device rejoin`.

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
/// hints, the others get hints of their present classes. DEVICE:NAME makes it one of a class that the pool lists
/// (`brindle tier class`). On a mount of the kernel, the kernel adds devices, and keeps no classes: such words are refused.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AddCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Add devices even if they hold something
    #[arg(short, long)]
    force: bool,
    /// Don't discard (TRIM) the space of the devices first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    #[command(flatten)]
    unmounted: UnmountedPool,
    /// Image files or block devices, each with :fast, :bulk or the name of a class behind it or without; and last, unless
    /// --pool is given, a directory of the mounted pool
    #[arg(required = true, value_name = "DEVICE[:CLASS]... PATH")]
    operands: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &AddCommand) -> Result<ExitCode> {
    let AddCommand { unmounted, operands, .. } = command;
    let (devices, pool) = unmounted.with_operands(operands, "a DEVICE", operands, Loss::Refused)?;
    let options = AddOptions { force: command.force, discard: !command.nodiscard };
    // What exists is a path, colon or not.
    let may_have_names = devices.iter().any(|word| !word.exists());
    let classes = if may_have_names { pool.classes()? } else { DeviceClasses::default() };
    let words = devices.iter().map(|word| split_said(word, &classes)).collect::<Result<Vec<_>>>()?;
    refuse_twice(words.iter().map(|(path, _)| path.as_path()))?;
    words.iter().try_for_each(|(path, _)| refuse_member(&*pool, path))?;
    let change = |(path, SaidClass { side, name }): (PathBuf, SaidClass)| Change::Add {
        path,
        class: side,
        class_name: name,
        options,
    };
    let changes: Vec<_> = words.into_iter().map(change).collect();
    device_change::run(&*pool, &changes, command.json)
}
