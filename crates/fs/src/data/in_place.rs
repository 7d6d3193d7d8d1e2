//! Writing into extents that a file has already: preallocated ones, and those of files that are not copied on write.
//!
//! What a sync waits for does not go into preallocated space of bulk devices while the write-back tier has room: it becomes an
//! extent there, and the rest of the preallocated one stays. The writer was promised space for it, so its place on bulk
//! devices is kept as that of all that waits; a write that was accepted without a promise, because there was no space but the
//! preallocated, goes in place.
//!
//! The data is written within the transaction: a snapshot, which would have the extent too, waits for its end, and
//! comes before or after all of it.

use super::output::{contents_of, write_all};
use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, STEP_EXTENTS, need_of, settle};
use crate::extent::file_extent::{Contents, DiskPart, FileExtent};
use crate::pages::state::WritingPiece;
use brindle_interval::runs;
use brindle_ondisk::item::{Compression, InodeFlags};
use brindle_ondisk::{Logical, to_usize};
use brindle_tree::{ChecksumTree, Editor, Need, Tree};
use std::ops::Range;
use std::sync::Arc;

/// Upper bound on the bytes written in one transaction.
const STEP_BYTES: u64 = 16 << 20;
/// The items that one extent changes: it is cut in three, and its checksums come.
const ITEMS_PER_EXTENT: usize = 4;

/// One part of an extent that is written to.
struct Overwrite {
    /// The extent as it is.
    piece: FileExtent,
    /// The part of the file.
    range: Range<u64>,
    /// Address on disk.
    at: Logical,
}

/// Result of a step.
struct Step {
    /// End of the step in the file, in bytes.
    to: u64,
    /// Ranges of it that have to be copied on write.
    left: Vec<Range<u64>>,
}

impl FileData {
    /// The parts of a range that are preallocated on bulk devices.
    pub(super) fn preallocated_on_bulk(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        flags: InodeFlags,
    ) -> Result<Vec<Range<u64>>, FsError> {
        self.candidates(tree, file, range, flags, |span| {
            span.is_prealloc && self.core.pool().lies_on_bulk_devices(span.disk)
        })
    }

    /// The parts of a range that may be written in place, as far as can be seen without a transaction.
    pub(super) fn maybe_in_place(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        flags: InodeFlags,
    ) -> Result<Vec<Range<u64>>, FsError> {
        self.candidates(tree, file, range, flags, |_| true)
    }

    /// The parts of a range that may be written in place and are wanted.
    fn candidates(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        flags: InodeFlags,
        is_wanted: impl Fn(&DiskPart) -> bool,
    ) -> Result<Vec<Range<u64>>, FsError> {
        if !flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
            return Ok(Vec::new());
        }
        let (mut parts, sector) = (Vec::new(), self.core.sector());
        let mut at = range.start;
        while at < range.end {
            let map = self.extents.extent_map(tree, file, &(at..range.end), STEP_EXTENTS)?;
            let is_wanted = |extent: &&FileExtent| {
                is_candidate(extent, flags) && extent.disk_part().is_some_and(&is_wanted)
            };
            let candidates = map.extents().iter().filter(is_wanted);
            parts.extend(candidates.map(|extent| extent.interval(sector).intersection(&range.into())));
            at = map.end();
        }
        Ok(runs(parts).into_iter().map(Range::from).collect())
    }

    /// Returns true if a write to a range needs no space, because all of it goes in place.
    pub(super) fn is_overwritable(&self, file: InodeId, range: &Range<u64>) -> Result<bool, FsError> {
        let (tree, flags) = (self.core.tree(file.tree)?, self.items.quick_attributes(file)?.flags);
        let parts = self.maybe_in_place(&tree, file, range, flags)?;
        if parts != [range.clone()] {
            return Ok(false);
        }
        let transaction = self.core.pool().join(Need::freeing(1))?;
        for piece in self.extents.extents(&tree, file, range)? {
            if !is_unshared(&transaction, &tree, file, &piece)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes a range in place, as far as that can be; returns what is left. Nothing from `behind` on is in the items
    /// when all is done.
    pub(super) fn overwrite(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        pieces: &[WritingPiece],
        range: &Range<u64>,
        flags: InodeFlags,
        behind: Option<u64>,
    ) -> Result<Vec<Range<u64>>, FsError> {
        let mut left: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let rest = at..range.end;
            let unfinished = left.first().map(|left| left.start);
            let there = self.extents.extent_map(tree, inode.id(), &rest, STEP_EXTENTS)?.extents().len();
            let step = self.core.enter_transaction(need_of(2, there * ITEMS_PER_EXTENT), |transaction| {
                self.overwrite_step(transaction, inode, tree, pieces, &rest, flags, unfinished.or(behind))
            })?;
            left.extend(step.left);
            at = step.to;
            let written = left.first().map_or(at, |left| left.start);
            self.context.forget_written(inode.id(), &mut inode.data.memory(), Some(written));
        }
        Ok(left)
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the function above, which has them all")]
    fn overwrite_step(
        &self,
        transaction: &Editor<'_>,
        inode: &Inode,
        tree: &Arc<Tree>,
        contents: &[WritingPiece],
        range: &Range<u64>,
        flags: InodeFlags,
        behind: Option<u64>,
    ) -> Result<Step, FsError> {
        let map = self.extents.extent_map(tree, inode.id(), range, STEP_EXTENTS)?;
        let (mut overwrites, mut left, mut to) = (Vec::new(), Vec::new(), range.start);
        for piece in map.extents() {
            let part = piece.start.max(to)..piece.end(self.core.sector()).min(range.end);
            if part.start > to {
                left.push(to..part.start);
            }
            to = part.end.min(part.start + STEP_BYTES);
            let part = part.start..to;
            let may = is_candidate(piece, flags) && is_unshared(transaction, tree, inode.id(), piece)?;
            match piece.disk_part().filter(|_| may).copied() {
                Some(span) => {
                    let at = span.disk + (span.offset + (part.start - piece.start));
                    overwrites.push(Overwrite { piece: piece.clone(), range: part, at });
                }
                None => left.push(part),
            }
            if to - range.start >= STEP_BYTES {
                break;
            }
        }
        if to == range.start {
            left.push(range.clone());
            to = range.end;
        }
        let behind =
            left.first().map(|left: &Range<u64>| left.start).or((to < range.end).then_some(to)).or(behind);
        let checksums = self.write_in_place(contents, &overwrites, flags)?;
        let _changing = inode.data.begin_change();
        let mut editor = FileEditor::new(transaction, &self.extents, tree, inode.id());
        for (overwrite, checksums) in overwrites.iter().zip(checksums) {
            if overwrite.piece.is_zeros() {
                editor.divide(&written(&overwrite.piece, &overwrite.range, transaction))?;
                if !checksums.is_empty() {
                    ChecksumTree::of(transaction).insert(overwrite.at, &checksums)?;
                }
            }
        }
        if overwrites.iter().any(|overwrite| overwrite.piece.is_zeros()) {
            editor.join(&(range.start..to))?;
        }
        editor.finish(&inode.data, |item, memory| settle(item, memory, behind))?;
        Ok(Step { to, left })
    }

    /// Writes the data; the checksums of each part.
    fn write_in_place(
        &self,
        contents: &[WritingPiece],
        overwrites: &[Overwrite],
        flags: InodeFlags,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        let mut writes: Vec<(usize, Logical, &[u8])> = Vec::new();
        for (index, overwrite) in overwrites.iter().enumerate() {
            let mut at = overwrite.at;
            for bytes in contents_of(contents, &overwrite.range) {
                writes.push((index, at, bytes));
                at = at + brindle_ondisk::to_u64(bytes.len());
            }
        }
        let kind = self.core.pool().volume().tree_context().checksum_type;
        let kind = (!flags.contains(InodeFlags::NODATASUM)).then_some(kind);
        let mut all: Vec<Vec<u8>> = overwrites.iter().map(|_| Vec::new()).collect();
        let checksums = write_all(self, &writes, kind, to_usize(self.core.sector()))?;
        for ((index, _, _), checksums) in writes.iter().zip(checksums) {
            all[*index].extend_from_slice(&checksums);
        }
        Ok(all)
    }
}

/// Returns true if an extent may be written in place unless it is shared.
fn is_candidate(piece: &FileExtent, flags: InodeFlags) -> bool {
    let may = |is_prealloc| is_prealloc || flags.contains(InodeFlags::NODATACOW);
    piece.compression == Compression::None && piece.disk_part().is_some_and(|span| may(span.is_prealloc))
}

fn is_unshared(
    transaction: &Editor<'_>,
    tree: &Arc<Tree>,
    file: InodeId,
    piece: &FileExtent,
) -> Result<bool, FsError> {
    match (piece.disk_part(), piece.reference(file)) {
        (Some(span), Some(reference)) => {
            Ok(!transaction.references().is_data_shared(tree, span.extent(), &reference)?)
        }
        _ => Ok(false),
    }
}

/// A preallocated extent of which a part is written.
fn written(piece: &FileExtent, part: &Range<u64>, transaction: &Editor<'_>) -> Vec<FileExtent> {
    let Contents::OnDisk(span) = &piece.contents else {
        return vec![piece.clone()];
    };
    let end = piece.start + span.length;
    let mut middle = piece.part(part.start, part.end);
    middle.generation = transaction.generation();
    if let Contents::OnDisk(span) = &mut middle.contents {
        span.is_prealloc = false;
    }
    let front = (piece.start < part.start).then(|| piece.part(piece.start, part.start));
    let behind = (part.end < end).then(|| piece.part(part.end, end));
    [front, Some(middle), behind].into_iter().flatten().collect()
}
