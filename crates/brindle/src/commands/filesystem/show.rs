//! `brindle filesystem show`: what devices a pool has, in the shape of `btrfs filesystem show`.

use crate::cli::JsonOption;
use crate::commands::pool::{open_devices, open_pool};
use crate::format::{UnitMode, UnitOptions};
use crate::output;
use anyhow::Result;
use brindle_ondisk::Superblock;
use brindle_tree::TreeError;
use brindle_volume::{DeviceCounters, DeviceStatus, MissingDevice, OpenOptions, Volume, VolumeError};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  Which devices does a pool want, of which one is at hand?
    brindle filesystem show /dev/sdb

  The same for a program:
    brindle filesystem show --json a.img b.img

EXIT STATUS
  0  success, even if devices are missing
  1  a device can't be read, or holds no pool
  2  wrong usage";

/// Show the label, UUID and devices of an unmounted pool
///
/// Devices that were not given are shown as missing; so many may be that nothing but the superblocks of the
/// others can be read, and their own sizes are then not known.
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
    let shown = Shown::look(&command.devices)?;
    if command.json.json {
        output::print_json(&pool_json(&shown))?;
    } else {
        let mut out = output::stdout();
        print_pool(&mut out, &shown, command.units.mode())?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is shown of a pool.
struct Shown {
    superblock: Superblock,
    devices: Vec<DeviceStatus>,
}

impl Shown {
    /// Opens the pool; where so many devices are missing that it can't be opened, the superblocks of those that
    /// are there tell what they know.
    fn look(paths: &[PathBuf]) -> Result<Self> {
        let (volume, missing) = match open_pool(paths) {
            Ok(pool) => return Ok(Self::new(pool.volume())),
            Err(error) => match error.downcast::<TreeError>() {
                Ok(TreeError::Volume(VolumeError::MissingDevices { missing, .. })) => {
                    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
                    (Volume::open(open_devices(&paths)?, &OpenOptions::default())?, missing)
                }
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            },
        };
        let mut shown = Self::new(&volume);
        let is_known = |devices: &[DeviceStatus], missing: &MissingDevice| {
            devices.iter().any(|device| device.devid == missing.devid)
        };
        for missing in missing {
            if !is_known(&shown.devices, &missing) {
                shown.devices.push(unknown_device(&missing));
            }
        }
        Ok(shown)
    }

    fn new(volume: &Volume) -> Self {
        Self { superblock: volume.superblock().clone(), devices: volume.devices() }
    }
}

/// A device of which only the id is known.
fn unknown_device(missing: &MissingDevice) -> DeviceStatus {
    DeviceStatus {
        devid: missing.devid,
        uuid: missing.uuid,
        name: String::new(),
        total_bytes: 0,
        bytes_used: 0,
        missing: true,
        is_seed: false,
        is_stale: false,
        is_rotating: false,
        generation: None,
        counters: DeviceCounters::default(),
    }
}

fn print_pool(out: &mut dyn Write, shown: &Shown, units: UnitMode) -> io::Result<()> {
    let superblock = &shown.superblock;
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
    let (missing, present): (Vec<_>, Vec<_>) = shown.devices.iter().partition(|device| device.missing);
    for DeviceStatus { devid, total_bytes, bytes_used, name, .. } in present {
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

fn pool_json(shown: &Shown) -> Value {
    let Shown { superblock, devices } = shown;
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
