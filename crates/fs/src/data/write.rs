//! Writing into memory.

use super::promise::Promise;
use crate::attributes::InodeId;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::interruption::begin_effects;
use crate::pages::state::Memory;
use brindle_ondisk::{to_u64, to_usize};
use brindle_tree::{QuotaClaim, TreeError};
use std::ops::Range;

/// A longer write is done in pieces, so that it keeps to the bounds of memory.
const WRITE_MAX_BYTES: usize = 8 << 20;
/// The greatest size of a file, as signed file offsets have it.
pub(super) const FILE_SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// Start of a write.
#[derive(Clone, Copy, Debug)]
enum Begin {
    At(u64),
    AtEnd,
}

/// The source of a change's time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stamp {
    /// Our clock.
    Now,
    /// The host, which tells it by itself.
    ByHost,
    /// None: the same bytes are written again, elsewhere.
    Unchanged,
}

/// Effect of a write on a file, as it is now.
#[derive(Debug)]
struct Target {
    /// The bytes that are written.
    start: u64,
    end: u64,
    /// The size before.
    size: u64,
    sector: u64,
}

/// A sector that was read from disk, for a write that keeps some of it.
#[derive(Debug)]
struct Fetched {
    start: u64,
    /// The version of the file's items that it was read from.
    version: u64,
    /// Contents of the sector; `None` if it is no data but zeros.
    contents: Option<Vec<u8>>,
}

impl FileData {
    pub(crate) fn write(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        self.write_all_at(file, offset, bytes, Stamp::Now)
    }

    pub(crate) fn write_cached(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        self.write_all_at(file, offset, bytes, Stamp::ByHost)
    }

    pub(super) fn write_all_at(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: &[u8],
        stamp: Stamp,
    ) -> Result<usize, FsError> {
        let mut done = 0;
        for piece in bytes.chunks(WRITE_MAX_BYTES) {
            let at = offset.checked_add(to_u64(done)).ok_or(FsError::TooLarge(file.id()))?;
            match self.write_piece(file, Begin::At(at), piece, stamp) {
                Ok(_) => done += piece.len(),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    pub(crate) fn has_room(&self, file: InodeId, bytes: u64) -> Result<bool, FsError> {
        let _writing = self.core.writing()?;
        let mut promise = Promise::of(self.core.pool(), 0);
        let claim = self.core.pool().claim_quota(file.tree, bytes);
        match claim.and_then(|_claim| promise.grow_to(bytes)) {
            Ok(()) => Ok(true),
            Err(TreeError::NoSpace(_) | TreeError::Quota(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn append(&self, file: &OpenFile, bytes: &[u8]) -> Result<(u64, usize), FsError> {
        let at = self.write_piece(file, Begin::AtEnd, bytes, Stamp::Now)?;
        Ok((at, bytes.len()))
    }

    fn write_piece(&self, file: &OpenFile, begin: Begin, bytes: &[u8], stamp: Stamp) -> Result<u64, FsError> {
        let _writing = self.core.writing()?;
        self.throttle(file.inode());
        begin_effects()?;
        let subvolume = self.core.subvolume_state(file.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _entry = file.inode().data.shared();
        self.write_inside(file, begin, bytes, stamp)
    }

    /// Writes at `offset`, behind the file's gate.
    pub(super) fn write_at_inside(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: &[u8],
        stamp: Stamp,
    ) -> Result<(), FsError> {
        self.write_inside(file, Begin::At(offset), bytes, stamp).map(|_| ())
    }

    /// Gives a file's memory the time of a change.
    pub(super) fn stamp(&self, memory: &mut Memory, stamp: Stamp) {
        match stamp {
            Stamp::Now => memory.times.change(self.context.now()),
            Stamp::ByHost => memory.times.change_cached(self.context.now()),
            Stamp::Unchanged => {}
        }
    }

    /// Zeroes the sector at the end of the file after the end, if it holds data: before the file grows over it. Behind the
    /// file's gate.
    pub(super) fn settle_tail_inside(&self, file: &OpenFile) -> Result<(), FsError> {
        let end = file.size();
        let sector = self.core.sector();
        if end % sector != 0 && self.fetch_sector(file, end / sector * sector)?.is_some() {
            self.write_at_inside(file, end - 1, &self.byte_at(file, end - 1)?, Stamp::Unchanged)?;
        }
        Ok(())
    }

    fn byte_at(&self, file: &OpenFile, offset: u64) -> Result<[u8; 1], FsError> {
        let mut byte = [0];
        self.reader.read_inside(file, offset, &mut byte)?;
        Ok(byte)
    }

    fn write_inside(
        &self,
        file: &OpenFile,
        begin: Begin,
        bytes: &[u8],
        stamp: Stamp,
    ) -> Result<u64, FsError> {
        let state = &file.inode().data;
        state.assert_entered();
        let mut fetched: Vec<Fetched> = Vec::new();
        let mut promise = Promise::of(self.core.pool(), 0);
        let mut claim = None;
        let mut goes_in_place = false;
        loop {
            let mut memory = state.memory();
            let target = self.target_of(file, &memory, begin, bytes.len())?;
            if bytes.is_empty() {
                return Ok(target.start);
            }
            let version = memory.version;
            let is_fetched = |start: &u64| fetched.iter().any(|f| f.start == *start && f.version == version);
            let wanting = target.kept_sectors(&memory).into_iter().find(|start| !is_fetched(start));
            if let Some(start) = wanting {
                drop(memory);
                let contents = self.fetch_sector(file, start)?;
                fetched.push(Fetched { start, version, contents });
                continue;
            }
            let need = target.new_bytes(&memory);
            if need > promise.bytes() && !goes_in_place {
                drop(memory);
                goes_in_place = self.promise_or_overwrite(file, &target, &mut promise, &mut claim, need)?;
                continue;
            }
            let before = memory.dirty.bytes();
            target.apply(&mut memory, &fetched, bytes);
            let added = memory.dirty.bytes() - before;
            if added > 0 {
                target.note_unallocated(&mut memory);
            }
            memory.promised += promise.hand_over(added);
            memory.size = memory.size.max(target.end);
            self.stamp(&mut memory, stamp);
            self.context.count_claimed(file.id(), added, claim);
            self.context.note(file.inode(), &mut memory);
            return Ok(target.start);
        }
    }

    fn target_of(
        &self,
        file: &OpenFile,
        memory: &Memory,
        begin: Begin,
        length: usize,
    ) -> Result<Target, FsError> {
        let start = match begin {
            Begin::At(offset) => offset,
            Begin::AtEnd => memory.size,
        };
        let end = start.checked_add(to_u64(length)).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(FsError::TooLarge(file.id()))?;
        Ok(Target { start, end, size: memory.size, sector: self.core.sector() })
    }

    /// Gets space promised; whether there is none, but the write needs none, for it goes where there is data already.
    fn promise_or_overwrite<'p>(
        &'p self,
        file: &OpenFile,
        target: &Target,
        promise: &mut Promise<'_>,
        claim: &mut Option<QuotaClaim<'p>>,
        bytes: u64,
    ) -> Result<bool, FsError> {
        let pool = self.core.pool();
        // A smaller one is given back first.
        *claim = None;
        let promised = pool.claim_quota(file.id().tree, bytes).and_then(|claimed| {
            promise.grow_to(bytes)?;
            Ok(claimed)
        });
        match promised {
            Ok(claimed) => {
                *claim = Some(claimed);
                Ok(false)
            }
            Err(error @ (TreeError::NoSpace(_) | TreeError::Quota(_))) => {
                if self.is_overwritable(file.id(), &target.sectors())? {
                    return Ok(true);
                }
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Contents of a sector, zeros after the end of the file; `None` if it holds no data. In memory or on disk.
    pub(super) fn fetch_sector(&self, file: &OpenFile, start: u64) -> Result<Option<Vec<u8>>, FsError> {
        let range = start..start + self.core.sector();
        let (version, is_in_memory) = self.extents.versioned(file, |memory| memory.covers(&range));
        if !is_in_memory && version.is_some() {
            let map = self.extents.data_map(file, version, start);
            // While writeback cuts an extent, its rest is nowhere for a moment, and extents may seem to overlap.
            if self.extents.versioned(file, |_| ()).0 == version
                && map?.from(start).first().is_none_or(|extent| extent.start >= range.end)
            {
                return Ok(None);
            }
        }
        let mut contents = vec![0; to_usize(self.core.sector())];
        let length = self.reader.read_inside(file, start, &mut contents)?;
        contents[length..].fill(0);
        Ok(Some(contents))
    }
}

impl Target {
    /// The sectors that are written, in whole or in part.
    fn sectors(&self) -> Range<u64> {
        self.floor(self.start)..self.end.next_multiple_of(self.sector)
    }

    fn floor(&self, offset: u64) -> u64 {
        offset / self.sector * self.sector
    }

    /// The first and last sector, if the write does not fill them.
    fn partial_sectors(&self) -> impl Iterator<Item = u64> {
        let (first, last) = (self.floor(self.start), self.floor(self.end));
        let head = (first < self.start || self.end < first + self.sector).then_some(first);
        let tail = (last < self.end && (last != first || head.is_none())).then_some(last);
        head.into_iter().chain(tail)
    }

    /// The sector that the file ends in, if the write begins in a later one.
    fn tail_before(&self) -> Option<u64> {
        let tail = self.floor(self.size);
        (tail < self.size && tail + self.sector <= self.start).then_some(tail)
    }

    /// The sectors that must be known: written in part, some of the rest counting, and not in memory.
    fn kept_sectors(&self, memory: &Memory) -> Vec<u64> {
        let keeps = |start: &u64| {
            let end = self.size.min(start + self.sector);
            *start < self.start.min(end) || self.end < end
        };
        let sectors = self.partial_sectors().filter(keeps).chain(self.tail_before());
        // (What is being written back is in memory, too.)
        sectors.filter(|start| !memory.covers(&(*start..start + self.sector))).collect()
    }

    /// Upper bound on the bytes that become dirty.
    fn new_bytes(&self, memory: &Memory) -> u64 {
        let sectors = self.sectors();
        let tail = if self.tail_before().is_some() { self.sector } else { 0 };
        sectors.end - sectors.start - memory.dirty.bytes_in(&sectors) + tail
    }

    fn apply(&self, memory: &mut Memory, fetched: &[Fetched], bytes: &[u8]) {
        let newest = |start: u64| fetched.iter().rev().find(|sector| sector.start == start);
        for start in self.partial_sectors() {
            let range = start..start + self.sector;
            if memory.dirty.covers(&range) {
                continue;
            }
            let mut contents = vec![0; to_usize(self.sector)];
            let is_in_memory = memory.copy_to(start, &mut contents).is_empty();
            let known = newest(start).and_then(|sector| sector.contents.as_ref());
            if let Some(known) = known.filter(|_| !is_in_memory) {
                contents.copy_from_slice(known);
            }
            self.cut(start, &mut contents);
            memory.dirty.write(start, &contents);
        }
        if let Some(start) = self.tail_before() {
            self.settle_tail(start, memory, newest(start).and_then(|sector| sector.contents.as_deref()));
        }
        memory.dirty.write(self.start, bytes);
    }

    /// The sector that the file ends in is written again, if it holds data: it may be in an item, which can't be once
    /// the file is longer, and behind the end there may be something.
    fn settle_tail(&self, start: u64, memory: &mut Memory, known: Option<&[u8]>) {
        if memory.dirty.covers(&(start..start + self.sector)) {
            return;
        }
        let mut contents = vec![0; to_usize(self.sector)];
        if !memory.copy_to(start, &mut contents).is_empty() {
            match known {
                Some(known) => contents.copy_from_slice(known),
                None => return,
            }
        }
        self.cut(start, &mut contents);
        memory.dirty.write(start, &contents);
    }

    /// Notes the sectors that have been written.
    fn note_unallocated(&self, memory: &mut Memory) {
        let tail = self.tail_before().map(|start| start..start + self.sector);
        for range in tail.into_iter().filter(|tail| memory.dirty.covers(tail)).chain([self.sectors()]) {
            memory.unallocated.note(&range);
        }
    }

    /// Zeros behind the end of the file.
    fn cut(&self, start: u64, contents: &mut [u8]) {
        let kept = to_usize(self.size.saturating_sub(start)).min(contents.len());
        contents[kept..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(start: u64, end: u64, size: u64) -> Target {
        Target { start, end, size, sector: 10 }
    }

    fn kept(start: u64, end: u64, size: u64) -> Vec<u64> {
        target(start, end, size).kept_sectors(&Memory::default())
    }

    #[test]
    fn only_kept_parts_of_sectors_are_read() {
        assert_eq!(kept(0, 20, 100), [], "whole sectors");
        assert_eq!(kept(5, 25, 100), [0, 20]);
        assert_eq!(kept(0, 25, 25), [], "up to the end");
        assert_eq!(kept(0, 25, 26), [20]);
        assert_eq!(kept(13, 15, 100), [10], "within a sector");
        assert_eq!(kept(13, 15, 10), [], "the sector lies behind the end");
        assert_eq!(kept(13, 15, 13), [10], "appended");
        assert_eq!(kept(35, 40, 13), [10], "the end lies in an earlier sector");
        assert_eq!(kept(35, 40, 20), [], "the end is the end of a sector");
        assert_eq!(kept(0, 10, 0), []);
        assert_eq!(kept(0, 5, 0), []);
        assert_eq!(kept(20, 30, 15), [10]);
        assert_eq!(kept(10, 12, 15), [10]);
    }

    #[test]
    fn bytes_after_the_end_are_never_seen() {
        let mut memory = Memory { size: 13, ..Memory::default() };
        let fetched = [Fetched { start: 10, version: 0, contents: Some(vec![7; 10]) }];
        target(16, 18, 13).apply(&mut memory, &fetched, &[9, 9]);
        let mut contents = [1; 10];
        memory.dirty.copy_to(10, &mut contents);
        assert_eq!(contents, [7, 7, 7, 0, 0, 0, 9, 9, 0, 0]);
        let mut memory = Memory { size: 13, ..Memory::default() };
        target(40, 50, 13).apply(&mut memory, &fetched, &[9; 10]);
        memory.dirty.copy_to(10, &mut contents);
        assert_eq!(contents, [7, 7, 7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_dirty_bytes_of_a_write_are_known_before() {
        let mut memory = Memory::default();
        memory.dirty.write(20, &[1; 10]);
        assert_eq!(target(5, 35, 100).new_bytes(&memory), 30);
        assert_eq!(target(25, 28, 100).new_bytes(&memory), 0);
        assert_eq!(target(40, 41, 15).new_bytes(&memory), 20);
    }
}
