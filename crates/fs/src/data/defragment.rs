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

use super::asleep::SleepingChunks;
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
use brindle_ondisk::{Generation, to_u64, to_usize};
use brindle_policy::defragment::contents::{GOOD_RUN_BYTES, TornExtent, keep_ends, worth_rewriting};
use brindle_policy::defragment::torn::RUN_BYTES;
use brindle_tree::{Need, Tree};
use std::cell::Cell;
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
    /// True if the mount does it by itself: what would exceed a quota is refused, data that waits in the write-back tier stays,
    /// and no device is woken.
    is_upkeep: bool,
    /// True once a device would have been woken.
    is_asleep: Cell<bool>,
}

impl FileData {
    /// Writes anew what lies in many pieces of a part of a file, which begins at `from`.
    pub(crate) fn defragment_contents(
        &self,
        file: &OpenFile,
        from: u64,
        wish: &ContentsWish,
    ) -> Result<DefragmentedContents, FsError> {
        self.in_turn(file, wish, false, |turn| turn.run(from))
    }

    /// Writes anew what small writes have torn of a range of a file after a commit, with the pieces beside them; false
    /// if something is left that would have woken a device.
    pub(crate) fn lay_together(
        &self,
        file: &OpenFile,
        range: &Range<u64>,
        since: Generation,
    ) -> Result<(DefragmentedContents, bool), FsError> {
        let wish = ContentsWish { run_bytes: RUN_BYTES, ..ContentsWish::default() };
        self.in_turn(file, &wish, true, |turn| {
            let done = turn.run_around(range, since)?;
            Ok((done, !turn.is_asleep.get()))
        })
    }

    fn in_turn<T>(
        &self,
        file: &OpenFile,
        wish: &ContentsWish,
        is_upkeep: bool,
        run: impl FnOnce(&Turn<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let _writing = self.core.writing()?;
        self.write_back_inode(file.inode(), Cause::Other)?;
        let subvolume = self.core.subvolume_state(file.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _entry = file.inode().data.shared();
        let _turn = file.inode().data.writeback_turn();
        let (tree, flags) = (self.core.tree(file.id().tree)?, self.items.quick_attributes(file.id())?.flags);
        let is_asleep = Cell::new(false);
        let done = run(&Turn { files: self, file, tree, flags, wish, is_upkeep, is_asleep });
        // Times that came meanwhile may be in the item by now.
        self.context.note(file.inode(), &mut file.inode().data.memory());
        done
    }
}

impl Turn<'_> {
    fn run(&self, from: u64) -> Result<DefragmentedContents, FsError> {
        let (extents, next) = self.survey(from)?;
        let mut done = DefragmentedContents { extents: to_u64(extents.len()), next, ..Default::default() };
        let facts = extents.iter().map(|extent| self.facts(extent)).collect();
        let chosen = self.chosen(&extents, facts, &mut done)?;
        self.rewrite_all(&extents, chosen, &mut done)?;
        Ok(done)
    }

    /// Writes anew what lies in many pieces in a range and beside it, if some of it was made after a commit.
    fn run_around(&self, range: &Range<u64>, since: Generation) -> Result<DefragmentedContents, FsError> {
        let end = self.end();
        let around = range.start.saturating_sub(RUN_BYTES)..range.end.saturating_add(RUN_BYTES).min(end);
        if around.is_empty() {
            return Ok(DefragmentedContents::default());
        }
        let map = self.files.extents.extent_map(&self.tree, self.file.id(), &around, SURVEY_EXTENTS)?;
        let data = map.extents().iter().filter(|extent| extent.checksummed().is_some());
        let extents: Vec<FileExtent> = data.cloned().collect();
        let mut facts: Vec<TornExtent> = extents.iter().map(|extent| self.facts(extent)).collect();
        let begins_inside = around.start > 0 && extents.first().is_some_and(|first| first.start > 0);
        keep_ends(&mut facts, begins_inside, map.end() < end);
        let mut done = DefragmentedContents { extents: to_u64(extents.len()), ..Default::default() };
        let mut chosen = self.chosen(&extents, facts, &mut done)?;
        chosen.retain(|range| extents[range.clone()].iter().any(|extent| extent.generation > since));
        let sleeping = SleepingChunks::of(self.files.core.pool());
        let mut data =
            chosen.iter().flat_map(|range| &extents[range.clone()]).filter_map(FileExtent::disk_part);
        if data.any(|part| sleeping.hold(part.disk)) {
            self.is_asleep.set(true);
            return Ok(done);
        }
        self.rewrite_all(&extents, chosen, &mut done)?;
        Ok(done)
    }

    fn rewrite_all(
        &self,
        extents: &[FileExtent],
        chosen: Vec<Range<usize>>,
        done: &mut DefragmentedContents,
    ) -> Result<(), FsError> {
        for range in chosen {
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
        Ok(())
    }

    /// The end that the items tell, of whole sectors.
    fn end(&self) -> u64 {
        self.file.inode().data.memory().disk_size.next_multiple_of(self.files.core.sector())
    }

    /// Extents with data on the devices of a part of the file, and the end of the part.
    fn survey(&self, from: u64) -> Result<(Vec<FileExtent>, Option<u64>), FsError> {
        let end = self.end();
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
        mut facts: Vec<TornExtent>,
        done: &mut DefragmentedContents,
    ) -> Result<Vec<Range<usize>>, FsError> {
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
        let waits = |at| self.files.core.pool().lies_in_write_back_tier(at);
        TornExtent {
            at: data.map_or(0, |data| data.start.get()),
            stored_bytes: data.map_or(0, |data| data.length),
            may_move: !(self.is_upkeep && data.is_some_and(|data| waits(data.start))),
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
        let bytes = pieces.iter().map(|piece| to_u64(piece.bytes.len())).sum();
        let claim = self.is_upkeep.then(|| files.core.pool().claim_quota(inode.id().tree, bytes));
        let _claim = claim.transpose()?;
        let mut promise = Promise::of(files.core.pool(), 0);
        promise.grow_to(bytes)?;
        let (manner, mut experience) = (self.manner(group)?, Experience::default());
        let outputs = files.output(&pieces, &ranges, manner, &mut promise, &mut experience)?;
        if outputs.is_empty() {
            self.is_asleep.set(true);
            return Ok(false);
        }
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
        Ok(WritingPiece { start: range.start, bytes: Arc::new(bytes.into()) })
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
        Ok(Manner { compression, waits: false, wakes: !self.is_upkeep, ..manner })
    }
}
