//! Contents of a block group, a batch at a time.

use super::Relocator;
use super::{DATA_BYTES_MAX, EXTENTS_MAX};
use crate::editor::Verdict;
use crate::error::TreeError;
use crate::refs::DataRange;
use crate::refs::delayed::{Extent, Referrer};
use crate::space::close::GroupStatus;
use crate::store::cursor::Readahead;
use crate::transaction::Need;
use brindle_ondisk::item::{ExtentDataRef, ExtentFlags, ExtentItem, FileExtent, InodeItem};
use brindle_ondisk::{Generation, Item, Key, KeyType, Logical, NodeExpectation, ObjectId, RootId};
use zerocopy::FromBytes;

/// A tree block of the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) at: Logical,
    pub(super) level: u8,
    pub(super) owner: RootId,
    pub(super) first_key: Key,
}

/// Part of what lies in the group.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Blocks of trees that share nothing.
    pub(super) plain: Vec<Block>,
    /// Blocks of subvolumes.
    pub(super) shared: Vec<Block>,
    pub(super) data: Vec<DataRange>,
    /// Files of the tree of roots that hold what is known of free space in the old way.
    pub(super) caches: Vec<ObjectId>,
    /// Start of the next batch; `None` if this one is empty.
    pub(super) behind: Option<Logical>,
}

impl Batch {
    pub(super) fn count(&self) -> usize {
        self.plain.len() + self.shared.len() + self.data.len()
    }

    fn is_full(&self, blocks_max: usize, data_bytes: u64) -> bool {
        let blocks = self.plain.len() + self.shared.len();
        blocks >= blocks_max || data_bytes >= DATA_BYTES_MAX || self.data.len() >= EXTENTS_MAX.min(blocks_max)
    }
}

impl Relocator<'_> {
    /// Records of the extent tree for a group from an address on, as far as a batch goes; of data, only the extents
    /// in `only`, if given, by address.
    pub(super) fn next_batch(
        &self,
        group: &GroupStatus,
        from: Logical,
        blocks_max: usize,
        only: Option<&[DataRange]>,
    ) -> Result<Batch, TreeError> {
        let tree = self.store.tree(RootId::EXTENT_TREE)?;
        let (mut batch, mut data_bytes) = (Batch::default(), 0);
        let _held = self.store.hold_freed_space();
        let end = group.start + group.length;
        let mut cursor = self.store.cursor(&tree, Readahead::Forward);
        cursor.seek(&Key::first_of(ObjectId::new(from.get()), KeyType(0)))?;
        while let Some((key, bytes)) = cursor.item().filter(|(key, _)| key.objectid.get() < end.get()) {
            if batch.is_full(blocks_max, data_bytes) {
                break;
            }
            let at = Logical::new(key.objectid.get());
            if matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
                let refuse = |defect| TreeError::item(RootId::EXTENT_TREE, key, defect);
                let item = Item::parse(&key, bytes).map_err(refuse)?;
                let Item::Extent(ExtentItem { header, tree_block, .. }) = item else {
                    unreachable!("an item of these types is parsed as an extent");
                };
                let flags = ExtentFlags::from_bits_retain(header.flags.get());
                if flags.contains(ExtentFlags::TREE_BLOCK) {
                    let level = match tree_block {
                        Some(info) => info.level,
                        None => u8::try_from(key.offset()).unwrap_or(u8::MAX),
                    };
                    self.sort_block(at, level, &mut batch)?;
                } else {
                    let range = DataRange { start: at, length: key.offset() };
                    if only.is_none_or(|only| is_among(range, only)) {
                        match self.cache_of(range)? {
                            Some(file) => batch.caches.push(file),
                            None => batch.data.push(range),
                        }
                        data_bytes += range.length;
                    }
                }
                batch.behind = Some(at + 1);
            }
            cursor.next()?;
        }
        Ok(batch)
    }

    /// Reads a block to learn whose it is.
    fn sort_block(&self, at: Logical, level: u8, batch: &mut Batch) -> Result<(), TreeError> {
        let expected = NodeExpectation { bytenr: at, generation: None, level: Some(level), first_key: None };
        let node = self.store.read_node(&expected)?;
        let owner = node.header().owner;
        let block = Block { at, level, owner, first_key: node.key(0).unwrap_or(Key::MIN) };
        if is_shareable(owner) {
            batch.shared.push(block);
        } else {
            batch.plain.push(block);
        }
        Ok(())
    }

    /// Empties the files of the old free space cache (`space_cache=v1`), which are needed no more.
    pub(super) fn forget_caches(&self, files: &[ObjectId]) -> Result<(), TreeError> {
        for file in files {
            let transaction = self.transactions.join(Need::items(4))?;
            let tree = self.store.tree(RootId::ROOT_TREE)?;
            let mut extents: Vec<(DataRange, u64)> = Vec::new();
            let (first, last) = (KeyType::EXTENT_DATA, KeyType::EXTENT_DATA);
            let (first, last) = (Key::first_of(*file, first), Key::last_of(*file, last));
            transaction.remove_range(&tree, &first, &last, |key, data| {
                if let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) = Item::parse(key, data) {
                    if extent.disk_bytenr.get() != 0 {
                        let range =
                            DataRange { start: extent.disk_bytenr, length: extent.disk_num_bytes.get() };
                        extents.push((range, key.offset().wrapping_sub(extent.offset.get())));
                    }
                }
                Verdict::Remove
            })?;
            for (range, offset) in extents {
                let (root, objectid) = (RootId::ROOT_TREE, *file);
                let reference = ExtentDataRef { root, objectid, offset: offset.into(), count: 1.into() };
                transaction.references().drop_data(range, &reference);
            }
            let inode = Key::new(*file, KeyType::INODE_ITEM, 0);
            transaction.update(&tree, &inode, |data| {
                if let Ok((item, _)) = InodeItem::mut_from_prefix(data) {
                    item.generation = Generation::new(0);
                    item.size.set(0);
                    item.nbytes.set(0);
                }
            })?;
        }
        Ok(())
    }

    /// The file of the tree of roots that an extent belongs to, if it does.
    fn cache_of(&self, range: DataRange) -> Result<Option<ObjectId>, TreeError> {
        let tree = self.store.tree(RootId::EXTENT_TREE)?;
        let references = self.transactions.editor(Generation::new(0)).references();
        let known = references.recorded(&tree, &Extent::data(range))?;
        let referrers = known.map(|known| known.referrers).unwrap_or_default();
        Ok(referrers.into_iter().find_map(|(who, _)| match who {
            Referrer::Data { root: RootId::ROOT_TREE, objectid, .. } => Some(objectid),
            _ => None,
        }))
    }
}

/// Returns true if a range is one of `wanted`, which are in the order of their addresses.
fn is_among(range: DataRange, wanted: &[DataRange]) -> bool {
    let found = wanted.binary_search_by_key(&range.start, |range| range.start);
    found.is_ok_and(|index| wanted[index].length == range.length)
}

/// Returns true if blocks of this owner may be in several trees.
pub(super) fn is_shareable(owner: RootId) -> bool {
    owner == RootId::FS_TREE || owner.is_subvolume()
}
