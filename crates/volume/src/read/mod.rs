//! Reading. The walk of a read of data:
//!
//! 1. [`data`]: a logical range becomes pieces; the policy is asked once for each ([`choice`]).
//! 2. [`plan`]: pieces that are in memory need no device; the others become requests, adjacent ones of a device one, and all
//!    devices are asked at once.
//! 3. [`data`]: each answer is copied and verified. What is missing or bad is obtained in other ways ([`way`]), and
//!    repaired ([`repair`]).
//!
//! A range that will be read later takes steps 1 and 2, and its answers stay in memory until they are read, or are handed out where they
//! lie ([`fetched`]). A long one is fetched past the host's cache, unless the host has it already: then it stays where it is. A
//! short one is left to the host if no policy looks at the devices. What is fetched, and what the devices have to do, is in
//! [`read_state`](crate::read_state).

mod choice;
mod data;
mod fetched;
mod plan;
mod reader;
mod repair;
mod row;
mod settings;
mod way;

pub use fetched::FetchedData;
pub use reader::read_for;
pub use row::ParityRow;

use crate::chunk::Chunk;
use crate::device::count;
use crate::layout::Way;
use crate::pool::Pool;
use crate::{Attempt, AttemptFailure, ReadError, Volume};
use brindle_ondisk::{CorruptNode, Logical, NodeProblem, Physical, to_u64, to_usize};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The largest block that can be asked for, in bytes: no node is larger.
const MAX_BLOCK_BYTES: u32 = 64 << 10;

impl Volume {
    /// Reads one tree block: tries each copy and each reconstruction until `validate` accepts one.
    pub fn read_block<T>(
        &self,
        logical: Logical,
        length: u32,
        validate: impl Fn(Box<[u8]>) -> Result<T, CorruptNode>,
    ) -> Result<T, ReadError> {
        if length == 0 || length > MAX_BLOCK_BYTES {
            let why = "a block is 1 byte to 64 KiB long";
            return Err(ReadError::Request { logical, length: length.into(), why });
        }
        let pool = self.snapshot();
        let (chunk, offset) = pool.locate_block(logical, length.into())?;
        let mut attempts: Vec<Attempt> = Vec::new();
        let piece = pool.piece(chunk, offset, length.into());
        let first = piece.way;
        let mut others = Vec::new().into_iter();
        let mut way = first;
        let mut bad = Vec::new();
        loop {
            let mut bytes = vec![0; to_usize(length.into())].into_boxed_slice();
            let is_whole = way == first && piece.run.length == u64::from(length);
            let read = if is_whole {
                pool.read_piece(chunk, offset, &piece, &mut bytes)
            } else {
                pool.read_block_once(chunk, offset, way, &mut bytes)
            };
            let failed = match read {
                Err(attempt) => *attempt,
                Ok(()) => {
                    let good = (self.is_writable() && !bad.is_empty()).then(|| bytes.clone());
                    match validate(bytes) {
                        Ok(block) => {
                            pool.count_recovered(&attempts);
                            if let Some(good) = good {
                                pool.repair(&self.locks, chunk, offset, way, &bad, &good);
                            }
                            return Ok(block);
                        }
                        Err(corrupt) => pool.blame(chunk, offset, way, AttemptFailure::Block(corrupt)),
                    }
                }
            };
            attempts.push(failed);
            bad.push(way);
            if attempts.len() == 1 {
                others = pool.ways_in_order(chunk, offset).into_iter();
            }
            match others.find(|other| *other != first) {
                Some(next) => way = next,
                None => {
                    let (chunk, length) = (chunk.start, length.into());
                    return Err(ReadError::Failed { logical, chunk, length, attempts });
                }
            }
        }
    }

    /// In how many ways the bytes at an address can be obtained: copies, and reconstructions from parity.
    pub fn copies(&self, logical: Logical) -> Result<usize, ReadError> {
        let pool = self.snapshot();
        let chunk = pool.chunks.find(logical).ok_or(ReadError::Unmapped { logical })?;
        Ok(chunk.layout.ways())
    }

    /// The device where an address lies in one way, counted from 0, and the byte there; in a way that rebuilds it from
    /// parity, where it should lie.
    pub fn mirror_place(&self, logical: Logical, mirror: usize) -> Option<(String, Physical)> {
        let pool = self.snapshot();
        let (chunk, offset) = pool.locate_block(logical, 1).ok()?;
        (mirror < chunk.layout.ways()).then(|| pool.place(chunk, offset, mirror))
    }

    /// Returns true if an address lies, in one way, on a device whose superblock does not point to the pool's log: a block of
    /// the log may be missing there.
    pub fn mirror_lacks_log(&self, logical: Logical, mirror: usize) -> bool {
        let pool = self.snapshot();
        let Ok((chunk, offset)) = pool.locate_block(logical, 1) else { return false };
        let device = chunk.stripes.get(pool.home(chunk, offset, mirror)).map(|stripe| stripe.device);
        mirror < chunk.layout.ways()
            && device.is_some_and(|device| pool.devices[device].lacks_log.load(Relaxed))
    }

    /// Reads a range within one chunk in one way only, counted from 0; nothing is verified.
    pub fn read_mirror(&self, logical: Logical, mirror: usize, buffer: &mut [u8]) -> Result<(), ReadError> {
        let pool = self.snapshot();
        let length = to_u64(buffer.len());
        let (chunk, offset) = pool.locate_block(logical, length)?;
        if mirror >= chunk.layout.ways() {
            return Err(ReadError::Request { logical, length, why: "there is no such mirror" });
        }
        pool.read_range(chunk, offset, mirror, buffer).map_err(|attempt| {
            let (chunk, attempts) = (chunk.start, vec![*attempt]);
            ReadError::Failed { logical, chunk, length, attempts }
        })
    }

    /// Fetches a range that will be read soon, in whole sectors, without waiting for it. Memory for such ranges is
    /// bounded: returns the number of bytes for which there was room, and chunks, counted from the start.
    pub fn prefetch(&self, logical: Logical, length: u64) -> u64 {
        let before = logical.get() % u64::from(self.tree_context().sectorsize);
        let start = Logical::new(logical.get() - before);
        let length = length.saturating_add(before);
        let whole = length.checked_next_multiple_of(self.tree_context().sectorsize.into());
        let done = self.snapshot().prefetch(start, whole.unwrap_or(length));
        done.saturating_sub(before).min(length - before)
    }

    /// Readahead of a sequential reader that gives every mirror of an address something to do, in bytes; 0 if one mirror is
    /// as good as several.
    pub fn readahead_bytes(&self, logical: Logical) -> u64 {
        let pool = self.snapshot();
        pool.chunks.find(logical).map_or(0, |chunk| pool.readahead_bytes(chunk))
    }
}

impl Pool {
    /// The chunk that holds all of a range, and where in it the range begins.
    fn locate_block(&self, logical: Logical, length: u64) -> Result<(&Arc<Chunk>, u64), ReadError> {
        let chunk = self.chunks.find(logical).ok_or(ReadError::Unmapped { logical })?;
        let offset = chunk.offset_of(logical).unwrap_or(0);
        if chunk.length - offset < length {
            return Err(ReadError::Request { logical, length, why: "passes the end of its chunk" });
        }
        Ok((chunk, offset))
    }

    /// The ways in which a block lies on a device as it is, all of it, each with its device; none if there is one device alone.
    pub(crate) fn direct_places(&self, logical: Logical, length: u32) -> Vec<(usize, usize)> {
        let Ok((chunk, offset)) = self.locate_block(logical, length.into()) else { return Vec::new() };
        let run = chunk.layout.run_at(offset);
        if run.length < u64::from(length) {
            return Vec::new();
        }
        let direct = (0..chunk.layout.ways()).filter_map(|way| match chunk.layout.way(&run, way) {
            Way::Direct(stripe) => Some((way, chunk.stripes[stripe].device)),
            Way::Rebuild(_) => None,
        });
        let places: Vec<(usize, usize)> = direct.collect();
        let is_mirrored = places.iter().any(|(_, device)| *device != places[0].1);
        if is_mirrored { places } else { Vec::new() }
    }

    /// The copies of a block in those ways, as far as they can be read, each with its device; nothing is verified.
    pub(crate) fn direct_copies(&self, logical: Logical, length: u32) -> Vec<(usize, Box<[u8]>)> {
        let Ok((chunk, offset)) = self.locate_block(logical, length.into()) else { return Vec::new() };
        let read = |(way, device): (usize, usize)| {
            self.devices[device].device.as_ref()?;
            let mut bytes = vec![0; to_usize(length.into())].into_boxed_slice();
            let read = self.read_range(chunk, offset, way, &mut bytes);
            read.is_ok().then_some((device, bytes))
        };
        self.direct_places(logical, length).into_iter().filter_map(read).collect()
    }

    /// The copies of a block that a device has, as far as they can be read; nothing is verified.
    pub(crate) fn copies_on(&self, device: usize, logical: Logical, length: u32) -> Vec<Box<[u8]>> {
        let Some((chunk, offset, ways)) = self.ways_on(device, logical, length) else { return Vec::new() };
        let read = |way: usize| {
            let mut bytes = vec![0; to_usize(length.into())].into_boxed_slice();
            self.read_range(chunk, offset, way, &mut bytes).ok().map(|()| bytes)
        };
        ways.into_iter().filter_map(read).collect()
    }

    /// Returns true if a block has a place on a device.
    pub(crate) fn has_place(&self, device: usize, logical: Logical, length: u32) -> bool {
        self.ways_on(device, logical, length).is_some_and(|(_, _, ways)| !ways.is_empty())
    }

    /// Ways of a block that a device has a whole copy of, with its chunk and the offset there.
    fn ways_on(&self, device: usize, logical: Logical, length: u32) -> Option<(&Chunk, u64, Vec<usize>)> {
        let (chunk, offset) = self.locate_block(logical, length.into()).ok()?;
        let run = chunk.layout.run_at(offset);
        let is_there = |way: &usize| match chunk.layout.way(&run, *way) {
            Way::Direct(stripe) => chunk.stripes[stripe].device == device,
            Way::Rebuild(_) => false,
        };
        let is_whole = run.length >= u64::from(length);
        Some((chunk, offset, (0..chunk.layout.ways()).filter(is_there).filter(|_| is_whole).collect()))
    }

    /// Reads a block in one way. Blocks seldom straddle strips; one that does may have lost another device in
    /// each of its strips, so there each strip is read in any way that goes, this one first.
    fn read_block_once(
        &self,
        chunk: &Chunk,
        offset: u64,
        way: usize,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        let (mut offset, mut rest) = (offset, buffer);
        let whole = chunk.layout.run_at(offset).length >= to_u64(rest.len());
        while !rest.is_empty() {
            let length = chunk.layout.run_at(offset).length.min(to_u64(rest.len()));
            let (now, later) = rest.split_at_mut(to_usize(length));
            self.read_range(chunk, offset, way, now).or_else(|failed| {
                let others = if whole { Vec::new() } else { self.ways_in_order(chunk, offset) };
                let mut others = others.into_iter().filter(|other| *other != way);
                let found = others.find(|other| self.read_range(chunk, offset, *other, now).is_ok());
                found.map(|_| ()).ok_or(failed)
            })?;
            offset += length;
            rest = later;
        }
        Ok(())
    }

    /// Counts what answered in place of a device.
    fn count_recovered(&self, attempts: &[Attempt]) {
        for attempt in attempts.iter().filter(|attempt| attempt.rebuilt_without.is_empty()) {
            if let Some(device) = self.devices.iter().find(|device| device.devid == attempt.devid) {
                count(&device.counters.recovered);
            }
        }
    }

    /// Makes a failed attempt of bytes that were read well and are wrong, and counts it against the device
    /// that holds them; bytes rebuilt from several devices say nothing of any one.
    fn blame(&self, chunk: &Chunk, offset: u64, way: usize, failure: AttemptFailure) -> Attempt {
        let attempt = self.attempt(chunk, offset, way, failure);
        let counters = &self.devices[chunk.stripes[self.home(chunk, offset, way)].device].counters;
        if attempt.rebuilt_without.is_empty() {
            let is_generation = matches!(
                &attempt.failure,
                AttemptFailure::Block(CorruptNode { problem: NodeProblem::Generation(_), .. })
            );
            count(if is_generation { &counters.generation_errors } else { &counters.checksum_errors });
        }
        attempt
    }
}
