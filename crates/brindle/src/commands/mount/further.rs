//! Further mounts of a pool that another process serves, on the same block device: another subvolume, another place, other
//! options of the mount itself. The kernel finds the filesystem by the block device; the server is only asked for its
//! subvolumes, and ends with the last mount. Options of the pool are those of the first mount.

use super::block_device::may_be;
use crate::commands::mount_options::MountOptions;
use crate::commands::pool::first_superblock;
use crate::commands::processes::{holders, may_serve};
use anyhow::{Context, Result, bail};
use brindle_admin::Mounted;
use brindle_cache::is_no_path;
use brindle_device::DeviceError;
use brindle_fs::{RootId, SubvolumeChoice};
use brindle_uapi::message::text;
use brindle_uapi::mount_table::{self, Mount};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which a server that is about to mount is waited for, when two mounts come at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which it is waited for though it is not seen: two may take a device each, and let go of it again.
const UNSEEN: Duration = Duration::from_millis(200);
/// Interval of looking.
const PAUSE: Duration = Duration::from_millis(20);

/// Mounts the pool of devices once more, if it is mounted on a block device; returns false if it is not.
///
/// # Errors
/// Devices that the pool does not have where it is mounted: a copy of one, say.
pub(super) fn mount(
    devices: &[&Path],
    mountpoint: &Path,
    options: &MountOptions,
    kernel: &brindle_fuse::MountOptions,
    is_helper: bool,
) -> Result<bool> {
    if !may_be(options) {
        return Ok(false);
    }
    let Some((first, mounted)) = devices.first().and_then(|device| mounted(device)) else { return Ok(false) };
    for other in devices.iter().filter(|device| !is_no_path(device)) {
        check_member(&first, &mounted, other)?;
    }
    let path = path_of(&mounted, &options.subvolume())?;
    if is_mounted_at(&first, mountpoint, &path)? {
        // mount(8) with -a does not recognise a mount of a part, and asks again.
        if is_helper {
            return Ok(true);
        }
        bail!("{}: it is mounted there already", mountpoint.display());
    }
    let kernel =
        brindle_fuse::MountOptions { read_only: options.is_read_only(), part: path, ..kernel.clone() };
    brindle_fuse::mount_further(&first.source, mountpoint, &kernel)?;
    if !options.is_of_mount_alone() {
        tracing::warn!(
            "the pool is mounted at {} already: other options than ro, nodev, nosuid and noexec are as there",
            first.mountpoint.display()
        );
    }
    Ok(true)
}

/// Refuses a device that the server of a mount does not have.
fn check_member(first: &Mount, mounted: &Mounted, device: &Path) -> Result<()> {
    if holders(device).is_some_and(|holders| mounted.server().is_ok_and(|it| holders.contains(&it.process))) {
        return Ok(());
    }
    let (name, place) = (device.display(), first.mountpoint.display());
    let Some(superblock) = first_superblock(device) else {
        bail!("{name}: the pool is mounted at {place} already, and this is none of its devices");
    };
    let devid = superblock.dev_item.devid;
    let member = mounted.device(devid)?.map(|info| String::from_utf8_lossy(text(&info.path)).into_owned());
    let member = member.filter(|member| !member.is_empty()).unwrap_or_else(|| "a missing device".to_owned());
    bail!(
        "{name} is devid {devid}, as is {member} of the pool that is mounted at {place}: unmount that, or leave out the one \
         that is a copy"
    );
}

/// Returns true if the topmost mount at a place is of the same, over which the kernel does not mount it either.
fn is_mounted_at(first: &Mount, mountpoint: &Path, part: &[u8]) -> Result<bool> {
    let (mounts, place) = (mount_table::read()?, mountpoint.canonicalize().unwrap_or_default());
    let root = Path::new("/").join(OsStr::from_bytes(part));
    let below = mount_table::at(&mounts, &place);
    Ok(below.is_some_and(|below| below.device == first.device && below.root == root))
}

/// Waiting for another process of ours, which has a device and is about to mount the pool, or has just unmounted it.
pub(super) struct Turn {
    end: Instant,
    /// Time at which another process of ours was last seen to have a device; at first, that of the first error.
    seen: Option<Instant>,
}

impl Turn {
    pub(super) fn new() -> Self {
        Self { end: Instant::now() + PATIENCE, seen: None }
    }

    /// Waits a moment after an error; returns false if another attempt makes no sense.
    pub(super) fn wait<'d>(
        &mut self,
        error: &anyhow::Error,
        mut devices: impl Iterator<Item = &'d Path> + Clone,
        options: &MountOptions,
    ) -> bool {
        let is_busy = matches!(error.downcast_ref(), Some(DeviceError::Busy { .. }));
        let now = Instant::now();
        if !is_busy || !may_be(options) || now >= self.end {
            return false;
        }
        let is_held = devices.clone().filter_map(holders).any(|holders| !holders.is_empty());
        // A mount of another kind is none to wait for, and a device that none of us has is free, or of another program.
        let has_other_mount =
            devices.any(|device| mounts_of(device).any(|(mount, _)| !mount.is_on_block_device()));
        if is_held || self.seen.is_none() {
            self.seen = Some(now);
        }
        let goes_on = !has_other_mount && self.seen.is_some_and(|seen| now.duration_since(seen) < UNSEEN);
        if goes_on {
            std::thread::sleep(PAUSE);
        }
        goes_on
    }
}

/// The mount on a block device whose server has the device open. A copy of an image is none of its pool, though all its
/// numbers are the same.
fn mounted(device: &Path) -> Option<(Mount, Mounted)> {
    mounts_of(device).find(|(mount, _)| mount.is_on_block_device())
}

fn mounts_of(device: &Path) -> impl Iterator<Item = (Mount, Mounted)> {
    let holders = holders(device).unwrap_or_default();
    // To ask a mount keeps it from being unmounted for a moment.
    let mounts = if holders.is_empty() { Vec::new() } else { mount_table::read().unwrap_or_default() };
    mounts.into_iter().filter(Mount::is_ours).filter_map(move |mount| {
        if !may_serve(&holders, &mount) {
            return None;
        }
        let mounted = Mounted::open(&mount.mountpoint).ok()?;
        holders.contains(&mounted.server().ok()?.process).then_some((mount, mounted))
    })
}

/// The path of a subvolume from the top level.
fn path_of(mounted: &Mounted, choice: &SubvolumeChoice) -> Result<Vec<u8>> {
    let (subvolumes, default) = mounted.subvolumes()?;
    let wanted = match choice {
        SubvolumeChoice::Path(path) => {
            let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
            let path = parts.collect::<Vec<_>>().join(&b'/');
            if path.is_empty() || subvolumes.iter().any(|record| record.path == path) {
                return Ok(path);
            }
            bail!("{}: no such subvolume", path.escape_ascii());
        }
        SubvolumeChoice::Default => default,
        SubvolumeChoice::Id(id) => id.get(),
    };
    if wanted == 0 || wanted == RootId::FS_TREE.get() {
        return Ok(Vec::new());
    }
    let found = subvolumes.into_iter().find(|record| record.info.id == wanted);
    found.map(|record| record.path).with_context(|| format!("no subvolume with id {wanted}"))
}
