//! The last commit, as it lies on the devices: for a scrub, which looks at places rather than at trees.
//!
//! A view holds the space that is freed from its beginning on ([`FreedSpaceHold`]), and then takes the trees of the last
//! superblock. What these refer to is on the devices, whole, and durable; and it stays there, for it can be freed by later
//! transactions only, whose freed space the hold keeps. A place that one of its extents holds is so of this extent as long as
//! the view lives, and its chunk is mapped: verified bytes of it may be written over a wrong copy of it at any time. In the
//! trees of the running transaction that would not hold: they have blocks that are not written yet.
//!
//! To be kept no longer than a few reads take: freed space waits for it.

use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::store::Store;
use crate::store::cursor::{Cursor, Readahead};
use crate::store::hold::FreedSpaceHold;
use crate::tree::Tree;
use brindle_ondisk::item::{BackRef, ExtentFlags, ExtentItem};
use brindle_ondisk::{Item, Key, KeyType, Logical, NodeExpectation, ObjectId, RootId, to_u64};
use brindle_volume::{Expected, ScrubWindow};
use std::sync::Arc;

/// The last commit; see the module.
#[derive(Debug)]
pub struct Committed<'p> {
    store: &'p Store,
    _held: FreedSpaceHold<'p>,
    extents: Arc<Tree>,
    /// `None` if no data has checksums.
    checksums: Option<Arc<Tree>>,
    roots: Arc<Tree>,
}

/// An extent of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedExtent {
    /// Its address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    /// True if it is a tree block.
    pub is_block: bool,
    /// Its references.
    pub references: Vec<BackRef>,
}

impl<'p> Committed<'p> {
    /// The last commit, from now on as long as the view lives.
    pub(crate) fn of(store: &'p Store) -> Result<Self, TreeError> {
        let held = store.hold_freed_space();
        let roots = Tree::fixed(TreeRoot::root_tree(&store.superblock()));
        let tree = |id: RootId| {
            let found = store.root_item_in(&roots, id)?;
            Ok::<_, TreeError>(found.map(|(_, item)| Tree::fixed(TreeRoot::from_item(id, &item))))
        };
        let extents = tree(RootId::EXTENT_TREE)?.ok_or(TreeError::NoTree(RootId::EXTENT_TREE))?;
        let checksums = tree(RootId::CSUM_TREE)?;
        Ok(Self { store, _held: held, extents, checksums, roots })
    }
}

impl Committed<'_> {
    /// The blocks, and their cache.
    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Committed contents of the logical addresses of a window.
    pub fn expected(&self, window: &ScrubWindow) -> Result<Expected, TreeError> {
        let mut expected = self.store.volume().expect(window);
        let end = end_of(window.start, window.logical_length);
        let mut has_data = false;
        let mut cursor = self.cursor(&self.extents);
        self.seek_overlapping(&mut cursor, window.start)?;
        while let Some((key, data)) = cursor.item() {
            let start = Logical::new(key.objectid.get());
            if start >= end {
                break;
            }
            if let Some((length, item)) = self.extent(&key, data)? {
                if end_of(start, length) > window.start {
                    match item.flags().contains(ExtentFlags::TREE_BLOCK) {
                        true => expected.add_block(start, item.header.generation, level_of(&key, &item)),
                        false => {
                            has_data = true;
                            expected.add_data(start, length);
                        }
                    }
                }
            }
            next_extent(&mut cursor, &key)?;
        }
        if has_data {
            if let Some(tree) = &self.checksums {
                self.add_checksums(tree, window.start, end, &mut expected)?;
            }
        }
        Ok(expected)
    }

    /// Address of the first extent that reaches beyond an address and begins before another one.
    pub fn next_used(&self, from: Logical, end: Logical) -> Result<Option<Logical>, TreeError> {
        let mut cursor = self.cursor(&self.extents);
        self.seek_overlapping(&mut cursor, from)?;
        while let Some((key, data)) = cursor.item() {
            let start = Logical::new(key.objectid.get());
            if start >= end {
                break;
            }
            if self.extent(&key, data)?.is_some_and(|(length, _)| end_of(start, length) > from) {
                return Ok(Some(start.max(from)));
            }
            next_extent(&mut cursor, &key)?;
        }
        Ok(None)
    }

    /// The extent that holds an address, with its references.
    pub fn extent_at(&self, at: Logical) -> Result<Option<CommittedExtent>, TreeError> {
        let mut cursor = self.store.cursor(&self.extents, Readahead::None);
        self.seek_overlapping(&mut cursor, at)?;
        let Some((key, data)) = cursor.item() else { return Ok(None) };
        let Some((length, item)) = self.extent(&key, data)? else { return Ok(None) };
        let start = Logical::new(key.objectid.get());
        if start > at || end_of(start, length) <= at {
            return Ok(None);
        }
        let is_block = item.flags().contains(ExtentFlags::TREE_BLOCK);
        let mut references: Vec<BackRef> = item.inline_refs.filter_map(Result::ok).collect();
        cursor.next()?;
        while let Some((key, data)) = cursor.item().filter(|(found, _)| found.objectid == key.objectid) {
            if let Ok(Item::ExtentRef(reference)) = Item::parse(&key, data) {
                references.push(reference);
            }
            cursor.next()?;
        }
        Ok(Some(CommittedExtent { start, length, is_block, references }))
    }

    /// A tree of the last commit; `None` if there is none of this id.
    pub fn tree(&self, id: RootId) -> Result<Option<Arc<Tree>>, TreeError> {
        let found = self.store.root_item_in(&self.roots, id)?;
        Ok(found.map(|(_, item)| Tree::fixed(TreeRoot::from_item(id, &item))))
    }

    /// A leaf that a reference names, by its address.
    pub fn leaf(&self, at: Logical) -> Result<Arc<brindle_ondisk::Node>, TreeError> {
        let expected = NodeExpectation { bytenr: at, generation: None, level: Some(0), first_key: None };
        self.store.read_node(&expected)
    }

    fn cursor(&self, tree: &Arc<Tree>) -> Cursor<'_> {
        self.store.cursor(tree, Readahead::Forward)
    }

    /// Goes to the extent that holds an address, or else to the first item behind it.
    fn seek_overlapping(&self, cursor: &mut Cursor<'_>, at: Logical) -> Result<(), TreeError> {
        let mut last = Key::last_of(ObjectId::new(at.get()), KeyType::METADATA_ITEM);
        loop {
            cursor.seek_last(&last)?;
            let Some((key, data)) = cursor.item() else { break };
            if let Some((length, _)) = self.extent(&key, data)? {
                if end_of(Logical::new(key.objectid.get()), length) > at {
                    return Ok(());
                }
                break;
            }
            // References of one extent, or a block group: what they belong to has the same number, and stands before them.
            match last_before(&key) {
                Some(before) if before < last => last = before,
                _ => break,
            }
        }
        cursor.seek(&Key::new(ObjectId::new(at.get()), KeyType(0), 0))
    }

    /// The length of an extent and its item, if it is one.
    fn extent<'i>(&self, key: &Key, data: &'i [u8]) -> Result<Option<(u64, ExtentItem<'i>)>, TreeError> {
        if !matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
            return Ok(None);
        }
        match Item::parse(key, data) {
            Ok(Item::Extent(item)) => {
                let is_skinny = key.item_type == KeyType::METADATA_ITEM;
                Ok(Some((if is_skinny { self.store.nodesize().into() } else { key.offset() }, item)))
            }
            Ok(_) => Ok(None),
            Err(defect) => Err(TreeError::item(RootId::EXTENT_TREE, *key, defect)),
        }
    }

    fn add_checksums(
        &self,
        tree: &Arc<Tree>,
        start: Logical,
        end: Logical,
        expected: &mut Expected,
    ) -> Result<(), TreeError> {
        let context = self.store.volume().tree_context();
        let size = to_u64(context.checksum_type.size());
        let key = |at: Logical| Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
        let mut cursor = self.cursor(tree);
        // The item that holds the first checksum may begin before it.
        cursor.seek_last(&key(start))?;
        if cursor.key().is_none() {
            cursor.seek(&key(start))?;
        }
        while let Some((key, data)) = cursor.item() {
            let first = Logical::new(key.offset());
            if key.objectid > ObjectId::EXTENT_CSUM || (key.objectid == ObjectId::EXTENT_CSUM && first >= end)
            {
                break;
            }
            if let Ok(Item::Csums(checksums)) = Item::parse(&key, data) {
                let skip = start.distance_from(first).unwrap_or(0) / u64::from(context.sectorsize) * size;
                let wanted = checksums.get(brindle_ondisk::to_usize(skip)..).unwrap_or_default();
                expected.add_checksums(first.max(start), wanted);
            }
            cursor.next()?;
        }
        Ok(())
    }
}

/// Goes to the first item of the next number.
fn next_extent(cursor: &mut Cursor<'_>, key: &Key) -> Result<(), TreeError> {
    let Some(next) = key.objectid.get().checked_add(1) else {
        return cursor.seek(&Key::MAX);
    };
    cursor.seek(&Key::new(ObjectId::new(next), KeyType(0), 0))
}

/// The last key that the extent of the number of a reference may have, or of the number before.
fn last_before(key: &Key) -> Option<Key> {
    let own = Key::last_of(key.objectid, KeyType::METADATA_ITEM);
    if own < *key {
        return Some(own);
    }
    let before = key.objectid.get().checked_sub(1)?;
    Some(Key::last_of(ObjectId::new(before), KeyType::METADATA_ITEM))
}

fn level_of(key: &Key, item: &ExtentItem<'_>) -> Option<u8> {
    match item.tree_block {
        Some(info) => Some(info.level),
        None => u8::try_from(key.offset()).ok(),
    }
}

fn end_of(start: Logical, length: u64) -> Logical {
    start.checked_add(length).unwrap_or(Logical::new(u64::MAX))
}
