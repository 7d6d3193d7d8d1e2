//! Committed contents of a part of the logical space, as far as they can be told from anything else.

use super::ScrubWindow;
use crate::AttemptFailure;
use brindle_ondisk::{
    BlockGroupType, Checksum, Generation, Logical, Node, NodeExpectation, TreeContext, to_u64, to_usize,
};
use std::collections::BTreeMap;

/// Kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data of files.
    Data,
    /// A tree block.
    Metadata,
    /// Parity.
    Parity,
}

/// Committed contents of the logical addresses of a window. A *granule* is the least part that is right or wrong as a
/// whole: a tree block, or a sector in chunks of data.
#[derive(Debug)]
pub struct Expected {
    context: TreeContext,
    start: Logical,
    granule: u64,
    kinds: Vec<Kind>,
    /// A checksum for each granule, where granules are sectors.
    checksums: Vec<u8>,
    blocks: BTreeMap<usize, NodeExpectation>,
    /// Blocks that don't begin where a granule does.
    unaligned: Vec<NodeExpectation>,
    /// Extents of data, and of tree blocks, that begin here.
    pub(super) extents: [u64; 2],
}

/// State of a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unused,
    /// In use, and without a checksum.
    Unverified,
    Checksum,
    Block,
}

/// Expectation of a granule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want<'a> {
    /// Any bytes.
    Contents,
    /// The sector of this checksum.
    Checksum(&'a [u8]),
    /// This block.
    Block(&'a NodeExpectation),
}

impl Expected {
    pub(super) fn new(context: &TreeContext, window: &ScrubWindow) -> Self {
        let holds_blocks = window.stripe.kind.intersects(BlockGroupType::METADATA | BlockGroupType::SYSTEM);
        let granule = u64::from(if holds_blocks { context.nodesize } else { context.sectorsize });
        let granules = to_usize(window.logical_length.div_ceil(granule));
        Self {
            context: context.clone(),
            start: window.start,
            granule,
            kinds: vec![Kind::Unused; granules],
            checksums: Vec::new(),
            blocks: BTreeMap::new(),
            unaligned: Vec::new(),
            extents: [0; 2],
        }
    }

    /// Returns true if nothing is in use.
    pub fn is_empty(&self) -> bool {
        self.kinds.iter().all(|kind| *kind == Kind::Unused)
    }

    /// An extent of data is in use.
    pub fn add_data(&mut self, start: Logical, length: u64) {
        self.extents[0] += u64::from(start >= self.start);
        self.mark(start, length, Kind::Unverified);
    }

    /// A tree block is in use.
    pub fn add_block(&mut self, at: Logical, generation: Generation, level: Option<u8>) {
        self.extents[1] += u64::from(at >= self.start);
        let block = NodeExpectation { bytenr: at, generation: Some(generation), level, first_key: None };
        let nodesize = u64::from(self.context.nodesize);
        match self.index_of(at) {
            Some(index) if self.granule == nodesize => {
                self.kinds[index] = Kind::Block;
                self.blocks.insert(index, block);
            }
            _ => {
                self.mark(at, nodesize, Kind::Unverified);
                self.unaligned.push(block);
            }
        }
    }

    /// Checksums of consecutive sectors of data that is in use.
    pub fn add_checksums(&mut self, start: Logical, checksums: &[u8]) {
        if self.granule != u64::from(self.context.sectorsize) {
            return;
        }
        let size = self.context.checksum_type.size();
        if self.checksums.is_empty() {
            self.checksums = vec![0; self.kinds.len() * size];
        }
        for (number, checksum) in checksums.chunks_exact(size).enumerate() {
            let Some(at) = start.checked_add(to_u64(number) * self.granule) else { break };
            let Some(index) = self.index_of(at) else { continue };
            if self.kinds[index] == Kind::Unverified {
                self.kinds[index] = Kind::Checksum;
                self.checksums[index * size..][..size].copy_from_slice(checksum);
            }
        }
    }

    /// Bytes of a granule.
    pub(super) fn granule(&self) -> u64 {
        self.granule
    }

    /// Expectation of the granule that begins at an address; `None` if it is not in use.
    pub(super) fn want(&self, at: Logical) -> Option<Want<'_>> {
        let index = self.index_of(at)?;
        match self.kinds[index] {
            Kind::Unused => None,
            Kind::Unverified => Some(Want::Contents),
            Kind::Checksum => {
                let size = self.context.checksum_type.size();
                Some(Want::Checksum(&self.checksums[index * size..][..size]))
            }
            Kind::Block => self.blocks.get(&index).map(Want::Block),
        }
    }

    /// Blocks that don't begin where a granule does.
    pub(super) fn unaligned(&self) -> &[NodeExpectation] {
        &self.unaligned
    }

    /// Verifies bytes.
    pub(super) fn verify(&self, want: Want<'_>, bytes: &[u8]) -> Result<(), AttemptFailure> {
        match want {
            Want::Contents => Ok(()),
            Want::Checksum(stored) => {
                let (found, expected) =
                    (self.context.checksum_type.compute(bytes), Checksum::from_slice(stored));
                if found == expected { Ok(()) } else { Err(AttemptFailure::Checksum { found, expected }) }
            }
            Want::Block(block) => {
                Node::check(bytes.into(), &self.context, block).map(drop).map_err(AttemptFailure::Block)
            }
        }
    }

    fn mark(&mut self, start: Logical, length: u64, kind: Kind) {
        let first = start.distance_from(self.start).unwrap_or(0) / self.granule;
        let end = start.checked_add(length).and_then(|end| end.distance_from(self.start)).unwrap_or(0);
        let end = to_usize(end.div_ceil(self.granule)).min(self.kinds.len());
        if let Some(kinds) = self.kinds.get_mut(to_usize(first)..end) {
            kinds.fill(kind);
        }
    }

    /// Number of the granule that begins at an address.
    fn index_of(&self, at: Logical) -> Option<usize> {
        let distance = at.distance_from(self.start)?;
        let index = to_usize(distance / self.granule);
        (distance % self.granule == 0 && index < self.kinds.len()).then_some(index)
    }
}

impl Want<'_> {
    /// Returns true if bytes can be told from wrong ones.
    pub(super) fn is_verifiable(&self) -> bool {
        !matches!(self, Self::Contents)
    }

    pub(super) fn content(&self, kind: BlockGroupType) -> Content {
        match self {
            Self::Block(_) => Content::Metadata,
            Self::Contents if !kind.contains(BlockGroupType::DATA) => Content::Metadata,
            Self::Contents | Self::Checksum(_) => Content::Data,
        }
    }
}
