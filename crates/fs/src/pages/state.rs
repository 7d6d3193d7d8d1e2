//! State of a file's contents that its items do not have yet.
//!
//! **Life of a byte.** A write copies it into a *dirty* piece, and has space promised for it. Writeback takes pieces
//! out (they are *being written*), puts them on the devices, changes the file's items in one transaction, and only
//! then forgets them. A reader takes from the dirty pieces first, then from those being written, then from what
//! the items tell: so a byte can be read from the moment its write returns, and never an older one. A crash at any
//! point finds the items of the last commit, whose extents have not been overwritten (or, of files without
//! checksums that are overwritten in place, that hold old or new sectors).
//!
//! **Locks**, in the order of [`Rank`](brindle_sync::Rank); the names' locks come before, part in a transaction and the
//! trees' locks after:
//! 1. the *gate* of each file, several by ascending id: shared by reads, writes and writeback, alone by what takes
//!    contents away or moves them (truncate, holes, clones);
//! 2. the file's *writeback* lock: one writeback at a time;
//! 3. the *memory*, held for no longer than memory moves; nothing else is locked under it but the queue of
//!    dirty files, and the list of spare buffers. It may be taken while a tree is locked, by a thread that changes an inode item.
//!
//! **Reads beside writeback.** The gate does not keep them apart, and need not: what writeback replaces in the items is
//! what the reader takes from memory, if it looked before the items changed (`version` moves on with them); if it
//! looked later, its extents are new. Only one that looked before, and reads from the devices what was written and
//! written back meanwhile, might find a place that something else has got since; so a reader that has read from the
//! devices looks at `version` again, and reads anew if it has moved. While items change (`Changing`), what writeback
//! does not replace may be gone for a moment, too: what is left of an extent behind a new one comes when the item that
//! it was in has gone. A reader that meets this begins anew.
//!
//! **Sizes.** `size` is the size that all callers see; `disk_size` what the inode item has. The item never counts a byte that
//! is only in memory: it ends where the first such byte behind the old end begins. A byte that is being written back
//! counts as soon as the items have it, also if it has been written once more since: the file had that byte
//! when the writeback began, and an fsync that waits for the writeback promises it.

use super::piece::Piece;
use crate::attributes::{Attributes, InodeId};
use crate::pages::failures::Failures;
use crate::pages::ranges::{DirtyRanges, copy_shared};
use crate::pages::times::Times;
use crate::pages::unallocated::Unallocated;
use brindle_interval::gaps;
use brindle_ondisk::item::InodeItem;
use brindle_ondisk::to_u64;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// State of a file's contents that its items do not have yet.
#[derive(Debug)]
pub(crate) struct FileState {
    gate: RwLock<()>,
    writeback: Mutex<()>,
    memory: Mutex<Memory>,
    /// Bytes written back since the last sync of the file; `u64::MAX` if there was none.
    since_sync: AtomicU64,
}

/// Bytes that are written back without a sync after which a file no longer counts as one that is synced.
const SYNCED_FILE_BYTES: u64 = 64 << 20;

/// Contents in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// True if the sizes are known.
    pub(crate) is_loaded: bool,
    /// The size that all callers see.
    pub(crate) size: u64,
    /// The size that the inode item has.
    pub(crate) disk_size: u64,
    /// Dirty pieces.
    pub(crate) dirty: DirtyRanges,
    /// Pieces being written back, by offset.
    pub(crate) writing: Vec<WritingPiece>,
    /// The size that all callers saw when the last writeback began.
    pub(crate) writing_size: u64,
    /// Data space that is promised for what is dirty, in bytes. (What is being written back has taken its part.)
    pub(crate) promised: u64,
    /// Bytes of the contents in memory that the inode item does not count.
    pub(crate) unallocated: Unallocated,
    /// Moves on with each change of the items.
    pub(crate) version: u64,
    /// The items are being changed.
    pub(crate) is_changing: bool,
    /// The times of the last changes, as far as the inode item does not say them.
    pub(crate) times: Times,
    /// Its number among the files with dirty data.
    pub(crate) queued: Option<u64>,
    /// True if it was truncated to nothing since its last close.
    pub(crate) is_emptied: bool,
    /// Failed writebacks.
    pub(crate) failures: Failures,
}

/// A piece that is being written back.
#[derive(Clone, Debug)]
pub(crate) struct WritingPiece {
    /// Offset in the file.
    pub(crate) start: u64,
    /// The contents, of whole sectors.
    pub(crate) bytes: Arc<Piece>,
}

impl WritingPiece {
    /// End in the file.
    pub(crate) fn end(&self) -> u64 {
        self.start + to_u64(self.bytes.len())
    }
}

/// The items of a file change as long as this lasts.
#[must_use = "items change as long as this lasts"]
pub(crate) struct Changing<'s>(&'s FileState);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut memory = self.0.memory();
        memory.is_changing = false;
        memory.version += 1;
    }
}

impl Memory {
    /// The version of the items, unless they are being changed.
    pub(crate) fn settled_version(&self) -> Option<u64> {
        (!self.is_changing).then_some(self.version)
    }
}

impl Memory {
    /// Panics unless the state of a file agrees with itself between operations.
    pub(crate) fn verify(&self) {
        assert!(!self.is_changing, "its items change, and no writeback is under way");
        assert_eq!(self.is_dirty(), self.queued.is_some(), "a file waits to be written back if it is dirty");
        assert!(self.promised >= self.dirty.bytes(), "space is promised for all that is dirty");
        assert!(self.dirty.is_empty() || self.is_loaded, "a dirty file has a size");
    }

    /// Bytes that are being written back.
    pub(crate) fn writing_bytes(&self) -> u64 {
        self.writing.iter().map(|piece| to_u64(piece.bytes.len())).sum()
    }
}

impl Default for FileState {
    fn default() -> Self {
        Self {
            gate: RwLock::new(Rank::FileGate, ()),
            writeback: Mutex::new(Rank::FileWriteback, ()),
            memory: Mutex::default(),
            since_sync: AtomicU64::new(u64::MAX),
        }
    }
}

impl Ranked for Memory {
    const RANK: Rank = Rank::FileMemory;
}

impl FileState {
    /// Marks the items as about to be changed by a writeback.
    pub(crate) fn begin_change(&self) -> Changing<'_> {
        self.memory().is_changing = true;
        Changing(self)
    }

    /// Notes that a program waits for the file to be durable.
    pub(crate) fn note_sync(&self) {
        self.since_sync.store(0, Ordering::Relaxed);
    }

    /// Notes that contents are written back.
    pub(crate) fn note_written(&self, bytes: u64) {
        let add = |since: u64| Some(since.saturating_add(bytes));
        // The closure never refuses.
        let _ = self.since_sync.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns true if the next sync of the file is to be expected soon: it was synced, and little was written since.
    pub(crate) fn is_synced_often(&self) -> bool {
        self.since_sync.load(Ordering::Relaxed) < SYNCED_FILE_BYTES
    }

    /// Stamp that moves on whenever [`overlay`](Self::overlay) may answer otherwise for other reasons than new
    /// writes: a reader of an inode item that then lays the state over it begins anew if this has moved meanwhile.
    pub(crate) fn stamp(&self) -> u64 {
        self.memory().version
    }

    /// Lays what is in memory over what the inode item says: size, times, bytes on disk.
    pub(crate) fn overlay(&self, attributes: &mut Attributes) {
        let memory = self.memory();
        if memory.is_loaded {
            attributes.size = memory.size;
        }
        memory.times.overlay(attributes);
        attributes.disk_bytes = attributes.disk_bytes.saturating_add(memory.unallocated.bytes());
    }

    /// Readies an inode item for times that it is about to be given: both if `with_modified`, otherwise the time of its
    /// last change alone. To be called while the item is changed (in the closure that
    /// [`Editor::update`](brindle_tree::Editor::update) gets).
    pub(crate) fn replace_times(&self, item: &mut InodeItem, with_modified: bool) {
        let mut memory = self.memory();
        memory.times.replace(item, with_modified);
        memory.version += 1;
    }

    /// Returns true if the items are complete, and no writeback is under way: an unopened inode that is clean stays
    /// so.
    pub(crate) fn is_clean(&self) -> bool {
        !self.memory().is_dirty()
    }

    /// Returns true if it was truncated to nothing since the last call.
    pub(crate) fn take_emptied(&self) -> bool {
        std::mem::take(&mut self.memory().is_emptied)
    }

    /// The size, once it is known.
    pub(crate) fn size(&self) -> Option<u64> {
        let memory = self.memory();
        memory.is_loaded.then_some(memory.size)
    }

    /// Tells the size that the inode item has, unless it is known.
    pub(crate) fn load(&self, size: u64) {
        let mut memory = self.memory();
        if !memory.is_loaded {
            (memory.is_loaded, memory.size, memory.disk_size) = (true, size, size);
        }
    }

    /// Panics (with debug assertions) unless the thread has passed a file's gate, in one of the three ways below.
    #[track_caller]
    pub(crate) fn assert_entered(&self) {
        Rank::FileGate.assert_held();
    }

    /// Entry for reads, writes and writeback.
    #[track_caller]
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Entry for operations that take contents away or move them.
    #[track_caller]
    pub(crate) fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// The same, of one of two files: by ascending id.
    #[track_caller]
    pub(crate) fn exclusive_of(&self, id: InodeId) -> RwLockWriteGuard<'_, ()> {
        self.gate.write_by_key(id.lock_key())
    }

    /// The same, if it is to be had at once.
    pub(crate) fn try_exclusive(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.gate.try_write()
    }

    /// The turn to write back.
    #[track_caller]
    pub(crate) fn writeback_turn(&self) -> MutexGuard<'_, ()> {
        self.writeback.lock()
    }

    /// Contents in memory.
    #[track_caller]
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }
}

impl Memory {
    /// Returns true if something is in memory only.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.writing.is_empty() || self.times.changed.is_some()
    }

    /// Copies what is in memory of a range into `buffer`, which begins at its start; returns what is not, in order.
    pub(crate) fn copy_to(&self, offset: u64, buffer: &mut [u8]) -> Vec<Range<u64>> {
        let range = offset..offset + to_u64(buffer.len());
        let mut there: Vec<Range<u64>> = Vec::new();
        for piece in self.writing_in(&range) {
            copy_shared(piece.start, &piece.bytes, offset, buffer);
            there.push(piece.start..piece.end());
        }
        if !self.dirty.is_empty() {
            self.dirty.copy_to(offset, buffer);
            let dirty = self.dirty.overlapping(&range);
            there.extend(dirty.map(|(start, piece)| start..start + to_u64(piece.len())));
            there.sort_unstable_by_key(|range| range.start);
        }
        gaps(range, there).into_iter().map(Range::from).collect()
    }

    /// Returns true if all of a range is in memory.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.missing(range).is_empty()
    }

    /// Parts of a range that are not in memory, in order.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let writing = self.writing_in(range).map(|piece| piece.start..piece.end());
        let dirty = self.dirty.overlapping(range).map(|(start, piece)| start..start + to_u64(piece.len()));
        let mut there: Vec<Range<u64>> = writing.chain(dirty).collect();
        there.sort_unstable_by_key(|range| range.start);
        gaps(range, there).into_iter().map(Range::from).collect()
    }

    /// The first range from `offset` on that is in memory.
    pub(crate) fn first_from(&self, offset: u64) -> Option<Range<u64>> {
        let from = self.writing.partition_point(|piece| piece.end() <= offset);
        let writing = self.writing.get(from).map(|piece| piece.start..piece.end());
        let dirty = self.dirty.run_from(offset);
        [writing, dirty].into_iter().flatten().min_by_key(|range| range.start.max(offset))
    }

    /// Takes all that is dirty to be written back, and the space promised for it.
    pub(crate) fn begin_writing(&mut self) -> (Vec<WritingPiece>, u64) {
        assert!(self.writing.is_empty(), "one writeback at a time");
        let taken = self.dirty.take(u64::MAX, usize::MAX);
        let pieces = taken.into_iter().map(|(start, bytes)| WritingPiece { start, bytes: Arc::new(bytes) });
        self.writing = pieces.collect();
        self.writing_size = self.size;
        (self.writing.clone(), std::mem::take(&mut self.promised))
    }

    /// Forgets what is written back: all before `behind`, or everything.
    #[must_use = "they do not count as dirty any more"]
    pub(crate) fn forget_written(&mut self, behind: Option<u64>) -> u64 {
        let is_done = |piece: &WritingPiece| behind.is_none_or(|behind| piece.end() <= behind);
        let count = self.writing.partition_point(is_done);
        let written: Vec<Range<u64>> =
            self.writing.drain(..count).map(|piece| piece.start..piece.end()).collect();
        for range in &written {
            self.missing(range).iter().for_each(|part| self.unallocated.forget(part));
        }
        written.iter().map(|range| range.end - range.start).sum()
    }

    /// Forgets what is dirty of a range, of whole sectors; returns the dirty bytes, and how many of the promised ones are not
    /// needed any more.
    #[must_use = "the space has to be given back"]
    pub(crate) fn discard(&mut self, range: &Range<u64>) -> (u64, u64) {
        let removed = self.dirty.remove(range);
        self.unallocated.forget(range);
        let surplus = self.promised.saturating_sub(self.dirty.bytes());
        self.promised -= surplus;
        (removed, surplus)
    }

    /// The size that the inode item may have once everything is in the items that is being written, or neither that nor
    /// dirty.
    pub(crate) fn size_for_item(&self) -> u64 {
        let mut end = self.disk_size;
        while end < self.size {
            let being_written = self.writing_in(&(end..self.writing_size)).next();
            if let Some(piece) = being_written.filter(|piece| piece.start <= end && end < self.writing_size) {
                end = piece.end().min(self.writing_size);
                continue;
            }
            match self.dirty.run_from(end) {
                Some(run) if run.start > end => end = run.start,
                Some(_) => break,
                None => return self.size,
            }
        }
        end.min(self.size)
    }

    fn writing_in(&self, range: &Range<u64>) -> impl Iterator<Item = &WritingPiece> {
        let from = self.writing.partition_point(|piece| piece.end() <= range.start);
        let end = range.end;
        self.writing[from..].iter().take_while(move |piece| piece.start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writing(start: u64, byte: u8, length: usize) -> WritingPiece {
        WritingPiece { start, bytes: Arc::new(vec![byte; length].into()) }
    }

    #[test]
    fn the_last_write_is_read() {
        let mut memory =
            Memory { writing: vec![writing(10, 1, 10), writing(30, 2, 10)], ..Memory::default() };
        memory.dirty.write(15, &[3; 10]);
        let mut buffer = [0; 50];
        assert_eq!(memory.copy_to(0, &mut buffer), [0..10, 25..30, 40..50]);
        assert_eq!((buffer[14], buffer[15], buffer[24], buffer[30]), (1, 3, 3, 2));
        assert_eq!(memory.missing(&(5..28)), [5..10, 25..28]);
        assert!(memory.covers(&(10..25)) && !memory.covers(&(10..26)));
    }

    #[test]
    fn the_first_in_memory_is_found() {
        let mut memory = Memory { writing: vec![writing(10, 1, 10)], ..Memory::default() };
        memory.dirty.write(40, &[3; 10]);
        assert_eq!(memory.first_from(0), Some(10..20));
        assert_eq!(memory.first_from(15), Some(10..20));
        assert_eq!(memory.first_from(20), Some(40..50));
        assert_eq!(memory.first_from(50), None);
    }

    #[test]
    fn the_item_counts_no_byte_that_is_only_in_memory() {
        let mut memory = Memory { size: 100, disk_size: 20, ..Memory::default() };
        assert_eq!(memory.size_for_item(), 100);
        memory.dirty.write(60, &[3; 10]);
        assert_eq!(memory.size_for_item(), 60);
        memory.dirty.write(16, &[3; 10]);
        assert_eq!(memory.size_for_item(), 20);
        memory.size = 12;
        assert_eq!(memory.size_for_item(), 12);
    }

    #[test]
    fn bytes_in_writeback_count_although_they_are_dirty_again() {
        let mut memory = Memory { size: 25, ..Memory::default() };
        memory.dirty.write(0, &[1; 30]);
        let _ = memory.begin_writing();
        assert_eq!(memory.size_for_item(), 25);
        memory.dirty.write(0, &[2; 10]);
        assert_eq!(memory.size_for_item(), 25);
        memory.dirty.write(20, &[2; 10]);
        memory.size = 28;
        assert_eq!(memory.size_for_item(), 25, "what has come since is only in memory");
        memory.dirty.write(40, &[2; 10]);
        memory.size = 50;
        assert_eq!(memory.size_for_item(), 25);
    }

    #[test]
    fn a_file_that_grew_behind_what_is_being_written_ends_where_that_begins() {
        let mut memory = Memory { size: 30, ..Memory::default() };
        memory.dirty.write(0, &[1; 30]);
        let _ = memory.begin_writing();
        memory.dirty.write(60, &[2; 10]);
        memory.size = 70;
        assert_eq!(memory.size_for_item(), 60, "what lies between is a hole");
    }
}
