//! The target of a replacement that the kernel was interrupted in.

use super::btrfs_devices;
use crate::pool::{AdminError, DeviceIdentity};
use brindle_care::device::wipe_superblocks;
use brindle_device::WritableDevice;
use brindle_ondisk::Uuid;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The devices but for targets.
pub fn without_targets(named: &[PathBuf]) -> Vec<PathBuf> {
    named.iter().filter(|path| target(path).is_none()).cloned().collect()
}

/// Targets for a pool among these devices and, if one of them is a block device, among those of the machine: asking wakes sleeping
/// disks.
pub fn targets_of(fsid: &Uuid, named: &[PathBuf]) -> Vec<PathBuf> {
    let is_of_pool = |identity: &DeviceIdentity| identity.is_target() && identity.fsid == *fsid;
    let mut found: Vec<PathBuf> =
        named.iter().filter(|path| target(path).is_some_and(|it| is_of_pool(&it))).cloned().collect();
    let is_block_device =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    if named.iter().any(is_block_device) {
        let known: Vec<PathBuf> = found.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let others = btrfs_devices().into_iter().filter(|(_, identity)| is_of_pool(identity));
        found.extend(others.map(|(path, _)| path).filter(|path| !known.contains(path)));
    }
    found
}

/// Takes its superblocks from a target.
///
/// # Errors
/// It can't be written.
pub fn retire_target(target: &dyn WritableDevice) -> Result<(), AdminError> {
    Ok(wipe_superblocks(target)?)
}

fn target(path: &Path) -> Option<DeviceIdentity> {
    DeviceIdentity::read_any_copy(path).ok().flatten().filter(DeviceIdentity::is_target)
}
