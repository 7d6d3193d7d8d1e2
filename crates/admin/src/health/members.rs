//! The devices of a pool that the host has.

use super::find::{block_devices, btrfs_devices};
use crate::pool::{AdminError, DeviceIdentity};
use brindle_cache::{CacheWord, look_at_device};
use brindle_device::Device;
use brindle_ondisk::{DevId, Generation, Uuid, to_u64};
use brindle_tree::{OpenOptions, Pool};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Search for devices of a pool that were not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Unless those that were named are all devices of the pool, and of one generation.
    WhereIncomplete,
    /// In any case: what is not found is done without, and misses what is written.
    Always,
}

/// Devices of the pool that devices belong to, which may be incomplete: the others are looked for among block devices, but those
/// of `except`. A device that there are two of (a copy, another way to the same disk) is not taken. Named devices that can't be
/// identified are passed over as long as there is another one.
///
/// # Errors
/// That none can be identified: the first can't be read, or has no superblock.
pub fn members(named: &[PathBuf], except: &[PathBuf], search: Search) -> Result<Members, AdminError> {
    let (mut identities, mut failed) = (Vec::new(), None);
    for path in named {
        match DeviceIdentity::read_any_copy(path) {
            // It belongs to no pool yet.
            Ok(Some(identity)) if identity.is_target() => {}
            Ok(Some(identity)) => identities.push(identity),
            Ok(None) => failed = failed.or_else(|| Some(AdminError::NoPool(path.clone()))),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let Some(known) = Known::of(&identities) else {
        return failed.map_or(Ok(Members { others: Vec::new(), expected: 0, found: 0 }), Err);
    };
    let is_sought = search == Search::Always || !known.is_complete();
    let found = if is_sought { candidates(named.iter().chain(except)) } else { Vec::new() };
    let of_seeds: Vec<_> =
        found.iter().filter(|(it, _)| it.is_seed && it.fsid != known.newest.fsid).cloned().collect();
    let mut others = choose(&known, found, |found| listed_by_pool(&known.newest.fsid, named, found));
    let newest = others.iter().map(|(identity, _)| *identity).chain([known.newest]);
    let expected = newest.max_by_key(|identity| identity.generation).map_or(0, |newest| newest.devices);
    let count = |others: &[(DeviceIdentity, PathBuf)]| to_u64(known.count() + others.len());
    if count(&others) < expected {
        others.extend(seeds_among(&known, named, &others, &of_seeds));
    }
    let found = count(&others);
    let others = others.into_iter().map(|(_, path)| path).collect();
    Ok(Members { others, expected, found })
}

/// Named devices of a pool.
struct Known {
    /// The newest superblock: those of devices that were away tell of the pool as it was.
    newest: DeviceIdentity,
    /// Ids of its devices, with their generations.
    generations: BTreeMap<DevId, Generation>,
    /// Ids of the devices of its seeds.
    seeds: BTreeSet<DevId>,
}

impl Known {
    /// The pool of the first device, where one that is no seed comes first.
    fn of(identities: &[DeviceIdentity]) -> Option<Self> {
        let first = identities.iter().find(|identity| !identity.is_seed).or(identities.first())?;
        let own = || identities.iter().filter(|identity| identity.fsid == first.fsid);
        let seeds = identities.iter().filter(|identity| identity.fsid != first.fsid && identity.is_seed);
        let newest = *own().max_by_key(|identity| identity.generation)?;
        let generations = own().map(|identity| (identity.devid, identity.generation)).collect();
        Some(Self { newest, generations, seeds: seeds.map(|identity| identity.devid).collect() })
    }

    /// Number of devices.
    fn count(&self) -> usize {
        self.generations.keys().chain(&self.seeds).collect::<BTreeSet<_>>().len()
    }

    /// Returns true if the pool has no other devices. A device of another generation may have left it.
    fn is_complete(&self) -> bool {
        let is_newest = |generation: &Generation| *generation == self.newest.generation;
        let has_all = u64::try_from(self.count()).is_ok_and(|count| count >= self.newest.devices);
        has_all && self.generations.values().all(is_newest)
    }
}

/// Block devices with a superblock of btrfs, but those that words name.
fn candidates<'p>(words: impl Iterator<Item = &'p PathBuf>) -> Vec<(DeviceIdentity, PathBuf)> {
    let named: BTreeSet<u64> = words.flat_map(|word| block_device_numbers(word)).collect();
    let is_named = |path: &Path| block_device_numbers(path).iter().any(|number| named.contains(number));
    let free = block_devices().into_iter().filter(|path| !is_named(path));
    let identified = free.filter_map(|path| Some((DeviceIdentity::read(&path).ok()??, path)));
    identified.filter(|(identity, _)| !identity.is_target()).collect()
}

/// Numbers of the block devices that a word names: a path, or a cache with its parts.
pub(super) fn block_device_numbers(word: &Path) -> Vec<u64> {
    let parts = match CacheWord::parse(word) {
        Ok(Some(CacheWord { flash, mirror, disk })) => [Some(flash), mirror, Some(disk)],
        Ok(None) | Err(_) => [Some(word.to_owned()), None, None],
    };
    let found = parts.iter().flatten().filter_map(|path| path.metadata().ok());
    found.filter(|found| found.file_type().is_block_device()).map(|found| found.rdev()).collect()
}

/// Image files in the directories of those that were named, which are other devices of their pool, by the ids that are missing.
pub fn images_beside(named: &[&Path], missing: &[(DevId, Uuid)]) -> Vec<(DevId, PathBuf)> {
    let named: Vec<&Path> = named.iter().copied().filter(|path| path.is_file()).collect();
    let known: Vec<PathBuf> = named.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_named = |path: &Path| path.canonicalize().is_ok_and(|path| known.contains(&path));
    let mut found = Vec::new();
    for path in files_beside(&named) {
        let Ok(Some(DeviceIdentity { devid, uuid, .. })) = DeviceIdentity::read(&path) else { continue };
        if missing.contains(&(devid, uuid)) && !is_named(&path) {
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

/// Devices that may be one that a pool lacks, by its id and UUID, copies of it included: image files beside those that are there, or
/// block devices if one of them is. Asking wakes sleeping disks.
pub fn find_device(there: &[&Path], fsid: &Uuid, devid: DevId, uuid: &Uuid) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        images_beside(there, &[(devid, *uuid)]).into_iter().map(|(_, path)| path).collect();
    let is_it =
        |identity: &DeviceIdentity| (identity.fsid, identity.devid, identity.uuid) == (*fsid, devid, *uuid);
    if there.iter().any(|path| !block_device_numbers(path).is_empty()) {
        let devices = btrfs_devices().into_iter().filter(|(_, identity)| is_it(identity));
        found.extend(devices.map(|(path, _)| path));
    }
    found
}

/// Devices of the seeds that the pool of these devices has grown from, by its chunk tree: they have superblocks of another pool, and are not
/// found as others are. Block devices if one is named, and image files beside those that are named. For a look alone: an image may be
/// a copy, which of a seed has what the seed has.
pub fn seeds_of(named: &[PathBuf]) -> Vec<PathBuf> {
    let is_block_device = |path: &PathBuf| !block_device_numbers(path).is_empty();
    seeds_by(named, || {
        let of_host = if named.iter().any(is_block_device) { candidates(named.iter()) } else { Vec::new() };
        let named: Vec<&Path> = named.iter().map(PathBuf::as_path).filter(|path| path.is_file()).collect();
        let files = files_beside(&named).into_iter();
        let images = files.filter_map(|path| Some((DeviceIdentity::read(&path).ok()??, path)));
        of_host.into_iter().chain(images).collect()
    })
}

/// The same among devices that are known.
pub(super) fn seeds_by(
    named: &[PathBuf],
    candidates: impl FnOnce() -> Vec<(DeviceIdentity, PathBuf)>,
) -> Vec<PathBuf> {
    let identities: Vec<_> =
        named.iter().filter_map(|path| DeviceIdentity::read_any_copy(path).ok().flatten()).collect();
    let Some(known) = Known::of(&identities).filter(|known| !known.is_complete()) else { return Vec::new() };
    let is_other_seed =
        |(identity, _): &(DeviceIdentity, PathBuf)| identity.is_seed && identity.fsid != known.newest.fsid;
    let candidates: Vec<_> = candidates().into_iter().filter(is_other_seed).collect();
    seeds_among(&known, named, &[], &candidates).into_iter().map(|(_, path)| path).collect()
}

/// The candidates that are devices of seeds of the pool; none of those that there are two of.
fn seeds_among(
    known: &Known,
    named: &[PathBuf],
    others: &[(DeviceIdentity, PathBuf)],
    candidates: &[(DeviceIdentity, PathBuf)],
) -> Vec<(DeviceIdentity, PathBuf)> {
    let is_single = |it: &DeviceIdentity| {
        let copies = candidates.iter().filter(|(other, _)| (other.fsid, other.uuid) == (it.fsid, it.uuid));
        copies.count() == 1
    };
    let single: Vec<_> = candidates.iter().filter(|(identity, _)| is_single(identity)).collect();
    if single.is_empty() {
        return Vec::new();
    }
    let paths =
        named.iter().chain(others.iter().map(|(_, path)| path)).chain(single.iter().map(|(_, path)| path));
    let Some(pool) = open_to_look(&known.newest.fsid, paths) else { return Vec::new() };
    let devices = pool.volume().devices();
    let is_wanted = |identity: &DeviceIdentity| {
        let is_it = |uuid: Uuid, devid: DevId| (uuid, devid) == (identity.uuid, identity.devid);
        devices.iter().any(|device| device.is_seed && !device.missing && is_it(device.uuid, device.devid))
    };
    single.into_iter().filter(|(identity, _)| is_wanted(identity)).cloned().collect()
}

/// A pool by what can be read of it.
pub(super) fn open_to_look<'p>(fsid: &Uuid, paths: impl Iterator<Item = &'p PathBuf>) -> Option<Pool> {
    let devices: Vec<Arc<dyn Device>> = paths.filter_map(|path| look_at_device(path).ok()).collect();
    let mut options = OpenOptions::default();
    (options.volume.fsid, options.volume.degraded) = (Some(*fsid), true);
    Pool::open(devices, &options).ok()
}

/// A device as the chunk tree of its pool has it.
struct Listed {
    devid: DevId,
    uuid: Uuid,
    /// Generation in which it took the place of another one of its id.
    placed_in: Generation,
}

impl Listed {
    /// Returns true if a device is this one, and not one that it has replaced.
    fn is(&self, identity: &DeviceIdentity) -> bool {
        (self.devid, self.uuid) == (identity.devid, identity.uuid) && identity.generation >= self.placed_in
    }
}

/// The devices of a pool by its chunk tree; `None` if that can't be read.
fn listed_by_pool(
    fsid: &Uuid,
    named: &[PathBuf],
    found: &[&(DeviceIdentity, PathBuf)],
) -> Option<Vec<Listed>> {
    let pool = open_to_look(fsid, named.iter().chain(found.iter().map(|(_, path)| path)))?;
    let devices = pool.volume().devices().into_iter();
    let listed = devices.map(|it| Listed { devid: it.devid, uuid: it.uuid, placed_in: it.placed_in });
    Some(listed.collect())
}

/// The candidates that are devices of the pool, one for each id that is not known. If there are several of one id, all but one may have left
/// the pool, or been replaced while they were away, and `listed` is asked for the pool's devices.
fn choose(
    known: &Known,
    candidates: Vec<(DeviceIdentity, PathBuf)>,
    listed: impl FnOnce(&[&(DeviceIdentity, PathBuf)]) -> Option<Vec<Listed>>,
) -> Vec<(DeviceIdentity, PathBuf)> {
    let mut by_id: BTreeMap<DevId, Vec<(DeviceIdentity, PathBuf)>> = BTreeMap::new();
    for (identity, path) in candidates.into_iter().filter(|(it, _)| it.fsid == known.newest.fsid) {
        match known.generations.get(&identity.devid) {
            None => by_id.entry(identity.devid).or_default().push((identity, path)),
            Some(generation) if *generation < identity.generation => tracing::warn!(
                "{} is devid {} as well, and newer than the one that was named: it is not used",
                path.display(),
                identity.devid
            ),
            Some(_) => {}
        }
    }
    let is_doubtful = by_id.values().any(|found| found.len() > 1);
    let listed = if is_doubtful { listed(&by_id.values().flatten().collect::<Vec<_>>()) } else { None };
    if let Some(listed) = listed {
        for found in by_id.values_mut().filter(|found| found.len() > 1) {
            found.retain(|(identity, _)| listed.iter().any(|device| device.is(identity)));
        }
    }
    let one = |(devid, found): (DevId, Vec<(DeviceIdentity, PathBuf)>)| {
        if let [(_, first), (_, second), ..] = found.as_slice() {
            tracing::warn!(
                "{} and {} both are devid {devid}: neither is used; name all devices of the pool, with the right one of these",
                first.display(),
                second.display()
            );
            return None;
        }
        found.into_iter().next()
    };
    by_id.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(fsid: u8, devid: u64, generation: u64, devices: u64) -> DeviceIdentity {
        DeviceIdentity {
            fsid: Uuid([fsid; 16]),
            devid: DevId::new(devid),
            uuid: Uuid([9; 16]),
            stored: 0,
            devices,
            generation: Generation::new(generation),
            is_seed: fsid == 1,
        }
    }

    fn listed(devid: u64, placed_in: u64) -> Listed {
        Listed { devid: DevId::new(devid), uuid: Uuid([9; 16]), placed_in: Generation::new(placed_in) }
    }

    #[test]
    fn others_are_of_the_pool_and_there_once() {
        let candidates = [
            (7, 1, "newer than a named one"),
            (7, 2, "b"),
            (8, 3, "of another pool"),
            (7, 3, "d"),
            (7, 4, "one of two"),
            (7, 4, "the other one"),
        ];
        let candidates =
            candidates.map(|(fsid, devid, path)| (device(fsid, devid, 20, 4), PathBuf::from(path)));
        let known = Known::of(&[device(7, 1, 10, 4)]).expect("a device");
        let chosen = choose(&known, candidates.to_vec(), |_| None);
        let chosen: Vec<PathBuf> = chosen.into_iter().map(|(_, path)| path).collect();
        assert_eq!(chosen, [PathBuf::from("b"), PathBuf::from("d")]);
    }

    #[test]
    fn of_two_devices_of_an_id_that_of_the_chunk_tree_is_taken() {
        let known = Known::of(&[device(7, 1, 20, 2)]).expect("a device");
        let (member, mut removed) = (device(7, 2, 20, 2), device(7, 2, 10, 2));
        removed.uuid = Uuid([5; 16]);
        let found = [(removed, PathBuf::from("removed")), (member, PathBuf::from("b"))];
        let chosen = choose(&known, found.to_vec(), |found| {
            assert_eq!(found.len(), 2);
            Some(vec![listed(1, 0), listed(2, 0)])
        });
        assert_eq!(chosen, [(member, PathBuf::from("b"))]);
        assert!(choose(&known, found.to_vec(), |_| None).is_empty(), "the chunk tree can't be read");
        let copies = [found[0].clone(), found[1].clone(), (member, PathBuf::from("a copy"))];
        let one = |_: &[&(DeviceIdentity, PathBuf)]| Some(vec![listed(2, 0)]);
        assert!(choose(&known, copies.to_vec(), one).is_empty(), "copies of one device");
    }

    /// Regression: neither was used, and a pool with a new disk did not mount while the old one was there.
    #[test]
    fn a_device_that_was_replaced_while_it_was_away_gives_way_to_the_one_in_its_place() {
        let known = Known::of(&[device(7, 1, 20, 2)]).expect("a device");
        let found = [
            (device(7, 2, 10, 2), PathBuf::from("old")),
            (device(7, 2, 20, 2), PathBuf::from("in its place")),
        ];
        let chosen = choose(&known, found.to_vec(), |_| Some(vec![listed(1, 0), listed(2, 12)]));
        assert_eq!(chosen, [found[1].clone()]);
        let unmarked = choose(&known, found.to_vec(), |_| Some(vec![listed(1, 0), listed(2, 0)]));
        assert!(unmarked.is_empty(), "nothing tells them apart");
    }

    #[test]
    fn a_pool_is_complete_by_what_its_newest_device_says() {
        let is_complete =
            |named: &[DeviceIdentity]| Known::of(named).is_some_and(|known| known.is_complete());
        assert!(is_complete(&[device(7, 1, 10, 2), device(7, 2, 10, 2)]));
        assert!(is_complete(&[device(1, 1, 5, 1), device(7, 2, 10, 2)]), "one is a seed of the other");
        let stale = [device(7, 1, 5, 2), device(7, 2, 10, 3)];
        assert!(!is_complete(&stale) && !is_complete(&[stale[1], stale[0]]));
        assert!(!is_complete(&[device(7, 1, 5, 2), device(7, 2, 10, 2)]), "one has left the pool");
        assert!(!is_complete(&[device(7, 1, 10, 2), device(8, 2, 10, 2)]), "one is of another pool");
    }
}
