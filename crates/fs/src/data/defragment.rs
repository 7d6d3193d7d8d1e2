//! Contents of files that lie in many pieces, written anew side by side.
//!
//! **Walk.** What is dirty of the file is written back. Then, in its turn to write back, the extents of a part of it are listed,
//! `policy` chooses those that are worth it, and groups of them are read, verified, and go the way of a writeback from there:
//! new extents, their checksums, and transactions that put them in the place of the old ones. A commit frees those.
//!
//! **Changes meanwhile.** As long as it is its turn, nothing else changes the items of the file or overwrites its data in
//! place: what takes contents away waits at the gate, writebacks wait for the turn, and a relocation moves the same bytes.
//! Writers go on in memory; what they have written before a group is read is written with it, as an early writeback
//! would, and once more when it is their turn.
//!
//! **Crash.** Before the commit the items of the last one are there, and their extents; after it the new ones.
//!
//! **Sharing.** An extent that a snapshot or another file has too stays, unless the caller wants a copy of its own: that takes
//! space.

use super::output::Cause;
use super::output::{Experience, Manner};
use super::promise::Promise;
use crate::compression::choice::CompressionChoice;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::file_extent::FileExtent;
use crate::extent::open_file::OpenFile;
use crate::pages::state::WritingPiece;
use brindle_interval::runs;
use brindle_ondisk::item::{Compression, InodeFlags};
use brindle_ondisk::{to_u64, to_usize};
use brindle_policy::defragment::contents::{GOOD_RUN_BYTES, TornExtent, worth_rewriting};
use brindle_tree::{Need, Tree};
use std::ops::Range;
use std::sync::Arc;

/// Extents that are listed at once, and the part of the file, in bytes.
const SURVEY_EXTENTS: usize = 8192;
const SURVEY_BYTES: u64 = 256 << 20;
/// Bytes that are in memory at once, but for a single extent that is longer.
const GROUP_BYTES: u64 = 16 << 20;

/// Wishes for the contents of a file.
#[derive(Clone, Copy, Debug)]
pub struct ContentsWish {
    /// Length of a run on the devices, in bytes, from which on it is left alone.
    pub run_bytes: u64,
    /// Compression that all contents are to have. Without it those that are compressed stay so.
    pub compression: Option<CompressionChoice>,
    /// True if extents that something else shares are written anew too, and shared no more.
    pub unshares: bool,
}

impl Default for ContentsWish {
    fn default() -> Self {
        Self { run_bytes: GOOD_RUN_BYTES, compression: None, unshares: false }
    }
}

/// Result for a part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragmentedContents {
    /// Extents that were looked at.
    pub extents: u64,
    /// Extents that were written anew.
    pub moved: u64,
    /// Bytes of the file that they had.
    pub moved_bytes: u64,
    /// Extents that would have been worth it, and stay because something else shares them.
    pub shared: u64,
    /// Offset of the next part; `None` after the last.
    pub next: Option<u64>,
}

/// A file in its turn to be written back.
struct Turn<'f> {
    files: &'f FileData,
    file: &'f OpenFile,
    tree: Arc<Tree>,
    flags: InodeFlags,
    wish: &'f ContentsWish,
}

impl FileData {
    /// Writes anew what lies in many pieces of a part of a file, which begins at `from`.
    pub(crate) fn defragment_contents(
        &self,
        file: &OpenFile,
        from: u64,
        wish: &ContentsWish,
    ) -> Result<DefragmentedContents, FsError> {
        let _writing = self.core.writing()?;
        self.write_back_inode(file.inode(), Cause::Other)?;
        let subvolume = self.core.subvolume_state(file.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _entry = file.inode().data.shared();
        let _turn = file.inode().data.writeback_turn();
        let (tree, flags) = (self.core.tree(file.id().tree)?, self.items.quick_attributes(file.id())?.flags);
        Turn { files: self, file, tree, flags, wish }.run(from)
    }
}

impl Turn<'_> {
    fn run(&self, from: u64) -> Result<DefragmentedContents, FsError> {
        let (extents, next) = self.survey(from)?;
        let mut done = DefragmentedContents { extents: to_u64(extents.len()), next, ..Default::default() };
        for range in self.chosen(&extents, &mut done)? {
            let mut rest = &extents[range];
            while let [first, ..] = rest {
                let fits = |extent: &&FileExtent| extent.contents_end() - first.start <= GROUP_BYTES;
                let count = rest.iter().take_while(fits).count().max(1);
                let (group, later) = rest.split_at(count);
                rest = later;
                if self.rewrite(group)? {
                    done.moved += to_u64(group.len());
                    done.moved_bytes += group.iter().map(FileExtent::length).sum::<u64>();
                }
            }
        }
        Ok(done)
    }

    /// Extents with data on the devices of a part of the file, and the end of the part.
    fn survey(&self, from: u64) -> Result<(Vec<FileExtent>, Option<u64>), FsError> {
        let end = self.file.inode().data.memory().disk_size.next_multiple_of(self.files.core.sector());
        let (mut extents, mut at) = (Vec::new(), from);
        while at < end && extents.len() < SURVEY_EXTENTS && at - from < SURVEY_BYTES {
            let map =
                self.files.extents.extent_map(&self.tree, self.file.id(), &(at..end), SURVEY_EXTENTS)?;
            let data = map.extents().iter().filter(|extent| extent.checksummed().is_some());
            extents.extend(data.filter(|extent| extent.start >= at).cloned());
            at = map.end();
        }
        Ok((extents, Some(at).filter(|at| *at < end)))
    }

    /// The extents that are worth it. Only of those that would be is it asked if something else shares them.
    fn chosen(
        &self,
        extents: &[FileExtent],
        done: &mut DefragmentedContents,
    ) -> Result<Vec<Range<usize>>, FsError> {
        let mut facts: Vec<TornExtent> = extents.iter().map(|extent| self.facts(extent)).collect();
        let chosen = worth_rewriting(&facts, self.wish.run_bytes);
        if self.wish.unshares {
            return Ok(chosen);
        }
        for index in chosen.into_iter().flatten() {
            facts[index].may_move = !self.is_shared(&extents[index])?;
            done.shared += u64::from(!facts[index].may_move);
        }
        Ok(worth_rewriting(&facts, self.wish.run_bytes))
    }

    fn facts(&self, extent: &FileExtent) -> TornExtent {
        let data = extent.checksummed();
        let wanted = self.wish.compression.map(|choice| choice.algorithm);
        TornExtent {
            at: data.map_or(0, |data| data.start.get()),
            stored_bytes: data.map_or(0, |data| data.length),
            may_move: true,
            is_wanted: wanted.is_some_and(|wanted| wanted != extent.compression),
        }
    }

    fn is_shared(&self, extent: &FileExtent) -> Result<bool, FsError> {
        let (Some(part), Some(reference)) = (extent.disk_part(), extent.reference(self.file.id())) else {
            return Ok(true);
        };
        let transaction = self.files.core.pool().join(Need::freeing(1))?;
        Ok(transaction.references().is_data_shared(&self.tree, part.extent(), &reference)?)
    }

    /// Writes extents anew, unless they would lie no better.
    fn rewrite(&self, group: &[FileExtent]) -> Result<bool, FsError> {
        let (files, inode) = (self.files, self.file.inode());
        let sector = files.core.sector();
        let ranges: Vec<Range<u64>> =
            runs(group.iter().map(|extent| extent.interval(sector))).into_iter().map(Range::from).collect();
        let pieces = ranges.iter().map(|range| self.read(range)).collect::<Result<Vec<_>, FsError>>()?;
        let mut promise = Promise::of(files.core.pool(), 0);
        promise.grow_to(pieces.iter().map(|piece| to_u64(piece.bytes.len())).sum())?;
        let (manner, mut experience) = (self.manner(group)?, Experience::default());
        let outputs = files.output(&pieces, &ranges, manner, &mut promise, &mut experience)?;
        // Compressed extents are short by themselves.
        if manner.compression.is_none() && outputs.len() * 2 > group.len().max(2) {
            return Ok(false);
        }
        files.enter(inode, &self.tree, outputs, None, InodeFlags::empty())?;
        Ok(true)
    }

    /// Contents of a range of whole sectors, zeros behind the end that the items tell.
    fn read(&self, range: &Range<u64>) -> Result<WritingPiece, FsError> {
        let mut bytes = vec![0; to_usize(range.end - range.start)];
        let size = self.file.inode().data.memory().disk_size;
        let length = to_usize(size.saturating_sub(range.start)).min(bytes.len());
        self.files.reader.read_in_turn(self.file, range.start, &mut bytes[..length])?;
        Ok(WritingPiece { start: range.start, bytes: Arc::new(bytes) })
    }

    /// Parameters of the file's other writes, but that compressed contents stay compressed.
    fn manner(&self, group: &[FileExtent]) -> Result<Manner, FsError> {
        let size = self.file.inode().data.memory().size;
        let manner = self.files.manner(self.file.id(), self.flags, size, Cause::Other)?;
        let may_compress = !self.flags.intersects(InodeFlags::NODATASUM | InodeFlags::NODATACOW);
        let present = group.iter().map(|extent| extent.compression).find(|one| *one != Compression::None);
        let present = present.map(|algorithm| CompressionChoice { algorithm, level: None, force: true });
        let compression = self.wish.compression.or(manner.compression).or(present);
        let compression = compression.filter(|choice| may_compress && choice.algorithm != Compression::None);
        Ok(Manner { compression, waits: false, ..manner })
    }
}
