//! Blocks that several trees share: what copying and dropping them means for what they refer to.
//!
//! A block's children are referred to by its *tree* (keyed by the tree's id) as long as only the tree that made the
//! block has it. Snapshots share blocks without saying so to what lies below; when the first of the trees changes
//! its copy, what the block refers to is counted once more. If the tree that made the block leaves it, the block
//! itself becomes the referrer of its children (`FULL_BACKREF`), and the keyed references go with the copy; if
//! another tree leaves it, the copy's are added under that tree's id. The flag never goes away.

use super::delayed::{Extent, Referrer};
use super::{BlockReferences, DataRange, References};
use crate::error::TreeError;
use crate::tree::is_virtual;
use brindle_ondisk::item::{ExtentFlags, FileExtent};
use brindle_ondisk::{Defect, Item, Key, KeyType, Logical, Node, ObjectId, RootId};
use std::sync::Arc;

/// Under whose name a block's references are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Under {
    /// The tree's.
    Tree(RootId),
    /// The block's own.
    Block(Logical),
}

impl Under {
    /// The name under which a block refers to its children, given its flags. It is an error if that is a tree other
    /// than the one that drops it.
    pub(crate) fn of(block: &Node, flags: ExtentFlags, tree: RootId) -> Result<Self, TreeError> {
        let header = block.header();
        if flags.contains(ExtentFlags::FULL_BACKREF) {
            return Ok(Self::Block(header.bytenr));
        }
        if header.owner != tree {
            return Err(TreeError::WrongTree { at: header.bytenr, tree, owner: header.owner });
        }
        Ok(Self::Tree(tree))
    }

    pub(crate) fn block(self) -> Referrer {
        match self {
            Self::Tree(tree) => Referrer::Tree(tree),
            Self::Block(at) => Referrer::SharedTree(at),
        }
    }

    pub(crate) fn data(self, objectid: ObjectId, offset: u64) -> Referrer {
        match self {
            Self::Tree(root) => Referrer::Data { root, objectid, offset },
            Self::Block(at) => Referrer::SharedData(at),
        }
    }
}

impl References<'_> {
    /// `new` (virtual) takes the place of `old` in a tree. `may_be_shared`: `old` is not the root, and old enough to be
    /// part of a snapshot.
    pub(crate) fn block_copied(
        &self,
        tree: RootId,
        old: &Arc<Node>,
        new: &Node,
        may_be_shared: bool,
    ) -> Result<(), TreeError> {
        if !may_be_shared {
            self.block_dropped(tree, old);
            return Ok(());
        }
        let (at, level) = (old.header().bytenr, old.level());
        let extent = self.extent_of(old);
        let _decision = self.delayed.lock_block(at, extent.length);
        let BlockReferences { count, flags } = self.of_block(at, level)?;
        let is_full = flags.contains(ExtentFlags::FULL_BACKREF);
        match count {
            0 => return Err(self.unknown_block(&extent)),
            1 if is_full => {
                self.refer_from(new, Under::Tree(tree), 1)?;
                self.refer_from(old, Under::Block(at), -1)?;
            }
            1 => {}
            _ if old.header().owner == tree && !is_full => {
                self.refer_from(old, Under::Block(at), 1)?;
                self.delayed.set_full(&extent);
            }
            _ => self.refer_from(new, Under::Tree(tree), 1)?,
        }
        self.block_dropped(tree, old);
        Ok(())
    }

    /// Every block and extent that a node refers to gets one more reference of a new tree (a snapshot's root).
    pub(crate) fn share_children(&self, copy: &Node) -> Result<(), TreeError> {
        self.refer_from(copy, Under::Tree(copy.header().owner), 1)
    }

    /// Adds `by` references from a block to each of its children, or to the data of its items.
    pub(crate) fn refer_from(&self, block: &Node, under: Under, by: i64) -> Result<(), TreeError> {
        let refs = self.delayed;
        if let Some(level) = block.level().checked_sub(1) {
            let children = block.key_ptrs();
            assert!(
                children.iter().all(|child| !is_virtual(child.blockptr)),
                "what is shared has an address"
            );
            let child = |at, key| (self.block_extent(at, level, key), under.block(), by);
            refs.change_all(children.iter().map(|pointer| child(pointer.blockptr, pointer.key)));
        } else {
            let data = data_of(block)?;
            let data = data.into_iter();
            refs.change_all(
                data.map(|(range, objectid, offset)| (Extent::data(range), under.data(objectid, offset), by)),
            );
        }
        Ok(())
    }

    /// A block that is in a tree is not in the extent tree.
    pub(crate) fn unknown_block(&self, extent: &Extent) -> TreeError {
        let key = Key::new(ObjectId::new(extent.start.get()), KeyType::METADATA_ITEM, 0);
        let defect = Defect::new("tree block is in use and has no references", extent.start.get());
        TreeError::item(RootId::EXTENT_TREE, key, defect)
    }
}

/// The extents that a leaf refers to, from which file, and where in it each would begin.
pub(crate) fn data_of(leaf: &Node) -> Result<Vec<(DataRange, ObjectId, u64)>, TreeError> {
    let mut data = Vec::new();
    for slot in 0..leaf.len() {
        let Some((key, bytes)) = leaf.item(slot).filter(|(key, _)| key.item_type == KeyType::EXTENT_DATA)
        else {
            continue;
        };
        let item =
            Item::parse(&key, bytes).map_err(|defect| TreeError::item(leaf.header().owner, key, defect))?;
        let Item::FileExtent(FileExtent::OnDisk { extent, .. }) = item else { continue };
        if extent.disk_bytenr.get() == 0 {
            continue;
        }
        let range = DataRange { start: extent.disk_bytenr, length: extent.disk_num_bytes.get() };
        data.push((range, key.objectid, key.offset().wrapping_sub(extent.offset.get())));
    }
    Ok(data)
}
