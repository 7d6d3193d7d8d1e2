//! Blocks that take more room once they are rewritten: an extent that has no free range as long as itself goes to several
//! places, so each item that refers to it becomes several, the leaf perhaps several leaves, and so on upwards.
//!
//! What grows is made here with pointers to *provisional* addresses: the first of what a block becomes keeps the block's own,
//! the others have virtual ones. Places are found for all of them together with all other blocks, and then each is repointed
//! like any other. A leaf that several trees have is still one leaf, or the same leaves, in all of them.

use super::data::Carried;
use super::plan::{Grown, Held, Plan, refuse};
use crate::error::TreeError;
use crate::tree::virtual_address;
use brindle_ondisk::item::{Compression, FileExtent, FileExtentHeader, FileExtentRef};
use brindle_ondisk::{Item, Key, KeyPtr, KeyType, Logical, Node, NodeHeader};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The level of the highest block that a tree can have.
const LEVEL_MAX: u8 = 7;

/// Extents that go to several places, by where they are.
type Split<'c, 'p> = HashMap<Logical, &'c Carried<'p>>;

/// Makes blocks of one size grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grower {
    /// Size of a block in bytes.
    pub(super) nodesize: u32,
}

impl Grower {
    /// Finds out what of a plan grows.
    pub(super) fn grow(self, plan: &mut Plan, carried: &[Carried<'_>]) -> Result<(), TreeError> {
        let is_split = |carried: &&Carried<'_>| carried.parts.len() > 1;
        let split: Split<'_, '_> =
            carried.iter().filter(is_split).map(|carried| (carried.from.start, carried)).collect();
        if split.is_empty() {
            return Ok(());
        }
        let mut order: Vec<(u8, Logical)> =
            plan.blocks.iter().map(|(at, held)| (held.node.level(), *at)).collect();
        order.sort_unstable();
        let mut grown = Grown::default();
        let mut made = 0;
        for (level, at) in order {
            let held = &plan.blocks[&at];
            let nodes = match level {
                0 => self.grown_leaf(&held.node, &split, &mut grown.parts)?,
                _ => self.grown_node(held, &grown),
            };
            let Some(nodes) = nodes else { continue };
            if held.is_dropped {
                let why = "a deleted subvolume that has it, in pieces, is not removed yet";
                return Err(TreeError::NoSpace(why.to_owned()));
            }
            let blocks = nodes.into_iter().enumerate().map(|(number, node)| {
                let provisional = if number == 0 { at } else { self.provisional(&mut made) };
                (provisional, Held { node: Arc::new(node), ..held.clone() })
            });
            grown.blocks.insert(at, blocks.collect());
        }
        for root in &mut plan.roots {
            if let Some(blocks) = grown.several(root.at) {
                let below = blocks.iter().filter_map(|(at, held)| pointer(*at, &held.node)).collect();
                let header = NodeHeader { owner: root.tree.id(), ..*plan.blocks[&root.at].node.header() };
                root.becomes = self.crown(&header, below, &mut grown, &mut made)?;
            }
        }
        plan.grown = grown;
        Ok(())
    }

    fn provisional(self, made: &mut u64) -> Logical {
        *made += 1;
        virtual_address(*made, self.nodesize)
    }

    /// Makes blocks above several that were one root, up to a single one; returns its provisional address.
    fn crown(
        self,
        root: &NodeHeader,
        mut below: Vec<KeyPtr>,
        grown: &mut Grown,
        made: &mut u64,
    ) -> Result<Logical, TreeError> {
        let mut header = *root;
        while below.len() > 1 {
            header.level += 1;
            if header.level > LEVEL_MAX {
                return Err(TreeError::NoSpace("a tree has no room for what is in pieces".to_owned()));
            }
            let mut next = Vec::new();
            for node in self.nodes_of(&header, &below) {
                let at = self.provisional(made);
                next.extend(pointer(at, &node));
                grown.above.push((at, Held::new_above(node)));
            }
            below = next;
        }
        Ok(below[0].blockptr)
    }

    /// Replacements of a leaf when extents that it refers to are split; `None` if it has none of them.
    fn grown_leaf(
        self,
        leaf: &Node,
        split: &Split<'_, '_>,
        used: &mut HashSet<Logical>,
    ) -> Result<Option<Vec<Node>>, TreeError> {
        let mut items: Vec<(Key, Vec<u8>)> = Vec::with_capacity(leaf.len());
        let mut grows = false;
        for slot in 0..leaf.len() {
            let (key, data) = leaf.item(slot).expect("the slot is one of the leaf's");
            match split_item(leaf, &key, data, split)? {
                None => items.push((key, data.to_vec())),
                Some(parts) => {
                    grows = true;
                    used.extend(parts.iter().map(|part| part.at));
                    items.extend(parts.into_iter().map(|part| (part.key, part.data)));
                }
            }
        }
        if !grows {
            return Ok(None);
        }
        let sizes: Vec<usize> = items.iter().map(|(_, data)| Node::item_space(data.len())).collect();
        let make = |range: Range<usize>| {
            let items: Vec<(Key, &[u8])> =
                items[range].iter().map(|(key, data)| (*key, data.as_slice())).collect();
            let mut node = Node::empty(self.nodesize, leaf.header());
            node.insert_items(0, &items);
            node
        };
        Ok(Some(pack(&sizes, leaf.capacity()).into_iter().map(make).collect()))
    }

    /// Replacements of a node when children of it become several; `None` if none does.
    fn grown_node(self, held: &Held, grown: &Grown) -> Option<Vec<Node>> {
        let children = held.node.key_ptrs();
        if !children.iter().any(|child| grown.several(child.blockptr).is_some()) {
            return None;
        }
        let mut pointers = Vec::with_capacity(children.len() + 1);
        for child in children {
            pointers.push(*child);
            let others = grown.several(child.blockptr).unwrap_or_default().iter().skip(1);
            pointers.extend(others.filter_map(|(at, other)| pointer(*at, &other.node)));
        }
        Some(self.nodes_of(held.node.header(), &pointers))
    }

    /// Nodes that have these children.
    fn nodes_of(self, header: &NodeHeader, children: &[KeyPtr]) -> Vec<Node> {
        let sizes = vec![Node::POINTER_SPACE; children.len()];
        let capacity = Node::empty(self.nodesize, header).capacity();
        let make = |range: Range<usize>| {
            let mut node = Node::empty(self.nodesize, header);
            node.insert_pointers(0, &children[range]);
            node
        };
        pack(&sizes, capacity).into_iter().map(make).collect()
    }
}

/// Pointer to a block; `None` to an empty one.
fn pointer(at: Logical, node: &Node) -> Option<KeyPtr> {
    Some(KeyPtr { key: node.key(0)?, blockptr: at, generation: node.generation() })
}

/// One of the items that an item becomes.
struct PartItem {
    key: Key,
    data: Vec<u8>,
    /// The part that it refers to.
    at: Logical,
}

/// The items that an item becomes; `None` if it refers to nothing that is split.
fn split_item(
    leaf: &Node,
    key: &Key,
    data: &[u8],
    split: &Split<'_, '_>,
) -> Result<Option<Vec<PartItem>>, TreeError> {
    if key.item_type != KeyType::EXTENT_DATA {
        return Ok(None);
    }
    let item = Item::parse(key, data).map_err(|defect| TreeError::item(leaf.header().owner, *key, defect))?;
    let Item::FileExtent(FileExtent::OnDisk { header, compression, extent, .. }) = item else {
        return Ok(None);
    };
    let Some(carried) = split.get(&extent.disk_bytenr) else { return Ok(None) };
    if compression != Compression::None {
        return Err(refuse(extent.disk_bytenr, "extent is compressed, and longer than such extents can be"));
    }
    let (begin, end) = (extent.offset.get(), extent.offset.get().saturating_add(extent.num_bytes.get()));
    let mut items = Vec::new();
    for part in &carried.parts {
        let (from, to) = (begin.max(part.offset), end.min(part.offset + part.to.length));
        if from >= to {
            continue;
        }
        let header = FileExtentHeader { ram_bytes: part.to.length.into(), ..*header };
        let extent = FileExtentRef {
            disk_bytenr: part.to.start,
            disk_num_bytes: part.to.length.into(),
            offset: (from - part.offset).into(),
            num_bytes: (to - from).into(),
        };
        let key = Key::new(key.objectid, key.item_type, key.offset() + (from - begin));
        let data = [header.as_bytes(), extent.as_bytes()].concat();
        items.push(PartItem { key, data, at: part.to.start });
    }
    Ok(Some(items))
}

/// Ranges of things of these sizes, each of which fits, about equally full.
fn pack(sizes: &[usize], capacity: usize) -> Vec<Range<usize>> {
    let total: usize = sizes.iter().sum();
    let share = total.div_ceil(total.div_ceil(capacity).max(1));
    let (mut ranges, mut begin, mut used) = (Vec::new(), 0, 0);
    for (index, size) in sizes.iter().enumerate() {
        if index > begin && (used >= share || used + size > capacity) {
            ranges.push(begin..index);
            (begin, used) = (index, 0);
        }
        used += size;
    }
    ranges.push(begin..sizes.len());
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_blocks_fit_and_hold_every_item(sizes in prop::collection::vec(25_usize..4000, 1..300)) {
            let ranges = pack(&sizes, 4000);
            prop_assert!(ranges.iter().all(|range| !range.is_empty()));
            prop_assert!(ranges.iter().all(|range| sizes[range.clone()].iter().sum::<usize>() <= 4000));
            prop_assert_eq!(ranges.into_iter().flatten().collect::<Vec<_>>(), (0..sizes.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn items_that_fit_one_block_stay_together() {
        assert_eq!(pack(&[100; 40], 4000).len(), 1);
        assert_eq!(pack(&[100; 41], 4000), [0..21, 21..41]);
        assert_eq!(pack(&[3000; 3], 4000).len(), 3);
    }
}
