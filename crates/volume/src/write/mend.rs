//! Writes that a device failed to take, and their repair.
//!
//! A write may fail on some devices as long as the others hold everything. In the same mount the places are known
//! ([`LostWrites`](crate::lost_writes::LostWrites)): nothing is read from there. On disk nothing tells them from
//! what is right, except for a tree block, whose generation and checksum do; data without checksums are wrong
//! then, and parity made anew from something old destroys what it should protect. So that a later mount knows:
//!
//! - Before a superblock is written, what was lost is written again, rebuilt from what the others hold.
//! - A device that still lacks something is *behind*: it gets no superblock of this transaction, nor of any later
//!   one until it has everything.
//! - That a superblock is old does not tell enough, for a crash may come between the superblocks of one commit, and
//!   leave old ones on devices that lack nothing. So the device item, in the chunk tree, says from which generation
//!   on a superblock must be for its device to lack nothing (`btrfs_dev_item.generation`, the generation to be
//!   expected of the device, of which the kernel makes use only for seeds). It must say so in the same transaction:
//!   if a device falls behind when that is settled, the transaction gets no superblocks, and the next one, which
//!   comes at once, holds what both have changed. For a device that is missing, the mark is
//!   the first generation without it, with the highest bit set (`ABSENT`): no superblock comes to that. So one that
//!   was written by itself meanwhile is no newer than its mark, whatever its generation. The mark is as old as the absence;
//!   a replacement, or a device that rejoins, ends it. The fingerprint of the log that the commit ends is stored beside it.
//! - Opening the pool leaves out a device whose superblock is older than its mark.
//!
//! A pool is given up if some chunk can't be read without the devices that are behind. *Expendable* chunks
//! ([`Volume::set_expendable`]) are an exception: their owner has chosen that they have too few copies. If the device of such a chunk
//! fails, the pool goes on with the others; what the chunk holds is lost if the device does not come back. Only what no flush has
//! covered yet must not be lost like that: its writer has not been told, and relies on it.

use crate::chunk::Chunk;
use crate::device::{ABSENT, PoolDevice, count};
use crate::history::logs::root_of_log;
use crate::layout::{STRIP_BYTES, Way};
use crate::lost_writes::Places;
use crate::parity::syndromes;
use crate::pool::Pool;
use crate::{DeviceSet, Volume, WriteError};
use brindle_ondisk::{BlockGroupType, DevId, Generation, to_usize};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

/// A place is written again so often, each time followed by a flush.
const TRIES: usize = 2;

/// Something lost, no longer than a strip and within one.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'p> {
    pub(crate) chunk: &'p Chunk,
    pub(crate) stripe: usize,
    pub(crate) stripe_offset: u64,
    pub(crate) length: u64,
}

impl Piece<'_> {
    /// Its address on the device.
    pub(crate) fn physical(&self) -> u64 {
        self.chunk.stripes[self.stripe].physical.get() + self.stripe_offset
    }
}

impl Volume {
    /// Makes durable everything that was written to the devices of a set before, or else has it known to be lost there.
    /// After that of all devices, superblocks may follow if no device is [to be marked](Self::devices_to_mark).
    pub fn make_whole(&self, set: &DeviceSet) -> Result<(), WriteError> {
        self.flush(set)?;
        for _ in 0..TRIES {
            if !self.mend(set) {
                break;
            }
            self.flush(set)?;
        }
        let pool = self.snapshot();
        let behind = pool.behind();
        if behind.is_empty() || pool.survives(|index| behind.contains(&index)) {
            return Ok(());
        }
        let devices = behind.iter().map(|index| pool.devices[*index].name()).collect();
        Err(WriteError::Behind { devices })
    }

    /// The same, where a failed flush of some devices must not be made good from other copies, for there are none: it is an
    /// error, after which what was written to these devices since their last flush counts for nothing.
    pub fn make_whole_relying_on(&self, set: &DeviceSet, devices: &[DevId]) -> Result<(), WriteError> {
        let failures = || {
            let pool = self.snapshot();
            let meant = pool.devices.iter().filter(|member| devices.contains(&member.devid));
            meant.map(|member| member.counters.flush_errors.load(Relaxed)).sum::<u64>()
        };
        let before = failures();
        self.make_whole(set)?;
        if failures() == before { Ok(()) } else { Err(WriteError::Relied { devices: devices.to_vec() }) }
    }

    /// The devices that lack something, or are missing, while their item expects no more of them than what their
    /// superblock may say.
    pub fn devices_to_mark(&self) -> Vec<DevId> {
        let pool = self.snapshot();
        let behind = pool.behind();
        let is_meant = |(index, device): &(usize, &PoolDevice)| {
            let is_missing = device.writable.is_none();
            let is_member = device.is_confirmed && !device.is_seed && !device.is_intruder;
            // The generation of a missing device is unknown; it was not ahead of the pool.
            let known = device.superblock_generation.load(Relaxed);
            let found = if is_missing { self.opened.get() } else { known };
            is_member && (is_missing || behind.contains(index)) && device.item.generation.get() <= found
        };
        pool.devices.iter().enumerate().filter(is_meant).map(|(_, device)| device.devid).collect()
    }

    /// Returns true if every device is there, and none lacks a write that it failed to take. Otherwise a superblock that is
    /// behind may be that of a device that lacks something.
    pub fn is_whole(&self) -> bool {
        let lacks_nothing = |device: &PoolDevice| {
            let is_member = device.is_confirmed && !device.is_seed && !device.is_intruder;
            !is_member || (device.writable.is_some() && device.lost_writes.is_empty())
        };
        self.snapshot().devices.iter().all(lacks_nothing)
    }

    /// Mark of a device that lacks something from a generation on, for its item.
    pub fn mark_for(&self, devid: DevId, generation: Generation) -> Generation {
        let pool = self.snapshot();
        let is_it = |device: &&PoolDevice| device.devid == devid && !device.is_intruder && !device.is_seed;
        let is_missing = pool.devices.iter().find(is_it).is_some_and(|device| device.writable.is_none());
        if is_missing { Generation::new(generation.get() | ABSENT) } else { generation }
    }

    /// A device's item says that its superblock is to be of this generation at least.
    pub fn mark_device(&self, devid: DevId, generation: Generation) {
        self.change(|pool| {
            if let Some(device) = pool.device_mut(devid) {
                device.item.generation = generation;
            }
        });
    }

    /// A device's item says that it took the place of another one in this generation.
    pub fn note_placement(&self, devid: DevId, generation: Generation) {
        self.change(|pool| {
            if let Some(device) = pool.device_mut(devid) {
                device.item.set_placed_in(generation);
            }
        });
    }

    /// A device's item has the fingerprint of another log.
    pub fn note_log_of(&self, devid: DevId, fingerprint: Option<NonZeroU64>) {
        self.change(|pool| {
            if let Some(device) = pool.device_mut(devid) {
                device.item.set_log_fingerprint(fingerprint);
                device.missed_end_of = None;
            }
        });
    }

    /// Devices with superblocks that name a log which a commit has ended, each with the fingerprint for its item.
    pub fn logs_to_note(&self) -> Vec<(DevId, NonZeroU64)> {
        let pool = self.snapshot();
        pool.devices.iter().filter_map(|device| Some((device.devid, device.missed_end_of?))).collect()
    }

    /// The next superblock follows this one, which is not written.
    pub fn adopt_superblock(&self, superblock: brindle_ondisk::Superblock) {
        if let Some(log) = root_of_log(&self.superblock()) {
            self.change(|pool| pool.ended_log = Some(log));
        }
        self.set_superblock(superblock);
    }

    /// Writes again what devices of a set have lost; returns true if anything was written.
    fn mend(&self, set: &DeviceSet) -> bool {
        let pool = self.snapshot();
        let mut has_written = false;
        let asked = pool.devices.iter().enumerate().filter(|(_, member)| set.contains(member.devid));
        for (index, member) in asked {
            let ranges = if member.lost_writes.is_empty() { None } else { member.lost_writes.ranges() };
            for range in ranges.into_iter().flatten() {
                let pieces = pool.pieces_on(index, range.start, range.end);
                // A device that is gone is not asked a thousand times.
                if !pieces.iter().all(|piece| self.mend_piece(&pool, piece)) {
                    break;
                }
                has_written |= !pieces.is_empty();
                self.forget_unused(index, range.start, range.end);
            }
        }
        has_written
    }

    /// Rewrites a piece if need be; returns true if it is right then.
    fn mend_piece(&self, pool: &Pool, piece: &Piece<'_>) -> bool {
        let place = &piece.chunk.stripes[piece.stripe];
        let member = &pool.devices[place.device];
        let Some(device) = &member.writable else { return false };
        let physical = piece.physical();
        let _no_writers = self.locks.repair();
        if !member.lost_writes.affect(physical, piece.length) {
            return true;
        }
        let Some(bytes) = pool.rebuilt(piece) else {
            return false;
        };
        let begun = member.begin_write();
        match device.write_at(physical, &bytes) {
            Ok(()) => {
                if !member.has_taken(begun, physical, piece.length) {
                    return false;
                }
                count(&member.counters.repaired);
                tracing::info!("{}: wrote {} bytes at offset {physical} again", device.name(), piece.length);
                true
            }
            Err(error) => {
                tracing::warn!("{error}");
                count(&member.counters.write_errors);
                false
            }
        }
    }

    /// Forgets losses outside of chunks, which do not matter. Writes are locked out, so that the chunks are the
    /// present ones.
    fn forget_unused(&self, index: usize, start: u64, end: u64) {
        let _no_writers = self.locks.repair();
        let pool = self.snapshot();
        let lost = &pool.devices[index].lost_writes;
        let mut used: Vec<(u64, u64)> = pool
            .pieces_on(index, start, end)
            .iter()
            .map(|piece| (piece.physical(), piece.physical() + piece.length))
            .collect();
        used.sort_unstable();
        let mut at = start;
        for (from, to) in used.into_iter().chain([(end, end)]) {
            if at < from {
                lost.forget(at, from - at);
            }
            at = at.max(to);
        }
    }
}

impl Pool {
    /// Returns true if every chunk that is not expendable can be read without some devices and the missing ones, and one device is
    /// left.
    pub(super) fn survives(&self, is_lost: impl Fn(usize) -> bool) -> bool {
        let is_lost = |index: usize| {
            let member = &self.devices[index];
            is_lost(index) || (member.writable.is_none() && !member.is_seed)
        };
        let mut needed = self.chunks.iter().filter(|chunk| !self.expendable.contains(&chunk.start));
        needed.all(|chunk| chunk.layout.survives(|stripe| is_lost(chunk.stripes[stripe].device)))
            && (0..self.devices.len()).any(|index| !is_lost(index) && !self.devices[index].is_seed)
    }

    /// Returns true if places of a device hold something of an expendable chunk that can't be read without these devices.
    pub(super) fn is_only_copy(&self, index: usize, places: &Places, lost: &[usize]) -> bool {
        let is_lost = |device: usize| lost.contains(&device) || self.devices[device].writable.is_none();
        let is_alone = |chunk: &Chunk| {
            self.expendable.contains(&chunk.start)
                && !chunk.layout.survives(|stripe| is_lost(chunk.stripes[stripe].device))
        };
        match places.ranges() {
            Some(mut ranges) => ranges.any(|range| {
                self.pieces_on(index, range.start, range.end).iter().any(|piece| is_alone(piece.chunk))
            }),
            None => {
                let is_there = |chunk: &&Chunk| chunk.stripes.iter().any(|stripe| stripe.device == index);
                self.chunks.iter().filter(is_there).any(is_alone)
            }
        }
    }

    /// The devices that must not be taken for whole, because they hold something old that does not tell so itself.
    pub(super) fn behind(&self) -> Vec<usize> {
        (0..self.devices.len()).filter(|index| self.is_behind(*index)).collect()
    }

    /// Returns true if a device must not be taken for whole.
    pub(crate) fn is_behind(&self, index: usize) -> bool {
        let lost = &self.devices[index].lost_writes;
        if lost.is_empty() {
            return false;
        }
        let Some(ranges) = lost.ranges() else { return true };
        let tells = |chunk: &Chunk| !chunk.layout.has_parity() && !chunk.kind.contains(BlockGroupType::DATA);
        ranges.iter().any(|range| {
            self.pieces_on(index, range.start, range.end).iter().any(|piece| !tells(piece.chunk))
        })
    }

    /// Pieces of chunks within a range of a device.
    pub(crate) fn pieces_on(&self, index: usize, start: u64, end: u64) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        for chunk in self.chunks.iter() {
            for (stripe, place) in chunk.stripes.iter().enumerate().filter(|(_, place)| place.device == index)
            {
                let first = place.physical.get();
                let end = end.min(first.saturating_add(chunk.stripe_length()));
                let mut at = start.max(first);
                while at < end {
                    let stripe_offset = at - first;
                    let length = (STRIP_BYTES - stripe_offset % STRIP_BYTES).min(end - at);
                    pieces.push(Piece { chunk, stripe, stripe_offset, length });
                    at += length;
                }
            }
        }
        pieces
    }

    /// Expected contents of a piece, by the other stripes.
    pub(crate) fn rebuilt(&self, piece: &Piece<'_>) -> Option<Vec<u8>> {
        let (chunk, layout) = (piece.chunk, &piece.chunk.layout);
        let run = layout.run_on(piece.stripe, piece.stripe_offset, piece.length);
        let mut bytes = vec![0; to_usize(piece.length)];
        if run.column < layout.columns() {
            let mut others =
                (0..layout.ways()).filter(|way| layout.way(&run, *way) != Way::Direct(piece.stripe));
            return others.any(|way| self.read_run(chunk, &run, way, &mut bytes).is_ok()).then_some(bytes);
        }
        let mut columns = Vec::new();
        for column in 0..layout.columns() {
            let run = crate::layout::Run { column, ..run };
            (0..layout.ways()).find(|way| self.read_run(chunk, &run, *way, &mut bytes).is_ok())?;
            columns.push(bytes.clone());
        }
        let (p, q) = syndromes(&columns.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Some(if run.column == layout.columns() { p } else { q })
    }
}
