//! `fallocate`: space in advance, holes, zeros.

use super::promise::Promise;
use super::write::{FILE_SIZE_MAX, Stamp};
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::data::output::Cause;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, STEP_EXTENTS, need_of, set_flags, settle};
use crate::extent::file_extent::{Contents, DiskPart, FileExtent};
use crate::extent::open_file::OpenFile;
use brindle_ondisk::item::{Compression, InodeFlags};
use brindle_ondisk::{Generation, to_usize};
use brindle_tree::{Need, ReservedExtent, Tree};
use std::ops::Range;
use std::sync::Arc;

/// The longest preallocated extent, in bytes, as the kernel has it.
const PREALLOC_MAX_BYTES: u64 = 256 << 20;

/// Operation of `fallocate` on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Allocates space where there is none; the file grows to contain the range.
    Allocate,
    /// Allocates space where there is none (`FALLOC_FL_KEEP_SIZE`).
    AllocateKeepSize,
    /// Punches a hole (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    PunchHole,
    /// Makes it read as zeros and have space (`FALLOC_FL_ZERO_RANGE`); the file grows to contain the range.
    ZeroRange,
    /// Makes it read as zeros and have space (`FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE`).
    ZeroRangeKeepSize,
}

/// A call of `fallocate`.
struct Allocation<'f> {
    file: &'f OpenFile,
    mode: AllocateMode,
    offset: u64,
    length: u64,
    stamp: Stamp,
}

impl Allocation<'_> {
    /// The range, which is not empty, and within what a file can hold.
    fn range(&self) -> Result<Range<u64>, FsError> {
        let file = self.file.id();
        let end = self.offset.checked_add(self.length).filter(|end| *end <= FILE_SIZE_MAX);
        let range = self.offset..end.ok_or(FsError::TooLarge(file))?;
        if range.is_empty() { Err(FsError::Invalid { file, why: "an empty range" }) } else { Ok(range) }
    }
}

impl FileData {
    pub(crate) fn allocate(
        &self,
        file: &OpenFile,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        self.allocate_as(&Allocation { file, mode, offset, length, stamp: Stamp::Now })
    }

    pub(crate) fn allocate_for_host(
        &self,
        file: &OpenFile,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        self.allocate_as(&Allocation { file, mode, offset, length, stamp: Stamp::ByHost })
    }

    fn allocate_as(&self, wanted: &Allocation<'_>) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        let Allocation { file, .. } = *wanted;
        let range = wanted.range()?;
        let subvolume = self.core.subvolume_state(file.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _alone = file.inode().data.exclusive();
        let done = match wanted.mode {
            AllocateMode::PunchHole => self.punch(file, &range, wanted.stamp),
            _ => self.preallocate(wanted, &range),
        };
        self.context.note(file.inode(), &mut file.inode().data.memory());
        done
    }

    fn punch(&self, file: &OpenFile, range: &Range<u64>, stamp: Stamp) -> Result<(), FsError> {
        let size = file.size();
        if range.start >= size {
            return Ok(());
        }
        // What is behind the end counts as zeros already, so the last sector may go as a whole.
        let end = if range.end >= size { range.end.next_multiple_of(self.core.sector()) } else { range.end };
        self.clear(file, &(range.start..end), stamp)
    }

    /// Lets a range read as zeros, and takes its whole sectors out of the file.
    fn clear(&self, file: &OpenFile, range: &Range<u64>, stamp: Stamp) -> Result<(), FsError> {
        let sector = self.core.sector();
        let (from, to) = (range.start.next_multiple_of(sector), range.end / sector * sector);
        if from > to {
            return self.zero_bytes(file, range, stamp);
        }
        self.zero_bytes(file, &(range.start..from), stamp)?;
        self.zero_bytes(file, &(to..range.end), stamp)?;
        self.drop_range(file.inode(), &(from..to), stamp)
    }

    /// Fills bytes within one sector with zeros, as far as the file goes and holds data there.
    fn zero_bytes(&self, file: &OpenFile, range: &Range<u64>, stamp: Stamp) -> Result<(), FsError> {
        let end = range.end.min(file.size());
        let sector = range.start / self.core.sector() * self.core.sector();
        if range.start >= end || self.fetch_sector(file, sector)?.is_none() {
            return Ok(());
        }
        self.write_at_inside(file, range.start, &vec![0; to_usize(end - range.start)], stamp)
    }

    /// Takes all contents of a range, of whole sectors, out of a file, in steps: dirty ones with the extents of their step, so that
    /// they are there if it is refused.
    fn drop_range(&self, inode: &Arc<Inode>, range: &Range<u64>, stamp: Stamp) -> Result<(), FsError> {
        let tree = self.core.tree(inode.id().tree)?;
        let mut at = range.start;
        loop {
            let map = self.extents.extent_map(&tree, inode.id(), &(at..range.end), STEP_EXTENTS)?;
            let to = map.end();
            let transaction = self.core.pool().join(Need::freeing(need_of(1, map.extents().len())))?;
            let surplus = {
                let mut memory = inode.data.memory();
                self.stamp(&mut memory, stamp);
                self.context.discard(inode.id(), &mut memory, &(at..to))
            };
            if surplus > 0 {
                self.core.pool().release_data(surplus);
            }
            self.core.act_in(&transaction, |transaction| {
                let mut editor = FileEditor::new(transaction, &self.extents, &tree, inode.id());
                editor.make_room(&(at..to))?;
                let told = to.min(inode.data.memory().disk_size.next_multiple_of(self.core.sector()));
                editor.tell_holes(&(at..told.max(at)))?;
                editor.finish(&inode.data, |item, memory| settle(item, memory, None))
            })?;
            if to == range.end {
                return Ok(());
            }
            at = to;
        }
    }

    /// Gives a range space, and zeros if they are asked for.
    fn preallocate(&self, wanted: &Allocation<'_>, range: &Range<u64>) -> Result<(), FsError> {
        let Allocation { file, mode, stamp, .. } = *wanted;
        let may_grow = matches!(mode, AllocateMode::Allocate | AllocateMode::ZeroRange);
        let zeros = matches!(mode, AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize);
        let (inode, sector) = (file.inode(), self.core.sector());
        let sectors = range.start / sector * sector..range.end.next_multiple_of(sector);
        let tree = self.core.tree(file.id().tree)?;
        if may_grow && range.end > file.size() {
            self.settle_tail_inside(file)?;
        }
        self.leave_item(file)?;
        let mut promise = Promise::of(self.core.pool(), 0);
        let size = inode.data.memory().size.max(range.end);
        promise.set_place(self.tiers.tier_wish(file.id(), size)?.tier(0, 0).into());
        let claim;
        if zeros {
            // Space before anything is lost.
            claim = self.core.pool().claim_quota(file.id().tree, sectors.end - sectors.start)?;
            promise.grow_to(sectors.end - sectors.start)?;
            self.clear(file, range, stamp)?;
            self.write_back_as(inode, false, Cause::Other)?;
        } else {
            let holes = self.extents.holes(inode, &tree, &sectors)?;
            let bytes = holes.iter().map(|hole| hole.end - hole.start).sum();
            claim = self.core.pool().claim_quota(file.id().tree, bytes)?;
            promise.grow_to(bytes)?;
        }
        for hole in self.extents.holes(inode, &tree, &sectors)? {
            self.fill_hole(inode, &tree, &hole, &mut promise)?;
        }
        drop(claim);
        {
            let mut memory = inode.data.memory();
            self.stamp(&mut memory, stamp);
            if may_grow {
                memory.size = memory.size.max(range.end);
            }
        }
        self.enter_size(inode)
    }

    /// Writes all that is dirty back, and contents that are kept in the item to an extent of their own.
    pub(super) fn leave_item(&self, file: &OpenFile) -> Result<(), FsError> {
        let tree = self.core.tree(file.id().tree)?;
        let first = self.extents.extent_at(&tree, file.id(), 0)?;
        if first.is_some_and(|extent| matches!(extent.contents, Contents::Inline(_))) {
            let mut byte = [0];
            if self.reader.read_inside(file, 0, &mut byte)? == 1 {
                self.write_at_inside(file, 0, &byte, Stamp::Unchanged)?;
            }
        }
        self.write_back_as(file.inode(), false, Cause::Other)
    }

    fn fill_hole(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        hole: &Range<u64>,
        promise: &mut Promise<'_>,
    ) -> Result<(), FsError> {
        let (mut at, mut hint) = (hole.start, None);
        while at < hole.end {
            let most = (hole.end - at).min(PREALLOC_MAX_BYTES);
            let reserved = promise.take_extent(self.core.sector(), most, hint)?;
            hint = reserved.start.checked_add(reserved.length);
            let length = reserved.length;
            let there =
                self.extents.extent_map(tree, inode.id(), &(at..at + length), STEP_EXTENTS)?.extents().len();
            self.core.enter_transaction(need_of(1, there), |transaction| {
                let mut editor = FileEditor::new(transaction, &self.extents, tree, inode.id());
                editor.put(&preallocated(&reserved, at, transaction.generation()), true)?;
                reserved.keep();
                editor.finish(&inode.data, |item, memory| {
                    settle(item, memory, None);
                    set_flags(item, InodeFlags::PREALLOC);
                })
            })?;
            at += length;
        }
        Ok(())
    }
}

fn preallocated(reserved: &ReservedExtent<'_>, start: u64, generation: Generation) -> FileExtent {
    let length = reserved.length;
    let span = DiskPart { is_prealloc: true, disk: reserved.start, disk_length: length, offset: 0, length };
    let (compression, contents) = (Compression::None, Contents::OnDisk(span));
    FileExtent { start, generation, ram_bytes: length, compression, contents }
}
