//! Blocks and data that are to be rewritten.

use crate::error::TreeError;
use crate::refs::lookup::Recorded;
use crate::tree::Tree;
use brindle_ondisk::item::{Compression, FileExtent};
use brindle_ondisk::{Defect, Item, Key, KeyType, Logical, Node, ObjectId, RootId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A compressed extent is of no more than this much of a file, in bytes.
pub(super) const COMPRESSED_BYTES_MAX: u64 = 128 << 10;

/// A block that is rewritten.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) node: Arc<Node>,
    /// True if its references are in its own name.
    pub(super) is_full: bool,
    /// True if it may be part of several trees, although nothing but a mark will say so when it has moved. The
    /// references of a marked block are in its own name.
    pub(super) is_marked: bool,
    /// Number of references to it.
    pub(super) count: u64,
    /// The first child that is not gone: a deleted tree may be half dropped.
    pub(super) first_live: usize,
    /// True if it is on the path to where a deleted tree is being dropped.
    pub(super) is_dropped: bool,
    /// True if it is moved for its own sake.
    pub(super) is_target: bool,
}

impl Held {
    /// A new block of a tree that does not share it.
    pub(super) fn new_above(node: Node) -> Self {
        let node = Arc::new(node);
        Self {
            node,
            is_full: false,
            is_marked: false,
            count: 1,
            first_live: 0,
            is_dropped: false,
            is_target: false,
        }
    }
}

/// A root that is rewritten.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) tree: Arc<Tree>,
    pub(super) at: Logical,
    /// Provisional address of the new root: that of this block, unless it grows.
    pub(super) becomes: Logical,
}

/// Blocks and data to be rewritten.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Blocks by address.
    pub(super) blocks: BTreeMap<Logical, Held>,
    /// Trees whose root is rewritten.
    pub(super) roots: Vec<Root>,
    /// Data that is still referred to, by its old address.
    pub(super) data: BTreeMap<Logical, Recorded>,
    /// Blocks that become several.
    pub(super) grown: Grown,
}

impl Plan {
    /// All blocks as they will be, by provisional address.
    pub(super) fn successors(&self) -> impl Iterator<Item = (Logical, &Held)> {
        let unchanged = self.blocks.iter().filter(|(at, _)| !self.grown.blocks.contains_key(at));
        let grown = self.grown.blocks.values().flatten().chain(&self.grown.above);
        unchanged.map(|(at, held)| (*at, held)).chain(grown.map(|(at, held)| (*at, held)))
    }

    /// Returns true if no reference to an extent says that it is compressed.
    pub(super) fn is_plain(&self, extent: Logical) -> bool {
        let leaves = self.blocks.values().filter(|held| held.node.is_leaf());
        let items = leaves.flat_map(|held| (0..held.node.len()).filter_map(|slot| held.node.item(slot)));
        items.filter(|(key, _)| key.item_type == KeyType::EXTENT_DATA).all(|(key, data)| {
            match Item::parse(&key, data) {
                Ok(Item::FileExtent(FileExtent::OnDisk { extent: found, compression, .. })) => {
                    found.disk_bytenr != extent || compression == Compression::None
                }
                _ => true,
            }
        })
    }

    /// Number of extents that will have other references.
    pub(super) fn reference_changes(&self) -> usize {
        let children = |held: &Held| if held.is_full || held.is_marked { held.node.len() } else { 0 };
        let grown = self.grown.additional() + self.grown.parts.len();
        2 * (self.blocks.len() + self.data.len() + grown) + self.blocks.values().map(children).sum::<usize>()
    }
}

/// Rewrites that are not one block in the place of another.
#[derive(Debug, Default)]
pub(super) struct Grown {
    /// Replacements of a block, by its address, in the order of keys; never empty.
    pub(super) blocks: HashMap<Logical, Vec<(Logical, Held)>>,
    /// New blocks above what was a root, by provisional address.
    pub(super) above: Vec<(Logical, Held)>,
    /// The parts of extents that are referred to.
    pub(super) parts: HashSet<Logical>,
}

impl Grown {
    /// Number of additional blocks.
    pub(super) fn additional(&self) -> usize {
        self.above.len() + self.blocks.values().map(|blocks| blocks.len() - 1).sum::<usize>()
    }

    /// Replacements of a block, if there are several.
    pub(super) fn several(&self, at: Logical) -> Option<&[(Logical, Held)]> {
        self.blocks.get(&at).map(Vec::as_slice).filter(|blocks| blocks.len() > 1)
    }
}

pub(super) fn refuse(at: Logical, why: &'static str) -> TreeError {
    let key = Key::new(ObjectId::new(at.get()), KeyType::METADATA_ITEM, 0);
    TreeError::item(RootId::EXTENT_TREE, key, Defect::new(why, at.get()))
}
