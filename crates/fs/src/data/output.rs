//! Output of contents as extents: compressing, finding space, computing checksums, writing. No transaction is joined, and
//! nothing refers to what is written, until the extents enter the trees.

use super::asleep::SleepingChunks;
use super::promise::{Places, Promise};
use crate::compression::choice::CompressionChoice;
use crate::compression::compress;
use crate::compression::promise::is_promising;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::COMPRESSED_MAX_BYTES;
use crate::extent::file_extent::{Contents, DiskPart, FileExtent};
use crate::pages::state::WritingPiece;
use crate::tier::TierWish;
use brindle_ondisk::item::Compression;
use brindle_ondisk::{ChecksumType, Generation, Logical, to_u64, to_usize};
use brindle_policy::placement::PlacementClass;
use brindle_policy::writeback::DataPlace;
use brindle_sync::parallel;
use brindle_tree::{ReservedExtent, TreeError};
use brindle_volume::WriteError;
use std::ops::Range;

/// Reason for writing contents back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// They are to be durable soon: a sync waits for them, or a name that takes the place of another, or the file is one that
    /// is synced often.
    Sync,
    /// Room in memory, a commit, or an operation that needs extents.
    Other,
}

/// The longest extent (`BTRFS_MAX_EXTENT_SIZE`), in bytes.
pub(super) const EXTENT_MAX_BYTES: u64 = 128 << 20;
/// Approximate number of bytes that one task checksums and writes: one request of a disk.
const TASK_BYTES: usize = 1 << 20;

/// Parameters for writing the contents of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Compression, if any.
    pub(super) compression: Option<CompressionChoice>,
    /// True if they get checksums.
    pub(super) checksums: bool,
    /// Inputs of the choice of a tier.
    pub(super) tier: TierWish,
    /// True if data that has a copy on bulk devices in its last place lies in the write-back tier first.
    pub(super) waits: bool,
    /// False if nothing is to be written where a device would be woken for it.
    pub(super) wakes: bool,
}

impl Manner {
    /// Last place of data of which `written` bytes are written now, and take `stored` bytes of the devices.
    fn last_place(&self, written: u64, stored: u64) -> DataPlace {
        self.tier.tier(written, stored).into()
    }

    /// Place of data of which `written` bytes are written now, and take `stored` bytes of the devices.
    pub(super) fn place(&self, written: u64, stored: u64) -> DataPlace {
        let tier = self.tier.tier(written, stored);
        let would_wait = tier.side == PlacementClass::Bulk || self.tier.is_split;
        if would_wait && self.waits { DataPlace::WriteBack } else { tier.into() }
    }
}

/// New contents of a range of a file, on the devices or to be kept in the item.
#[derive(Debug)]
pub(super) struct Output<'p> {
    /// New piece of the file.
    pub(super) piece: FileExtent,
    /// The extent that is to be kept.
    pub(super) reserved: Option<ReservedExtent<'p>>,
    /// The checksums of the extent.
    pub(super) checksums: Vec<u8>,
}

/// Contents that become one extent.
struct Unit<'b> {
    range: Range<u64>,
    compressed: Option<(Compression, Vec<u8>)>,
    contents: Vec<&'b [u8]>,
}

impl Unit<'_> {
    /// Bytes that it takes of the devices, one copy counted.
    fn stored_bytes(&self) -> u64 {
        self.compressed.as_ref().map_or(self.range.end - self.range.start, |(_, bytes)| to_u64(bytes.len()))
    }
}

/// Statistics of compression, gathered while a file is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Experience {
    /// Number of units that compressed well, and number that did not.
    pub(super) compressed: usize,
    pub(super) resisted: usize,
}

impl FileData {
    /// Writes ranges of a file, whose contents are in `pieces`, as new extents. What the devices of the write-back tier refuse goes to its
    /// last place. None if that would wake a device, and is not to.
    pub(super) fn output<'p>(
        &'p self,
        pieces: &[WritingPiece],
        ranges: &[Range<u64>],
        manner: Manner,
        promise: &mut Promise<'p>,
        experience: &mut Experience,
    ) -> Result<Vec<Output<'p>>, FsError> {
        let mut units = Vec::new();
        for range in ranges {
            units.extend(self.units(pieces, range, manner, experience));
        }
        let written: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let stored = units.iter().map(Unit::stored_bytes).sum();
        let place = manner.place(written, stored);
        promise.set_place(place);
        let outputs = match self.write_units(&units, manner, promise)? {
            Err(refused) if place == DataPlace::WriteBack => {
                tracing::warn!("what was to wait on a fast device goes to its last place at once: {refused}");
                self.core.pool().rest_write_back();
                promise.set_place(manner.last_place(written, stored));
                self.write_units(&units, manner, promise)?
            }
            done => done,
        }?;
        // What compression has saved is not needed any more.
        promise.release(written - stored);
        Ok(outputs)
    }

    /// Writes units where the promise is kept, or else leaves it as it was, with the reason for which devices have refused them.
    fn write_units<'p>(
        &'p self,
        units: &[Unit<'_>],
        manner: Manner,
        promise: &mut Promise<'p>,
    ) -> Result<Result<Vec<Output<'p>>, FsError>, FsError> {
        let mut outputs = Vec::new();
        let mut writes: Vec<(usize, Logical, &[u8])> = Vec::new();
        let stored = units.iter().map(Unit::stored_bytes).sum();
        let mut places = Places::new(stored, self.context.dirty_bytes());
        for unit in units {
            self.find_space(unit, promise, &mut places, &mut outputs, &mut writes)?;
        }
        promise.end_places(places);
        if !manner.wakes && self.would_wake(&outputs) {
            return Ok(Ok(Vec::new()));
        }
        let checksum_type = self.core.pool().volume().tree_context().checksum_type;
        let checksum_type = manner.checksums.then_some(checksum_type);
        let checksums = match write_all(self, &writes, checksum_type, to_usize(self.core.sector())) {
            Err(refused @ FsError::Tree(TreeError::Write(WriteError::Failed { .. }))) => {
                outputs.into_iter().filter_map(|output| output.reserved).for_each(|it| promise.take_back(it));
                return Ok(Err(refused));
            }
            written => written?,
        };
        for ((index, _, _), checksums) in writes.iter().zip(checksums) {
            outputs[*index].checksums.extend_from_slice(&checksums);
        }
        Ok(Ok(outputs))
    }

    fn would_wake(&self, outputs: &[Output<'_>]) -> bool {
        let sleeping = SleepingChunks::of(self.core.pool());
        outputs.iter().filter_map(|output| output.piece.disk_part()).any(|part| sleeping.hold(part.disk))
    }

    /// Cuts a range into what will be extents: compressed ones, and between them what does not compress.
    fn units<'b>(
        &self,
        pieces: &'b [WritingPiece],
        range: &Range<u64>,
        manner: Manner,
        experience: &mut Experience,
    ) -> Vec<Unit<'b>> {
        let plain =
            |range: Range<u64>| Unit { contents: contents_of(pieces, &range), compressed: None, range };
        let Some(choice) = manner.compression else {
            return vec![plain(range.clone())];
        };
        let sector = self.core.sector();
        let starts: Vec<u64> = (range.start..range.end).step_by(to_usize(COMPRESSED_MAX_BYTES)).collect();
        let compress_one = |start: &u64| {
            let part = *start..range.end.min(start + COMPRESSED_MAX_BYTES);
            let room = (part.end - part.start).checked_sub(sector).filter(|room| *room > 0)?;
            let contents = contents_of(pieces, &part).concat();
            if !choice.force && !is_promising(&contents) {
                return Some(None);
            }
            Some(compress(choice.algorithm, choice.level, &contents, to_usize(room), to_usize(sector)))
        };
        let results: Vec<_> = parallel::map(&starts, compress_one);
        let mut units: Vec<Unit<'b>> = Vec::new();
        for (start, result) in starts.into_iter().zip(results) {
            let part = start..range.end.min(start + COMPRESSED_MAX_BYTES);
            match result {
                Some(Some(mut compressed)) => {
                    experience.compressed += 1;
                    compressed.resize(compressed.len().next_multiple_of(to_usize(sector)), 0);
                    let compressed = Some((choice.algorithm, compressed));
                    units.push(Unit { range: part, compressed, contents: Vec::new() });
                }
                result => {
                    experience.resisted += usize::from(result.is_some());
                    match units.last_mut().filter(|last| last.compressed.is_none()) {
                        Some(last) => *last = plain(last.range.start..part.end),
                        None => units.push(plain(part)),
                    }
                }
            }
        }
        units
    }

    /// Finds space for a unit: one extent if it is compressed, else as few as there can be.
    fn find_space<'p, 'b>(
        &'p self,
        unit: &'b Unit<'b>,
        promise: &mut Promise<'p>,
        places: &mut Places<'p>,
        outputs: &mut Vec<Output<'p>>,
        writes: &mut Vec<(usize, Logical, &'b [u8])>,
    ) -> Result<(), FsError> {
        let length = unit.range.end - unit.range.start;
        if let Some((compression, bytes)) = &unit.compressed {
            let disk_length = to_u64(bytes.len());
            let extent = promise.take_place(places, disk_length, disk_length)?;
            writes.push((outputs.len(), extent.start, bytes));
            outputs.push(new_extent(extent, unit.range.start, length, *compression));
            return Ok(());
        }
        let mut at = unit.range.start;
        let mut contents = unit.contents.iter().copied();
        let mut rest: &[u8] = &[];
        while at < unit.range.end {
            let most = (unit.range.end - at).min(EXTENT_MAX_BYTES);
            let extent = promise.take_place(places, self.core.sector(), most)?;
            let (mut place, end) = (extent.start, extent.start + extent.length);
            while place < end {
                if rest.is_empty() {
                    rest = contents.next().expect("the contents are as long as the range");
                }
                let (now, later) = rest.split_at(rest.len().min(to_usize(end - place)));
                writes.push((outputs.len(), place, now));
                (place, rest) = (place + to_u64(now.len()), later);
            }
            let length = extent.length;
            outputs.push(new_extent(extent, at, length, Compression::None));
            at += length;
        }
        Ok(())
    }
}

fn new_extent(extent: ReservedExtent<'_>, start: u64, length: u64, compression: Compression) -> Output<'_> {
    let span =
        DiskPart { is_prealloc: false, disk: extent.start, disk_length: extent.length, offset: 0, length };
    let piece = FileExtent {
        start,
        generation: Generation::new(0),
        ram_bytes: length,
        compression,
        contents: Contents::OnDisk(span),
    };
    Output { piece, reserved: Some(extent), checksums: Vec::new() }
}

/// The contents of a range, which are all there, of whole sectors.
pub(super) fn contents_of<'b>(pieces: &'b [WritingPiece], range: &Range<u64>) -> Vec<&'b [u8]> {
    let first = pieces.partition_point(|piece| piece.end() <= range.start);
    let inside = pieces[first..].iter().take_while(|piece| piece.start < range.end);
    inside
        .map(|piece| {
            let from = range.start.max(piece.start) - piece.start;
            let to = range.end.min(piece.end()) - piece.start;
            &piece.bytes[to_usize(from)..to_usize(to)]
        })
        .collect()
}

/// Writes everything, in order, and computes its checksums (if it is to have some), on all cores; the checksums of each write.
pub(super) fn write_all<T: Sync>(
    files: &FileData,
    writes: &[(T, Logical, &[u8])],
    checksum_type: Option<ChecksumType>,
    sector: usize,
) -> Result<Vec<Vec<u8>>, FsError> {
    let tasks = tasks(writes);
    let run = |task: &Range<usize>| {
        let writes = &writes[task.clone()];
        let blocks: Vec<(Logical, &[u8])> = writes.iter().map(|(_, at, bytes)| (*at, *bytes)).collect();
        let checksums =
            |bytes: &[u8]| checksum_type.map_or_else(Vec::new, |kind| checksums_of(kind, bytes, sector));
        let checksums: Vec<Vec<u8>> = blocks.iter().map(|(_, bytes)| checksums(bytes)).collect();
        let written = files.core.pool().volume().write_data_pieces(&blocks, &*files.extents);
        written.map_err(|error| FsError::Tree(TreeError::Write(error)))?;
        Ok(checksums)
    };
    let done: Result<Vec<Vec<Vec<u8>>>, FsError> = match tasks.as_slice() {
        [one] => run(one).map(|checksums| vec![checksums]),
        many => parallel::try_map_waiting(many, run),
    };
    Ok(done?.into_iter().flatten().collect())
}

/// Splits writes into runs of about [`TASK_BYTES`].
fn tasks<T>(writes: &[(T, Logical, &[u8])]) -> Vec<Range<usize>> {
    let (mut tasks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, (_, _, contents)) in writes.iter().enumerate() {
        bytes += contents.len();
        if bytes >= TASK_BYTES {
            tasks.push(start..index + 1);
            (start, bytes) = (index + 1, 0);
        }
    }
    if start < writes.len() {
        tasks.push(start..writes.len());
    }
    tasks
}

fn checksums_of(kind: ChecksumType, bytes: &[u8], sector: usize) -> Vec<u8> {
    let mut checksums = Vec::with_capacity(bytes.len() / sector * kind.size());
    for sector in bytes.chunks(sector) {
        checksums.extend_from_slice(kind.compute(sector).as_bytes());
    }
    checksums
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn contents_are_cut_out_of_their_pieces() {
        let piece = |start, byte| WritingPiece { start, bytes: Arc::new(vec![byte; 100].into()) };
        let pieces = [piece(0, 1), piece(100, 2), piece(200, 3)];
        let lengths =
            |range| contents_of(&pieces, &range).iter().map(|part| (part[0], part.len())).collect::<Vec<_>>();
        assert_eq!(lengths(50..250), [(1, 50), (2, 100), (3, 50)]);
        assert_eq!(lengths(100..200), [(2, 100)]);
        assert_eq!(lengths(110..120), [(2, 10)]);
    }

    #[test]
    fn tasks_cover_everything_once() {
        let contents = vec![0; 2 * TASK_BYTES];
        let writes: Vec<((), Logical, &[u8])> = [4096, TASK_BYTES / 2, TASK_BYTES / 2, 2 * TASK_BYTES, 4096]
            .iter()
            .map(|n| ((), Logical::new(0), &contents[..*n]))
            .collect();
        assert_eq!(tasks(&writes), [0..3, 3..4, 4..5]);
        assert_eq!(tasks::<()>(&[]), []);
    }
}
