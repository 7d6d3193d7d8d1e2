//! Pools of the devices that a caller has named.

use super::find::{FoundPool, mount_of, pool_at};
use super::members::seeds_by;
use crate::pool::{AdminError, DeviceIdentity, target_mark};
use brindle_ondisk::Uuid;
use brindle_uapi::mount_table::Mount;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Pools that devices belong to, in the order of the first of each: the mount, where a device is in use by one of `mounts`. A seed belongs to the pool
/// that has grown from it, if that is named as well.
///
/// # Errors
/// A device that can't be read, or that has no superblock.
pub fn on_devices(paths: &[PathBuf], mounts: &[Mount]) -> Result<Vec<FoundPool>, AdminError> {
    let mut pools: Vec<(Uuid, Vec<PathBuf>)> = Vec::new();
    let mut seeds = Vec::new();
    let mut marked = Vec::new();
    for path in paths {
        let Some(identity) = DeviceIdentity::read_any_copy(path)? else {
            let mark = target_mark(path).ok_or_else(|| AdminError::NoPool(path.clone()))?;
            marked.push((mark.fsid, path));
            continue;
        };
        if identity.is_seed {
            seeds.push((identity, path.clone()));
        }
        match pools.iter_mut().find(|(fsid, _)| *fsid == identity.fsid) {
            Some((_, paths)) => paths.push(path.clone()),
            None => pools.push((identity.fsid, vec![path.clone()])),
        }
    }
    // One that is to take the place of another belongs to no pool yet, but to one that is named beside it.
    if let Some((_, path)) = marked.iter().find(|(fsid, _)| pools.iter().all(|(other, _)| other != fsid)) {
        return Err(AdminError::NoPool((*path).clone()));
    }
    if pools.len() > 1 {
        join_seeds(&mut pools, &seeds);
    }
    let found = |(fsid, paths): (Uuid, Vec<PathBuf>)| match mount_of(mounts, &fsid, &paths) {
        Some(mounted) => pool_at(mounted.path()),
        None => Ok(FoundPool::Devices(fsid, paths)),
    };
    pools.into_iter().map(found).collect()
}

/// Adds seeds to the pools that have grown from them. Pools that are seeds themselves come last, as another one may have grown from all of
/// their devices.
fn join_seeds(pools: &mut Vec<(Uuid, Vec<PathBuf>)>, seeds: &[(DeviceIdentity, PathBuf)]) {
    let is_seed = |fsid: &Uuid| seeds.iter().any(|(identity, _)| identity.fsid == *fsid);
    let (mut order, last): (Vec<Uuid>, Vec<Uuid>) =
        pools.iter().map(|(fsid, _)| *fsid).partition(|fsid| !is_seed(fsid));
    order.extend(last);
    let mut joined = BTreeSet::new();
    for fsid in order {
        let Some((_, named)) = pools.iter().find(|(other, _)| *other == fsid) else { continue };
        let free = || seeds.iter().filter(|(_, path)| !joined.contains(path)).cloned().collect();
        let found = seeds_by(named, free);
        for (other, paths) in pools.iter_mut() {
            match *other == fsid {
                true => paths.extend(found.iter().cloned()),
                false => paths.retain(|path| !found.contains(path)),
            }
        }
        joined.extend(found);
    }
    pools.retain(|(_, paths)| !paths.is_empty());
}
