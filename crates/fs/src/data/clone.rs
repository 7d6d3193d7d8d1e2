//! Files that share extents.

use super::edit::{FileEditor, STEP_EXTENTS, settle};
use super::enter::need_of;
use super::state::exclusive_both;
use super::write::{FILE_SIZE_MAX, Stamp};
use crate::extent::{Contents, FileExtent};
use crate::{Filesystem, FsError, InodeFlags, OpenFile};
use brindle_ondisk::{to_u64, to_usize};
use brindle_policy::placement::tier_of_owners;
use brindle_tree::Tree;
use std::ops::Range;
use std::sync::Arc;

/// Unit of copying byte by byte, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Two ranges of the same length.
struct Pair<'f> {
    source: &'f OpenFile,
    source_tree: Arc<Tree>,
    source_start: u64,
    target: &'f OpenFile,
    target_tree: Arc<Tree>,
    /// Start and, except for a part of the last sector, end of the target's range.
    target_range: Range<u64>,
    /// Lower bound of the target's size after it.
    target_size: u64,
    stamp: Stamp,
}

impl Filesystem {
    /// Lets a range of `target` have the extents of a range of `source` (`FICLONERANGE`), which may be the same file,
    /// or one of another subvolume. Offsets and length are multiples of the sector size, or the length reaches the
    /// end of the source and the range the end of the target; a length of 0 means up to the end. Returns how
    /// much.
    pub fn clone_range(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
    ) -> Result<u64, FsError> {
        self.clone_stamped(source, source_offset, target, target_offset, length, Stamp::Now)
    }

    fn clone_stamped(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
        stamp: Stamp,
    ) -> Result<u64, FsError> {
        let _writing = self.writing()?;
        let subvolume = self.subvolume_state(target.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _alone = exclusive_both(source.inode(), target.inode());
        // From the end to the end there is nothing, wherever it would go.
        if length == 0 && source_offset == source.size() {
            return Ok(0);
        }
        let rest = source.size().saturating_sub(source_offset);
        let length = if length == 0 { rest } else { length };
        self.check_clone(source, source_offset, target, target_offset, length)?;
        if length == 0 {
            return Ok(0);
        }
        self.write_back_as(source.inode(), true)?;
        self.write_back_as(target.inode(), true)?;
        if target_offset > 0 {
            self.leave_item(target)?;
        }
        if target_offset > target.size() {
            self.settle_tail_inside(target)?;
            self.write_back_as(target.inode(), false)?;
        }
        let pair = Pair {
            source,
            source_tree: self.tree(source.id().tree)?,
            source_start: source_offset,
            target,
            target_tree: self.tree(target.id().tree)?,
            target_range: target_offset..target_offset + length.next_multiple_of(self.sector()),
            target_size: target_offset + length,
            stamp,
        };
        let done = self.share(&pair);
        self.data.note(target.inode(), &mut target.inode().data.memory());
        done.map(|()| length)
    }

    /// Copies a range (`copy_file_range`): shares what can be shared and lies where the target wants it too, copies the
    /// rest. Returns how much; 0 at the end of
    /// the source.
    pub fn copy_range(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
    ) -> Result<u64, FsError> {
        self.copy_stamped(source, source_offset, target, target_offset, length, Stamp::Now)
    }

    /// The same, on behalf of a host that tells the time of the change by itself.
    pub fn copy_range_for_host(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
    ) -> Result<u64, FsError> {
        self.copy_stamped(source, source_offset, target, target_offset, length, Stamp::ByHost)
    }

    fn copy_stamped(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
        stamp: Stamp,
    ) -> Result<u64, FsError> {
        let _writing = self.writing()?;
        let length = length.min(source.size().saturating_sub(source_offset));
        let overlap = source_offset.abs_diff(target_offset) < length;
        if source.id() == target.id() && overlap {
            return Err(FsError::Invalid { file: target.id(), why: "the ranges overlap" });
        }
        let sector = self.sector();
        let is_aligned = source_offset.is_multiple_of(sector) && target_offset.is_multiple_of(sector);
        let reaches_both_ends =
            source_offset + length == source.size() && target_offset.saturating_add(length) >= target.size();
        let shared = if reaches_both_ends { length } else { length / sector * sector };
        let mut done = 0;
        if is_aligned && shared > 0 && !self.belongs_elsewhere(source, target, target_offset + shared)? {
            match self.clone_stamped(source, source_offset, target, target_offset, shared, stamp) {
                Ok(cloned) => done = cloned,
                // Such as files with and without checksums, or one that has changed meanwhile.
                Err(FsError::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut buffer = vec![0; COPY_BYTES.min(to_usize(length - done))];
        while done < length {
            let wanted = buffer.len().min(to_usize(length - done));
            let read = self.read(source, source_offset + done, &mut buffer[..wanted])?;
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
        let of_source = self.tier_wish(source.id(), source.size())?.tier(0, 0);
        let of_target = self.tier_wish(target.id(), target.size().max(end))?.tier(0, 0);
        Ok(tier_of_owners([of_source, of_target]) != of_source)
    }

    fn check_clone(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        let refuse = |why| Err(FsError::Invalid { file: target.id(), why });
        let sector = self.sector();
        let source_end = source_offset.checked_add(length).filter(|end| *end <= source.size());
        let Some(source_end) = source_end else {
            return refuse("the source ends before the range does");
        };
        let Some(target_end) = target_offset.checked_add(length).filter(|end| *end <= FILE_SIZE_MAX) else {
            return Err(FsError::TooLarge(target.id()));
        };
        if !source_offset.is_multiple_of(sector) || !target_offset.is_multiple_of(sector) {
            return refuse("a range that begins between sectors can't be shared");
        }
        let ends_both = source_end == source.size() && target_end >= target.size();
        if !length.is_multiple_of(sector) && !ends_both {
            return refuse("a range that ends between sectors can't be shared");
        }
        if source.id() == target.id() && source_offset.abs_diff(target_offset) < length {
            return refuse("the ranges overlap");
        }
        let flag =
            |file: &OpenFile| Ok(self.quick_attributes(file.id())?.flags.contains(InodeFlags::NODATASUM));
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
    fn share(&self, pair: &Pair<'_>) -> Result<(), FsError> {
        let mut at = self.copy_inline(pair)?;
        while at < pair.target_range.end {
            let moves = self.pool().moves();
            let (to, pieces) = self.plan_step(pair, at)?;
            if self.share_step(pair, &(at..to), &pieces, moves)? {
                at = to;
            }
        }
        Ok(())
    }

    /// Writes the source's inline contents to the target, like an ordinary write: old contents go when the new ones
    /// come, not before, so that a crash leaves the ones or the others. Returns the offset from which on there are
    /// extents.
    fn copy_inline(&self, pair: &Pair<'_>) -> Result<u64, FsError> {
        let (start, end) = (pair.target_range.start, pair.target_range.end);
        let first = self.extent_at(&pair.source_tree, pair.source.id(), pair.source_start)?;
        let Some(inline) = first.filter(|extent| matches!(extent.contents, Contents::Inline(_))) else {
            return Ok(start);
        };
        let to = end.min(start + (inline.end(self.sector()) - pair.source_start));
        let mut contents = vec![0; to_usize(to.min(pair.target_size) - start)];
        self.read_inside(pair.source, pair.source_start, &mut contents)?;
        self.write_at_inside(pair.target, start, &contents, pair.stamp)?;
        if to < end {
            // Contents in an item are alone in their file.
            self.write_back_as(pair.target.inode(), false)?;
        }
        Ok(to)
    }

    /// End of one step in the target, and the source's extents for it.
    fn plan_step(&self, pair: &Pair<'_>, at: u64) -> Result<(u64, Vec<FileExtent>), FsError> {
        let end = pair.target_range.end;
        let to = self.extent_map(&pair.target_tree, pair.target.id(), &(at..end), STEP_EXTENTS)?.end();
        let source_at = pair.source_start + (at - pair.target_range.start);
        let source_range = source_at..source_at + (to - at);
        let map = self.extent_map(&pair.source_tree, pair.source.id(), &source_range, STEP_EXTENTS)?;
        Ok((at + (map.end() - source_at), map.extents().to_vec()))
    }

    /// Shares the source's pieces; not if data has moved since they were looked up.
    fn share_step(
        &self,
        pair: &Pair<'_>,
        range: &Range<u64>,
        pieces: &[FileExtent],
        moves: u64,
    ) -> Result<bool, FsError> {
        let source_at = pair.source_start + (range.start - pair.target_range.start);
        let source_end = source_at + (range.end - range.start);
        self.enter_transaction(need_of(1, STEP_EXTENTS + pieces.len()), |transaction| {
            if self.pool().moves() != moves {
                return Ok(false);
            }
            self.log_book.note(transaction.generation(), pair.target.id(), range.clone());
            let mut editor = FileEditor::new(transaction, self, &pair.target_tree, pair.target.id());
            editor.make_room(range)?;
            for piece in pieces {
                if !matches!(piece.contents, Contents::OnDisk(_))
                    || (piece.disk_part().is_none() && self.has_implicit_holes())
                {
                    continue;
                }
                let (from, to) = (piece.start.max(source_at), piece.end(self.sector()).min(source_end));
                let mut part = piece.part(from, to);
                part.start = range.start + (from - source_at);
                part.generation = transaction.generation();
                editor.add(&part, false)?;
            }
            editor.tell_holes(range)?;
            editor.finish(&pair.target.inode().data, |item, memory| {
                memory.size = memory.size.max(range.end.min(pair.target_size));
                self.stamp(memory, pair.stamp);
                settle(item, memory, None);
            })?;
            Ok(true)
        })
    }
}
