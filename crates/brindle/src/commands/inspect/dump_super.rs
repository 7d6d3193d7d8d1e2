//! `brindle inspect dump-super`: superblocks, in the shape of `btrfs inspect-internal dump-super`.

use crate::dump::{print_superblock, superblock_json};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_cache::look_at_device;
use brindle_device::Device;
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  Where do the trees of a pool begin, and what are its system chunks?
    brindle inspect dump-super -f pool.img

  Do the three copies agree?
    brindle inspect dump-super -a --json /dev/sdb

EXIT STATUS
  0  every superblock asked for was shown
  1  a device can't be read, or holds no superblock there (see --force)
  2  wrong usage";

/// Show the superblocks of devices
///
/// Prints the first copy of each device's superblock unless told otherwise. Checksum and magic number are
/// compared and the result is shown, but neither must be right, except that without --force nothing is shown
/// of a place that lacks the magic number. Of a pool, those of the named devices alone are shown: each has its own.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DumpSuperCommand {
    /// Show the system chunks and the backup roots too
    #[arg(short, long)]
    full: bool,
    /// Show all copies, not the first only; a copy without the magic number is passed over
    #[arg(short, long, conflicts_with_all = ["copy", "bytenr"])]
    all: bool,
    /// Number of the copy to show: 0, 1 or 2
    #[arg(short = 's', long = "super", value_name = "N", conflicts_with = "bytenr",
          value_parser = clap::value_parser!(u8).range(0..=2))]
    copy: Option<u8>,
    /// Show the block even if the magic number is missing
    #[arg(short = 'F', long)]
    force: bool,
    /// Show the superblock at this offset of the device, in bytes
    #[arg(long, value_name = "OFFSET")]
    bytenr: Option<u64>,
    #[command(flatten)]
    json: JsonOption,
    /// Image files or block devices
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// One copy, as read.
struct Copy {
    device: String,
    offset: u64,
    superblock: Box<Superblock>,
}

/// Runs the command.
pub(crate) fn run(command: &DumpSuperCommand) -> Result<ExitCode> {
    if command.json.json {
        return run_json(command);
    }
    let mut out = output::stdout();
    for path in &command.devices {
        let device = look_at_device(path)?;
        for offset in offsets(command) {
            if let Some(copy) = read_copy(&*device, offset, command)? {
                writeln!(out, "superblock: bytenr={offset}, device={}", copy.device)?;
                writeln!(out, "---------------------------------------------------------")?;
                print_superblock(&mut out, &copy.superblock, command.full)?;
            } else {
                writeln!(out)?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn run_json(command: &DumpSuperCommand) -> Result<ExitCode> {
    let mut values = Vec::new();
    for path in &command.devices {
        let device = look_at_device(path)?;
        for offset in offsets(command) {
            if let Some(copy) = read_copy(&*device, offset, command)? {
                values.push(superblock_json(&copy.superblock, &copy.device, copy.offset, command.full));
            }
        }
    }
    output::print_json(&json!({ "superblocks": values }))?;
    Ok(ExitCode::SUCCESS)
}

/// The places to look at.
fn offsets(command: &DumpSuperCommand) -> Vec<u64> {
    match (command.all, command.bytenr, command.copy) {
        (true, ..) => SUPERBLOCK_OFFSETS.to_vec(),
        (_, Some(offset), _) => vec![offset],
        (_, None, copy) => vec![SUPERBLOCK_OFFSETS[usize::from(copy.unwrap_or(0))]],
    }
}

/// The copy at `offset`; none where the device ends before one of the usual places, or where there is nothing
/// and all copies were asked for.
fn read_copy(device: &dyn Device, offset: u64, command: &DumpSuperCommand) -> Result<Option<Copy>> {
    let end = offset.checked_add(to_u64(SUPERBLOCK_SIZE));
    let is_beyond_end = end.is_none_or(|end| end > device.size_bytes());
    if is_beyond_end && command.bytenr.is_none() && offset != SUPERBLOCK_OFFSETS[0] {
        return Ok(None);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(offset, &mut bytes).context("cannot read the superblock")?;
    let superblock = Superblock::from_bytes(&bytes);
    if superblock.has_magic() || command.force {
        return Ok(Some(Copy { device: device.name().to_owned(), offset, superblock }));
    }
    if command.all && offset != SUPERBLOCK_OFFSETS[0] {
        return Ok(None);
    }
    bail!("{}: no btrfs superblock at offset {offset}; use --force to show the block", device.name())
}
