//! Pools that there are: in the table of mounts, behind a path, and on block devices.

use crate::control::{ControlError, Mounted};
use crate::pool::{AdminError, DeviceIdentity, Reach};
use brindle_ondisk::{Superblock, Uuid};
use brindle_uapi::message::text;
use brindle_uapi::mount_table::{self, KERNEL_TYPE, Mount};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A pool that was found.
#[derive(Debug)]
pub enum FoundPool {
    /// Mounted pool.
    Mounted(Reach, Vec<Mount>),
    /// Pool on devices that is not mounted.
    Devices(Uuid, Vec<PathBuf>),
    /// The server of these mounts has ended.
    ServerGone(Vec<PathBuf>),
    /// The mount does not answer the caller.
    Closed(PathBuf, ControlError),
}

/// Pools of these mounts, each once. Each mount is asked, so that the caller leaves out those whose server does not answer.
pub fn on_mounts(mounts: Vec<Mount>) -> Vec<FoundPool> {
    let mut filesystems: BTreeMap<String, Vec<Mount>> = BTreeMap::new();
    for mount in mounts.into_iter().filter(|mount| mount.is_ours() || mount.kind == KERNEL_TYPE) {
        filesystems.entry(mount.device.clone()).or_default().push(mount);
    }
    let mut found: Vec<FoundPool> = filesystems.into_values().filter_map(of_filesystem).collect();
    found.sort_by_key(|pool| match pool {
        FoundPool::Mounted(_, mounts) => mounts.first().map(|mount| mount.id),
        _ => None,
    });
    found
}

/// The pool that is mounted at a path.
///
/// # Errors
/// A path that is on no btrfs.
pub fn pool_at(path: &Path) -> Result<FoundPool, AdminError> {
    match Reach::of_mount(path) {
        Ok(reach) => {
            let mounts = table()?;
            let here = path.canonicalize().ok();
            let holder = here.and_then(|here| mount_table::holding(&mounts, &here));
            let device = holder.map(|holder| holder.device.clone());
            let of_pool = mounts.into_iter().filter(|mount| Some(&mount.device) == device.as_ref());
            Ok(FoundPool::Mounted(reach, of_pool.collect()))
        }
        Err(AdminError::Control(error)) if error.is_end_of_server() => {
            Ok(FoundPool::ServerGone(places_of_dead(path)))
        }
        Err(error) => Err(error),
    }
}

/// Pools on block devices, but those that are mounted. Devices of mounted pools, and those that others are built of, are not
/// touched; of the others the superblock is read, which wakes a sleeping disk.
pub fn on_block_devices(mounted: &[FoundPool]) -> Vec<FoundPool> {
    let (mut in_use, mut fsids) = (BTreeSet::new(), BTreeSet::new());
    for pool in mounted {
        let FoundPool::Mounted(reach, _) = pool else { continue };
        fsids.extend(reach.fsid().ok().flatten().map(|fsid| fsid.0));
        let infos = reach.mounted().and_then(|mounted| mounted.device_infos().ok()).unwrap_or_default();
        in_use.extend(infos.iter().filter_map(|info| path_of(text(&info.path))));
    }
    let mut pools: BTreeMap<[u8; 16], Vec<PathBuf>> = BTreeMap::new();
    for path in block_devices().into_iter().filter(|path| !in_use.contains(path)) {
        if let Ok(Some(identity)) = DeviceIdentity::read(&path) {
            if !fsids.contains(&identity.fsid.0) {
                pools.entry(identity.fsid.0).or_default().push(path);
            }
        }
    }
    pools.into_iter().map(|(fsid, paths)| FoundPool::Devices(Uuid(fsid), paths)).collect()
}

/// Block devices with a superblock of btrfs, but those that others are built of; asking wakes sleeping disks.
pub fn btrfs_devices() -> Vec<(PathBuf, DeviceIdentity)> {
    let identity =
        |path: PathBuf| DeviceIdentity::read(&path).ok().flatten().map(|identity| (path, identity));
    block_devices().into_iter().filter_map(identity).collect()
}

/// Block devices whose superblock is a wanted one; asking wakes sleeping disks.
pub fn find_tagged(is_wanted: impl Fn(&Superblock) -> bool) -> Vec<(PathBuf, DeviceIdentity)> {
    let wanted = |path: PathBuf| {
        let superblock = DeviceIdentity::superblock(&path).ok().flatten()?;
        is_wanted(&superblock).then(|| (path, DeviceIdentity::of(&superblock)))
    };
    block_devices().into_iter().filter_map(wanted).collect()
}

/// The mount points of the dead server that a path lies behind, of which the system resolves nothing; the path if none is found.
fn places_of_dead(path: &Path) -> Vec<PathBuf> {
    let mounts = mount_table::read().unwrap_or_default();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let holder = mount_table::holding(&mounts, &absolute).filter(|mount| mount.is_ours());
    let Some(holder) = holder else { return vec![path.to_owned()] };
    let of_server = mounts.iter().filter(|mount| mount.device == holder.device);
    of_server.map(|mount| mount.mountpoint.clone()).collect()
}

fn table() -> Result<Vec<Mount>, AdminError> {
    mount_table::read().map_err(|source| AdminError::Path { path: "/proc/self/mountinfo".into(), source })
}

/// The pool of the mounts of one filesystem, by the first of them that answers. A mount point may be hidden by another mount.
fn of_filesystem(mounts: Vec<Mount>) -> Option<FoundPool> {
    let is_of_kernel = mounts.first()?.kind == KERNEL_TYPE;
    let mut closed = None;
    for mount in &mounts {
        let path = mount.mountpoint.clone();
        match Mounted::open(&path) {
            Ok(mounted) if mounted.is_of_kernel() == is_of_kernel => {
                return Some(FoundPool::Mounted(mounted.into(), mounts));
            }
            Ok(_) | Err(ControlError::NotBtrfs(_)) => {}
            Err(error) if error.is_end_of_server() => {
                return Some(FoundPool::ServerGone(
                    mounts.into_iter().map(|mount| mount.mountpoint).collect(),
                ));
            }
            Err(error) => closed = Some(FoundPool::Closed(path, error)),
        }
    }
    closed
}

/// The one of these mounts that has one of these devices as part of a pool.
pub(super) fn mount_of(mounts: &[Mount], fsid: &Uuid, paths: &[PathBuf]) -> Option<Mounted> {
    let mounted = Mounted::find(mounts, fsid)?;
    let infos = mounted.device_infos().ok()?;
    let members: Vec<PathBuf> = infos.iter().filter_map(|info| path_of(text(&info.path))).collect();
    let is_member = |path: &PathBuf| path.canonicalize().is_ok_and(|path| members.contains(&path));
    paths.iter().any(is_member).then_some(mounted)
}

fn path_of(name: &[u8]) -> Option<PathBuf> {
    Path::new(OsStr::from_bytes(name)).canonicalize().ok()
}

/// Block devices with contents, of which no other one is built.
pub(super) fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else { return Vec::new() };
    let is_free = |entry: &fs::DirEntry| {
        let size = fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        let mut holders = fs::read_dir(entry.path().join("holders")).ok().into_iter().flatten();
        size.trim() != "0" && holders.next().is_none()
    };
    // A slash in a name is another character there.
    let path = |entry: fs::DirEntry| {
        let name: Vec<u8> = entry
            .file_name()
            .as_bytes()
            .iter()
            .map(|byte| if *byte == b'!' { b'/' } else { *byte })
            .collect();
        Path::new("/dev").join(OsStr::from_bytes(&name))
    };
    let mut paths: Vec<PathBuf> = entries.flatten().filter(is_free).map(path).collect();
    paths.sort();
    paths
}
