//! Trees built as a whole: a sorted list of items becomes full leaves, and nodes above them up to one root.
//!
//! First comes the [`Shape`], which depends on the sizes of the items alone; then the caller finds an address for
//! each block; then [`encode`] makes the bytes. No block is ever split or rewritten.

use brindle_ondisk::{
    ChecksumType, Generation, ItemHeader, Key, KeyPtr, Logical, MAX_LEVEL, NodeHeader, RootId, Uuid,
};
use std::ops::Range;
use zerocopy::{FromZeros, IntoBytes};

/// The revision of back references, in the top byte of a header's flags (`BTRFS_MIXED_BACKREF_REV`).
const BACKREF_REVISION: u64 = 1 << 56;

/// One item of a tree.
pub(crate) type TreeItem = (Key, Vec<u8>);

/// Properties that all blocks of a pool have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockFormat {
    pub(crate) nodesize: u32,
    pub(crate) checksum: ChecksumType,
    pub(crate) fsid: Uuid,
    pub(crate) chunk_tree_uuid: Uuid,
    pub(crate) generation: Generation,
}

/// Number of blocks of a tree on each level, and the contents of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// For each level, from the leaves up, for each block: items, or blocks of the level below.
    levels: Vec<Vec<Range<usize>>>,
}

impl Shape {
    /// The shape of an empty tree, a leaf.
    pub(crate) fn of_nothing() -> Self {
        Self { levels: vec![vec![0..0]] }
    }

    /// The shape of a tree of these items. Each must fit a leaf.
    pub(crate) fn of(items: &[TreeItem], nodesize: u32) -> Self {
        let room = brindle_ondisk::to_usize(nodesize.into()) - size_of::<NodeHeader>();
        let mut leaves = vec![];
        let (mut start, mut left) = (0, room);
        for (index, (key, data)) in items.iter().enumerate() {
            let needed = size_of::<ItemHeader>() + data.len();
            assert!(needed <= room, "item {key} of {} bytes fits no leaf", data.len());
            if needed > left {
                leaves.push(start..index);
                (start, left) = (index, room);
            }
            left -= needed;
        }
        leaves.push(start..items.len());
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().map(Vec::len).filter(|count| *count > 1) {
            let fanout = room / size_of::<KeyPtr>();
            let nodes = (0..below).step_by(fanout).map(|first| first..below.min(first + fanout));
            levels.push(nodes.collect());
        }
        assert!(levels.len() <= usize::from(MAX_LEVEL) + 1, "the tree is too high for the format");
        Self { levels }
    }

    /// Number of blocks on each level.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.levels.iter().map(Vec::len).collect()
    }

    /// The first key of a block; none of an empty leaf.
    pub(crate) fn first_key(&self, items: &[TreeItem], level: usize, index: usize) -> Option<Key> {
        let mut first = self.levels[level][index].start;
        for below in self.levels[..level].iter().rev() {
            first = below[first].start;
        }
        items.get(first).map(|(key, _)| *key)
    }
}

/// The address of each block, by level from the leaves up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses(pub(crate) Vec<Vec<Logical>>);

impl Addresses {
    /// The root's address.
    pub(crate) fn root(&self) -> Logical {
        *self.0.last().and_then(|top| top.first()).expect("every tree has a root")
    }

    /// The root's level.
    pub(crate) fn root_level(&self) -> u8 {
        u8::try_from(self.0.len() - 1).expect("the shape has at most eight levels")
    }

    /// Number of blocks on each level.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Level, index and address of each block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize, Logical)> {
        let level = |(level, blocks): (usize, &Vec<Logical>)| {
            blocks.iter().copied().enumerate().map(move |(index, at)| (level, index, at)).collect::<Vec<_>>()
        };
        self.0.iter().enumerate().flat_map(level)
    }
}

/// The blocks of a tree, each with its address.
pub(crate) fn encode(
    format: &BlockFormat,
    owner: RootId,
    items: &[TreeItem],
    shape: &Shape,
    addresses: &Addresses,
) -> Vec<(Logical, Vec<u8>)> {
    let block = |(level, index, at): (usize, usize, Logical)| {
        let held = shape.levels[level][index].clone();
        let mut header = NodeHeader::new_zeroed();
        header.fsid = format.fsid;
        header.bytenr = at;
        header.flags.set(BACKREF_REVISION | NodeHeader::FLAG_WRITTEN);
        header.chunk_tree_uuid = format.chunk_tree_uuid;
        header.generation = format.generation;
        header.owner = owner;
        header.nritems.set(small(held.len()));
        header.level = u8::try_from(level).expect("the shape has at most eight levels");
        let mut bytes = vec![0; brindle_ondisk::to_usize(format.nodesize.into())];
        let (head, body) = bytes.split_at_mut(size_of::<NodeHeader>());
        head.copy_from_slice(header.as_bytes());
        if level == 0 {
            fill_leaf(body, &items[held]);
        } else {
            let children = held.map(|child| KeyPtr {
                key: shape.first_key(items, level - 1, child).expect("a child of a node is not empty"),
                blockptr: addresses.0[level - 1][child],
                generation: format.generation,
            });
            for (target, child) in body.chunks_exact_mut(size_of::<KeyPtr>()).zip(children) {
                target.copy_from_slice(child.as_bytes());
            }
        }
        let checksum = format.checksum.compute(&bytes[header.csum.len()..]);
        bytes[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
        (at, bytes)
    };
    addresses.iter().map(block).collect()
}

/// Item headers from the front, their data from the back.
fn fill_leaf(body: &mut [u8], items: &[TreeItem]) {
    let mut data_start = body.len();
    for (slot, (key, data)) in items.iter().enumerate() {
        data_start -= data.len();
        let mut header = ItemHeader::new_zeroed();
        header.key = *key;
        header.offset.set(small(data_start));
        header.size.set(small(data.len()));
        let slot = slot * size_of::<ItemHeader>();
        body[slot..slot + size_of::<ItemHeader>()].copy_from_slice(header.as_bytes());
        body[data_start..data_start + data.len()].copy_from_slice(data);
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("numbers within a tree block are small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{KeyType, Node, NodeExpectation, ObjectId, TreeContext};
    use proptest::prelude::*;

    fn format() -> BlockFormat {
        BlockFormat {
            nodesize: 4096,
            checksum: ChecksumType::Xxhash64,
            fsid: Uuid([3; 16]),
            chunk_tree_uuid: Uuid([4; 16]),
            generation: Generation::new(7),
        }
    }

    /// Walks down from the root through the one gate, and collects the items.
    fn read(blocks: &[(Logical, Vec<u8>)], expected: &NodeExpectation, found: &mut Vec<TreeItem>) {
        let context = TreeContext {
            nodesize: 4096,
            sectorsize: 4096,
            checksum_type: ChecksumType::Xxhash64,
            tree_uuid: Uuid([3; 16]),
            seed_uuids: Vec::new(),
            max_generation: brindle_ondisk::GenerationLimit::new(8),
        };
        let (_, bytes) = blocks.iter().find(|(at, _)| *at == expected.bytenr).expect("there is such a block");
        let node = Node::check(bytes.clone().into(), &context, expected).expect("passes the tree checker");
        for slot in 0..node.len() {
            match node.key_ptrs().get(slot) {
                Some(child) => read(blocks, &NodeExpectation::child(child, node.level()), found),
                None => found.push(node.item(slot).map(|(key, data)| (key, data.to_vec())).expect("a slot")),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn items_read_back_equal_those_built(sizes in prop::collection::vec(0..600usize, 0..2500)) {
            let item = |(index, size): (usize, &usize)| {
                let key = Key::new(ObjectId::new(index as u64), KeyType::STRING_ITEM, 1);
                (key, vec![index.to_le_bytes()[0]; *size])
            };
            let items: Vec<TreeItem> = sizes.iter().enumerate().map(item).collect();
            let shape = Shape::of(&items, 4096);
            let mut next = (1..).map(|number: u64| Logical::new(number * 4096));
            let level = |count: usize| next.by_ref().take(count).collect();
            let addresses = Addresses(shape.counts().into_iter().map(level).collect());
            let blocks = encode(&format(), RootId::CSUM_TREE, &items, &shape, &addresses);
            prop_assert_eq!(blocks.len(), addresses.count());
            let root = NodeExpectation::root(addresses.root(), Generation::new(7), addresses.root_level());
            let mut found = Vec::new();
            read(&blocks, &root, &mut found);
            prop_assert_eq!(found, items);
        }
    }
}
