//! Data is carried to another place, verified on the way.

use super::Relocator;
use super::plan::COMPRESSED_BYTES_MAX;
use super::planner::Planner;
use crate::error::TreeError;
use crate::refs::DataRange;
use crate::space::data::{RangeLengths, ReservedExtent, TierChoice};
use crate::space::writeback_space::InTransit;
use crate::store::Store;
use crate::store::cursor::Readahead;
use crate::store::trees::Trees;
use brindle_ondisk::{Generation, Item, Key, KeyType, Logical, ObjectId, RootId, to_u64, to_usize};
use brindle_volume::{DataChecksums, Witness};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes that are written at once.
const LOAD_BYTES: u64 = 16 << 20;

/// An extent that lies in two places; only the old one is referred to.
#[derive(Debug)]
pub(super) struct Carried<'p> {
    pub(super) from: DataRange,
    /// Room that was kept for it, as long as it has two places.
    _transit: Option<InTransit<'p>>,
    /// The new places, in order: one part if there was a free range as long.
    pub(super) parts: Vec<Part<'p>>,
}

/// Part of an extent, at a place of its own.
#[derive(Debug)]
pub(super) struct Part<'p> {
    /// Offset of its start from that of the old place, in bytes.
    pub(super) offset: u64,
    pub(super) to: ReservedExtent<'p>,
    /// Runs of checksums: from how far behind the beginning of the part on.
    pub(super) checksums: Vec<(u64, Vec<u8>)>,
}

/// Parts of an extent are no shorter than this, but for the last, in bytes.
const PART_BYTES_MIN: u64 = 64 << 10;

/// Source of the room for data that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomFor {
    /// Room like that for any new data.
    Another,
    /// Room that was kept for what waits in the write-back tier.
    Destaged,
}

/// Data that was read, and is written together: what has its new places side by side is one request.
struct Load<'p> {
    relocator: Relocator<'p>,
    pieces: Vec<(Logical, Vec<u8>)>,
    bytes: u64,
}

impl Load<'_> {
    /// Reads what begins at an address, to be written to its new place; answers its checksums.
    fn copy(&mut self, from: Logical, to: &ReservedExtent<'_>) -> Result<Vec<(u64, Vec<u8>)>, TreeError> {
        let Relocator { store, .. } = self.relocator;
        let mut checksums = Vec::new();
        let mut done = 0;
        while done < to.length {
            let length = PIECE_BYTES.min(to.length - done);
            if self.bytes + length > LOAD_BYTES {
                self.write()?;
            }
            // What was freed since the batch was listed has no checksums any more, or else stays as it is.
            let held = store.hold_freed_space();
            let found = checksums_of(store, DataRange { start: from + done, length })?;
            let mut buffer = vec![0; to_usize(length)];
            let expected = DataChecksums::partly(&found.bytes, &found.present);
            store.volume().read_data(from + done, &mut buffer, &expected)?;
            drop(held);
            self.pieces.push((to.start + done, buffer));
            self.bytes += length;
            add_runs(store, done, &found, &mut checksums);
            done += length;
        }
        Ok(checksums)
    }

    /// Writes what was read.
    fn write(&mut self) -> Result<(), TreeError> {
        let pieces: Vec<(Logical, &[u8])> =
            self.pieces.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
        if !pieces.is_empty() {
            self.relocator.store.volume().write_data_pieces(&pieces, &Checksummed(self.relocator.store))?;
        }
        self.pieces.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// The checksums of a range: room for one a sector, and which are there.
struct Checksums {
    bytes: Vec<u8>,
    present: Vec<u8>,
}

/// Checksums in the pool's trees of data that parity is made of.
struct Checksummed<'p>(&'p Store);

impl Witness for Checksummed<'_> {
    fn checksums(&self, start: Logical, length: u64) -> Option<Vec<u8>> {
        checksums_of(self.0, DataRange { start, length }).ok().map(|found| found.bytes)
    }
}

impl<'p> Relocator<'p> {
    /// Copies data to places of its own, in the order in which it is given. What is alone, and has no free range as long as
    /// itself, goes to several. `room`: where it comes from.
    pub(super) fn carry(
        &self,
        data: &[DataRange],
        tier: TierChoice,
        room: RoomFor,
    ) -> Result<Vec<Carried<'p>>, TreeError> {
        let place = |range: &DataRange| self.find_places(*range, tier, room, data.len() == 1);
        let mut carried: Vec<Carried<'p>> = data.iter().map(place).collect::<Result<_, _>>()?;
        let mut load = Load { relocator: *self, pieces: Vec::new(), bytes: 0 };
        for one in &mut carried {
            for part in &mut one.parts {
                part.checksums = load.copy(one.from.start + part.offset, &part.to)?;
            }
        }
        load.write()?;
        Ok(carried)
    }

    /// Takes places for an extent, to which nothing is copied yet.
    fn find_places(
        &self,
        from: DataRange,
        tier: TierChoice,
        room: RoomFor,
        is_alone: bool,
    ) -> Result<Carried<'p>, TreeError> {
        let transit = match room {
            RoomFor::Another => {
                self.transactions.reserve_data(from.length)?;
                None
            }
            RoomFor::Destaged => Some(self.space.reserve_kept_data(from.length)),
        };
        let mut places = Vec::new();
        if let Err(error) = self.reserve_places(from, tier, is_alone, &mut places) {
            let taken: u64 = places.iter().map(|place| place.length).sum();
            self.space.release_data(from.length - taken);
            return Err(error);
        }
        let (mut parts, mut offset) = (Vec::new(), 0);
        for to in places {
            let length = to.length;
            parts.push(Part { offset, to, checksums: Vec::new() });
            offset += length;
        }
        Ok(Carried { from, parts, _transit: transit })
    }

    /// Takes a place as long as an extent, or else several, the longest first.
    fn reserve_places(
        &self,
        from: DataRange,
        tier: TierChoice,
        is_alone: bool,
        places: &mut Vec<ReservedExtent<'p>>,
    ) -> Result<(), TreeError> {
        let most = self.transactions.changes().options.moved_extent_bytes_max;
        let is_short = from.length <= most;
        if is_short || !self.may_be_split(from)? {
            let whole = RangeLengths::of_extent(from.length, from.length);
            match self.space.reserve_extent(self.store, tier, whole, None) {
                Err(TreeError::NoSpace(_))
                    if is_short && is_alone && from.length > PART_BYTES_MIN && self.may_be_split(from)? => {}
                place => {
                    places.push(place?);
                    return Ok(());
                }
            }
        }
        let mut left = from.length;
        while left > 0 {
            let longest = left.min(most);
            let lengths = RangeLengths::of_extent(longest.min(PART_BYTES_MIN), longest);
            let place = self.space.reserve_extent(self.store, tier, lengths, None)?;
            left -= place.length;
            places.push(place);
        }
        Ok(())
    }

    /// Returns true if an extent may become several: a compressed one stays whole.
    fn may_be_split(&self, range: DataRange) -> Result<bool, TreeError> {
        if range.length > COMPRESSED_BYTES_MAX {
            return Ok(true);
        }
        let references = self.transactions.editor(Generation::new(0)).references();
        // All references to an extent agree on compression, those of the last commit too.
        let trees = Trees::committed(self.store);
        let plan = Planner::plan(references, &trees, &[], &[range]);
        Ok(plan.is_ok_and(|plan| plan.is_plain(range.start)))
    }
}

/// Appends the checksums that are there to runs of them.
fn add_runs(store: &Store, from: u64, found: &Checksums, runs: &mut Vec<(u64, Vec<u8>)>) {
    let context = store.volume().tree_context();
    let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
    for (number, sum) in found.bytes.chunks_exact(size).enumerate() {
        if found.present[number / 8] >> (number % 8) & 1 == 0 {
            continue;
        }
        let at = from + to_u64(number) * sector;
        match runs.last_mut().filter(|(start, sums)| start + to_u64(sums.len() / size) * sector == at) {
            Some((_, sums)) => sums.extend_from_slice(sum),
            None => runs.push((at, sum.to_vec())),
        }
    }
}

/// The checksums that the checksum tree has of a range.
fn checksums_of(store: &Store, range: DataRange) -> Result<Checksums, TreeError> {
    let context = store.volume().tree_context();
    let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
    let sectors = to_usize(range.length / sector);
    let mut found = Checksums { bytes: vec![0; sectors * size], present: vec![0; sectors.div_ceil(8)] };
    let key = |at: Logical| Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
    let mut cursor = store.cursor(&store.tree(RootId::CSUM_TREE)?, Readahead::None);
    // The item that holds the first checksum may begin well before it.
    cursor.seek_last(&key(range.start))?;
    if cursor.key().is_none() {
        cursor.seek(&key(range.start))?;
    }
    let (start, end) = (range.start.get(), range.start.get() + range.length);
    while let Some((key, data)) = cursor.item() {
        if key.objectid > ObjectId::EXTENT_CSUM || key.offset() >= end {
            break;
        }
        if let Ok(Item::Csums(sums)) = Item::parse(&key, data) {
            for (number, sum) in (0u64..).zip(sums.chunks_exact(size)) {
                let at = key.offset() + number * sector;
                if (start..end).contains(&at) {
                    let index = to_usize((at - start) / sector);
                    found.bytes[index * size..][..size].copy_from_slice(sum);
                    found.present[index / 8] |= 1 << (index % 8);
                }
            }
        }
        cursor.next()?;
    }
    Ok(found)
}
