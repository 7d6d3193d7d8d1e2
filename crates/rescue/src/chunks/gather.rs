//! Facts of the last commit about chunks: device extents and block groups.

use super::blocks::Blocks;
use crate::error::RescueError;
use brindle_ondisk::{
    BlockGroupType, DevId, Item, Key, KeyType, Logical, NodeExpectation, ObjectId, RootId, Uuid,
};
use std::collections::BTreeMap;

/// A piece of a device that belongs to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceExtent {
    pub(crate) devid: DevId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// The range and the profile of a chunk, as its block group has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGroup {
    pub(crate) length: u64,
    pub(crate) kind: BlockGroupType,
    pub(crate) used: u64,
}

/// The facts, by address of the chunk.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) extents: BTreeMap<Logical, Vec<DeviceExtent>>,
    pub(crate) groups: BTreeMap<Logical, BlockGroup>,
    /// Root of the extent tree.
    pub(crate) extent_tree: NodeExpectation,
    /// Root of the checksum tree.
    pub(crate) checksum_tree: Option<NodeExpectation>,
    pub(crate) chunk_tree_uuid: Option<Uuid>,
    /// Blocks of these trees that can't be read.
    pub(crate) lost: Vec<String>,
}

impl Facts {
    /// Walks the trees.
    ///
    /// # Errors
    /// A tree that can't be entered.
    pub(crate) fn gather(blocks: &Blocks<'_>, has_group_tree: bool) -> Result<Self, RescueError> {
        let root = |tree: RootId, name: &str| {
            let refuse = |why| RescueError::Refused(format!("the {name} can't be entered: {why}"));
            let found = blocks.root_of(tree).map_err(refuse)?;
            found.ok_or_else(|| refuse("the tree of roots does not have it".to_owned()))
        };
        let (device_tree, extent_tree) =
            (root(RootId::DEV_TREE, "device tree")?, root(RootId::EXTENT_TREE, "extent tree")?);
        let group_tree = match has_group_tree {
            true => root(RootId::BLOCK_GROUP_TREE, "tree of block groups")?,
            false => extent_tree,
        };
        let mut facts = Self {
            extents: BTreeMap::new(),
            groups: BTreeMap::new(),
            extent_tree,
            checksum_tree: blocks.root_of(RootId::CSUM_TREE).ok().flatten(),
            chunk_tree_uuid: None,
            lost: Vec::new(),
        };
        facts.take_device_extents(blocks, &device_tree);
        facts.take_groups(blocks, &group_tree, has_group_tree);
        facts.lost.sort();
        facts.lost.dedup();
        Ok(facts)
    }

    fn take_device_extents(&mut self, blocks: &Blocks<'_>, root: &NodeExpectation) {
        let found = blocks.items(root, &(Key::MIN..=Key::MAX));
        self.lost.extend(found.lost);
        for (key, data) in &found.items {
            let Ok(Item::DevExtent(item)) = Item::parse(key, data) else { continue };
            self.chunk_tree_uuid.get_or_insert(item.chunk_tree_uuid);
            let devid = DevId::new(key.objectid.get());
            let extent = DeviceExtent { devid, offset: key.offset(), length: item.length.get() };
            self.extents.entry(item.chunk_offset).or_default().push(extent);
        }
        self.extents.values_mut().for_each(|extents| extents.sort_unstable());
    }

    fn take_groups(&mut self, blocks: &Blocks<'_>, root: &NodeExpectation, is_own_tree: bool) {
        if is_own_tree {
            let found = blocks.items(root, &(Key::MIN..=Key::MAX));
            self.lost.extend(found.lost);
            found.items.iter().for_each(|(key, data)| self.take_group(key, data));
            return;
        }
        // The extent tree is large: block groups are looked for where chunks begin, and behind each other.
        for start in self.extents.keys().copied().collect::<Vec<_>>() {
            self.look_up_group(blocks, root, start);
        }
        let mut at = Some(Logical::new(0));
        while let Some(from) = at {
            let first = blocks.first_from(root, Key::new(ObjectId::new(from.get()), KeyType(0), 0));
            let start = match first {
                Ok(Some(key)) => Logical::new(key.objectid.get()),
                Ok(None) => break,
                Err(lost) => {
                    self.lost.push(lost);
                    break;
                }
            };
            if !self.groups.contains_key(&start) {
                self.look_up_group(blocks, root, start);
            }
            at = match self.groups.get(&start) {
                Some(group) => start.checked_add(group.length.max(1)),
                // Extents that no block group has: the next chunk is the next place to look at.
                None => self.extents.range(start..).map(|(next, _)| *next).find(|next| *next > start),
            };
        }
    }

    fn look_up_group(&mut self, blocks: &Blocks<'_>, root: &NodeExpectation, start: Logical) {
        let object = ObjectId::new(start.get());
        let range = Key::first_of(object, KeyType::BLOCK_GROUP_ITEM)
            ..=Key::last_of(object, KeyType::BLOCK_GROUP_ITEM);
        let found = blocks.items(root, &range);
        self.lost.extend(found.lost);
        found.items.iter().for_each(|(key, data)| self.take_group(key, data));
    }

    fn take_group(&mut self, key: &Key, data: &[u8]) {
        if let Ok(Item::BlockGroup(item)) = Item::parse(key, data) {
            let (kind, used) = (item.block_group_type(), item.used.get());
            let group = BlockGroup { length: key.offset(), kind, used };
            self.groups.insert(Logical::new(key.objectid.get()), group);
        }
    }
}
