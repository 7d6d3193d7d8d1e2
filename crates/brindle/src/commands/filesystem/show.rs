//! `brindle filesystem show`: what devices a pool has, in the shape of `btrfs filesystem show`.

use crate::cli::JsonOption;
use crate::commands::health::{self, AllHealth, Health};
use crate::commands::in_use::warn_if_used;
use crate::commands::pool::{log_devices, open_devices, open_mounted_pool, without_pool};
use crate::format::{UnitMode, UnitOptions};
use crate::output;
use anyhow::Result;
use brindle_admin::{AdminError, Mounted, Reach};
use brindle_device::open_device;
use brindle_fs::AllocationHint;
use brindle_ondisk::{Item, Node, NodeExpectation, Superblock};
use brindle_tree::{TreeError, TreeRoot};
use brindle_uapi::message::text;
use brindle_volume::{DeviceCounters, DeviceStatus, MissingDevice, OpenOptions, Volume, VolumeError};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
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

/// Show the label, UUID and devices of a pool
///
/// A directory stands for the pool that is mounted there, as of its last commit: `brindle filesystem usage` tells of space
/// as of now.
///
/// Devices that were not given are shown as missing, and so are those of a mounted pool that can't be opened any
/// more. With too many missing, or with a damaged chunk tree, only the superblocks of the others can be read: the
/// sizes of missing devices are then `unknown` (null with --json) as far as the chunk tree can't tell them.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Image files or block devices: those of one pool, in any order; or a directory of a mounted pool
    #[arg(required = true, value_name = "DEVICE|PATH")]
    devices: Vec<PathBuf>,
    // Last, for its heading would hold for what follows.
    #[command(flatten)]
    units: UnitOptions,
}

/// Runs the command.
pub(crate) fn run(command: &ShowCommand) -> Result<ExitCode> {
    let reach = match Reach::of(&command.devices) {
        // A directory among devices is named as the one that cannot be opened.
        Err(AdminError::Mixed) => Reach::Devices(command.devices.clone()),
        reach => reach?,
    };
    let shown = match reach.mounted() {
        Some(mounted) => Shown::of_mount(mounted)?,
        None => {
            let shown = Shown::look(&command.devices)?;
            let names: Vec<String> = shown.devices.iter().map(|device| device.name.clone()).collect();
            warn_if_used(&shown.superblock.fsid, &names);
            shown
        }
    };
    if command.json.json {
        output::print_json(&pool_json(&shown))?;
    } else {
        let mut out = output::stdout();
        print_pool(&mut out, &shown, command.units.mode())?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Facts of a pool that are shown.
struct Shown {
    superblock: Superblock,
    devices: Vec<DeviceStatus>,
    health: AllHealth,
}

impl Shown {
    /// The pool that is mounted here. Devices that can't be opened any more are shown as missing, by the names that the
    /// mount has of them.
    fn of_mount(mounted: &Mounted) -> Result<Self> {
        let health = health::of_mounted(mounted)?;
        let (mut names, mut there, mut failed) = (BTreeMap::new(), Vec::new(), None);
        for info in mounted.device_infos()? {
            let path = PathBuf::from(OsStr::from_bytes(text(&info.path)));
            if path.as_os_str().is_empty() {
                continue;
            }
            match open_device(&path) {
                Ok(_) => there.push(path.clone()),
                Err(error) => {
                    tracing::warn!("devid {}: {error}", info.devid);
                    failed.get_or_insert(error);
                }
            }
            names.insert(info.devid, path.to_string_lossy().into_owned());
        }
        if let Some(error) = failed.filter(|_| there.is_empty()) {
            return Err(error.into());
        }
        let mut shown = Self { health, ..Self::look(&there)? };
        for device in shown.devices.iter_mut().filter(|device| device.missing) {
            device.name = names.remove(&device.devid.get()).unwrap_or_default();
        }
        Ok(shown)
    }

    /// Opens the pool, without a word if others write it; where that fails, the superblocks of the devices that are there, and what can be read of the
    /// chunk tree, tell what they know.
    fn look(paths: &[PathBuf]) -> Result<Self> {
        let error = match open_mounted_pool(paths) {
            Ok(pool) => return Ok(Self { health: health::of_pool(&pool)?, ..Self::new(pool.volume()) }),
            Err(error) => error.downcast::<TreeError>()?,
        };
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let volume = Volume::open(open_devices(&paths)?, &OpenOptions::default()).map_err(without_pool)?;
        add_devices(&volume);
        log_devices(&volume);
        let mut shown = Self::new(&volume);
        let TreeError::Volume(VolumeError::MissingDevices { missing, .. }) = error else {
            tracing::warn!("the pool can't be opened: {error}");
            return Ok(shown);
        };
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
        let devices = volume.devices();
        let health = devices.iter().map(|device| (device.devid.get(), Health::of_status(device))).collect();
        Self { superblock: Superblock::clone(&volume.superblock()), devices, health }
    }
}

/// Adds the devices that the chunk tree knows, as far as it can be read.
fn add_devices(volume: &Volume) {
    let context = volume.tree_context();
    let root = TreeRoot::chunk_tree(&volume.superblock());
    let mut pending = vec![NodeExpectation::root(root.bytenr, root.generation, root.level)];
    while let Some(expected) = pending.pop() {
        let check = |bytes: _| Node::check(bytes, context, &expected);
        let Ok(node) = volume.read_block(expected.bytenr, context.nodesize, check) else { continue };
        pending.extend(node.key_ptrs().iter().map(|pointer| NodeExpectation::child(pointer, node.level())));
        for (key, data) in (0..node.len()).filter_map(|slot| node.item(slot)) {
            if let Ok(Item::Device(device)) = Item::parse(&key, data)
                && let Err(error) = volume.add_device(device)
            {
                tracing::warn!("{error}");
            }
        }
    }
}

/// Size and use of a device, in bytes; of one that is missing they may not be known.
fn sizes(device: &DeviceStatus) -> Option<(u64, u64)> {
    (!device.missing || device.total_bytes > 0).then_some((device.total_bytes, device.bytes_used))
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
        is_asleep: false,
        is_behind: false,
        is_incomplete: false,
        is_rotating: false,
        hint: AllocationHint::default(),
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
    for device in present.iter().chain(&missing) {
        let unknown = || ("unknown".to_owned(), "unknown".to_owned());
        let format = |(size, used)| (units.format(size), units.format(used));
        let (size, used) = sizes(device).map_or_else(unknown, format);
        write!(out, "\tdevid {:4} size {size} used {used} ", device.devid.get())?;
        match (device.missing, device.name.as_str()) {
            (false, name) => writeln!(out, "path {name}")?,
            (true, "") => writeln!(out, "uuid {} MISSING", device.uuid)?,
            (true, name) => writeln!(out, "path {name} MISSING")?,
        }
    }
    let is_incomplete = brindle_ondisk::to_u64(shown.devices.len()) < superblock.num_devices.get();
    if is_incomplete || !missing.is_empty() {
        writeln!(out, "\t*** Some devices missing")?;
    }
    // Those that are missing are in the list already.
    let mut health = shown.health.clone();
    health.retain(|_, health| !health.is_missing());
    health::print(out, &health, "\t*** ")?;
    writeln!(out)
}

fn pool_json(shown: &Shown) -> Value {
    let Shown { superblock, devices, health } = shown;
    let device = |device: &DeviceStatus| {
        json!({
            "devid": device.devid.get(),
            "uuid": device.uuid.to_string(),
            "path": (!device.name.is_empty()).then_some(&device.name),
            "missing": device.missing,
            "seed": device.is_seed,
            "stale": device.is_stale,
            "rotating": device.is_rotating,
            "health": health.get(&device.devid.get()).map(Health::json),
            "size_bytes": sizes(device).map(|(size, _)| size),
            "used_bytes": sizes(device).map(|(_, used)| used),
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
