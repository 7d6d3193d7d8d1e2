//! `brindle filesystem show`: what devices a pool has, in the shape of `btrfs filesystem show`.

use crate::cli::JsonOption;
use crate::commands::pool::open_pool;
use crate::format::{UnitMode, UnitOptions};
use crate::output;
use anyhow::Result;
use brindle_tree::Pool;
use brindle_volume::DeviceStatus;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  Which devices does a pool want, of which one is at hand?
    brindle filesystem show /dev/sdb

  The same for a program:
    brindle filesystem show --json a.img b.img

EXIT STATUS
  0  success, even if devices are missing
  1  a device can't be read, or so many are missing that the pool can't be
  2  wrong usage";

/// Show the label, UUID and devices of an unmounted pool
///
/// Devices that were not given are shown as missing.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    units: UnitOptions,
    #[command(flatten)]
    json: JsonOption,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &ShowCommand) -> Result<ExitCode> {
    let pool = open_pool(&command.devices)?;
    if command.json.json {
        output::print_json(&pool_json(&pool))?;
    } else {
        let mut out = output::stdout();
        print_pool(&mut out, &pool, command.units.mode())?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_pool(out: &mut dyn Write, pool: &Pool, units: UnitMode) -> io::Result<()> {
    let superblock = pool.superblock();
    write!(out, "Label: ")?;
    match superblock.label() {
        [] => write!(out, "none ")?,
        label => {
            write!(out, "'")?;
            out.write_all(label)?;
            write!(out, "' ")?;
        }
    }
    writeln!(out, " uuid: {}", superblock.fsid)?;
    let used = units.format(superblock.bytes_used.get());
    writeln!(out, "\tTotal devices {} FS bytes used {used}", superblock.num_devices)?;
    let (missing, present): (Vec<_>, Vec<_>) =
        pool.volume().devices().into_iter().partition(|device| device.missing);
    for DeviceStatus { devid, total_bytes, bytes_used, name, .. } in &present {
        let (size, used) = (units.format(*total_bytes), units.format(*bytes_used));
        writeln!(out, "\tdevid {:4} size {size} used {used} path {name}", devid.get())?;
    }
    for DeviceStatus { devid, total_bytes, bytes_used, uuid, .. } in &missing {
        let (size, used) = (units.format(*total_bytes), units.format(*bytes_used));
        writeln!(out, "\tdevid {:4} size {size} used {used} uuid {uuid} MISSING", devid.get())?;
    }
    if !missing.is_empty() {
        writeln!(out, "\t*** Some devices missing")?;
    }
    writeln!(out)
}

fn pool_json(pool: &Pool) -> Value {
    let superblock = pool.superblock();
    let devices = pool.volume().devices();
    let device = |device: &DeviceStatus| {
        json!({
            "devid": device.devid.get(),
            "uuid": device.uuid.to_string(),
            "path": (!device.missing).then_some(&device.name),
            "missing": device.missing,
            "seed": device.is_seed,
            "stale": device.is_stale,
            "rotating": device.is_rotating,
            "size_bytes": device.total_bytes,
            "used_bytes": device.bytes_used,
        })
    };
    json!({
        "label": String::from_utf8_lossy(superblock.label()),
        "uuid": superblock.fsid.to_string(),
        "generation": superblock.generation.get(),
        "total_devices": superblock.num_devices.get(),
        "total_bytes": superblock.total_bytes.get(),
        "used_bytes": superblock.bytes_used.get(),
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
    })
}
