//! Changes of the extents of one file within a transaction. The caller has the file's gate alone, or its turn to
//! write back, so that the items cannot change between being read and being changed.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::extent::Extents;
use crate::extent::file_extent::{Contents, FileExtent};
use crate::extent::plan::{DropPlan, Edit};
use crate::pages::state::{FileState, Memory};
use brindle_ondisk::item::{InodeFlags, InodeItem};
use brindle_ondisk::{Defect, KeyType};
use brindle_tree::{Editor, Tree};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Upper bound on the extents that one transaction changes: a larger change takes several steps, each of which leaves
/// the file whole.
pub(crate) const STEP_EXTENTS: usize = 64;

/// Lower bound on the number of consecutive items in a leaf.
pub(crate) const ITEMS_PER_LEAF: usize = 16;

/// Metadata need of `items` items of a file in `places` places, with the inode item: a number of items that lie
/// apart.
pub(crate) fn need_of(places: usize, items: usize) -> usize {
    places + items.div_ceil(ITEMS_PER_LEAF) + 2
}

/// Changes the extents of one file.
pub(crate) struct FileEditor<'e, 'p> {
    editor: &'e Editor<'p>,
    extents: &'e Extents,
    tree: &'e Arc<Tree>,
    file: InodeId,
    /// Bytes that the inode's `nbytes` gains and loses.
    gained_bytes: u64,
    freed_bytes: u64,
    /// Ranges that got extents.
    entered: Vec<Range<u64>>,
}

impl<'e, 'p> FileEditor<'e, 'p> {
    pub(crate) fn new(
        editor: &'e Editor<'p>,
        extents: &'e Extents,
        tree: &'e Arc<Tree>,
        file: InodeId,
    ) -> Self {
        Self { editor, extents, tree, file, gained_bytes: 0, freed_bytes: 0, entered: Vec::new() }
    }

    /// Takes everything out of a range, of whole sectors.
    pub(crate) fn make_room(&mut self, range: &Range<u64>) -> Result<(), FsError> {
        let plan = self.plan(range)?;
        self.apply(plan, None)
    }

    /// Puts a new piece in the place of everything that is there; `is_new` if nothing refers to its extent yet.
    pub(crate) fn put(&mut self, piece: &FileExtent, is_new: bool) -> Result<(), FsError> {
        let end = piece.end(self.extents.core.sector());
        let plan = self.plan(&(piece.start..end))?;
        self.entered.push(piece.start..end);
        self.refer(piece, is_new);
        self.gained_bytes += piece.counted_bytes();
        self.apply(plan, Some(piece))
    }

    /// Puts a new piece where nothing is.
    pub(crate) fn add(&mut self, piece: &FileExtent, is_new: bool) -> Result<(), FsError> {
        self.refer(piece, is_new);
        self.gained_bytes += piece.counted_bytes();
        self.insert(piece)
    }

    /// Puts contents in an item in the place of others.
    pub(crate) fn exchange_inline(&mut self, before: &FileExtent, after: &FileExtent) -> Result<(), FsError> {
        self.freed_bytes += before.counted_bytes();
        self.gained_bytes += after.counted_bytes();
        self.note(before);
        self.note(after);
        Ok(self.editor.replace(self.tree, &after.key(self.file), &after.to_item())?)
    }

    /// Puts a longer piece in the place of one that begins where it does, and of everything that it grows over. The
    /// reference stays.
    pub(crate) fn lengthen(&mut self, from: &FileExtent, to: &FileExtent) -> Result<(), FsError> {
        let sector = self.extents.core.sector();
        self.make_room(&(from.end(sector)..to.end(sector)))?;
        self.entered.push(from.end(sector)..to.end(sector));
        self.gained_bytes += to.counted_bytes() - from.counted_bytes();
        self.rewrite(to)
    }

    /// Puts other pieces that lie in the same extent in the place of one: the first begins where it did and has its
    /// reference, each other gets one of its own.
    pub(crate) fn divide(&mut self, pieces: &[FileExtent]) -> Result<(), FsError> {
        for (number, piece) in pieces.iter().enumerate() {
            if number == 0 {
                self.rewrite(piece)?;
                continue;
            }
            self.refer(piece, false);
            self.insert(piece)?;
        }
        Ok(())
    }

    /// Joins pieces in a range, or at its edges, that hold data and follow each other in the file as in their extent,
    /// as the kernel does. Data that is not in memory must never seem to be gone, not even for a moment: so a piece
    /// grows over the next one before that goes, and a reader that comes in between reads again.
    pub(crate) fn join(&mut self, range: &Range<u64>) -> Result<(), FsError> {
        let around = range.start.saturating_sub(1)..range.end.saturating_add(1);
        let pieces = self.extents.extents(self.tree, self.file, &around)?;
        for run in pieces.chunk_by(FileExtent::goes_on_in) {
            let [first, rest @ .., last] = run else {
                continue;
            };
            let mut whole = first.part(first.start, first.start);
            if let (Contents::OnDisk(whole), Some(last_span)) = (&mut whole.contents, last.disk_part()) {
                whole.length = last.start - first.start + last_span.length;
            }
            whole.generation = self.editor.generation();
            self.rewrite(&whole)?;
            for piece in rest.iter().chain([last]) {
                self.editor.remove(self.tree, &piece.key(self.file))?;
                if let (Some(span), Some(reference)) = (piece.disk_part(), piece.reference(self.file)) {
                    self.editor.references().drop_data(span.extent(), &reference);
                }
            }
        }
        Ok(())
    }

    /// Tells the holes of a range, where the pool wants them told.
    pub(crate) fn tell_holes(&mut self, range: &Range<u64>) -> Result<(), FsError> {
        if self.extents.core.has_implicit_holes() {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end {
            let map = self.extents.extent_map(self.tree, self.file, &(at..range.end), STEP_EXTENTS)?;
            for hole in map.without_item() {
                self.insert(&FileExtent::hole(hole.start, hole.length(), self.editor.generation()))?;
            }
            at = map.end();
        }
        Ok(())
    }

    /// Changes the inode item: what the changes of the extents come to, and what `change` does. Holes are told up to the
    /// size it has then.
    pub(crate) fn finish(
        mut self,
        state: &FileState,
        change: impl FnOnce(&mut InodeItem, &mut Memory),
    ) -> Result<(), FsError> {
        let generation = self.editor.generation();
        let (gained, freed) = (self.gained_bytes, self.freed_bytes);
        let entered = std::mem::take(&mut self.entered);
        let key = self.file.key(KeyType::INODE_ITEM, 0);
        let sizes = self.editor.update(self.tree, &key, |bytes| {
            let item = InodeItem::mut_from_bytes(bytes).ok()?;
            let mut memory = state.memory();
            let before = item.size.get();
            change(item, &mut memory);
            item.nbytes = item.nbytes.get().saturating_add(gained).saturating_sub(freed).into();
            item.transid = generation;
            // By this an fsync sees that contents have changed in place, if nothing else tells.
            item.sequence = item.sequence.get().wrapping_add(1).into();
            memory.disk_size = item.size.get();
            memory.version += 1;
            entered.iter().for_each(|range| memory.unallocated.forget(range));
            Some((before, memory.disk_size))
        })?;
        let sector = self.extents.core.sector();
        match sizes.flatten() {
            Some((before, after)) if after > before => {
                self.tell_holes(&(before.next_multiple_of(sector)..after.next_multiple_of(sector)))
            }
            Some(_) => Ok(()),
            None => Err(FsError::NoInode(self.file)),
        }
    }

    /// Changes of the inode item only what the changes of the extents come to.
    pub(crate) fn finish_bytes(self) -> Result<(), FsError> {
        if self.gained_bytes == self.freed_bytes {
            return Ok(());
        }
        let key = self.file.key(KeyType::INODE_ITEM, 0);
        let changed = self.editor.update(self.tree, &key, |bytes| {
            let item = InodeItem::mut_from_bytes(bytes).ok()?;
            let nbytes = item.nbytes.get().saturating_add(self.gained_bytes);
            item.nbytes = nbytes.saturating_sub(self.freed_bytes).into();
            Some(())
        })?;
        changed.flatten().ok_or(FsError::NoInode(self.file))
    }

    fn plan(&self, range: &Range<u64>) -> Result<DropPlan, FsError> {
        let sector = self.extents.core.sector();
        let pieces = self.extents.extents(self.tree, self.file, range)?;
        self.note_range(range.clone());
        pieces.iter().for_each(|piece| self.note(piece));
        let cut = pieces.iter().find(|piece| {
            let is_inline = matches!(piece.contents, Contents::Inline(_));
            is_inline && (piece.start < range.start || piece.end(sector) > range.end)
        });
        if let Some(piece) = cut {
            let defect = Defect::new("inline extent of more than a sector", piece.ram_bytes);
            return Err(FsError::Item { file: self.file, key: piece.key(self.file), defect });
        }
        Ok(DropPlan::new(pieces, range.start, range.end, sector))
    }

    /// Does what a plan says, then inserts `new`, if there is something: in place, if an item of its key goes.
    fn apply(&mut self, plan: DropPlan, new: Option<&FileExtent>) -> Result<(), FsError> {
        self.freed_bytes += plan.freed_bytes;
        let mut new = new;
        for edit in plan.edits {
            match edit {
                Edit::Remove(piece) => {
                    match new.take_if(|new| new.start == piece.start) {
                        Some(new) => self.editor.replace(self.tree, &new.key(self.file), &new.to_item())?,
                        None => {
                            self.editor.remove(self.tree, &piece.key(self.file))?;
                        }
                    }
                    // Not before: of a leaf that a snapshot has too, the copy's references come with the change of it.
                    if let (Some(span), Some(reference)) = (piece.disk_part(), piece.reference(self.file)) {
                        self.editor.references().drop_data(span.extent(), &reference);
                    }
                }
                Edit::Shorten(front) => self.rewrite(&front)?,
                Edit::Move { from, piece } => {
                    self.editor.remove(self.tree, &self.file.key(KeyType::EXTENT_DATA, from))?;
                    self.insert(&piece)?;
                }
                Edit::Split { front, behind } => self.divide(&[front, behind])?,
            }
        }
        new.map_or(Ok(()), |new| self.insert(new))
    }

    /// Notes for the log that the range of a piece has changed.
    fn note(&self, piece: &FileExtent) {
        self.note_range(piece.start..piece.end(self.extents.core.sector()));
    }

    fn note_range(&self, range: Range<u64>) {
        self.extents.core.log_book.note(self.editor.generation(), self.file, range);
    }

    fn refer(&self, piece: &FileExtent, is_new: bool) {
        if let (Some(span), Some(reference)) = (piece.disk_part(), piece.reference(self.file)) {
            self.editor.references().add_data(span.extent(), &reference, is_new);
        }
    }

    fn insert(&self, piece: &FileExtent) -> Result<(), FsError> {
        self.note(piece);
        Ok(self.editor.insert(self.tree, &piece.key(self.file), &piece.to_item())?)
    }

    /// Changes an item that stays where it is, and as long as it is.
    fn rewrite(&self, piece: &FileExtent) -> Result<(), FsError> {
        self.note(piece);
        let item = piece.to_item();
        let key = piece.key(self.file);
        let copied = self.editor.update(self.tree, &key, |bytes| {
            let fits = bytes.len() == item.len();
            if fits {
                bytes.copy_from_slice(&item);
            }
            fits
        })?;
        if copied == Some(true) {
            return Ok(());
        }
        Err(FsError::Item {
            file: self.file,
            key,
            defect: Defect::new("file extent that changes is not there", 0),
        })
    }
}

/// Gives an inode item the size that it may have now, and the times of the last write. No byte from `unfinished` on
/// counts.
pub(crate) fn settle(item: &mut InodeItem, memory: &mut Memory, unfinished: Option<u64>) {
    let size = memory.size_for_item();
    let least = item.size.get().min(size);
    item.size = unfinished.map_or(size, |unfinished| size.min(unfinished).max(least)).into();
    memory.times.settle(item);
}

/// Sets flags of an inode item.
pub(crate) fn set_flags(item: &mut InodeItem, flags: InodeFlags) {
    item.flags = (item.flags.get() | flags.bits()).into();
}
