//! The logical ranges of chunks, to which everything with an address belongs.

use brindle_ondisk::BlockGroupType;
use brindle_volume::Volume;

/// The range of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) kind: BlockGroupType,
}

/// The ranges of all chunks, in order.
#[derive(Debug)]
pub(crate) struct Regions(Vec<Region>);

impl Regions {
    pub(crate) fn new(volume: &Volume) -> Self {
        let chunks = volume.chunks().into_iter();
        Self(
            chunks
                .map(|chunk| Region { start: chunk.start.get(), length: chunk.length, kind: chunk.kind })
                .collect(),
        )
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.0.iter()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Region> {
        self.0.get(index)
    }

    /// Returns true if no region has any of a range.
    pub(crate) fn is_empty_range(&self, start: u64, end: u64) -> bool {
        let first = self.0.partition_point(|region| region.end() <= start);
        self.0.get(first).is_none_or(|region| region.start >= end)
    }

    /// The region that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let index = self.0.partition_point(|region| region.start <= address).checked_sub(1)?;
        (address < self.0[index].end()).then_some(index)
    }
}

impl Region {
    /// The first address behind; the chunk map has seen to it that there is one.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}
