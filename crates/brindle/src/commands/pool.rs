//! Common options of commands that read a pool: the devices, the options that choose within it, and opening it.

use crate::commands::companions::{with_others, with_wanted};
use crate::commands::device_word::{refuse_twice, with_those_of_options};
use crate::commands::examination_bar::Bar;
use crate::commands::holder::holder_of;
use crate::commands::in_use::{name_served, warn_if_used, writer_of};
use crate::commands::mount_options::MountOptions;
use crate::commands::no_pool::{explain_open, without_pool};
use crate::commands::usage::wrong_usage;
use anyhow::{Result, anyhow};
use brindle_admin::health::images_beside;
use brindle_cache::{look_at_device, open_pool_device};
use brindle_device::{Device, WritableDevice};
use brindle_fs::{Filesystem, FsError, OpenOptions, WriteOptions};
use brindle_ondisk::{DevId, RootId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, Uuid, to_u64};
use brindle_rescue::chunks::overlaid;
use brindle_rescue::{RescueError, Step};
use brindle_tree::{Pool, TreeError};
use brindle_volume::{DeviceStatus, LEASE_INTERVAL, UnusedDevice, UnusedReason, Volume, VolumeError};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Part of a pool, and tolerated faults.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct PoolOptions {
    /// Enter by the subvolume at this path from the top level
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid", help_heading = "Pool")]
    subvol: Option<PathBuf>,
    /// Enter by the subvolume of this id; 5 is the top level
    #[arg(long, alias = "root", value_name = "ID", help_heading = "Pool")]
    subvolid: Option<u64>,
    /// Comma-separated: degraded (go on without missing devices; degraded=named: without all others), rescue=WORDS (read a damaged pool: see brindle mount
    /// --help), nologreplay (show the last commit, without later fsyncs), subvol=PATH, subvolid=ID, device=PATH
    #[arg(short, long = "options", value_name = "OPTIONS", help_heading = "Pool")]
    options: Vec<String>,
}

impl PoolOptions {
    /// Options of a command that has other letters for them.
    pub(crate) fn new(subvol: Option<PathBuf>, subvolid: Option<u64>, options: Vec<String>) -> Self {
        Self { subvol, subvolid, options }
    }

    /// Returns true if there is one.
    pub(crate) fn is_given(&self) -> bool {
        self.subvol.is_some() || self.subvolid.is_some() || !self.options.is_empty()
    }

    /// Opens the filesystem on `devices` with what its log says, and logs its warnings.
    pub(crate) fn open(&self, devices: &[PathBuf]) -> Result<Filesystem> {
        let mut options = MountOptions::parse(&self.options)?;
        if let Some(option) = options.first_of_mount() {
            return wrong_usage(format!(
                "unknown option '{option}': here -o takes degraded, rescue=WORDS, nologreplay, subvol=PATH, \
                 subvolid=ID and device=PATH"
            ));
        }
        let named = all_named(devices, &options)?;
        let paths: Vec<&Path> = named.iter().map(PathBuf::as_path).collect();
        if let Some(path) = &self.subvol {
            options.subvol = Some(path.as_os_str().as_bytes().to_vec());
        }
        options.subvolid = self.subvolid.map(RootId::new).or(options.subvolid);
        open_shown(&paths, &options)
    }
}

/// Opens a filesystem, and logs its warnings.
pub(crate) fn open_filesystem(paths: &[&Path], mount: &MountOptions) -> Result<Filesystem> {
    let filesystem = open_to_read(paths, mount)?;
    greet(&filesystem, mount)?;
    Ok(filesystem)
}

/// Opens a filesystem, without a word.
pub(crate) fn open_to_read(paths: &[&Path], mount: &MountOptions) -> Result<Filesystem> {
    Filesystem::open(open_to_look(paths, mount)?, &open_options(mount)).map_err(|error| explain(error, paths))
}

/// Opens a filesystem to show it, and logs its warnings. A log is replayed in memory, and stays on the devices; where that can't
/// be done, or others write the pool, the last commit is shown.
pub(crate) fn open_shown(paths: &[&Path], mount: &MountOptions) -> Result<Filesystem> {
    let filesystem = open_to_read(paths, mount)?;
    // A replay trusts what it has read, and that may change meanwhile.
    if !filesystem.pool().has_log() || mount.keeps_log() || is_written(filesystem.pool().volume()) {
        greet(&filesystem, mount)?;
        return Ok(filesystem);
    }
    drop(filesystem);
    match open_replayed(paths, mount) {
        Ok(filesystem) => {
            tracing::info!("the log is replayed in memory, and stays on the devices");
            Ok(filesystem)
        }
        Err(error) => {
            tracing::warn!("the log is not replayed: {error}");
            open_filesystem(paths, mount)
        }
    }
}

fn open_replayed(paths: &[&Path], mount: &MountOptions) -> Result<Filesystem> {
    let write = mount.write.for_filesystem();
    let filesystem = Filesystem::open_replayed(open_devices(paths)?, &open_options(mount), &write)
        .map_err(|error| explain(error, paths))?;
    greet(&filesystem, mount)?;
    Ok(filesystem)
}

/// Opens a filesystem to write it, and logs its warnings.
pub(crate) fn open_writable(
    devices: Vec<Arc<dyn WritableDevice>>,
    mount: &MountOptions,
) -> Result<Filesystem> {
    open_written(devices, mount, Filesystem::open_writable)
}

/// The same, which ends a replacement that the kernel was interrupted in.
pub(crate) fn open_ending_replacement(
    devices: Vec<Arc<dyn WritableDevice>>,
    mount: &MountOptions,
) -> Result<Filesystem> {
    open_written(devices, mount, Filesystem::open_ending_replacement)
}

fn open_written(
    devices: Vec<Arc<dyn WritableDevice>>,
    mount: &MountOptions,
    open: impl FnOnce(Vec<Arc<dyn WritableDevice>>, &OpenOptions, &WriteOptions) -> Result<Filesystem, FsError>,
) -> Result<Filesystem> {
    let write = mount.write.for_filesystem();
    let names: Vec<String> = devices.iter().map(|device| device.name().to_owned()).collect();
    let filesystem = open(devices, &open_options(mount), &write).map_err(|error| {
        let names: Vec<&Path> = names.iter().map(Path::new).collect();
        explain(error, &names)
    })?;
    greet(&filesystem, mount)?;
    Ok(filesystem)
}

fn open_options(mount: &MountOptions) -> OpenOptions {
    let mut options = OpenOptions { subvolume: mount.subvolume(), ..Default::default() };
    options.pool.volume.degraded = mount.degraded;
    options.pool.volume.accepts_loss = mount.accepts_loss;
    options.pool.volume.lease.mode = mount.lease.mode;
    options.pool.volume.lease.interval = mount.lease.interval.unwrap_or(LEASE_INTERVAL);
    options.pool.volume.rescue = mount.rescue;
    options.pool.cache_bytes = mount.metadata_bytes.unwrap_or(options.pool.cache_bytes);
    options
}

/// Devices that were named, by operands and by options; and the others of their pool that are found.
pub(crate) fn all_named(devices: &[PathBuf], options: &MountOptions) -> Result<Vec<PathBuf>> {
    let named = with_those_of_options(devices, &options.devices);
    refuse_twice(named.iter().map(PathBuf::as_path))?;
    Ok(with_wanted(&named, options))
}

/// The error of a pool that lacks devices which lie beside those that were named; `None` for another one.
pub(crate) fn explain_missing(error: &VolumeError, named: &[&Path]) -> Option<anyhow::Error> {
    let VolumeError::MissingDevices { missing, unused, .. } = error else { return None };
    let wanted: Vec<(DevId, Uuid)> = missing.iter().map(|device| (device.devid, device.uuid)).collect();
    let beside = images_beside(named, &wanted);
    if !wanted.iter().all(|(devid, _)| beside.iter().any(|(found, _)| found == devid)) {
        return None;
    }
    let words = |(devid, path): &(DevId, PathBuf)| format!("devid {devid} ({})", path.display());
    let mut text = format!(
        "missing {}: name all devices of the pool",
        beside.iter().map(words).collect::<Vec<_>>().join(", ")
    );
    if !unused.is_empty() {
        let unused: Vec<String> = unused.iter().map(ToString::to_string).collect();
        text += &format!("; given, and not used: {}", unused.join(", "));
    }
    Some(anyhow!(text))
}

/// The error of a repair: of a pool that lacks devices, that a repair takes all of them, and the commands that do without.
pub(crate) fn explain_incomplete(error: RescueError, named: &[&Path]) -> anyhow::Error {
    let (RescueError::Volume(of_volume) | RescueError::Tree(TreeError::Volume(of_volume))) = &error else {
        return error.into();
    };
    if let Some(explained) = explain_missing(of_volume, named) {
        return explained;
    }
    let VolumeError::MissingDevices { missing, .. } = of_volume else { return error.into() };
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    anyhow!(
        "missing {}: a repair takes all devices of the pool; without them `brindle check -o degraded` examines the rest, and \
         `brindle mount -o degraded` with `brindle device replace` makes it whole again",
        missing.join(", ")
    )
}

/// The end of a sentence on a missing device, if its image lies beside those that were named.
fn place_of_missing(device: &DeviceStatus, named: &[&Path]) -> String {
    let beside = images_beside(named, &[(device.devid, device.uuid)]);
    let place =
        beside.first().map(|(_, path)| format!(": it was not named, and is here: {}", path.display()));
    place.unwrap_or_default()
}

/// Says it in plain words if there is no pool at all, or if devices of it were not named.
fn explain(error: FsError, paths: &[&Path]) -> anyhow::Error {
    match error {
        FsError::Tree(TreeError::Volume(error @ VolumeError::MissingDevices { .. })) => {
            explain_missing(&error, paths).unwrap_or_else(|| FsError::from(error).into())
        }
        FsError::Tree(TreeError::Volume(error @ VolumeError::NoPool { .. })) => without_pool(error),
        error => error.into(),
    }
}

/// The same of a pool that is looked into.
fn of_tree(error: anyhow::Error, paths: &[&Path]) -> anyhow::Error {
    match error.downcast_ref() {
        Some(TreeError::Volume(of_volume)) => explain_missing(of_volume, paths).unwrap_or(error),
        _ => error,
    }
}

/// Logs the warnings of an opened filesystem.
pub(crate) fn greet(filesystem: &Filesystem, mount: &MountOptions) -> Result<()> {
    mount.check_root(filesystem.root().tree)?;
    let volume = filesystem.pool().volume();
    // The volume has logged its own.
    let logged: Vec<String> = volume.warnings().iter().map(ToString::to_string).collect();
    for warning in filesystem.warnings().iter().filter(|warning| !logged.contains(warning)) {
        tracing::warn!("{warning}");
    }
    warn_of_missing(volume);
    log_devices(volume);
    warn_of_writers(volume);
    Ok(())
}

/// Warns of devices that are missing. Of one that was given, and is stale, the volume has told.
pub(crate) fn warn_of_missing(volume: &Volume) {
    let (missing, there): (Vec<_>, Vec<_>) = volume.devices().into_iter().partition(|device| device.missing);
    let unused = volume.unused_devices();
    let is_told = |devid: DevId| {
        let is_it = |unused: &UnusedDevice| matches!(unused.reason, UnusedReason::Stale(it) if it == devid);
        unused.iter().any(is_it)
    };
    let named: Vec<&Path> = there.iter().map(|device| Path::new(&device.name)).collect();
    for device in missing.iter().filter(|device| !is_told(device.devid)) {
        tracing::warn!("device {} is missing{}", device.devid, place_of_missing(device, &named));
    }
}

/// Opens a pool to look into it: missing devices are no obstacle as long as all metadata can be read.
pub(crate) fn open_pool(paths: &[PathBuf]) -> Result<Pool> {
    refuse_twice(paths.iter().map(PathBuf::as_path))?;
    let all = with_others(paths);
    let all: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
    let mount = MountOptions::default();
    let pool = open_rescued_pool(open_to_look(&all, &mount)?, &mount);
    let pool = pool.map_err(|error| of_tree(error, &all))?;
    if let Some(lost) = pool.volume().lost_metadata() {
        return Err(of_tree(TreeError::from(lost).into(), &all));
    }
    warn_of_missing(pool.volume());
    warn_of_writers(pool.volume());
    Ok(pool)
}

/// The same without a warning of missing devices, or if others write the pool, and for a short look: of a pool that was named by its
/// mount, that is known. What is lost is an error where it is read.
pub(crate) fn open_mounted_pool(paths: &[PathBuf]) -> Result<Pool> {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    open_rescued_pool(look_at_devices(&paths)?, &MountOptions::default())
}

/// Options of commands that look into trees.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct InspectOptions {
    /// Comma-separated: rescue=WORDS (read a damaged pool: see brindle mount --help), device=PATH
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
}

impl InspectOptions {
    /// Opens a pool to look into its trees.
    pub(crate) fn open(&self, devices: &[PathBuf]) -> Result<Pool> {
        let options = MountOptions::parse(&self.options)?;
        let of_files = options.subvol.as_ref().map(|_| "subvol").or(options.subvolid.map(|_| "subvolid"));
        if let Some(option) = options.first_of_mount().or(of_files) {
            return wrong_usage(format!(
                "unknown option '{option}': here -o takes rescue=WORDS and device=PATH"
            ));
        }
        let named = all_named(devices, &options)?;
        let paths: Vec<&Path> = named.iter().map(PathBuf::as_path).collect();
        let pool = open_rescued_pool(open_to_look(&paths, &options)?, &options);
        let pool = pool.map_err(|error| of_tree(error, &paths))?;
        warn_of_missing(pool.volume());
        warn_of_writers(pool.volume());
        Ok(pool)
    }
}

/// Opens a pool without regard to missing devices.
fn open_rescued_pool(devices: Vec<Arc<dyn Device>>, mount: &MountOptions) -> Result<Pool> {
    let mut options = brindle_tree::OpenOptions::default();
    (options.volume.degraded, options.volume.rescue) = (true, mount.rescue);
    let pool = Pool::open(devices, &options).map_err(|error| match error {
        TreeError::Volume(error @ VolumeError::NoPool { .. }) => without_pool(error),
        error => error.into(),
    })?;
    log_devices(pool.volume());
    Ok(pool)
}

/// Returns true if others write a pool, as far as can be told.
fn is_written(volume: &Volume) -> bool {
    let names = names_of(volume);
    writer_of(&volume.superblock().fsid, &names).is_some() || holder_of(names.iter().map(Path::new)).is_some()
}

fn names_of(volume: &Volume) -> Vec<String> {
    volume.devices().into_iter().map(|device| device.name).collect()
}

/// Warns if a pool that is only read is written by others.
fn warn_of_writers(volume: &Volume) {
    if !volume.is_writable() {
        let names = names_of(volume);
        warn_if_used(&volume.superblock().fsid, &names);
        warn_of_leases(&names);
    }
}

/// Warns if a pool that is only read is held by another system.
pub(crate) fn warn_of_leases(names: &[String]) {
    if let Some(found) = holder_of(names.iter().map(Path::new)) {
        tracing::warn!(
            "{}: {}, holds the pool; its writes meanwhile may look like damage",
            found.device,
            found.record
        );
    }
}

/// Logs the devices of a pool.
pub(crate) fn log_devices(volume: &Volume) {
    let is_logged = |unused: &UnusedDevice| {
        // The volume has logged what became of those that the pool has, or had.
        use UnusedReason::{NotInPool, Replaced, Stale};
        matches!(unused.reason, NotInPool(_) | Stale(_) | Replaced(_))
    };
    for unused in volume.unused_devices().iter().filter(|unused| !is_logged(unused)) {
        tracing::warn!("{unused}; it is not used");
    }
    let superblock = volume.superblock();
    tracing::info!("pool {}, generation {}", superblock.fsid, superblock.generation);
    for device in volume.devices() {
        let (devid, name) = (device.devid, &device.name);
        match device.generation {
            _ if device.missing => tracing::info!("devid {devid}: missing, uuid {}", device.uuid),
            Some(generation) if device.is_stale => {
                tracing::info!("devid {devid}: {name}, superblock of generation {generation}, stale");
            }
            Some(generation) => {
                tracing::info!("devid {devid}: {name}, superblock of generation {generation}");
            }
            None => tracing::info!("devid {devid}: {name}"),
        }
        if !device.missing && tracing::enabled!(tracing::Level::INFO) {
            log_copies(name);
        }
    }
}

/// Logs the facts of a device's superblock: the valid copy of highest generation counts.
fn log_copies(name: &str) {
    let Ok(device) = look_at_device(Path::new(name)) else { return };
    let copy = |(mirror, offset): (usize, &u64)| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if offset.checked_add(to_u64(SUPERBLOCK_SIZE)).is_none_or(|end| end > device.size_bytes()) {
            return format!("copy {mirror} beyond the end");
        }
        match device.read_at(*offset, &mut bytes) {
            Err(_) => format!("copy {mirror} unreadable"),
            Ok(()) => match Superblock::from_bytes(&bytes) {
                superblock if !superblock.has_magic() => format!("copy {mirror} not there"),
                superblock => format!("copy {mirror} generation {}", superblock.generation),
            },
        }
    };
    let copies: Vec<String> = SUPERBLOCK_OFFSETS.iter().enumerate().map(copy).collect();
    tracing::info!("{name}: superblocks: {}", copies.join(", "));
}

/// Opens devices for a short look, in the order given.
pub(crate) fn look_at_devices(paths: &[&Path]) -> Result<Vec<Arc<dyn Device>>> {
    paths.iter().map(|path| look_at_device(path).map_err(|error| explain_open(error, path))).collect()
}

/// Opens devices of a pool, in the order given.
fn open_devices(paths: &[&Path]) -> Result<Vec<Arc<dyn Device>>> {
    let open = |path: &&Path| open_pool_device(path).map_err(|error| name_served(path, error));
    paths.iter().map(|path| open(path).map_err(|error| explain_open(error, path))).collect()
}

/// Opens devices to read a pool: if that is asked for, with its chunk tree made anew in memory.
pub(crate) fn open_to_look(paths: &[&Path], mount: &MountOptions) -> Result<Vec<Arc<dyn Device>>> {
    let devices = open_devices(paths)?;
    if !mount.recovers_chunks {
        return Ok(devices);
    }
    let bar = Bar::new(true);
    let (devices, recovery) = overlaid(devices, &bar)?;
    bar.clear();
    let summary = recovery.summary();
    tracing::warn!("the chunk tree is made anew in memory; chunks that are proved: {}", summary.join(", "));
    for Step { change, reason } in recovery.left() {
        tracing::warn!("{change}: {reason}");
    }
    Ok(devices)
}

/// The first superblock of a device, if it has one.
pub(crate) fn first_superblock(device: &Path) -> Option<Box<Superblock>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    look_at_device(device).ok()?.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).ok()?;
    Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).ok()
}
