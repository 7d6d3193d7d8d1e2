//! `brindle filesystem show`: what devices a pool has, in the shape of `btrfs filesystem show`.

use crate::commands::health::{self, AllHealth, Health};
use crate::commands::holder;
use crate::commands::in_use::warn_if_used;
use crate::commands::no_pool::without_pool;
use crate::commands::pool::{log_devices, look_at_devices, open_mounted_pool, warn_of_missing};
use crate::commands::silent::answering;
use crate::commands::status::gather::in_a_row;
use crate::damage;
use crate::format::{UnitMode, UnitOptions};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Error, Result, anyhow, bail};
use brindle_admin::health::{FoundPool, btrfs_devices, on_block_devices, on_devices, on_mounts};
use brindle_admin::{AdminError, ControlError, Mounted, Reach, Uuid};
use brindle_cache::{is_no_path, look_at_device};
use brindle_care::device::LeaseFound;
use brindle_fs::AllocationHint;
use brindle_ondisk::{Generation, Item, Node, NodeExpectation, Superblock};
use brindle_tree::{Pool, TreeError, TreeRoot};
use brindle_uapi::message::text;
use brindle_volume::{DeviceCounters, DeviceStatus, MissingDevice, OpenOptions, Volume, VolumeError};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
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

/// Show the label, UUID and devices of pools
///
/// Without an operand, all pools that are mounted or lie on block devices. A directory stands for the pool that is mounted
/// there, as of its last commit: `brindle filesystem usage` tells of space as of now. A block device stands for its pool, of
/// which the other block devices are found; image files are those that are named.
///
/// Devices that were not given are shown as missing, and so are those of a mounted pool that can't be opened any
/// more. With too many missing, or with a damaged chunk tree, only the superblocks of the others can be read: the
/// sizes of missing devices are then `unknown` (null with --json) as far as the chunk tree can't tell them.
///
/// A system that holds the pool by a lease is named, be it this machine or another.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Only mounted pools
    #[arg(short, long, conflicts_with_all = ["all_devices", "places"])]
    mounted: bool,
    /// Only pools on block devices that are not mounted
    #[arg(short = 'd', long, conflicts_with = "places")]
    all_devices: bool,
    /// Image files or block devices: those of one pool, in any order; a directory of a mounted pool; or a label or UUID
    #[arg(value_name = "DEVICE|PATH|UUID|LABEL")]
    places: Vec<PathBuf>,
    // Last, for its heading would hold for what follows.
    #[command(flatten)]
    units: UnitOptions,
}

/// Runs the command.
pub(crate) fn run(command: &ShowCommand) -> Result<ExitCode> {
    let shown = match command.places.as_slice() {
        [] => find(!command.all_devices, !command.mounted, |_| true)?,
        [name] if !name.exists() && !is_no_path(name) => by_name(name)?,
        [device] if is_block_device(device) => vec![of_block_device(device)?],
        places => vec![Shown::of_places(places)?],
    };
    if command.json.json {
        let pools: Vec<Value> = shown.iter().map(pool_json).collect();
        output::print_json(&json!({ "pools": pools }))?;
    } else {
        let mut out = output::stdout();
        shown.iter().try_for_each(|shown| print_pool(&mut out, shown, command.units.mode()))?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All pools: of mounts, and of block devices that are not mounted. One that can't be looked at is told, and not shown.
fn find(mounted: bool, unmounted: bool, is_wanted: impl Fn(&FoundPool) -> bool) -> Result<Vec<Shown>> {
    let on_mounts = on_mounts(answering());
    let on_devices = if unmounted { on_block_devices(&on_mounts) } else { Vec::new() };
    let on_mounts = on_mounts.into_iter().filter(|_| mounted);
    let look = |pool: FoundPool| match pool {
        FoundPool::Mounted(reach, _) => reach.mounted().map(Shown::of_mount),
        FoundPool::Devices(_, paths) => Some(Shown::look(&paths, warn_of_missing)),
        FoundPool::ServerGone(places) => Some(Err(anyhow!("{}: its server has ended", in_a_row(&places)))),
        FoundPool::Closed(path, error) => Some(Err(Error::new(error).context(path.display().to_string()))),
    };
    let looked = on_mounts.chain(on_devices).filter(is_wanted).filter_map(look);
    Ok(looked.filter_map(|shown| shown.inspect_err(output::complain).ok()).collect())
}

/// The pools of a label or UUID.
fn by_name(name: &Path) -> Result<Vec<Shown>> {
    let bytes = name.as_os_str().as_bytes();
    let uuid = name.to_str().and_then(Uuid::parse);
    let is_meant = |fsid: &Uuid, label: &[u8]| uuid.as_ref() == Some(fsid) || label == bytes;
    // Of another pool it does not matter that it can't be looked at.
    let may_be_meant = |pool: &FoundPool| match pool {
        FoundPool::Mounted(reach, _) => reach.mounted().is_none_or(|mounted| {
            let named = reach.fsid().ok().flatten().zip(mounted.label().ok());
            named.is_none_or(|(fsid, label)| is_meant(&fsid, &label))
        }),
        FoundPool::Devices(..) => true,
        FoundPool::ServerGone(_) | FoundPool::Closed(..) => false,
    };
    let mut found = find(true, true, may_be_meant)?;
    found.retain(|shown| is_meant(&shown.superblock.fsid, shown.superblock.label()));
    if found.is_empty() {
        if let Some(ended) = ControlError::of_dead_mount(name) {
            return Err(ended.into());
        }
        bail!("{}: no such file, and no pool of this label or UUID", name.display());
    }
    Ok(found)
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The pool of a block device: the mount that has it, or all block devices of the pool.
fn of_block_device(device: &PathBuf) -> Result<Shown> {
    match on_devices(std::slice::from_ref(device), &answering())?.into_iter().next() {
        Some(FoundPool::Mounted(reach, _)) if reach.mounted().is_some() => {
            Shown::of_mount(reach.mounted().expect("just seen"))
        }
        Some(FoundPool::Devices(fsid, _)) => {
            let others = btrfs_devices().into_iter().filter(|(_, identity)| identity.fsid == fsid);
            let mut devices = vec![device.clone()];
            let is_other = |path: &PathBuf| path.canonicalize().ok() != device.canonicalize().ok();
            devices.extend(others.map(|(path, _)| path).filter(is_other));
            Shown::of_places(&devices)
        }
        _ => Shown::of_places(std::slice::from_ref(device)),
    }
}

/// Facts of a pool that are shown.
struct Shown {
    superblock: Superblock,
    devices: Vec<DeviceStatus>,
    health: AllHealth,
    /// The system that holds it by a lease.
    holder: Option<LeaseFound>,
}

impl Shown {
    /// The pool of a directory, or of devices.
    fn of_places(places: &[PathBuf]) -> Result<Self> {
        let reach = match Reach::of(places) {
            // A directory among devices is named as the one that cannot be opened.
            Err(AdminError::Mixed) => Reach::Devices(places.to_vec()),
            reach => reach?,
        };
        if let Some(mounted) = reach.mounted() {
            return Self::of_mount(mounted);
        }
        // Devices that can't be told by their superblocks are told of when they are looked at.
        if let Some(FoundPool::Mounted(reach, _)) = on_devices(places, &answering()).ok().and_then(one) {
            if let Some(mounted) = reach.mounted() {
                return Self::of_mount(mounted);
            }
        }
        let shown = Self::look(places, warn_of_missing)?;
        let names: Vec<String> = shown.devices.iter().map(|device| device.name.clone()).collect();
        warn_if_used(&shown.superblock.fsid, &names);
        Ok(shown)
    }

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
            match look_at_device(&path) {
                Ok(_) => there.push(path.clone()),
                Err(error) => {
                    failed.get_or_insert((info.devid, error));
                }
            }
            names.insert(info.devid, path.to_string_lossy().into_owned());
        }
        let place = mounted.path().display();
        match failed {
            Some((_, error)) if there.is_empty() => return Err(Error::new(error).context(place.to_string())),
            Some((devid, error)) => tracing::warn!("{place}: devid {devid}: {error}"),
            None => {}
        }
        // The list has those that are missing, and nothing was named.
        let mut shown = Self { health, ..Self::look(&there, |_| ())? };
        for device in shown.devices.iter_mut().filter(|device| device.missing) {
            device.name = names.remove(&device.devid.get()).unwrap_or_default();
        }
        Ok(shown)
    }

    /// Opens the pool, without a word if others write it; where that fails, the superblocks of the devices that are there, and what can be read of the
    /// chunk tree, tell what they know.
    fn look(paths: &[PathBuf], warn: impl Fn(&Volume)) -> Result<Self> {
        let error = match open_mounted_pool(paths) {
            Ok(pool) => {
                warn(pool.volume());
                return Ok(Self::of_pool(&pool));
            }
            Err(error) => error.downcast::<TreeError>()?,
        };
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let volume = Volume::open(look_at_devices(&paths)?, &OpenOptions::default()).map_err(without_pool)?;
        add_devices(&volume);
        warn(&volume);
        log_devices(&volume);
        let mut shown = Self::new(&volume);
        let TreeError::Volume(VolumeError::MissingDevices { missing, .. }) = error else {
            damage::note(&error);
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

    /// A pool whose chunks are known, with the errors of its devices if the tree that has them can be read.
    fn of_pool(pool: &Pool) -> Self {
        let plain = Self::new(pool.volume());
        match health::of_pool(pool) {
            Ok(health) => Self { health, ..plain },
            // The list says which devices are missing.
            Err(error) if error.downcast_ref().is_some_and(TreeError::lacks_devices) => plain,
            Err(error) => {
                damage::note(&*error);
                tracing::warn!("the errors of devices are unknown: {error}");
                plain
            }
        }
    }

    fn new(volume: &Volume) -> Self {
        let mut devices = volume.devices();
        devices.iter_mut().filter(|device| device.missing).for_each(|device| device.name.clear());
        let health = devices.iter().map(|device| (device.devid.get(), Health::of_status(device))).collect();
        let names = devices.iter().filter(|device| !device.missing).map(|device| Path::new(&device.name));
        let holder = holder::holder_of(names);
        Self { superblock: Superblock::clone(&volume.superblock()), devices, health, holder }
    }
}

/// The pool that all of the devices belong to.
fn one(pools: Vec<FoundPool>) -> Option<FoundPool> {
    let [pool] = <[FoundPool; 1]>::try_from(pools).ok()?;
    Some(pool)
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
            if let Ok(Item::Device(device)) = Item::parse(&key, data) {
                if let Err(error) = volume.add_device(device) {
                    tracing::warn!("{error}");
                }
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
        absent_since: None,
        placed_in: Generation::new(0),
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
    if let Some(found) = &shown.holder {
        writeln!(out, "\tHeld by {}", holder::in_words(found))?;
    }
    writeln!(out)
}

fn pool_json(shown: &Shown) -> Value {
    let Shown { superblock, devices, health, holder } = shown;
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
            "total_bytes": sizes(device).map(|(size, _)| size),
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
        "holder": holder.as_ref().map(holder::as_json),
    })
}
