//! Data is carried to another place, verified on the way.

use crate::refs::DataRange;
use crate::space::TierChoice;
use crate::{Pool, Readahead, ReservedExtent, TreeError};
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId, to_u64, to_usize};
use brindle_volume::{DataChecksums, Witness};

/// How much is read at once.
const PIECE_BYTES: u64 = 4 << 20;

/// An extent that lies in two places; only the old one is referred to.
#[derive(Debug)]
pub(super) struct Carried<'p> {
    pub(super) from: DataRange,
    pub(super) to: ReservedExtent<'p>,
    /// Runs of checksums: from how far behind the beginning on.
    pub(super) checksums: Vec<(u64, Vec<u8>)>,
}

/// The checksums of a range: room for one a sector, and which are there.
struct Checksums {
    bytes: Vec<u8>,
    present: Vec<u8>,
}

/// What the pool's trees say of data that parity is made of.
struct Trees<'p>(&'p Pool);

impl Witness for Trees<'_> {
    fn checksums(&self, start: Logical, length: u64) -> Option<Vec<u8>> {
        self.0.checksums_of(DataRange { start, length }).ok().map(|found| found.bytes)
    }
}

impl Pool {
    /// Copies data to places of its own.
    pub(super) fn carry(&self, data: &[DataRange], tier: TierChoice) -> Result<Vec<Carried<'_>>, TreeError> {
        data.iter().map(|range| self.carry_extent(*range, tier)).collect()
    }

    fn carry_extent(&self, from: DataRange, tier: TierChoice) -> Result<Carried<'_>, TreeError> {
        self.reserve_data(from.length)?;
        let taken = self.reserve_extent_in(tier, (from.length, from.length), None);
        let to = match taken {
            Ok(to) => to,
            Err(error) => {
                self.release_data(from.length);
                return Err(error);
            }
        };
        let mut checksums: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut done = 0;
        while done < from.length {
            let length = PIECE_BYTES.min(from.length - done);
            let found = self.checksums_of(DataRange { start: from.start + done, length })?;
            let mut buffer = vec![0; to_usize(length)];
            let expected = DataChecksums::partly(&found.bytes, &found.present);
            self.volume().read_data(from.start + done, &mut buffer, &expected)?;
            self.volume().write_data_pieces(&[(to.start + done, &buffer)], &Trees(self))?;
            self.add_runs(done, &found, &mut checksums);
            done += length;
        }
        Ok(Carried { from, to, checksums })
    }

    /// Appends the checksums that are there to runs of them.
    fn add_runs(&self, from: u64, found: &Checksums, runs: &mut Vec<(u64, Vec<u8>)>) {
        let context = self.volume().tree_context();
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
    fn checksums_of(&self, range: DataRange) -> Result<Checksums, TreeError> {
        let context = self.volume().tree_context();
        let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
        let sectors = to_usize(range.length / sector);
        let mut found = Checksums { bytes: vec![0; sectors * size], present: vec![0; sectors.div_ceil(8)] };
        let key = |at: Logical| Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
        let mut cursor = self.cursor(&self.tree(RootId::CSUM_TREE)?, Readahead::None);
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
}
