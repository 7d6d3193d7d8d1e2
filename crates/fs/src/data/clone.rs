//! Files that share extents.

use super::write::{FILE_SIZE_MAX, Stamp};
use crate::core::inodes::exclusive_both;
use crate::data::FileData;
use crate::data::output::Cause;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, STEP_EXTENTS, need_of, settle};
use crate::extent::file_extent::{Contents, FileExtent};
use crate::extent::open_file::OpenFile;
use brindle_ondisk::item::InodeFlags;
use brindle_ondisk::{to_u64, to_usize};
use brindle_tree::Tree;
use std::ops::Range;
use std::sync::Arc;

/// Unit of copying byte by byte, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// A range of a file, and one of the same length in another file or the same one.
#[derive(Clone, Copy, Debug)]
pub struct RangePair<'f> {
    /// The file that is copied from.
    pub source: &'f OpenFile,
    /// Start of the range in the source, in bytes.
    pub source_offset: u64,
    /// The file that is copied to.
    pub target: &'f OpenFile,
    /// Start of the range in the target, in bytes.
    pub target_offset: u64,
    /// The length of both ranges, in bytes.
    pub length: u64,
}

/// Two ranges that are to share extents.
struct Sharing<'f> {
    pair: RangePair<'f>,
    source_tree: Arc<Tree>,
    target_tree: Arc<Tree>,
    /// The target's range, of whole sectors.
    target_range: Range<u64>,
    stamp: Stamp,
}

impl RangePair<'_> {
    /// Returns true if both ranges are of one file, and have a byte in common.
    fn overlaps(&self) -> bool {
        self.source.id() == self.target.id() && self.source_offset.abs_diff(self.target_offset) < self.length
    }

    /// Returns true if both ranges begin between sectors of this size.
    fn begins_at_sectors(&self, sector: u64) -> bool {
        self.source_offset % sector == 0 && self.target_offset % sector == 0
    }

    /// Returns true if the ranges reach the ends of both files. They have passed no check.
    fn reaches_both_ends(&self) -> bool {
        let end = |offset: u64| offset.saturating_add(self.length);
        end(self.source_offset) == self.source.size() && end(self.target_offset) >= self.target.size()
    }
}

impl Sharing<'_> {
    /// Lower bound of the target's size after it.
    fn target_size(&self) -> u64 {
        self.pair.target_offset + self.pair.length
    }

    /// The offset in the source of what the target gets at an offset.
    fn source_of(&self, target_offset: u64) -> u64 {
        self.pair.source_offset + (target_offset - self.pair.target_offset)
    }
}

impl FileData {
    pub(crate) fn clone_range(&self, pair: &RangePair<'_>) -> Result<u64, FsError> {
        self.clone_stamped(*pair, Stamp::Now)
    }

    fn clone_stamped(&self, mut pair: RangePair<'_>, stamp: Stamp) -> Result<u64, FsError> {
        let RangePair { source, target, .. } = pair;
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(target.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _alone = exclusive_both(source.inode(), target.inode());
        // From the end to the end there is nothing, wherever it would go.
        if pair.length == 0 && pair.source_offset == source.size() {
            return Ok(0);
        }
        if pair.length == 0 {
            pair.length = source.size().saturating_sub(pair.source_offset);
        }
        self.check_clone(&pair)?;
        if pair.length == 0 {
            return Ok(0);
        }
        self.write_back_as(source.inode(), true, Cause::Other)?;
        self.write_back_as(target.inode(), true, Cause::Other)?;
        if pair.target_offset > 0 {
            self.leave_item(target)?;
        }
        if pair.target_offset > target.size() {
            self.settle_tail_inside(target)?;
            self.write_back_as(target.inode(), false, Cause::Other)?;
        }
        let sharing = Sharing {
            pair,
            source_tree: self.core.tree(source.id().tree)?,
            target_tree: self.core.tree(target.id().tree)?,
            target_range: pair.target_offset
                ..pair.target_offset + pair.length.next_multiple_of(self.core.sector()),
            stamp,
        };
        let done = self.share(&sharing);
        self.context.note(target.inode(), &mut target.inode().data.memory());
        done.map(|()| pair.length)
    }

    pub(crate) fn copy_range(&self, pair: &RangePair<'_>) -> Result<u64, FsError> {
        self.copy_stamped(*pair, Stamp::Now)
    }

    pub(crate) fn copy_range_for_host(&self, pair: &RangePair<'_>) -> Result<u64, FsError> {
        self.copy_stamped(*pair, Stamp::ByHost)
    }

    fn copy_stamped(&self, mut pair: RangePair<'_>, stamp: Stamp) -> Result<u64, FsError> {
        let RangePair { source, source_offset, target, target_offset, .. } = pair;
        let _writing = self.core.writing()?;
        pair.length = pair.length.min(source.size().saturating_sub(source_offset));
        if pair.overlaps() {
            return Err(FsError::Invalid { file: target.id(), why: "the ranges overlap" });
        }
        let (length, sector) = (pair.length, self.core.sector());
        let shared = if pair.reaches_both_ends() { length } else { length / sector * sector };
        let may_share = pair.begins_at_sectors(sector) && shared > 0;
        let mut done = 0;
        if may_share && !self.belongs_elsewhere(source, target, target_offset.saturating_add(shared))? {
            match self.clone_stamped(RangePair { length: shared, ..pair }, stamp) {
                Ok(cloned) => done = cloned,
                // Such as files with and without checksums, or one that has changed meanwhile.
                Err(FsError::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut buffer = vec![0; COPY_BYTES.min(to_usize(length - done))];
        while done < length {
            let wanted = buffer.len().min(to_usize(length - done));
            let read = self.reader.read(source, source_offset + done, &mut buffer[..wanted])?;
            if read == 0 {
                break;
            }
            let written = self.write_all_at(target, target_offset + done, &buffer[..read], stamp)?;
            done += to_u64(written);
            if written < read {
                break;
            }
        }
        Ok(done)
    }

    /// Returns true if an extent that the target, which then reaches `end`, shared with the source would belong into
    /// another tier than the source's.
    fn belongs_elsewhere(&self, source: &OpenFile, target: &OpenFile, end: u64) -> Result<bool, FsError> {
        let of_source = self.tiers.tier_wish(source.id(), source.size())?.tier(0, 0);
        let of_target = self.tiers.tier_wish(target.id(), target.size().max(end))?.tier(0, 0);
        Ok(self.core.pool().tier_of_owners(&[of_source, of_target]) != of_source)
    }

    fn check_clone(&self, pair: &RangePair<'_>) -> Result<(), FsError> {
        let RangePair { source, target, length, .. } = *pair;
        let refuse = |why| Err(FsError::Invalid { file: target.id(), why });
        let sector = self.core.sector();
        if pair.source_offset.checked_add(length).is_none_or(|end| end > source.size()) {
            return refuse("the source ends before the range does");
        }
        if pair.target_offset.checked_add(length).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(FsError::TooLarge(target.id()));
        }
        if !pair.begins_at_sectors(sector) {
            return refuse("a range that begins between sectors can't be shared");
        }
        if length % sector != 0 && !pair.reaches_both_ends() {
            return refuse("a range that ends between sectors can't be shared");
        }
        if pair.overlaps() {
            return refuse("the ranges overlap");
        }
        let flag = |file: &OpenFile| {
            Ok(self.items.quick_attributes(file.id())?.flags.contains(InodeFlags::NODATASUM))
        };
        let (source_flag, target_flag): (bool, bool) = match (flag(source), flag(target)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        if source_flag != target_flag {
            return refuse("only one of the files has checksums");
        }
        Ok(())
    }

    /// Shares extents, in steps; contents in an item are copied.
    fn share(&self, sharing: &Sharing<'_>) -> Result<(), FsError> {
        let mut at = self.copy_inline(sharing)?;
        while at < sharing.target_range.end {
            let moves = self.core.pool().moves();
            let (to, pieces) = self.plan_step(sharing, at)?;
            if self.share_step(sharing, &(at..to), &pieces, moves)? {
                at = to;
            }
        }
        Ok(())
    }

    /// Writes the source's inline contents to the target, like an ordinary write: old contents go when the new ones
    /// come, not before, so that a crash leaves the ones or the others. Returns the offset from which on there are
    /// extents.
    fn copy_inline(&self, sharing: &Sharing<'_>) -> Result<u64, FsError> {
        let pair = &sharing.pair;
        let (start, end) = (sharing.target_range.start, sharing.target_range.end);
        let first = self.extents.extent_at(&sharing.source_tree, pair.source.id(), pair.source_offset)?;
        let Some(inline) = first.filter(|extent| matches!(extent.contents, Contents::Inline(_))) else {
            return Ok(start);
        };
        let to = end.min(start + (inline.end(self.core.sector()) - pair.source_offset));
        let mut contents = vec![0; to_usize(to.min(sharing.target_size()) - start)];
        self.reader.read_inside(pair.source, pair.source_offset, &mut contents)?;
        self.write_at_inside(pair.target, start, &contents, sharing.stamp)?;
        if to < end {
            // Contents in an item are alone in their file.
            self.write_back_as(pair.target.inode(), false, Cause::Other)?;
        }
        Ok(to)
    }

    /// End of one step in the target, and the source's extents for it.
    fn plan_step(&self, sharing: &Sharing<'_>, at: u64) -> Result<(u64, Vec<FileExtent>), FsError> {
        let (pair, end) = (&sharing.pair, sharing.target_range.end);
        let to =
            self.extents.extent_map(&sharing.target_tree, pair.target.id(), &(at..end), STEP_EXTENTS)?.end();
        let source_at = sharing.source_of(at);
        let source_range = source_at..source_at + (to - at);
        let map =
            self.extents.extent_map(&sharing.source_tree, pair.source.id(), &source_range, STEP_EXTENTS)?;
        Ok((at + (map.end() - source_at), map.extents().to_vec()))
    }

    /// Shares the source's pieces; not if data has moved since they were looked up.
    fn share_step(
        &self,
        sharing: &Sharing<'_>,
        range: &Range<u64>,
        pieces: &[FileExtent],
        moves: u64,
    ) -> Result<bool, FsError> {
        let (pair, source_at) = (&sharing.pair, sharing.source_of(range.start));
        let source_end = source_at + (range.end - range.start);
        self.core.enter_transaction(need_of(1, STEP_EXTENTS + pieces.len()), |transaction| {
            if self.core.pool().moves() != moves {
                return Ok(false);
            }
            self.core.log_book.note(transaction.generation(), pair.target.id(), range.clone());
            let mut editor =
                FileEditor::new(transaction, &self.extents, &sharing.target_tree, pair.target.id());
            editor.make_room(range)?;
            for piece in pieces {
                if !matches!(piece.contents, Contents::OnDisk(_))
                    || (piece.disk_part().is_none() && self.core.has_implicit_holes())
                {
                    continue;
                }
                let (from, to) = (piece.start.max(source_at), piece.end(self.core.sector()).min(source_end));
                let mut part = piece.part(from, to);
                part.start = range.start + (from - source_at);
                part.generation = transaction.generation();
                editor.add(&part, false)?;
            }
            editor.tell_holes(range)?;
            editor.finish(&pair.target.inode().data, |item, memory| {
                memory.size = memory.size.max(range.end.min(sharing.target_size()));
                self.stamp(memory, sharing.stamp);
                settle(item, memory, None);
            })?;
            Ok(true)
        })
    }
}
