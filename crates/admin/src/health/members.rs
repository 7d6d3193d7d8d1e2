//! The devices of a pool that the host has.

use super::find::{block_devices, btrfs_devices};
use crate::pool::{AdminError, DeviceIdentity};
use brindle_ondisk::{DevId, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Files of a directory that are looked at, at most.
const FILES_MAX: usize = 4096;

/// Devices of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Block devices of the pool beside those that were named.
    pub others: Vec<PathBuf>,
    /// Number of devices that the pool has.
    pub expected: u64,
    /// Number of them that are there.
    pub found: u64,
}

impl Members {
    /// Returns true if no device is missing.
    pub fn is_complete(&self) -> bool {
        self.found >= self.expected
    }
}

/// Devices of the pool that devices belong to, which may be incomplete: the others are looked for among block devices. A device that
/// there are two of (a copy, another way to the same disk) is not taken.
///
/// # Errors
/// A device that can't be read, or that has no superblock.
pub fn members(named: &[PathBuf]) -> Result<Members, AdminError> {
    let mut identities = Vec::new();
    for path in named {
        identities.push(DeviceIdentity::read(path)?.ok_or_else(|| AdminError::NoPool(path.clone()))?);
    }
    let Some(&pool) = identities.first() else {
        return Ok(Members { others: Vec::new(), expected: 0, found: 0 });
    };
    let is_known: BTreeSet<DevId> = identities.iter().map(|identity| identity.devid).collect();
    let candidates = || {
        let free = block_devices().into_iter();
        free.filter_map(|path| Some((DeviceIdentity::read(&path).ok()??, path))).collect()
    };
    let is_complete = |known: usize| u64::try_from(known).is_ok_and(|known| known >= pool.devices);
    let others =
        if is_complete(is_known.len()) { Vec::new() } else { choose(&pool, &is_known, candidates()) };
    let found = is_known.len() + others.len();
    Ok(Members { others, expected: pool.devices, found: u64::try_from(found).unwrap_or(u64::MAX) })
}

/// Image files in the directories of those that were named, which are other devices of their pool, by the ids that are missing.
pub fn images_beside(named: &[&Path], missing: &[(DevId, Uuid)]) -> Vec<(DevId, PathBuf)> {
    let named: Vec<&Path> = named.iter().copied().filter(|path| path.is_file()).collect();
    let mut found = Vec::new();
    for path in files_beside(&named) {
        let Ok(Some(DeviceIdentity { devid, uuid, .. })) = DeviceIdentity::read(&path) else { continue };
        if missing.contains(&(devid, uuid)) {
            found.push((devid, path));
        }
    }
    found.sort();
    found
}

/// Files in the directories of those that are named.
pub(super) fn files_beside(named: &[&Path]) -> Vec<PathBuf> {
    let parents: BTreeSet<&Path> = named.iter().filter_map(|path| path.parent()).collect();
    let mut found = Vec::new();
    for parent in parents {
        let here = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let Ok(entries) = fs::read_dir(here) else { continue };
        let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        found.extend(files.take(FILES_MAX).map(|entry| parent.join(entry.file_name())));
    }
    found
}

/// A device of a pool that lacks it, by its id and UUID: an image file beside those that are there, or a block device if one of them is.
/// Asking wakes sleeping disks.
pub fn find_device(there: &[&Path], fsid: &Uuid, devid: DevId, uuid: &Uuid) -> Option<PathBuf> {
    if let Some((_, path)) = images_beside(there, &[(devid, *uuid)]).into_iter().next() {
        return Some(path);
    }
    let is_block_device =
        |path: &&Path| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    if !there.iter().any(is_block_device) {
        return None;
    }
    let is_it =
        |identity: &DeviceIdentity| (identity.fsid, identity.devid, identity.uuid) == (*fsid, devid, *uuid);
    btrfs_devices().into_iter().find(|(_, identity)| is_it(identity)).map(|(path, _)| path)
}

/// The candidates that are devices of the pool, one for each id that is not known.
fn choose(
    pool: &DeviceIdentity,
    is_known: &BTreeSet<DevId>,
    candidates: Vec<(DeviceIdentity, PathBuf)>,
) -> Vec<PathBuf> {
    let mut by_id: BTreeMap<DevId, Vec<PathBuf>> = BTreeMap::new();
    for (identity, path) in candidates {
        if identity.fsid == pool.fsid && !is_known.contains(&identity.devid) {
            by_id.entry(identity.devid).or_default().push(path);
        }
    }
    let one = |(devid, paths): (DevId, Vec<PathBuf>)| {
        if let [first, second, ..] = paths.as_slice() {
            let shown = |path: &Path| path.display().to_string();
            tracing::warn!(
                "{} and {} both are devid {devid}: neither is used; name all devices of the pool, with the right one of these",
                shown(first),
                shown(second)
            );
            return None;
        }
        paths.into_iter().next()
    };
    by_id.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_of_the_pool_and_there_once() {
        let device = |fsid: u8, devid: u64| DeviceIdentity {
            fsid: Uuid([fsid; 16]),
            devid: DevId::new(devid),
            uuid: Uuid([9; 16]),
            stored: 0,
            devices: 4,
        };
        let candidates = [(7, 1, "a"), (7, 2, "b"), (8, 3, "c"), (7, 3, "d"), (7, 4, "e"), (7, 4, "f")];
        let candidates = candidates.map(|(fsid, devid, path)| (device(fsid, devid), PathBuf::from(path)));
        let chosen = choose(&device(7, 1), &BTreeSet::from([DevId::new(1)]), candidates.to_vec());
        assert_eq!(chosen, [PathBuf::from("b"), PathBuf::from("d")]);
    }
}
