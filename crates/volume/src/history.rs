//! Devices that were written apart: each half of a mirrored pool by itself, with `degraded`, and then given together.
//!
//! Nothing but its contents tells such a half from a device that took part in everything, and both may be of one generation. Five
//! looks, by what every driver writes:
//! 1. *Superblocks* ([`contradiction`]). Those of one generation lead to the same roots, and each keeps the roots of the last four
//!    commits: two superblocks that have different roots for one generation are of different histories.
//! 2. *Copies* ([`Volume::check_chunk_tree`], [`Volume::check_histories`]). Two halves that did the same take the same places for their roots. So the copies of a few
//!    blocks are compared, from the roots of the chunk tree and of the root tree on: valid ones of one address and one generation
//!    are the same bytes, or the work of two writers. The first leaf of the chunk tree has the marks of missing devices, that of
//!    the root tree the times of the trees. The root of an older superblock is compared with what the other devices still have there.
//! 3. *The newest roots.* A device that is one commit behind was cut off between two superblocks, and then holds all blocks of the
//!    newest commit; one without the newest root has missed that commit, and is stale. So has one that lacks another of the first
//!    blocks of that commit: of `raid1` or `raid10`, it may have no place for the root.
//! 4. *Marks.* A device that has been written since the pool is written without it, by its mark in the chunk tree, and lacks the newest
//!    root, was written apart. One that holds it was taken in again by a system that does not know the mark, and is stale until it
//!    is replaced: nothing tells that it has everything. A device with an older superblock has marks of its own ([`marks`]): one
//!    of a device that has come to it and that the pool knows nothing of is a mark of another history.
//! 5. *Logs* ([`logs`]). The log that the superblocks of the newest commit name lies on all devices that have it.
//!
//! Of two devices with one devid, the newer one counts, unless others of the pool go with the older one: then a device that was
//! replaced while it was away has been written by itself since.
//!
//! None of them takes a legal state for two histories. A crash leaves superblocks of different ages, which have recorded the same
//! roots for the same generations; a device that slept is an ancestor; a lost write of a tree block leaves an older one, which
//! has another generation. Not found: halves of one generation that agree in all of these blocks, and rebuilt blocks of parity, which
//! only superblocks tell.

pub(crate) mod logs;
mod marks;

use crate::pool::Pool;
use crate::scan::{Found, Scan, may_be_asleep};
use crate::writable::generation_before;
use crate::{Volume, VolumeError};
use brindle_device::Device;
use brindle_ondisk::{DevId, Generation, Logical, Node, NodeExpectation, Superblock};
use logs::Held;
use std::collections::VecDeque;
use std::sync::Arc;

/// Upper bound on the blocks of which copies are compared.
const BLOCKS: usize = 16;

/// Roots of a commit.
#[derive(Clone, Copy)]
struct Roots {
    root: Logical,
    /// In a backup it may be that of the next commit already.
    chunk_root: Option<Logical>,
}

impl Roots {
    fn may_be(&self, other: &Self) -> bool {
        let chunk_roots = self.chunk_root.zip(other.chunk_root);
        self.root == other.root && chunk_roots.is_none_or(|(own, other)| own == other)
    }
}

/// Generation for which two superblocks have different roots; `None` if they may be of one history.
fn contradiction(one: &Superblock, other: &Superblock) -> Option<Generation> {
    let (theirs, own) = (recorded(other), recorded(one));
    let differs = |generation: Generation| {
        let of = |all: &[(Generation, Roots)]| -> Vec<Roots> {
            all.iter().filter(|(at, _)| *at == generation).map(|(_, roots)| *roots).collect()
        };
        let (own, theirs) = (of(&own), of(&theirs));
        !theirs.is_empty() && !own.iter().any(|roots| theirs.iter().any(|other| roots.may_be(other)))
    };
    own.iter().map(|(generation, _)| *generation).filter(|generation| differs(*generation)).min()
}

/// Roots of the last commits that a superblock has recorded, its own among them.
fn recorded(superblock: &Superblock) -> Vec<(Generation, Roots)> {
    let newest = superblock.generation;
    // An entry of a later commit was made while that was under way.
    let is_past = |at: Generation| at.get() > 0 && at < newest;
    let backups = superblock.super_roots.iter().filter(|backup| is_past(backup.tree_root_gen));
    let own = (newest, Roots { root: superblock.root, chunk_root: Some(superblock.chunk_root) });
    backups
        .map(|backup| (backup.tree_root_gen, Roots { root: backup.tree_root, chunk_root: None }))
        .chain([own])
        .collect()
}

impl Scan {
    /// Checks that the superblocks of the members are of one history.
    ///
    /// # Errors
    /// [`VolumeError::Apart`], [`VolumeError::Rivals`].
    pub(crate) fn check_histories(&self) -> Result<(), VolumeError> {
        self.check_duplicates()?;
        let uuid = self.superblock.dev_item.uuid;
        let newest = self.members.iter().find(|found| found.superblock.dev_item.uuid == uuid);
        let Some(newest) = newest else { return Ok(()) };
        let contradicts = |found: &&Found| contradiction(&newest.superblock, &found.superblock).is_some();
        let Some(other) = self.members.iter().find(contradicts) else { return Ok(()) };
        let describe = |found: &Found| (found.device.name().to_owned(), found.devid(), found.generation());
        Err(apart(describe(newest), describe(other)))
    }
}

type Named = (String, DevId, Generation);

impl Scan {
    /// Checks that the newest device is not one that was replaced while it was away, and then written by itself: that the others don't go
    /// with another one of its devid.
    fn check_duplicates(&self) -> Result<(), VolumeError> {
        let is_newest = |found: &&Found| found.generation() == self.superblock.generation;
        for other in &self.duplicates {
            let Some(newest) = self.members.iter().filter(is_newest).find(|it| it.devid() == other.devid())
            else {
                continue;
            };
            let goes_with = |member: &Found, found: &Found| {
                (member.devid() != found.devid() && member.generation() == found.generation())
                    && contradiction(&member.superblock, &found.superblock).is_none()
            };
            let is_stale = |member: &Found| {
                let is_old = member.generation() < generation_before(&newest.superblock)
                    && !may_be_asleep(&member.superblock, &self.superblock, self.holders);
                is_old || contradiction(&newest.superblock, &member.superblock).is_some()
            };
            if self.members.iter().any(|member| goes_with(member, newest)) {
                continue;
            }
            let Some(member) =
                self.members.iter().find(|member| goes_with(member, other) && is_stale(member))
            else {
                continue;
            };
            let name = |found: &Found| found.device.name().to_owned();
            let (generation, other_generation) = (newest.generation(), other.generation());
            let (device, other, member) = (name(newest), name(other), name(member));
            let devid = newest.devid();
            return Err(VolumeError::Rivals { device, generation, other, other_generation, devid, member });
        }
        Ok(())
    }
}

fn apart(one: Named, other: Named) -> VolumeError {
    let (device, devid, generation) = one;
    let (other, other_devid, other_generation) = other;
    VolumeError::Apart { device, devid, generation, other, other_devid, other_generation }
}

impl Volume {
    /// Compares copies of the first blocks of the chunk tree: before it is read.
    ///
    /// # Errors
    /// [`VolumeError::Apart`].
    pub(crate) fn check_chunk_tree(&self) -> Result<(), VolumeError> {
        let superblock = self.superblock();
        let Superblock { chunk_root, chunk_root_generation, chunk_root_level, .. } = &*superblock;
        let root = NodeExpectation::root(*chunk_root, *chunk_root_generation, *chunk_root_level);
        self.check_tree(&self.snapshot(), root)
    }

    /// The same of the root tree, once all chunks and devices are known. A device that is one commit behind and lacks the newest root
    /// is stale. One that the pool is written without is compared before it is let go of.
    ///
    /// # Errors
    /// [`VolumeError::Apart`], [`VolumeError::MissedLog`].
    pub(crate) fn check_histories(&self) -> Result<(), VolumeError> {
        let superblock = self.superblock();
        if superblock.generation != self.opened {
            return Ok(());
        }
        let root = root_of(&superblock);
        let pool = self.snapshot().with_left_out();
        self.change(Pool::forget_left_out);
        self.check_tree(&pool, root)?;
        self.check_logs(&pool)?;
        // Older roots: what the others still have there is of that history.
        for (index, device) in pool.devices.iter().enumerate().filter(|(_, device)| !device.is_seed) {
            let Some(older) = device.superblock.as_ref().filter(|it| it.generation < superblock.generation)
            else {
                continue;
            };
            self.compare_copies(&pool, &root_of(older))?;
            if let Some(other) = self.written_after_mark(&pool, index, older).filter(|_| !device.is_asleep) {
                return Err(apart_devices(&pool, other, index));
            }
        }
        let lacking = self.without_root(&pool, &root);
        let suspects: Vec<usize> = (0..pool.devices.len()).filter(|index| pool.is_suspect(*index)).collect();
        let is_of_newest = |index: &usize| pool.devices[*index].generation == Some(self.opened);
        let newest = (0..pool.devices.len()).find(|index| is_of_newest(index) && !suspects.contains(index));
        let apart = suspects.iter().find(|index| !is_of_newest(index) && lacking.contains(index));
        if let (Some(newest), Some(other)) = (newest, apart) {
            return Err(apart_devices(&pool, newest, *other));
        }
        drop(pool);
        if !lacking.is_empty() || !suspects.is_empty() {
            let context = self.mark_context();
            let stale = lacking.iter().chain(&suspects);
            self.change(|pool| stale.for_each(|index| pool.has_missed_commit(*index, &context)));
        }
        Ok(())
    }

    /// Returns true if a missing device, which is given with its superblock, has roots or marks of another history than this pool.
    pub fn contradicts(&self, devid: DevId, device: &Arc<dyn Device>, superblock: &Superblock) -> bool {
        let Superblock { chunk_root, chunk_root_generation, chunk_root_level, .. } = superblock;
        let Some((pool, index)) = self.with_missing(devid, device, superblock) else { return false };
        let chunk_root = NodeExpectation::root(*chunk_root, *chunk_root_generation, *chunk_root_level);
        let roots = [root_of(superblock), chunk_root];
        contradiction(&self.superblock(), superblock).is_some()
            || roots.iter().any(|root| self.compare_copies(&pool, root).is_err())
            || self.written_after_mark(&pool, index, superblock).is_some()
    }

    /// Returns true if a missing device, which is given with its superblock, names a log that the pool's devices do not hold: it may have
    /// what was fsynced on that device alone.
    pub fn lacks_log_of(&self, devid: DevId, device: &Arc<dyn Device>, superblock: &Superblock) -> bool {
        let with_missing = self.with_missing(devid, device, superblock);
        with_missing.is_some_and(|(pool, index)| self.has_own_log(&pool, index, superblock))
    }

    /// The pool with a missing device, and the index of that.
    fn with_missing(
        &self,
        devid: DevId,
        device: &Arc<dyn Device>,
        superblock: &Superblock,
    ) -> Option<(Pool, usize)> {
        let mut pool = Pool::clone(&self.snapshot());
        let member = pool.device_mut(devid)?;
        (member.device, member.generation) = (Some(Arc::clone(device)), Some(superblock.generation));
        let uuid = member.uuid;
        let index = pool.devices.iter().position(|member| member.uuid == uuid && member.devid == devid)?;
        Some((pool, index))
    }

    /// Compares copies of the first blocks of a tree: on the way to its first leaf, and those that were written with their parents.
    fn check_tree(&self, pool: &Pool, root: NodeExpectation) -> Result<(), VolumeError> {
        if self.rescue.backup_roots {
            return Ok(());
        }
        let mut next = VecDeque::from([root]);
        for _ in 0..BLOCKS {
            let Some(expected) = next.pop_front() else { break };
            let Some(node) = self.compare_copies(pool, &expected)? else { continue };
            let pointers = node.key_ptrs().iter().enumerate();
            let chosen = pointers.filter(|(slot, it)| *slot == 0 || it.generation == node.generation());
            next.extend(chosen.map(|(_, pointer)| NodeExpectation::child(pointer, node.level())));
        }
        Ok(())
    }

    /// Compares the copies of a block; returns it, if there is a need to look further. What a device holds of a generation that
    /// its superblock has not come to counts for nothing: a crash may have left it.
    fn compare_copies(&self, pool: &Pool, expected: &NodeExpectation) -> Result<Option<Node>, VolumeError> {
        let generation = |index: usize| pool.devices[index].generation.unwrap_or_default();
        let mut copies = self.valid_copies(pool, expected);
        copies.retain(|(index, copy)| copy.generation() <= generation(*index));
        let Some(((first, node), others)) = copies.split_first() else { return Ok(None) };
        if let Some((other, _)) = others.iter().find(|(_, copy)| copy.as_bytes() != node.as_bytes()) {
            return Err(apart_devices(pool, *first, *other));
        }
        Ok((!others.is_empty()).then(|| node.clone()))
    }

    /// The copies of a block that are of its address and its generation, each with its device, where several devices have one.
    fn valid_copies(&self, pool: &Pool, expected: &NodeExpectation) -> Vec<(usize, Node)> {
        let expected = NodeExpectation { level: None, first_key: None, ..*expected };
        let read = pool.direct_copies(expected.bytenr, self.tree_context().nodesize);
        let check = |(index, bytes): (usize, Box<[u8]>)| {
            let node = Node::check(bytes, self.tree_context(), &expected).ok()?;
            Some((index, node))
        };
        read.into_iter().filter_map(check).collect()
    }

    /// Devices that are one commit behind, or newer than their mark, and lack the newest root or another one of the first blocks of
    /// that commit, where it has a place there; those newer than their mark also where there is none.
    fn without_root(&self, pool: &Pool, root: &NodeExpectation) -> Vec<usize> {
        let is_meant = |index: &usize| {
            let device = &pool.devices[*index];
            let is_behind_by_one = device.is_stale && !device.is_incomplete;
            device.device.is_some() && !device.is_seed && (is_behind_by_one || pool.is_suspect(*index))
        };
        let mut lacking: Vec<usize> = (0..pool.devices.len()).filter(is_meant).collect();
        if lacking.is_empty() {
            return lacking;
        }
        let is_newest = |index: &usize| pool.devices[*index].generation == Some(self.opened);
        let newest: Vec<usize> = (0..pool.devices.len()).filter(is_newest).collect();
        let blocks = self.blocks_of(pool, &newest, *root, |_| true);
        let Some(first) = blocks.first().filter(|block| block.node.header().bytenr == root.bytenr) else {
            return Vec::new();
        };
        lacking.retain(|index| {
            let held = self.held(pool, *index, std::slice::from_ref(first));
            let has_root = held == [Held::Same] || held == [Held::Nowhere] && !pool.is_suspect(*index);
            !has_root || self.held(pool, *index, &blocks).contains(&Held::Older)
        });
        lacking
    }
}

/// Root of the root tree of a superblock.
fn root_of(superblock: &Superblock) -> NodeExpectation {
    NodeExpectation::root(superblock.root, superblock.generation, superblock.root_level)
}

fn apart_devices(pool: &Pool, one: usize, other: usize) -> VolumeError {
    let named = |index: usize| {
        let device = &pool.devices[index];
        (device.name(), device.devid, device.generation.unwrap_or_default())
    };
    apart(named(one), named(other))
}
