//! Contents of files on their way from the write-back tier to bulk devices: pieces that follow each other become one extent, and
//! what was written into preallocated space lies there in the end.
//!
//! **Walk.** Of a chunk that is destaged, the extents that belong to one file alone are listed in the order of files. Those
//! that touch each other in their file make a *run*. A run of several pieces is read, verified, written as one new extent whose
//! room was kept, and entered in the place of the pieces. All new extents of a batch are written at once, and each
//! batch is a commit. All else (single pieces, compressed ones, those of clones and snapshots) moves as it is, afterwards.
//!
//! **Home.** A run beside a piece of an extent on bulk devices that goes on where the run lies was written into preallocated
//! space, of which a hole is left in that extent: it is written there, within the transaction. That place
//! belongs to nothing else as long as all references to the extent are of this one place of this one file, and it was never written as
//! long as it has no checksums: so neither a crash nor a reader of earlier items can find anything there. A place that was written before is not
//! used again, for a reader may still look there.
//!
//! **Changes meanwhile.** The transaction looks at the items again, and at the references: a run that is not as it was listed is
//! left alone, and its new place goes back.

use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::destage::WriteBackTier;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, need_of};
use crate::extent::file_extent::{Contents, DiskPart, FileExtent};
use brindle_ondisk::item::Compression;
use brindle_ondisk::{Generation, Logical, to_u64, to_usize};
use brindle_tree::{
    ChecksumTree, Destaging, InTransit, Moved, Observer, ReservedExtent, Transaction, Tree, WaitingExtent,
};
use brindle_volume::DataChecksums;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Upper bounds on a run: bytes, and pieces.
const RUN_BYTES_MAX: u64 = 16 << 20;
const RUN_PIECES_MAX: usize = 256;
/// Bytes that are carried at once, at least, unless that is all.
const BATCH_BYTES: u64 = 32 << 20;
/// Length of the checksums that a leaf has room for, in bytes.
const CHECKSUM_LEAF_BYTES: usize = 2048;

/// Pieces of a file that follow each other.
struct Run {
    file: InodeId,
    range: Range<u64>,
    pieces: Vec<FileExtent>,
    /// Piece that it becomes, if its place is in an extent that the file has.
    home: Option<FileExtent>,
}

/// A run that was read.
struct Carried<'p> {
    run: Run,
    contents: Vec<u8>,
    checksums: Vec<u8>,
    /// The new place, unless it has a home.
    place: Option<(ReservedExtent<'p>, InTransit<'p>)>,
}

impl Run {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl WriteBackTier {
    /// Moves runs of pieces out of a chunk of the write-back tier. What is left there has to be relocated.
    pub(crate) fn merge_waiting(
        &self,
        destaging: &Destaging<'_>,
        observer: Observer<'_>,
    ) -> Result<ControlFlow<()>, FsError> {
        let (mut batch, mut bytes, mut moved) = (Vec::new(), 0, Moved::default());
        let waiting = destaging.waiting()?;
        for of_file in waiting.chunk_by(|one, next| (one.root, one.objectid) == (next.root, next.objectid)) {
            for run in self.runs(of_file)? {
                bytes += run.bytes();
                batch.push(run);
                if bytes >= BATCH_BYTES {
                    bytes = 0;
                    if self.merge_batch(std::mem::take(&mut batch), &mut moved, observer)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        self.merge_batch(batch, &mut moved, observer)
    }

    fn merge_batch(
        &self,
        runs: Vec<Run>,
        moved: &mut Moved,
        observer: Observer<'_>,
    ) -> Result<ControlFlow<()>, FsError> {
        let mut carried = Vec::new();
        for run in runs {
            carried.extend(self.read_run(run)?);
        }
        if carried.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let mut writes: Vec<(Logical, &[u8])> = Vec::new();
        for one in &carried {
            writes.extend(one.place.as_ref().map(|(extent, _)| (extent.start, one.contents.as_slice())));
        }
        if !writes.is_empty() {
            let written = self.core.pool().volume().write_data_pieces(&writes, &*self.extents);
            written.map_err(brindle_tree::TreeError::Write)?;
        }
        for one in carried {
            let (extents, bytes) = (to_u64(one.run.pieces.len()), one.run.bytes());
            if self.enter_run(one)? {
                moved.extents += extents;
                moved.bytes += bytes;
            }
        }
        self.core.pool().commit()?;
        Ok(observer(moved))
    }

    /// Runs of a file's pieces that lie in some extents.
    fn runs(&self, extents: &[WaitingExtent]) -> Result<Vec<Run>, FsError> {
        let Some(first) = extents.first() else { return Ok(Vec::new()) };
        let file = InodeId { tree: first.root, number: first.objectid };
        // What is gone since has nothing here.
        let Ok(tree) = self.core.tree(file.tree) else { return Ok(Vec::new()) };
        let counts: HashMap<Logical, u64> =
            extents.iter().map(|extent| (extent.range.start, extent.count)).collect();
        let is_before = |extent: &WaitingExtent| extent.offset > i64::MAX.unsigned_abs();
        let from = if extents.iter().any(is_before) { 0 } else { first.offset };
        let to = extents.iter().map(|extent| extent.offset.wrapping_add(extent.range.length)).max();
        let around = from.saturating_sub(1)..to.unwrap_or(from).saturating_add(1);
        let pieces = self.extents.extents(&tree, file, &around)?;
        let (mut runs, mut index, sector) = (Vec::new(), 0, self.core.sector());
        while index < pieces.len() {
            let (before, rest) = pieces.split_at(index);
            let goes_on =
                |pair: &&[FileExtent]| is_waiting(&pair[1], &counts) && pair[0].end(sector) == pair[1].start;
            if !is_waiting(&rest[0], &counts) {
                index += 1;
                continue;
            }
            let count = 1 + rest.windows(2).take_while(goes_on).count();
            let neighbours: Vec<&FileExtent> = before.last().into_iter().chain(rest.get(count)).collect();
            self.cut(file, &rest[..count], &neighbours, &counts, &mut runs)?;
            index += count;
        }
        Ok(runs)
    }

    /// Cuts pieces that follow each other into runs worth to be carried.
    fn cut(
        &self,
        file: InodeId,
        pieces: &[FileExtent],
        neighbours: &[&FileExtent],
        counts: &HashMap<Logical, u64>,
        runs: &mut Vec<Run>,
    ) -> Result<(), FsError> {
        let sector = self.core.sector();
        let home_of = |range: &Range<u64>| neighbours.iter().find_map(|piece| self.home_in(piece, range));
        let extent_of = |piece: &FileExtent| {
            home_of(&(piece.start..piece.end(sector))).and_then(|home| Some(home.disk_part()?.disk))
        };
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let extent = extent_of(first);
            let fits = |piece: &&FileExtent| {
                piece.end(sector) - first.start <= RUN_BYTES_MAX && extent_of(piece) == extent
            };
            let count = rest.iter().take(RUN_PIECES_MAX).take_while(fits).count().max(1);
            let (run, later) = rest.split_at(count);
            rest = later;
            let range = first.start..run.last().map_or(first.start, |last| last.end(sector));
            let home = match home_of(&range) {
                Some(home) if self.is_unwritten(&home)? => Some(home),
                _ => None,
            };
            // The room of an extent is free again only when all of it has moved.
            if has_all_references(run, counts) && (home.is_some() || count > 1) {
                runs.push(Run { file, range, pieces: run.to_vec(), home });
            }
        }
        Ok(())
    }

    /// The piece that a range of a file becomes if it returns into the extent of a neighbour.
    fn home_in(&self, neighbour: &FileExtent, range: &Range<u64>) -> Option<FileExtent> {
        let span = neighbour.disk_part().filter(|span| !span.is_hole())?;
        let origin = neighbour.start.checked_sub(span.offset)?;
        let is_inside = range.start >= origin && range.end <= origin.checked_add(span.disk_length)?;
        let is_plain = neighbour.compression == Compression::None;
        if !is_inside || !is_plain || !self.core.pool().lies_on_bulk_devices(span.disk) {
            return None;
        }
        let (offset, length) = (range.start - origin, range.end - range.start);
        let contents = Contents::OnDisk(DiskPart { is_prealloc: false, offset, length, ..*span });
        Some(FileExtent { start: range.start, contents, ..neighbour.clone() })
    }

    /// Returns true if nothing was ever written to the place of a piece.
    fn is_unwritten(&self, piece: &FileExtent) -> Result<bool, FsError> {
        let Some(span) = piece.disk_part() else { return Ok(false) };
        Ok(self.extents.checksums(span.address(), span.length)?.found == 0)
    }

    /// Reads a run, and takes a place for it. `None` if it has no checksums, can't be read or has no room as one extent on bulk
    /// devices: the relocation that follows tells the reason, or finds several places.
    fn read_run(&self, run: Run) -> Result<Option<Carried<'_>>, FsError> {
        let Ok(tree) = self.core.tree(run.file.tree) else { return Ok(None) };
        let mut carried =
            Carried { contents: vec![0; to_usize(run.bytes())], checksums: Vec::new(), place: None, run };
        {
            let _held = self.core.pool().hold_freed_space();
            let run = &carried.run;
            if self.extents.extents(&tree, run.file, &run.range)? != run.pieces {
                return Ok(None);
            }
            let mut at = 0;
            for span in run.pieces.iter().filter_map(FileExtent::disk_part) {
                let found = self.extents.checksums(span.address(), span.length)?;
                let part = &mut carried.contents[at..at + to_usize(span.length)];
                let expected = DataChecksums::all(&found.bytes);
                if to_u64(found.found) != span.length / self.core.sector()
                    || self.core.pool().volume().read_data(span.address(), part, &expected).is_err()
                {
                    return Ok(None);
                }
                carried.checksums.extend_from_slice(&found.bytes);
                at += to_usize(span.length);
            }
        }
        if carried.run.home.is_none() {
            let bytes = carried.run.bytes();
            let transit = self.core.pool().reserve_kept_data(bytes)?;
            let place = self.data.last_place(carried.run.file);
            let Ok(extent) = self.core.pool().reserve_extent_on(place, bytes, bytes, None) else {
                self.core.pool().release_data(bytes);
                return Ok(None);
            };
            // Other chunks help out where these have no free range as long.
            if !self.core.pool().lies_on_bulk_devices(extent.start) {
                return Ok(None);
            }
            carried.place = Some((extent, transit));
        }
        Ok(Some(carried))
    }

    /// Enters a run at its new place; whether it was still as it was listed.
    fn enter_run(&self, carried: Carried<'_>) -> Result<bool, FsError> {
        let id = carried.run.file;
        // A file or subvolume that is gone, or not to be changed, is left alone.
        let Ok(file) = self.holds.open_file(id) else { return Ok(false) };
        let entered = (|| {
            let Ok(subvolume) = self.core.subvolume_state(id.tree) else { return Ok(false) };
            let Ok(_access) = subvolume.begin_write() else { return Ok(false) };
            let _entry = file.inode().data.shared();
            let _turn = file.inode().data.writeback_turn();
            self.enter_run_inside(file.inode(), carried)
        })();
        self.holds.end_use(file)?;
        entered
    }

    fn enter_run_inside(&self, inode: &Inode, carried: Carried<'_>) -> Result<bool, FsError> {
        let Carried { run, contents, checksums, place } = carried;
        let tree = self.core.tree(run.file.tree)?;
        let need = need_of(2 + checksums.len() / CHECKSUM_LEAF_BYTES, 2 * run.pieces.len());
        let (extent, _transit) = place.unzip();
        self.core.enter_transaction(need, |transaction| {
            if !self.is_as_listed(transaction, &tree, &run)? {
                return Ok(false);
            }
            let mut piece = match (&run.home, &extent) {
                (Some(home), _) => home.clone(),
                (None, Some(extent)) => plain(run.range.start, extent),
                (None, None) => return Ok(false),
            };
            piece.generation = transaction.generation();
            let at = piece.disk_part().map_or(Logical::new(0), DiskPart::address);
            if run.home.is_some() {
                let written = self.core.pool().volume().write_data_pieces(&[(at, &contents)], &*self.extents);
                written.map_err(brindle_tree::TreeError::Write)?;
            }
            let _changing = inode.data.begin_change();
            let mut editor = FileEditor::new(transaction, &self.extents, &tree, run.file);
            editor.put(&piece, run.home.is_none())?;
            ChecksumTree::of(transaction).insert(at, &checksums)?;
            if run.home.is_some() {
                editor.join(&run.range)?;
            }
            if let Some(extent) = extent {
                extent.keep();
            }
            editor.finish(&inode.data, |_, _| {})?;
            Ok(true)
        })
    }

    /// Returns true if a run is as it was listed, and alone in its extents and in that of its home.
    fn is_as_listed(
        &self,
        transaction: &Transaction<'_>,
        tree: &Arc<Tree>,
        run: &Run,
    ) -> Result<bool, FsError> {
        if self.extents.extents(tree, run.file, &run.range)? != run.pieces {
            return Ok(false);
        }
        for piece in &run.pieces {
            let (Some(span), Some(reference)) = (piece.disk_part(), piece.reference(run.file)) else {
                return Ok(false);
            };
            if transaction.references().is_data_referred_elsewhere(tree, span.extent(), &reference)? {
                return Ok(false);
            }
        }
        match run.home.as_ref().map(|home| (home.disk_part(), home.reference(run.file))) {
            Some((Some(span), Some(reference))) => {
                Ok(!transaction.references().is_data_shared(tree, span.extent(), &reference)?)
            }
            _ => Ok(true),
        }
    }
}

/// Returns true for a piece of plain data in one of the extents that are counted.
fn is_waiting(piece: &FileExtent, counts: &HashMap<Logical, u64>) -> bool {
    let is_counted = |span: &DiskPart| !span.is_prealloc && counts.contains_key(&span.disk);
    piece.compression == Compression::None && piece.disk_part().is_some_and(is_counted)
}

/// Returns true if pieces are all that refer to their extents.
fn has_all_references(pieces: &[FileExtent], counts: &HashMap<Logical, u64>) -> bool {
    let mut left: HashMap<Logical, u64> = HashMap::new();
    for span in pieces.iter().filter_map(FileExtent::disk_part) {
        let left = left.entry(span.disk).or_insert_with(|| counts.get(&span.disk).copied().unwrap_or(0));
        *left = left.wrapping_sub(1);
    }
    left.values().all(|left| *left == 0)
}

/// The piece that is all of a new extent.
fn plain(start: u64, extent: &ReservedExtent<'_>) -> FileExtent {
    let (disk, length) = (extent.start, extent.length);
    let span = DiskPart { is_prealloc: false, disk, disk_length: length, offset: 0, length };
    let (compression, contents) = (Compression::None, Contents::OnDisk(span));
    FileExtent { start, generation: Generation::new(0), ram_bytes: length, compression, contents }
}
