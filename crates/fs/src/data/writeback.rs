//! Writeback of dirty contents to the devices.

use super::inline::inline_piece;
use super::output::{Cause, EXTENT_MAX_BYTES, Experience, Manner, Output};
use super::promise::Promise;
use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, settle};
use crate::extent::open_file::OpenFile;
use crate::pages::state::WritingPiece;
use brindle_interval::IntervalSet;
use brindle_ondisk::item::InodeFlags;
use brindle_ondisk::{Generation, RootId, to_u64};
use brindle_policy::defragment::torn::tears;
use brindle_policy::writeback::DataPlace;
use brindle_sync::Rank;
use brindle_tree::{Tree, TreeError};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Upper bounds on the contents handed to the devices at once: bytes, and extents.
const GROUP_BYTES: u64 = EXTENT_MAX_BYTES;
const GROUP_RANGES: usize = 1024;
/// Upper bound on the files that a thread writes back for others at a time.
const FLUSHED_FILES_MAX: usize = 64;

/// One writeback of one file.
struct Job<'p> {
    files: &'p FileData,
    inode: &'p Inode,
    tree: Arc<Tree>,
    flags: InodeFlags,
    manner: Manner,
    pieces: Vec<WritingPiece>,
    promise: Promise<'p>,
    experience: Experience,
}

/// Way in which contents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// New extents.
    Copied,
    /// New extents in the write-back tier, instead of preallocated space.
    Waiting,
    /// Extents that the file has already, if that may be.
    InPlace,
}

/// A part of what is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    range: Range<u64>,
    way: Way,
}

impl FileData {
    /// Writes back a file that was truncated to nothing since its last close: it is about to get new contents, and a
    /// commit without these would leave neither them nor the old ones.
    pub(crate) fn write_back_replaced(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        if inode.data.take_emptied() { self.write_back_inode(inode, Cause::Sync) } else { Ok(()) }
    }

    pub(crate) fn write_back(&self, file: &OpenFile) -> Result<(), FsError> {
        self.write_back_inode(file.inode(), Cause::Other)
    }

    pub(crate) fn write_back_all(&self, only: Option<RootId>) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let files = self.context.dirty_files();
        let wanted = files.iter().filter(|inode| only.is_none_or(|tree| inode.id().tree == tree));
        let written = wanted.map(|inode| self.write_back_inode(inode, Cause::Other));
        let results: Vec<Result<(), FsError>> = written.collect();
        results.into_iter().collect()
    }

    /// Writes back what was written to a subvolume during [`write_back_all`](Self::write_back_all). The caller has the subvolume alone,
    /// so that nothing more is written.
    pub(crate) fn write_back_rest(&self, tree: RootId) -> Result<(), FsError> {
        Rank::SubvolumeAccess.assert_held();
        self.write_back_all(Some(tree))
    }

    pub(crate) fn take_error(&self, file: &OpenFile) -> Result<(), FsError> {
        let mut memory = file.inode().data.memory();
        let Some(why) = memory.failures.report(&file.known_failures) else { return Ok(()) };
        self.context.forget_unreported(file.inode());
        Err(FsError::WriteBack { file: file.id(), why })
    }

    /// Lets a writer of a file write back if too much is dirty: one does at half of the limit, all wait at the limit. Errors
    /// are those of the files, and reported through their handles.
    pub(super) fn throttle(&self, inode: &Arc<Inode>) {
        let context = &self.context;
        let max = context.settings.dirty_bytes_max;
        if context.dirty_bytes() < max / 2 || self.is_spared(inode) {
            return;
        }
        let _turn = if context.dirty_bytes() < max {
            let Some(turn) = context.flusher.try_lock() else {
                return;
            };
            turn
        } else {
            context.flusher.lock()
        };
        self.write_back_oldest(max / 2);
    }

    /// Writes back files that have been dirty for the longest time, until less than this is dirty, in bytes: some of them, so that a
    /// caller can do other things between. Errors are those of the files.
    pub(crate) fn write_back_some(&self, dirty_bytes: u64) {
        let _turn = self.context.flusher.lock();
        self.write_back_oldest(dirty_bytes);
    }

    fn write_back_oldest(&self, dirty_bytes: u64) {
        for _ in 0..FLUSHED_FILES_MAX {
            if self.context.dirty_bytes() < dirty_bytes {
                return;
            }
            let Some(oldest) = self.context.oldest() else {
                return;
            };
            self.write_back_for_room(&oldest);
        }
    }

    /// Spares a writer the work for others: of a file that is synced often, into the write-back tier. No sync is to wait for
    /// contents of other files, which go to bulk devices. At the limit it makes room by its own file; at twice the limit
    /// it waits as all do.
    fn is_spared(&self, inode: &Arc<Inode>) -> bool {
        let (context, max) = (&self.context, self.context.settings.dirty_bytes_max);
        if !inode.data.is_synced_often() || !self.core.pool().takes_write_back(true) {
            return false;
        }
        if context.dirty_bytes() >= max {
            self.write_back_for_room(inode);
        }
        context.dirty_bytes() < max.saturating_mul(2)
    }

    fn write_back_for_room(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.write_back_inode(inode, Cause::Other) {
            tracing::warn!("{error}");
        }
    }

    /// Writes back like [`write_back`](Self::write_back), an inode of any type.
    pub(crate) fn write_back_inode(&self, inode: &Arc<Inode>, cause: Cause) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let _entry = inode.data.shared();
        self.write_back_as(inode, true, cause)
    }

    /// Writes back, behind the file's gate. All that was dirty is written when it returns, by
    /// this thread or another. `may_inline`: small contents may be kept in the item.
    pub(super) fn write_back_as(
        &self,
        inode: &Arc<Inode>,
        may_inline: bool,
        cause: Cause,
    ) -> Result<(), FsError> {
        inode.data.assert_entered();
        let _turn = inode.data.writeback_turn();
        let (pieces, promised) = {
            let mut memory = inode.data.memory();
            if !memory.is_dirty() {
                return Ok(());
            }
            memory.begin_writing()
        };
        let promise = Promise::of(self.core.pool(), promised);
        let cause = if inode.data.is_synced_often() { Cause::Sync } else { cause };
        self.context.note_writing(&pieces);
        inode.data.note_written(pieces.iter().map(|piece| to_u64(piece.bytes.len())).sum());
        let done = Job::new(self, inode, pieces, promise, cause).and_then(|mut job| job.run(may_inline));
        let mut memory = inode.data.memory();
        self.context.forget_written(inode.id(), &mut memory, None);
        let failed = match done {
            // The file is gone with its subvolume.
            Err(FsError::DeletedSubvolume(_) | FsError::NoSubvolume(_)) => {
                memory.times.changed = None;
                None
            }
            done => done.err().map(Arc::new),
        };
        if let Some(why) = &failed {
            self.stop_if_write_failed(inode.id(), why);
            memory.failures.note(Arc::clone(why));
            self.context.note_loss(inode, why);
            // What is lost must not keep the file for dirty.
            memory.times.changed = None;
        }
        self.context.note(inode, &mut memory);
        match failed {
            Some(why) => Err(FsError::WriteBack { file: inode.id(), why }),
            None => Ok(()),
        }
    }
}

impl FileData {
    /// Ends all writing if devices have refused contents in more copies than the profile can spare: their next
    /// refusals are unknown, and a program that never asks for a sync would not be told.
    fn stop_if_write_failed(&self, file: InodeId, why: &FsError) {
        if matches!(why, FsError::Tree(TreeError::Write(_))) {
            self.core.pool().abort(&format!("{file}: contents were lost when they were written back: {why}"));
        }
    }
}

impl<'p> Job<'p> {
    fn new(
        files: &'p FileData,
        inode: &'p Inode,
        pieces: Vec<WritingPiece>,
        promise: Promise<'p>,
        cause: Cause,
    ) -> Result<Self, FsError> {
        let _writing = files.core.writing()?;
        let tree = files.core.tree(inode.id().tree)?;
        let flags = files.items.quick_attributes(inode.id())?.flags;
        // A statement of its own: the memory must not stay locked while trees are read.
        let size = inode.data.memory().size;
        let manner = files.manner(inode.id(), flags, size, cause)?;
        let experience = Experience::default();
        Ok(Self { files, inode, tree, flags, manner, pieces, promise, experience })
    }

    fn run(&mut self, may_inline: bool) -> Result<(), FsError> {
        if self.pieces.is_empty() {
            return self.enter_nothing();
        }
        if let Some(outputs) = self.inline()?.filter(|_| may_inline) {
            return self.enter(outputs, None);
        }
        let parts = self.parts()?;
        let (mut group, mut bytes) = (Vec::new(), 0);
        for (index, part) in parts.iter().enumerate() {
            let next = parts.get(index + 1);
            let behind = next.map(|next| next.range.start);
            if part.way == Way::InPlace {
                group = self.overwrite(&part.range, behind)?;
                self.write_group(&mut group, Way::Copied, behind)?;
                continue;
            }
            bytes += part.range.end - part.range.start;
            group.push(part.range.clone());
            let goes_on = next.is_some_and(|next| next.way == part.way);
            if !goes_on || bytes >= GROUP_BYTES || group.len() >= GROUP_RANGES {
                self.write_group(&mut group, part.way, behind)?;
                bytes = 0;
            }
        }
        Ok(())
    }

    /// Updates the inode item alone, if nothing else has to change.
    fn enter_nothing(&self) -> Result<(), FsError> {
        self.files.core.enter_transaction(1, |transaction| {
            let editor = FileEditor::new(transaction, &self.files.extents, &self.tree, self.inode.id());
            editor.finish(&self.inode.data, |item, memory| settle(item, memory, None))
        })
    }

    /// The whole file as an item, if it may be.
    fn inline(&self) -> Result<Option<Vec<Output<'p>>>, FsError> {
        let size = self.inode.data.memory().size;
        let is_whole = self.pieces.len() == 1 && self.pieces[0].start == 0;
        if !is_whole || self.flags.contains(InodeFlags::PREALLOC) {
            return Ok(None);
        }
        let contents = &self.pieces[0].bytes;
        let room = self.files.inline_room();
        let piece = inline_piece(contents, size, self.manner.compression, &room);
        let behind = self.files.core.sector()..u64::MAX;
        let is_alone =
            self.files.extents.extent_map(&self.tree, self.inode.id(), &behind, 1)?.extents().is_empty();
        let output = |piece| vec![Output { piece, reserved: None, checksums: Vec::new() }];
        Ok(piece.filter(|_| is_alone).map(output))
    }

    /// Parts to be written, in order, none longer than an extent may be.
    fn parts(&self) -> Result<Vec<Part>, FsError> {
        let (files, file) = (self.files, self.inode.id());
        let may_wait = self.flags.contains(InodeFlags::PREALLOC) && self.may_all_wait();
        let mut parts = Vec::new();
        for run in runs(&self.pieces) {
            let mut there: Vec<(Range<u64>, Way)> = Vec::new();
            let mut in_place =
                IntervalSet::<u64>::from_iter(files.maybe_in_place(&self.tree, file, &run, self.flags)?);
            if may_wait {
                let waiting = files.preallocated_on_bulk(&self.tree, file, &run, self.flags)?;
                for range in &waiting {
                    in_place.remove(range);
                }
                there.extend(waiting.into_iter().map(|range| (range, Way::Waiting)));
            }
            there.extend(in_place.iter().map(|range| (range.into(), Way::InPlace)));
            there.sort_unstable_by_key(|(range, _)| range.start);
            let mut at = run.start;
            for (range, way) in there {
                cut(&mut parts, at..range.start, Way::Copied);
                at = range.end;
                match way {
                    Way::InPlace => parts.push(Part { range, way }),
                    way => cut(&mut parts, range, way),
                }
            }
            cut(&mut parts, at..run.end, Way::Copied);
        }
        Ok(parts)
    }

    /// Returns true if all that is written may lie in the write-back tier: there is room, and all of it was promised space.
    fn may_all_wait(&self) -> bool {
        let bytes = self.pieces.iter().map(|piece| to_u64(piece.bytes.len())).sum();
        self.manner.waits
            && self.promise.bytes() >= bytes
            && self.manner.place(bytes, bytes) == DataPlace::WriteBack
            && self.files.core.pool().has_write_back_room(bytes)
    }

    fn overwrite(&self, range: &Range<u64>, behind: Option<u64>) -> Result<Vec<Range<u64>>, FsError> {
        self.files.overwrite(self.inode, &self.tree, &self.pieces, range, self.flags, behind)
    }

    /// Writes ranges as new extents, and enters them.
    fn write_group(
        &mut self,
        ranges: &mut Vec<Range<u64>>,
        way: Way,
        behind: Option<u64>,
    ) -> Result<(), FsError> {
        if ranges.is_empty() {
            return Ok(());
        }
        let ranges = std::mem::take(ranges);
        let (promise, experience) = (&mut self.promise, &mut self.experience);
        // What is written into preallocated space is never compressed.
        let compression = self.manner.compression.filter(|_| way != Way::Waiting);
        let manner = Manner { compression, ..self.manner };
        let committed = self.files.core.pool().superblock().generation;
        let outputs = self.files.output(&self.pieces, &ranges, manner, promise, experience)?;
        self.enter(outputs, behind)?;
        if way == Way::Copied {
            self.note_torn(&ranges, committed);
        }
        Ok(())
    }

    /// Notes the file where small writes have torn it. Data that waits in the write-back tier is laid together by destaging, and a
    /// file that is overwritten in place is to stay where it is.
    fn note_torn(&self, ranges: &[Range<u64>], committed: Generation) {
        let torn = &self.files.context.torn;
        let waits = self.promise.place() == DataPlace::WriteBack;
        if !torn.is_on() || waits || self.flags.contains(InodeFlags::NODATACOW) {
            return;
        }
        let size = self.inode.data.memory().size;
        let small: Vec<Range<u64>> = ranges.iter().filter(|range| tears(range, size)).cloned().collect();
        if !small.is_empty() {
            torn.note(self.inode.id(), &small, committed, Instant::now());
        }
    }

    fn enter(&self, outputs: Vec<Output<'_>>, behind: Option<u64>) -> Result<(), FsError> {
        let is_forced = self.manner.compression.is_none_or(|choice| choice.force);
        // A file that is told to be compressed is tried again and again, as by the kernel.
        let is_forced = is_forced || self.flags.contains(InodeFlags::COMPRESS);
        let is_hopeless = self.experience.resisted > 0 && self.experience.compressed == 0 && !is_forced;
        let flags = if is_hopeless { InodeFlags::NOCOMPRESS } else { InodeFlags::empty() };
        self.files.enter(self.inode, &self.tree, outputs, behind, flags)
    }
}

/// Ranges of pieces that touch each other.
fn runs(pieces: &[WritingPiece]) -> Vec<Range<u64>> {
    let pieces = pieces.iter().map(|piece| piece.start..piece.end());
    brindle_interval::runs(pieces).into_iter().map(Range::from).collect()
}

/// Adds a range, in parts that are no longer than an extent may be.
fn cut(parts: &mut Vec<Part>, range: Range<u64>, way: Way) {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + EXTENT_MAX_BYTES);
        parts.push(Part { range: at..end, way });
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_pieces_that_touch() {
        let piece = |start, length| WritingPiece { start, bytes: Arc::new(vec![0; length].into()) };
        assert_eq!(runs(&[piece(0, 10), piece(10, 5), piece(20, 5)]), [0..15, 20..25]);
    }

    #[test]
    fn no_part_is_longer_than_an_extent() {
        let mut parts = Vec::new();
        cut(&mut parts, 0..EXTENT_MAX_BYTES * 2 + 1, Way::Copied);
        cut(&mut parts, 5..5, Way::Copied);
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2].range, EXTENT_MAX_BYTES * 2..EXTENT_MAX_BYTES * 2 + 1);
    }
}
