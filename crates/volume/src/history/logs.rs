//! Logs of devices that were written apart by fsyncs alone.
//!
//! A driver that writes a part of a pool, makes no commit, and is cut off, leaves superblocks of the generation that all devices
//! have. Only their logs differ. The pool is *entered* by the superblock of its lowest devid, and the log that this one names is the
//! only one that is replayed. Of every log, the blocks down from its root are compared:
//!
//! - **The log of the superblock by which the pool is entered lies on every device of that generation**, where it has a place. All
//!   blocks of a log are durable, on all devices, before a superblock names it, and are not written over until the next commit: a
//!   mount that finds it replays it. So a device that has a valid block of that transaction with other contents there is of another
//!   history. One that has an older block there, or none at all, was away: it lacks what was fsynced.
//! - **The root of each other log lies on every device of that generation,** or did. After a crash between the superblocks of a
//!   first log, a mount enters by one that names none, and may write over the log's blocks, with others of the same transaction,
//!   before it is cut off too. So these count for nothing. An older block, or none, does not come after a newer one: that
//!   device was away. This is true of the root alone: the blocks that it leads to by now may be those of the later mount, which
//!   was cut off before they were durable everywhere.
//!
//! A block that has no place on the device that names the log is looked at where it has one. What is said of a log and a device holds
//! for each pair of devices: of `raid1` or `raid10`, neither the first device nor the one that names the log need have a copy.
//!
//! A device that names a log may be away for a later one, of which it lacks blocks; if the other device has all of the earlier
//! one, the log has only gone on there. Otherwise both logs are histories.
//!
//! Legal states that prove nothing: superblocks that name different logs, an older one, or none, after a crash between them;
//! devices that hold no superblock of a log, with all of its blocks; blocks that can't be read, or are torn. Where a log has fewer copies than other
//! metadata, the other devices lack its blocks: only brindle writes such a log, in a pool of fast and bulk devices, where its
//! superblocks are of a series, and has absent devices marked by a commit before. So those prove nothing either. Devices with an
//! older superblock are not looked at: they are stale, or slept and have missed nothing, and their logs were ended by a commit.
//!
//! **A missing device** has a superblock that names a log, if it went away between two commits, or in a power cut. The first commit without it
//! has all of that log, and its places are used again. So this commit stores a fingerprint of the log, as far as that has places on
//! the device, beside the mark ([`DevItem::log_fingerprint`](brindle_ondisk::item::DevItem::log_fingerprint)), by which the device is known when it rejoins. With
//! another log, or none stored, it may have been written by itself. Of a log that lay on devices alone that were lost, nothing can be read
//! any more: each commit takes the fingerprint from the blocks in memory as it ends the log.

use super::{BLOCKS, apart_devices};
use crate::device::PoolDevice;
use crate::pool::Pool;
use crate::{Volume, VolumeError};
use brindle_ondisk::{
    ChecksumType, DevId, Generation, Item, KeyType, Logical, Node, NodeExpectation, Superblock,
};
use std::collections::VecDeque;
use std::num::NonZeroU64;

/// Upper bound on the logs of a device of which the fingerprint is known.
const KNOWN_LOGS_MAX: usize = 4;

/// Contents of a device where a block of a log has a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// No place on this device, or it can't be read.
    Nowhere,
    /// Contents that prove nothing.
    Unknown,
    /// The block.
    Same,
    /// Another block of the same transaction.
    Other,
    /// An older block, or zeros.
    Older,
}

/// Block of a log, or of a commit.
pub(super) struct Block {
    pub(super) node: Node,
    /// Device that has it.
    holder: usize,
}

impl Volume {
    /// Compares the logs of devices of the newest generation.
    ///
    /// # Errors
    /// [`VolumeError::Apart`], [`VolumeError::MissedLog`].
    pub(super) fn check_logs(&self, pool: &Pool) -> Result<(), VolumeError> {
        if self.rescue.backup_roots {
            return Ok(());
        }
        let superblock = self.superblock();
        let own = &superblock.dev_item;
        let is_entered = |device: &PoolDevice| device.devid == own.devid && device.uuid == own.uuid;
        let is_newest = |device: &PoolDevice| device.generation == Some(self.opened) && !device.is_seed;
        let newest: Vec<usize> = present(pool).filter(|index| is_newest(&pool.devices[*index])).collect();
        let Some(entered) = newest.iter().copied().find(|index| is_entered(&pool.devices[*index])) else {
            return Ok(());
        };
        let log = self.log_of(pool, entered);
        for index in newest.iter().copied().filter(|index| *index != entered) {
            let held = self.held(pool, index, &log);
            if let Some(block) = held.iter().position(|held| *held == Held::Other) {
                return Err(apart_devices(pool, log[block].holder, index));
            }
        }
        for named in newest.iter().copied() {
            let log = self.log_of(pool, named);
            if let Some(root) = pool.devices[named].superblock.as_deref().and_then(root_of_log) {
                self.note_known_log(named, root, &self.blocks_of(pool, &[named], root, |_| true));
            }
            // Of a log by which the pool is not entered, blocks below the root may be those of another one by now.
            let certain = if named == entered { &log } else { log.get(..1).unwrap_or_default() };
            for index in newest.iter().copied().filter(|index| *index != named) {
                if self.held(pool, index, certain).contains(&Held::Older) {
                    self.check_missed_log(pool, named, index, entered)?;
                }
            }
        }
        Ok(())
    }

    /// Judges a device that lacks a log which the superblock of another one names.
    fn check_missed_log(
        &self,
        pool: &Pool,
        named: usize,
        lacks: usize,
        entered: usize,
    ) -> Result<(), VolumeError> {
        let other = self.log_of(pool, lacks);
        let kept = self.held(pool, named, &other);
        // Without a place for it, nothing tells that the other log is an earlier one.
        let is_known = other.is_empty() || kept.contains(&Held::Same);
        if lacks_any(&kept) || !is_known {
            return Err(apart_devices(pool, named, lacks));
        }
        let has_series = |device: &PoolDevice| {
            device.superblock.as_ref().is_some_and(|superblock| superblock.series().is_some())
        };
        if lacks == entered || !has_series(&pool.devices[named]) {
            return Err(missed_log(pool, named, lacks));
        }
        Ok(())
    }

    /// Returns true if a device, which is in its place in the pool, names a log that no other device of the pool has, and that the pool
    /// had not when it was first written without the device.
    pub(super) fn has_own_log(&self, pool: &Pool, index: usize, superblock: &Superblock) -> bool {
        let Some(root) = root_of_log(superblock) else { return false };
        if pool.chunks.find(root.bytenr).is_none() {
            // Its chunk is gone: nothing tells which log that was.
            return true;
        }
        let blocks = self.blocks_of(pool, &[index], root, |_| true);
        let others: Vec<usize> = present(pool).filter(|other| *other != index).collect();
        let is_held = |block: &Block| {
            others.iter().any(|other| self.held(pool, *other, std::slice::from_ref(block)) == [Held::Same])
        };
        let stored = pool.devices[index].item.log_fingerprint();
        let is_known = fingerprint(&blocks).zip(stored).is_some_and(|(log, stored)| is_one_of(log, stored));
        !is_known && !blocks.iter().all(is_held)
    }

    /// Fingerprint of the log that the last superblock on the devices names, or on this one alone, as far as it has places there, and
    /// of one that this one may name; `None` if there is none, or no such block of it can be read.
    pub fn log_fingerprint(&self, devid: DevId) -> Option<NonZeroU64> {
        let pool = self.snapshot();
        let is_it = |device: &PoolDevice| device.devid == devid && !device.is_intruder && !device.is_seed;
        let index = pool.devices.iter().position(is_it)?;
        self.fingerprint_of_logs_on(&pool, index, root_of_log(&self.superblock()).or(pool.ended_log))
    }

    /// Fingerprint of the logs that the superblock of a device may name: this one, if it names no other one.
    pub(crate) fn fingerprint_of_logs_on(
        &self,
        pool: &Pool,
        index: usize,
        named: Option<NodeExpectation>,
    ) -> Option<NonZeroU64> {
        let device = pool.devices.get(index).filter(|device| !device.has_missed_end)?;
        let roots = [device.names_log.or(named), device.may_name_log];
        let mut logs = roots.into_iter().flatten().filter_map(|root| self.fingerprint_on(pool, index, root));
        let (first, second) = (logs.next()?, logs.next());
        Some(second.map_or(first, |second| either(first, second)))
    }

    /// Takes note of a log that ends, of which devices have the only copies of blocks: after their loss no device has these.
    pub fn note_log_alone(&self, devices: &[DevId], find: impl Fn(Logical) -> Option<Node>) {
        let pool = self.snapshot();
        for devid in devices {
            let is_it =
                |device: &PoolDevice| device.devid == *devid && !device.is_intruder && !device.is_seed;
            let Some(index) = pool.devices.iter().position(is_it) else { continue };
            let device = &pool.devices[index];
            let named = device.names_log.or_else(|| root_of_log(&self.superblock()));
            let has_place = |at| pool.has_place(index, at, self.tree_context().nodesize);
            let found = |expected: &NodeExpectation| {
                let node = has_place(expected.bytenr).then(|| find(expected.bytenr)).flatten()?;
                Some(Block { node, holder: index })
            };
            for root in [named, device.may_name_log].into_iter().flatten() {
                self.note_known_log(index, root, &walk(root, found));
            }
        }
    }

    fn note_known_log(&self, index: usize, root: NodeExpectation, blocks: &[Block]) {
        if let Some(log) = fingerprint(blocks) {
            self.change(|pool| {
                let known = &mut pool.devices[index].known_logs;
                known.insert(0, (root, log));
                known.truncate(KNOWN_LOGS_MAX);
            });
        }
    }

    /// Fingerprint of a log, as far as it has places on a device.
    fn fingerprint_on(&self, pool: &Pool, index: usize, root: NodeExpectation) -> Option<NonZeroU64> {
        let is_it =
            |known: &NodeExpectation| (known.bytenr, known.generation) == (root.bytenr, root.generation);
        if let Some((_, log)) = pool.devices[index].known_logs.iter().find(|(known, _)| is_it(known)) {
            return Some(*log);
        }
        let devices: Vec<usize> =
            present(pool).filter(|index| pool.devices[*index].lost_writes.is_empty()).collect();
        let has_place = |at| pool.has_place(index, at, self.tree_context().nodesize);
        fingerprint(&self.blocks_of(pool, &devices, root, has_place))
    }

    /// Root of the log that devices name which have no superblock of a generation yet, as that is written.
    pub(crate) fn log_that_ends(&self, pool: &Pool, generation: Generation) -> Option<NodeExpectation> {
        let of_others = || pool.ending.filter(|(written, _)| *written == generation).map(|(_, root)| root);
        root_of_log(&self.superblock()).or(pool.ended_log).or_else(of_others)
    }

    /// First blocks of the log that the superblock of a device names, as it has them; those that it does not have, as others do.
    fn log_of(&self, pool: &Pool, index: usize) -> Vec<Block> {
        let root = pool.devices[index].superblock.as_deref().and_then(root_of_log);
        let others = present(pool).filter(|other| *other != index);
        let devices: Vec<usize> = std::iter::once(index).chain(others).collect();
        root.map_or_else(Vec::new, |root| self.blocks_of(pool, &devices, root, |_| true))
    }

    /// First blocks of a log, down from its root, each as the first of some devices has it; those that are meant.
    pub(super) fn blocks_of(
        &self,
        pool: &Pool,
        devices: &[usize],
        root: NodeExpectation,
        is_meant: impl Fn(Logical) -> bool,
    ) -> Vec<Block> {
        let nodesize = self.tree_context().nodesize;
        walk(root, |expected| {
            let on_device = |holder: &usize| {
                let copies = pool.copies_on(*holder, expected.bytenr, nodesize);
                let check = |bytes| Node::check(bytes, self.tree_context(), expected).ok();
                copies.into_iter().find_map(check).map(|node| Block { node, holder: *holder })
            };
            devices.iter().filter(|_| is_meant(expected.bytenr)).find_map(on_device)
        })
    }

    /// Contents of a device in the places of blocks.
    pub(super) fn held(&self, pool: &Pool, index: usize, blocks: &[Block]) -> Vec<Held> {
        let of_block = |Block { node, .. }: &Block| {
            let copies = pool.copies_on(index, node.header().bytenr, self.tree_context().nodesize);
            let held: Vec<Held> = copies.into_iter().map(|copy| self.compare(copy, node)).collect();
            let all = [Held::Same, Held::Other, Held::Unknown, Held::Older];
            all.into_iter().find(|it| held.contains(it)).unwrap_or(Held::Nowhere)
        };
        blocks.iter().map(of_block).collect()
    }

    fn compare(&self, copy: Box<[u8]>, node: &Node) -> Held {
        if *copy == *node.as_bytes() {
            return Held::Same;
        }
        if copy.iter().all(|byte| *byte == 0) {
            return Held::Older;
        }
        let bytenr = node.header().bytenr;
        let expected = NodeExpectation { bytenr, generation: None, level: None, first_key: None };
        match Node::check(copy, self.tree_context(), &expected) {
            Ok(found) if found.generation() < node.generation() => Held::Older,
            Ok(found) if found.generation() == node.generation() => Held::Other,
            _ => Held::Unknown,
        }
    }
}

/// First blocks of a log, down from its root, that are found.
fn walk(root: NodeExpectation, find: impl Fn(&NodeExpectation) -> Option<Block>) -> Vec<Block> {
    let (mut next, mut blocks) = (VecDeque::from([root]), Vec::new());
    while let Some(expected) = next.pop_front().filter(|_| blocks.len() < BLOCKS) {
        let Some(block) = find(&expected) else { continue };
        let node = &block.node;
        let children = node.key_ptrs().iter().filter(|child| Some(child.generation) == root.generation);
        next.extend(children.map(|child| NodeExpectation::child(child, node.level())));
        let items = (0..node.items().len()).filter_map(|slot| node.item(slot));
        let roots = items.filter(|(key, _)| key.item_type == KeyType::ROOT_ITEM);
        next.extend(roots.filter_map(|(key, data)| match Item::parse(&key, data) {
            Ok(Item::Root(item)) if Some(item.generation) == root.generation => {
                Some(NodeExpectation::root(item.bytenr, item.generation, item.level))
            }
            _ => None,
        }));
        blocks.push(block);
    }
    blocks
}

/// Devices that are there.
fn present(pool: &Pool) -> impl Iterator<Item = usize> {
    (0..pool.devices.len()).filter(|index| pool.devices[*index].device.is_some())
}

/// Fingerprint of the first blocks of a log.
fn fingerprint(blocks: &[Block]) -> Option<NonZeroU64> {
    let checksums: Vec<u8> = blocks.iter().flat_map(|block| block.node.header().csum).collect();
    let hash = ChecksumType::Xxhash64.compute(&checksums);
    let hash = <[u8; 8]>::try_from(hash.as_bytes()).expect("the size of an XXH64");
    NonZeroU64::new(u64::from_le_bytes(hash)).filter(|_| !blocks.is_empty())
}

/// Fingerprint of two logs: half of each.
fn either(one: NonZeroU64, other: NonZeroU64) -> NonZeroU64 {
    NonZeroU64::new(half(one.get()) | half(other.get()) << 32).unwrap_or(one)
}

/// Returns true if a log is that of a stored fingerprint, or one of two.
fn is_one_of(log: NonZeroU64, stored: NonZeroU64) -> bool {
    let of_log = half(log.get());
    log == stored || of_log == half(stored.get()) || of_log == stored.get() >> 32
}

fn half(fingerprint: u64) -> u64 {
    fingerprint & u64::from(u32::MAX)
}

/// Returns true if a device lacks a block that has a place there.
fn lacks_any(held: &[Held]) -> bool {
    held.iter().any(|held| !matches!(held, Held::Same | Held::Nowhere))
}

/// Root of the log that a superblock names: a block of the transaction that was running.
pub(crate) fn root_of_log(superblock: &Superblock) -> Option<NodeExpectation> {
    let Superblock { log_root, log_root_level, generation, .. } = superblock;
    let transid = Generation::new(generation.get().saturating_add(1));
    (log_root.get() != 0).then(|| NodeExpectation::root(*log_root, transid, *log_root_level))
}

fn missed_log(pool: &Pool, has: usize, lacks: usize) -> VolumeError {
    let (has, lacks) = (&pool.devices[has], &pool.devices[lacks]);
    VolumeError::MissedLog {
        device: has.name(),
        devid: has.devid,
        generation: has.generation.unwrap_or_default(),
        other: lacks.name(),
        other_devid: lacks.devid,
    }
}
