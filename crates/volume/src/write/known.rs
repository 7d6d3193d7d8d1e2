//! Known contents of a row that is written in part: parity made of wrong data would make the right contents, which
//! the other stripes still hold, unrecoverable.

use brindle_ondisk::{ChecksumType, Logical, NodeHeader, TreeContext, to_u64, to_usize};
use std::ops::Range;
use zerocopy::FromBytes;

/// Source of the expected contents of data.
pub trait Witness: Sync {
    /// One checksum for each sector of a range of whole sectors, zeros where there is none; `None` if they can't be
    /// had. Nothing that is asked for is being written by the caller; others may write it.
    fn checksums(&self, start: Logical, length: u64) -> Option<Vec<u8>>;
}

/// Known contents of a range of the logical space.
#[derive(Debug, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    /// Tree blocks, and perhaps ranges that never held one.
    Blocks { nodesize: usize, algorithm: ChecksumType },
    /// Checksums of sectors from an address on.
    Sectors { start: Logical, sector_bytes: usize, algorithm: ChecksumType, checksums: Vec<u8> },
}

impl Known {
    /// Known contents of tree blocks.
    pub(super) fn blocks(context: &TreeContext) -> Self {
        Self::Blocks { nodesize: to_usize(context.nodesize.into()), algorithm: context.checksum_type }
    }

    /// Known contents of data.
    pub(super) fn data(context: &TreeContext, start: Logical, length: u64, witness: &dyn Witness) -> Self {
        let (sector_bytes, algorithm) = (to_usize(context.sectorsize.into()), context.checksum_type);
        let enough = to_usize(length) / sector_bytes * algorithm.size();
        match witness.checksums(start, length).filter(|checksums| checksums.len() >= enough) {
            Some(checksums) => Self::Sectors { start, sector_bytes, algorithm, checksums },
            None => Self::Nothing,
        }
    }

    /// The parts of what was read at an address that are certainly wrong.
    pub(super) fn wrong(&self, at: Logical, bytes: &[u8]) -> Vec<Range<usize>> {
        let unit = match self {
            Self::Nothing => return Vec::new(),
            Self::Blocks { nodesize, .. } => *nodesize,
            Self::Sectors { sector_bytes, .. } => *sector_bytes,
        };
        if !at.is_aligned(to_u64(unit)) {
            return Vec::new();
        }
        let units = bytes.chunks_exact(unit).enumerate();
        let wrong = units.filter(|(number, bytes)| self.is_wrong(at + to_u64(number * unit), bytes));
        wrong.map(|(number, _)| number * unit..(number + 1) * unit).collect()
    }

    fn is_wrong(&self, at: Logical, bytes: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Blocks { algorithm, .. } => {
                let Ok((header, _)) = NodeHeader::ref_from_prefix(bytes) else { return false };
                let checksum = algorithm.compute(&bytes[header.csum.len()..]);
                let is_right = header.bytenr.get() == at.get()
                    && header.csum[..algorithm.size()] == *checksum.as_bytes();
                // What is zero was never written.
                !is_right && bytes.iter().any(|byte| *byte != 0)
            }
            Self::Sectors { start, sector_bytes, algorithm, checksums } => {
                let Some(distance) = at.distance_from(*start) else { return false };
                let first = to_usize(distance) / sector_bytes * algorithm.size();
                let Some(expected) = checksums.get(first..first + algorithm.size()) else { return false };
                expected.iter().any(|byte| *byte != 0) && *expected != *algorithm.compute(bytes).as_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    const NODE: usize = 4096;

    fn block(at: u64) -> Vec<u8> {
        let mut header = NodeHeader::new_zeroed();
        header.bytenr = Logical::new(at);
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(NODE, 7);
        let checksum = ChecksumType::Crc32c.compute(&bytes[header.csum.len()..]);
        bytes[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
        bytes
    }

    #[test]
    fn a_block_tells_whether_it_is_right() {
        let known = Known::Blocks { nodesize: NODE, algorithm: ChecksumType::Crc32c };
        let (at, next) = (Logical::new(8192), Logical::new(8192 + to_u64(NODE)));
        let both = [block(8192), block(next.get())].concat();
        assert_eq!(known.wrong(at, &both), []);
        assert_eq!(known.wrong(next, &both), [0..NODE, NODE..2 * NODE], "of another place");
        let mut damaged = both.clone();
        damaged[NODE + 200] ^= 1;
        assert_eq!(known.wrong(at, &damaged), [NODE..2 * NODE; 1]);
        assert_eq!(known.wrong(at, &[0; 2 * NODE]), [], "never written");
        assert_eq!(known.wrong(at + 512, &damaged), [], "who knows where blocks begin");
        assert_eq!(Known::Nothing.wrong(at, &damaged), []);
    }
}
