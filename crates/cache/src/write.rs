//! The walk of a write. Each block of it goes to a slot that holds nothing, never over older contents; once the slot
//! is written, the block is published there, and the older slot is free, or waits for the commit after which the table on
//! flash does not name it. Blocks that get no slot go to the disk, and are dropped from the cache when they are there.
//!
//! | mode | whole block | part of a cached block | part of another block |
//! |---|---|---|---|
//! | write-back | slot, dirty | slot, dirty, with the rest of its contents | disk |
//! | write-through | disk and slot | disk, dropped | disk |
//! | write-around | disk, dropped | disk, dropped | disk |
//!
//! In write-back mode, blocks of long streams that are not cached go to the disk too, and blocks for which their set has
//! no room, or that the flash failed to take. A spent budget of wear sends every block to the disk, cached ones too, but for those of
//! the veil.

use crate::engine::{Cache, State};
use crate::format::block_checksum;
use crate::read::Piece;
use crate::settings::Mode;
use crate::slots::Room;
use brindle_device::{Batch, DeviceError, WriteRequest};

/// One block of a write.
struct BlockWrite {
    piece: Piece,
    /// The whole block, if the request has only a part of it and the rest is cached.
    merged: Option<Vec<u8>>,
    /// True if it is to get a slot.
    wants_slot: bool,
    /// The slot that it gets.
    slot: Option<u32>,
    /// True if it goes to the disk.
    to_disk: bool,
}

impl BlockWrite {
    fn contents<'b>(&'b self, bytes: &'b [u8]) -> &'b [u8] {
        match &self.merged {
            Some(merged) => merged,
            None => &bytes[self.piece.range()],
        }
    }

    /// First byte on the disk.
    fn place(&self, cache: &Cache) -> u64 {
        match self.merged {
            Some(_) => self.piece.block * cache.geometry.block_bytes,
            None => cache.place_of(&self.piece),
        }
    }
}

/// Outcome of the requests of a write, for each of its blocks.
struct WriteOutcomes {
    in_slot: Vec<bool>,
    on_disk: Vec<bool>,
    error: Option<DeviceError>,
}

impl Cache {
    /// Writes a range that lies within the cache.
    pub(crate) fn write_range(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let _entered = self.enter(offset, bytes.len(), true);
        self.write_entered(offset, bytes)
    }

    /// Writes a range that the caller has entered.
    fn write_entered(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut writes = self.plan_write(offset, bytes.len())?;
        self.merge(&mut writes, bytes)?;
        self.find_room(&mut writes)?;
        let to_disk = writes.iter().filter(|write| write.to_disk);
        if let Err(error) = self.note_tear(to_disk.map(|write| write.piece.block)) {
            let mut state = self.lock();
            writes.iter().filter_map(|write| write.slot).for_each(|slot| state.slots.release(slot));
            return Err(error);
        }
        let outcomes = self.write_out(&writes, bytes);
        let failed = self.publish(&writes, bytes, &outcomes);
        let goes_to_disk = !failed.is_empty() || writes.iter().any(|write| write.to_disk);
        self.note_tear(failed.iter().map(|index| writes[*index].piece.block))?;
        let mut result = outcomes.error.map_or(Ok(()), Err);
        for index in failed {
            let written = self.disk.write_at(writes[index].place(self), writes[index].contents(bytes));
            self.note_disk_error(&written);
            self.note_disk_write(&mut self.lock(), &writes[index].piece, written.is_ok());
            result = result.and(written);
        }
        if goes_to_disk {
            self.lock().note_disk(&result);
        }
        result
    }

    fn plan_write(&self, offset: u64, length: usize) -> Result<Vec<BlockWrite>, DeviceError> {
        let pieces = self.pieces(offset, length);
        let mut locked = self.lock();
        let state = &mut *locked;
        self.check_running(state)?;
        let threshold = state.settings.skip_seq_write_kb;
        let is_stream = state.write_streams.is_skipped(offset, length as u64, threshold);
        let admits = !is_stream && state.settings.cache_all;
        let is_flash_off = state.is_flash_off();
        let plan = |mut piece: Piece| {
            state.look_up(&mut piece);
            let (is_whole, is_cached) = (piece.length == self.block_length(), piece.slot.is_some());
            let wants_slot = !is_flash_off
                && match self.mode {
                    Mode::Back => is_cached || is_whole && admits,
                    Mode::Through => is_whole && (is_cached || admits),
                    Mode::Around => false,
                };
            let counters = &mut state.counters;
            counters.writes += 1;
            counters.write_hits += u64::from(is_cached);
            counters.dirty_write_hits += u64::from(piece.slot.is_some_and(|slot| state.slots.is_dirty(slot)));
            counters.uncached_sequential_writes += u64::from(is_stream && !wants_slot);
            BlockWrite { piece, merged: None, wants_slot, slot: None, to_disk: self.mode != Mode::Back }
        };
        Ok(pieces.into_iter().map(plan).collect())
    }

    /// Reads the rest of cached blocks that are written in part.
    fn merge(&self, writes: &mut [BlockWrite], bytes: &[u8]) -> Result<(), DeviceError> {
        if self.mode != Mode::Back {
            return Ok(());
        }
        let is_part =
            |write: &&mut BlockWrite| write.piece.slot.is_some() && write.piece.length < self.block_length();
        for write in writes.iter_mut().filter(is_part) {
            match self.read_slot(&write.piece)? {
                Some(mut merged) => {
                    merged[write.piece.within..][..write.piece.length]
                        .copy_from_slice(&bytes[write.piece.range()]);
                    write.merged = Some(merged);
                }
                // The disk has the rest.
                None => (write.piece.slot, write.wants_slot) = (None, false),
            }
        }
        Ok(())
    }

    /// Reserves slots. What gets none goes to the disk.
    fn find_room(&self, writes: &mut [BlockWrite]) -> Result<(), DeviceError> {
        for is_last in [false, true] {
            let mut waits = false;
            {
                let mut state = self.lock();
                for write in writes.iter_mut().filter(|write| write.wants_slot && write.slot.is_none()) {
                    match self.room(&mut state, write.piece.block, true) {
                        Room::Slot(slot) => write.slot = Some(slot),
                        Room::AfterCommit if !is_last => waits = true,
                        Room::AfterCommit | Room::None => write.wants_slot = false,
                    }
                }
                if !waits {
                    break;
                }
            }
            if let Err(error) = self.commit() {
                let mut state = self.lock();
                writes.iter().filter_map(|write| write.slot).for_each(|slot| state.slots.release(slot));
                return Err(error);
            }
        }
        let mut state = self.lock();
        for write in writes.iter_mut().filter(|write| write.slot.is_none()) {
            write.to_disk = true;
            state.counters.uncached_writes += 1;
        }
        Ok(())
    }

    /// Writes slots and disk, side by side.
    fn write_out(&self, writes: &[BlockWrite], bytes: &[u8]) -> WriteOutcomes {
        let mut outcomes = WriteOutcomes {
            in_slot: vec![false; writes.len()],
            on_disk: vec![false; writes.len()],
            error: None,
        };
        let flash_runs = runs(writes, |write| write.slot, |before, slot| before + 1 == slot);
        let disk_runs = runs(writes, |write| write.to_disk.then_some(write.piece.block), |_, _| true);
        let mut batch = Batch::default();
        let pieces =
            |run: &[usize]| -> Vec<_> { run.iter().map(|index| writes[*index].contents(bytes)).collect() };
        let mut submitted = Vec::with_capacity(flash_runs.len());
        for run in &flash_runs {
            let slot = writes[run[0]].slot.expect("a run of slots");
            submitted.push(self.flash.submit_write(self.geometry.slot_place(slot), &pieces(run), &mut batch));
        }
        for run in &disk_runs {
            let offset = writes[run[0]].place(self);
            self.disk
                .submit_write(WriteRequest { offset, pieces: pieces(run), is_durable: false }, &mut batch);
        }
        let mut answers = batch.run().into_iter();
        for (run, submitted) in flash_runs.iter().zip(&submitted) {
            let is_fine = self.flash.settle(submitted, &mut answers).is_ok();
            run.iter().for_each(|index| outcomes.in_slot[*index] = is_fine);
        }
        for (run, answer) in disk_runs.iter().zip(answers) {
            self.note_disk_error(&answer);
            run.iter().for_each(|index| outcomes.on_disk[*index] = answer.is_ok());
            if let (Err(error), None) = (answer, &outcomes.error) {
                outcomes.error = Some(error);
            }
        }
        self.lock().counters.disk_writes += disk_runs.len() as u64;
        outcomes
    }

    /// Publishes what was written; blocks that the flash failed to take and the disk has to.
    fn publish(&self, writes: &[BlockWrite], bytes: &[u8], outcomes: &WriteOutcomes) -> Vec<usize> {
        let mut locked = self.lock();
        let state = &mut *locked;
        let mut failed = Vec::new();
        for (index, write) in writes.iter().enumerate() {
            let block = write.piece.block;
            if write.to_disk {
                self.note_disk_write(state, &write.piece, outcomes.on_disk[index]);
            }
            let Some(slot) = write.slot else { continue };
            let is_fine = outcomes.in_slot[index];
            self.note_slot_write(state, is_fine);
            if is_fine && (!write.to_disk || outcomes.on_disk[index]) {
                let checksum = block_checksum(block, write.contents(bytes));
                let is_dirty = !write.to_disk;
                state.slots.publish(state.settings.reclaim_policy, slot, block, checksum, is_dirty);
            } else {
                state.slots.release(slot);
                if !write.to_disk {
                    failed.push(index);
                }
            }
        }
        failed
    }

    /// Takes note of a block that was written to the disk: the cache has older contents, which are dropped. If the write
    /// failed, only a dirty block is still right.
    fn note_disk_write(&self, state: &mut State, piece: &Piece, is_fine: bool) {
        state.disk_unflushed = true;
        if let Some(slot) =
            state.slots.find(piece.block).filter(|slot| is_fine || !state.slots.is_dirty(*slot))
        {
            debug_assert!(
                !is_fine || !state.slots.is_dirty(slot) || piece.slot == Some(slot),
                "a dirty block is not overwritten in part"
            );
            state.slots.forget(piece.block);
            state.counters.write_invalidates += 1;
        }
    }

    /// Discards a range on the disk, and drops it from the cache. A disk that can't leaves all as it was.
    pub(crate) fn discard_range(&self, offset: u64, end: u64) -> Result<bool, DeviceError> {
        let length = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let _entered = self.enter(offset, length, true);
        self.check_running(&self.lock())?;
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let (is_veiled, stop) = self.veiled_run(at, end);
            parts.push((is_veiled, at, stop));
            at = stop;
        }
        // A disk that can't says so before anything is changed.
        for (_, start, stop) in parts.iter().filter(|(is_veiled, ..)| !is_veiled) {
            if !self.discard_part(*start, *stop)? {
                return Ok(false);
            }
        }
        for (_, start, stop) in parts.iter().filter(|(is_veiled, ..)| *is_veiled) {
            let length = usize::try_from(stop - start).expect("a block");
            self.write_entered(*start, &vec![0; length])?;
        }
        Ok(true)
    }

    /// Returns true if a place lies in a block of the veil, and the end of the run of blocks that do, or don't.
    fn veiled_run(&self, at: u64, end: u64) -> (bool, u64) {
        let state = self.lock();
        let (pinned, length) = (state.slots.pinned(), self.geometry.block_bytes);
        let block = at / length;
        let stop = match pinned.binary_search(&block) {
            Ok(_) => (block + 1) * length,
            Err(next) => pinned.get(next).map_or(end, |next| next * length),
        };
        (pinned.binary_search(&block).is_ok(), stop.min(end))
    }

    /// Discards a range without blocks of the veil.
    fn discard_part(&self, offset: u64, end: u64) -> Result<bool, DeviceError> {
        if !self.on_disk(self.disk.discard(offset, end - offset))? {
            return Ok(false);
        }
        let block_bytes = self.geometry.block_bytes;
        let (first, last) = (offset.div_ceil(block_bytes), end / block_bytes);
        {
            let mut state = self.lock();
            state.disk_unflushed = true;
            state.slots.forget_range(first, last);
        }
        // Parts of blocks at both ends, which may be cached.
        let edges = if first > last {
            vec![(offset, end)]
        } else {
            vec![(offset, first * block_bytes), (last * block_bytes, end)]
        };
        for (start, end) in edges.into_iter().filter(|(start, end)| start < end) {
            let is_cached = self.lock().slots.find(start / block_bytes).is_some();
            if is_cached {
                let length = usize::try_from(end - start).expect("less than a block");
                self.write_entered(start, &vec![0; length])?;
            }
        }
        Ok(true)
    }
}

/// Adjacent writes that one request to a device makes, by their indices: those with a number, as long as each `follows` the one
/// before.
fn runs<N: Copy>(
    writes: &[BlockWrite],
    number: impl Fn(&BlockWrite) -> Option<N>,
    follows: impl Fn(N, N) -> bool,
) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut before: Option<(usize, N)> = None;
    for (index, write) in writes.iter().enumerate() {
        let Some(number) = number(write) else { continue };
        let is_next = before.is_some_and(|(last, before)| last + 1 == index && follows(before, number));
        match runs.last_mut() {
            Some(run) if is_next => run.push(index),
            _ => runs.push(vec![index]),
        }
        before = Some((index, number));
    }
    runs
}
