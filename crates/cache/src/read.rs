//! The walk of a read: its blocks are looked up; those that are cached are read from the flash, and all runs between them
//! from the disk, side by side. Each block from the flash is verified; one that is wrong comes from the mirror, if there is one. A clean one that is wrong all the same is dropped and read
//! from the disk; a dirty one is an error. Blocks that came from the disk are taken in, unless the stream is long, the
//! budget of wear is spent, or the cache is told not to.

use crate::engine::{Cache, State};
use crate::format::block_checksum;
use crate::slots::Room;
use brindle_device::{Batch, Buffer, DeviceError, PendingRead, ReadRequest};
use std::borrow::Cow;
use std::io;
use std::ops::Range;

/// Part of a request that lies within one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) block: u64,
    /// First byte within the block.
    pub(crate) within: usize,
    /// First byte within the request.
    pub(crate) at: usize,
    pub(crate) length: usize,
    /// The slot that holds the block.
    pub(crate) slot: Option<u32>,
    /// Checksum of the slot.
    pub(crate) checksum: u32,
}

impl Piece {
    /// Its bytes within the request.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + self.length
    }
}

/// Adjacent pieces that one request to a device reads.
struct Run {
    pieces: Range<usize>,
    is_hit: bool,
    /// Index of the SSD that reads it, if it is one of hits.
    reader: usize,
}

/// A read, planned.
struct ReadPlan {
    pieces: Vec<Piece>,
    runs: Vec<Run>,
    /// True if blocks that are missed are to be taken in.
    fills: bool,
}

impl State {
    /// Finds the slot of a piece, and takes note of the use. A block that is doubted comes from the disk.
    pub(crate) fn look_up(&mut self, piece: &mut Piece) {
        piece.slot = self.slots.find(piece.block).filter(|slot| !self.slots.is_doubted(*slot));
        if let Some(slot) = piece.slot {
            piece.checksum = self.slots.checksum(slot);
            self.slots.hit(self.settings.reclaim_policy, slot);
        }
    }

    /// Compares a doubted block with contents of the disk: trusts it and returns true, or drops it.
    fn compare(&mut self, slot: u32, block: u64, contents: &[u8]) -> bool {
        let is_same = block_checksum(block, contents) == self.slots.checksum(slot);
        if is_same {
            self.slots.trust(slot);
            self.slots.hit(self.settings.reclaim_policy, slot);
        } else {
            self.slots.forget(block);
            self.counters.read_invalidates += 1;
        }
        is_same
    }
}

impl Cache {
    /// Reads a range that lies within the cache.
    pub(crate) fn read_range(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let begun = self.clock.now();
        let (entered, plan) = {
            let (entered, mut state) = self.enter_locked(offset, buffer.len(), false);
            (entered, self.plan_read(&mut state, offset, buffer.len()))
        };
        // One run is read by this thread; nothing is waited for beside it.
        if let [run] = plan.runs.as_slice() {
            if run.is_hit {
                self.read_hits(run, &plan.pieces, buffer)?;
            } else {
                self.on_disk(self.disk.read_at(offset, buffer))?;
            }
        } else {
            let pending = self.submit(&plan);
            for (run, pending) in plan.runs.iter().zip(pending) {
                let answer = pending.wait();
                self.take_answer(run, &plan.pieces, answer, buffer)?;
            }
        }
        if plan.fills {
            self.fill(&plan.pieces, buffer);
        }
        entered.end(|state| state.note_time(begun, self.clock.now(), |latencies| &mut latencies.reads));
        Ok(())
    }

    /// Cuts a range at the bounds of blocks.
    pub(crate) fn pieces(&self, offset: u64, length: usize) -> Vec<Piece> {
        let block_length = self.block_length();
        let mut pieces = Vec::with_capacity(length / block_length + 2);
        let mut at = 0;
        while at < length {
            let place = offset + at as u64;
            let within = usize::try_from(place % self.geometry.block_bytes).expect("less than a block");
            let piece_length = (block_length - within).min(length - at);
            let block = place / self.geometry.block_bytes;
            pieces.push(Piece { block, within, at, length: piece_length, slot: None, checksum: 0 });
            at += piece_length;
        }
        pieces
    }

    /// Looks the blocks up, and cuts them into runs.
    fn plan_read(&self, state: &mut State, offset: u64, length: usize) -> ReadPlan {
        let mut pieces = self.pieces(offset, length);
        let threshold = state.settings.skip_seq_read_kb;
        let is_stream = state.read_streams.is_skipped(offset, length as u64, threshold);
        let mut missed = 0;
        for piece in &mut pieces {
            state.look_up(piece);
            missed += u64::from(piece.slot.is_none());
        }
        let runs = self.runs(&pieces);
        let hit_runs = runs.iter().filter(|run| run.is_hit).count() as u64;
        let fills = !is_stream && state.settings.cache_all && state.superblock.is_write_only == 0;
        let fills = fills && !state.is_flash_off() && state.stopped.is_none();
        let counters = &mut state.counters;
        counters.reads += pieces.len() as u64;
        counters.read_hits += pieces.len() as u64 - missed;
        counters.ssd_reads += hit_runs;
        counters.disk_reads += runs.len() as u64 - hit_runs;
        if !fills {
            counters.uncached_reads += missed;
            counters.uncached_sequential_reads += if is_stream { missed } else { 0 };
        }
        ReadPlan { pieces, runs, fills: fills && missed > 0 }
    }

    fn runs(&self, pieces: &[Piece]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let follows = index > 0
                && match (pieces[index - 1].slot, piece.slot) {
                    (Some(before), Some(slot)) => before + 1 == slot,
                    (before, slot) => before == slot,
                };
            match runs.last_mut() {
                Some(run) if follows => run.pieces.end += 1,
                _ => {
                    let reader = piece.slot.map_or(0, |slot| self.flash.reader_of(slot));
                    runs.push(Run { pieces: index..index + 1, is_hit: piece.slot.is_some(), reader });
                }
            }
        }
        runs
    }

    /// Submits all runs, those of a device together; the pending reads are in their order.
    fn submit(&self, plan: &ReadPlan) -> Vec<PendingRead> {
        let device = |run: &Run| run.is_hit.then_some(run.reader);
        let request = |run: &Run| {
            let pieces = &plan.pieces[run.pieces.clone()];
            match pieces[0].slot {
                Some(slot) => {
                    ReadRequest::new(self.geometry.slot_place(slot), pieces.len() * self.block_length())
                }
                None => {
                    ReadRequest::new(self.place_of(&pieces[0]), pieces.iter().map(|piece| piece.length).sum())
                }
            }
        };
        let mut pending: Vec<(usize, PendingRead)> = Vec::with_capacity(plan.runs.len());
        for chosen in [None, Some(0), Some(1)] {
            let of_device = || plan.runs.iter().enumerate().filter(|(_, run)| device(run) == chosen);
            let requests: Vec<ReadRequest> = of_device().map(|(_, run)| request(run)).collect();
            let submitted = match (requests.is_empty(), chosen) {
                (true, _) => continue,
                (false, None) => self.disk.submit_reads(&requests),
                (false, Some(reader)) => self.flash.submit_reads(reader, &requests),
            };
            pending.extend(of_device().map(|(index, _)| index).zip(submitted));
        }
        pending.sort_unstable_by_key(|(index, _)| *index);
        pending.into_iter().map(|(_, pending)| pending).collect()
    }

    /// Reads a request that is one run of hits; whole blocks without a copy.
    fn read_hits(&self, run: &Run, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), DeviceError> {
        let place = self.geometry.slot_place(pieces[0].slot.expect("a cached block"));
        let length = pieces.len() * self.block_length();
        if buffer.len() < length {
            let mut whole = Buffer::new(length);
            let read = self.flash.read_at(run.reader, place, &mut whole);
            return self.take_hits(run, pieces, read.is_ok().then_some(&whole), buffer);
        }
        let read = self.flash.read_at(run.reader, place, buffer);
        self.note_hits(run, read.is_ok());
        for piece in pieces {
            let found = read.is_ok().then_some(&buffer[piece.range()]);
            let repaired = match self.verified(piece, run.reader, found)? {
                Some(Cow::Borrowed(_)) => continue,
                Some(Cow::Owned(contents)) => Some(contents),
                None => None,
            };
            match repaired {
                Some(contents) => buffer[piece.range()].copy_from_slice(&contents),
                None => self.on_disk(self.disk.read_at(self.place_of(piece), &mut buffer[piece.range()]))?,
            }
        }
        Ok(())
    }

    /// Takes note of a read of the flash.
    fn note_hits(&self, run: &Run, is_fine: bool) {
        self.note_flash(&mut self.lock(), is_fine || self.flash.other(run.reader).is_some());
    }

    fn take_answer(
        &self,
        run: &Run,
        pieces: &[Piece],
        answer: Result<Buffer, DeviceError>,
        buffer: &mut [u8],
    ) -> Result<(), DeviceError> {
        let pieces = &pieces[run.pieces.clone()];
        if !run.is_hit {
            let bytes = self.on_disk(answer)?;
            buffer[pieces[0].at..][..bytes.len()].copy_from_slice(&bytes);
            return Ok(());
        }
        let bytes = self.flash.noted(run.reader, answer).ok();
        self.take_hits(run, pieces, bytes.as_deref(), buffer)
    }

    /// Takes cached blocks from what their SSD has told of them.
    fn take_hits(
        &self,
        run: &Run,
        pieces: &[Piece],
        bytes: Option<&[u8]>,
        buffer: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.note_hits(run, bytes.is_some());
        for (number, piece) in pieces.iter().enumerate() {
            let block = number * self.block_length()..(number + 1) * self.block_length();
            let found = bytes.map(|bytes| &bytes[block]);
            match self.verified(piece, run.reader, found)? {
                Some(contents) => {
                    buffer[piece.range()].copy_from_slice(&contents[piece.within..][..piece.length]);
                }
                None => self.on_disk(self.disk.read_at(self.place_of(piece), &mut buffer[piece.range()]))?,
            }
        }
        Ok(())
    }

    /// The contents of a cached block that one SSD has; if they are wrong, those of its mirror. A clean block that is wrong
    /// on both is dropped from the cache: the disk has it.
    ///
    /// # Errors
    /// A dirty block that is wrong.
    fn verified<'b>(
        &self,
        piece: &Piece,
        reader: usize,
        found: Option<&'b [u8]>,
    ) -> Result<Option<Cow<'b, [u8]>>, DeviceError> {
        let slot = piece.slot.expect("a cached block");
        if let Some(contents) = found.filter(|bytes| block_checksum(piece.block, bytes) == piece.checksum) {
            return Ok(Some(Cow::Borrowed(contents)));
        }
        if let Some(contents) = self.rescue(reader, slot, piece.block, piece.checksum) {
            self.lock().counters.checksum_errors += u64::from(found.is_some());
            return Ok(Some(Cow::Owned(contents)));
        }
        let mut state = self.lock();
        if found.is_some() {
            state.counters.checksum_errors += 1;
        }
        // Cleaned since it was looked up, it may even be gone: another reader found the same.
        let is_held = state.slots.find(piece.block) == Some(slot);
        if !is_held || !state.slots.is_dirty(slot) {
            if is_held {
                state.slots.forget(piece.block);
                state.counters.read_invalidates += 1;
            }
            return Ok(None);
        }
        let why = format!("the dirty block at {} of {} is damaged", self.place_of(piece), self.flash.name());
        Err(DeviceError::Read {
            device: self.name.clone(),
            offset: piece.block * self.geometry.block_bytes,
            length: self.block_length(),
            source: io::Error::other(why),
        })
    }

    /// Reads a cached block whole.
    ///
    /// # Errors
    /// A dirty block that is damaged. `None` for a clean one.
    pub(crate) fn read_slot(&self, piece: &Piece) -> Result<Option<Vec<u8>>, DeviceError> {
        let slot = piece.slot.expect("a cached block");
        let mut contents = vec![0; self.block_length()];
        let reader = self.flash.reader_of(slot);
        let read = self.flash.read_at(reader, self.geometry.slot_place(slot), &mut contents);
        {
            let mut state = self.lock();
            self.note_flash(&mut state, read.is_ok() || self.flash.other(reader).is_some());
            state.counters.ssd_reads += 1;
        }
        let found = read.is_ok().then_some(contents.as_slice());
        Ok(self.verified(piece, reader, found)?.map(Cow::into_owned))
    }

    /// Place of a piece on the disk.
    pub(crate) fn place_of(&self, piece: &Piece) -> u64 {
        piece.block * self.geometry.block_bytes + piece.within as u64
    }

    /// Takes in whole blocks that came from the disk.
    fn fill(&self, pieces: &[Piece], buffer: &[u8]) {
        let is_whole = |piece: &&Piece| piece.slot.is_none() && piece.length == self.block_length();
        let mut filled: Vec<(Piece, u32)> = Vec::new();
        {
            let mut locked = self.lock();
            let state = &mut *locked;
            for piece in pieces.iter().filter(is_whole) {
                // Another reader may have taken it in; one that left meanwhile is none of the misses.
                let held = state.slots.find(piece.block);
                let counts = |slot| {
                    !state.slots.is_doubted(slot) || state.compare(slot, piece.block, &buffer[piece.range()])
                };
                if held.is_some_and(counts) {
                    continue;
                }
                match self.room(state, piece.block, false) {
                    Room::Slot(slot) => filled.push((*piece, slot)),
                    Room::AfterCommit | Room::None => state.counters.uncached_reads += 1,
                }
            }
        }
        let mut batch = Batch::default();
        let mut submitted = Vec::with_capacity(filled.len());
        for (piece, slot) in &filled {
            let offset = self.geometry.slot_place(*slot);
            submitted.push(self.flash.submit_write(offset, &[&buffer[piece.range()]], &mut batch));
        }
        let mut answers = batch.run().into_iter();
        let answers: Vec<_> = submitted.iter().map(|write| self.flash.settle(write, &mut answers)).collect();
        let mut locked = self.lock();
        let state = &mut *locked;
        for ((piece, slot), answer) in filled.iter().zip(answers) {
            self.note_slot_write(state, answer.is_ok());
            if answer.is_err() || state.slots.find(piece.block).is_some() {
                state.slots.release(*slot);
                continue;
            }
            let checksum = block_checksum(piece.block, &buffer[piece.range()]);
            state.slots.publish(state.settings.reclaim_policy, *slot, piece.block, checksum, false);
        }
    }

    /// Room for a block, if it may be taken in.
    pub(crate) fn room(&self, state: &mut State, block: u64, is_write: bool) -> Room {
        if block >= self.whole_blocks() {
            return Room::None;
        }
        // The disk has the mark in the place of a block of the veil.
        let needs_budget = !state.slots.is_pinned(block);
        if needs_budget && !state.wear.allows(self.geometry.block_bytes, self.clock.now()) {
            state.counters.wear_refusals += 1;
            return Room::None;
        }
        let State { slots, requests, settings, .. } = state;
        let (room, replaced) = slots.reserve(settings.reclaim_policy, block, |other| requests.touch(other));
        match room {
            Room::Slot(_) => {
                let counter = if is_write {
                    &mut state.counters.write_replacement
                } else {
                    &mut state.counters.replacement
                };
                *counter += u64::from(replaced);
                state.wear.spend(self.geometry.block_bytes);
            }
            Room::AfterCommit => {}
            Room::None => state.counters.no_room += 1,
        }
        room
    }

    /// Counts a write of a slot.
    pub(crate) fn note_slot_write(&self, state: &mut State, is_fine: bool) {
        state.counters.ssd_writes += 1;
        state.count_written(self.geometry.block_bytes);
        self.note_flash(state, is_fine);
    }
}
