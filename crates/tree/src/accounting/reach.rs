//! The subvolumes that reach an extent at one moment, by its back references: up from it to the roots.
//!
//! An extent is reached by a subvolume if any way leads there from its root. What a block is reached by is kept: the
//! extents of a leaf, and the leaves of a node, have most of the way in common.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::quota::ledger::Reaching;
use crate::refs::delayed::{Extent, ExtentKind, Referrer};
use crate::store::cursor::Readahead;
use crate::store::trees::Trees;
use crate::tree::Tree;
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{
    Defect, Generation, Item, Key, KeyType, Logical, Node, NodeExpectation, ObjectId, RootId,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Blocks whose subvolumes are kept, at most: what is forgotten is looked up again.
const KNOWN_MAX: usize = 1 << 18;
/// A compressed extent is of no more than this much of a file, in bytes.
const COMPRESSED_BYTES_MAX: u64 = 128 << 10;
/// Steps from an extent up to a root: levels of trees, and a leaf's extent.
const DEPTH_MAX: usize = 16;

/// Ways from extents up to subvolumes, at one moment.
pub(super) struct Reach<'e, 'p> {
    editor: &'e Editor<'p>,
    trees: Trees<'p>,
    extents: Arc<Tree>,
    known: HashMap<Logical, Arc<Reaching>>,
    subvolumes: HashMap<RootId, Option<Subvolume>>,
}

/// A subvolume's tree.
#[derive(Clone)]
struct Subvolume {
    tree: Arc<Tree>,
    /// Blocks of this generation or older may be part of others; 0 if none is.
    last_snapshot: Generation,
    /// The key before which everything is gone, if it is being dropped.
    live_from: Key,
}

/// An extent that a tree has, and what reaches it.
pub(super) struct Reached {
    pub(super) extent: Extent,
    pub(super) by: Arc<Reaching>,
}

impl<'e, 'p> Reach<'e, 'p> {
    pub(super) fn new(editor: &'e Editor<'p>, trees: Trees<'p>) -> Result<Self, TreeError> {
        let extents = trees.tree(RootId::EXTENT_TREE)?;
        Ok(Self { editor, trees, extents, known: HashMap::new(), subvolumes: HashMap::new() })
    }

    /// The extent that begins at an address, and the subvolumes that reach it; `None` if none begins there.
    pub(super) fn extent(&mut self, at: Logical) -> Result<Option<Reached>, TreeError> {
        let Some((extent, known)) = self.editor.references().recorded_at(&self.extents, at)? else {
            return Ok(None);
        };
        let by = self.follow(&extent, &known.referrers, 0)?;
        Ok(Some(Reached { extent, by }))
    }

    /// A block that the extent tree has.
    pub(super) fn block(&self, at: Logical, level: u8) -> Result<Arc<Node>, TreeError> {
        let expected = NodeExpectation { bytenr: at, generation: None, level: Some(level), first_key: None };
        self.editor.store.read_node(&expected)
    }

    fn reaching(&mut self, at: Logical, depth: usize) -> Result<Arc<Reaching>, TreeError> {
        if let Some(known) = self.known.get(&at) {
            return Ok(Arc::clone(known));
        }
        let Some((extent, known)) = self.editor.references().recorded_at(&self.extents, at)? else {
            return Err(refuse(at, "block that refers to others is not in the extent tree"));
        };
        self.follow(&extent, &known.referrers, depth)
    }

    fn follow(
        &mut self,
        extent: &Extent,
        referrers: &[(Referrer, i64)],
        depth: usize,
    ) -> Result<Arc<Reaching>, TreeError> {
        if depth > DEPTH_MAX {
            return Err(refuse(extent.start, "references lead round in a circle"));
        }
        if let Some(known) = self.known.get(&extent.start) {
            return Ok(Arc::clone(known));
        }
        let mut found = BTreeSet::new();
        for (who, _) in referrers {
            match *who {
                Referrer::Tree(tree) => self.follow_tree(tree, extent, depth, &mut found)?,
                Referrer::SharedTree(parent) | Referrer::SharedData(parent) if parent != extent.start => {
                    found.extend(self.reaching(parent, depth + 1)?.iter());
                }
                Referrer::Data { root, objectid, offset } => {
                    let place = Place { objectid, offset };
                    self.follow_file(root, extent, &place, depth, &mut found)?;
                }
                // The root of a relocation refers to itself; no subvolume is one.
                Referrer::SharedTree(_) | Referrer::SharedData(_) => {}
            }
        }
        let found: Arc<Reaching> = Arc::new(found.into_iter().collect());
        if extent.kind != ExtentKind::Data {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(extent.start, Arc::clone(&found));
        }
        Ok(found)
    }

    /// A tree has a block: as its root, or below a block that others may have too.
    fn follow_tree(
        &mut self,
        id: RootId,
        extent: &Extent,
        depth: usize,
        found: &mut BTreeSet<RootId>,
    ) -> Result<(), TreeError> {
        let ExtentKind::Block { level, .. } = extent.kind else { return Ok(()) };
        let Some(subvolume) = self.subvolume(id)? else { return Ok(()) };
        let at = extent.start;
        let is_own = subvolume.last_snapshot.get() == 0 || subvolume.tree.read().dirty.contains_key(&at);
        if is_own || subvolume.tree.root().bytenr == at {
            found.insert(id);
            return Ok(());
        }
        let node = self.block(at, level)?;
        if node.generation() > subvolume.last_snapshot {
            found.insert(id);
            return Ok(());
        }
        let first = node.key(0).ok_or_else(|| refuse(at, "block below a root is empty"))?;
        let mut cursor = self.editor.store.cursor(&subvolume.tree, Readahead::None);
        cursor.seek_level(&first, level + 1)?;
        let parent = cursor.lowest().filter(|parent| {
            parent.level() == level + 1 && parent.key_ptrs().iter().any(|child| child.blockptr == at)
        });
        let parent = parent.ok_or_else(|| refuse(at, "block is not in the tree that refers to it"))?;
        let above = parent.header().bytenr;
        found.extend(self.reaching_in(&subvolume, id, above, depth + 1)?.iter());
        Ok(())
    }

    /// Subvolumes that reach a block that one of them has.
    fn reaching_in(
        &mut self,
        subvolume: &Subvolume,
        id: RootId,
        at: Logical,
        depth: usize,
    ) -> Result<Arc<Reaching>, TreeError> {
        let is_own = subvolume.tree.root().bytenr == at || subvolume.tree.read().dirty.contains_key(&at);
        if is_own { Ok(Arc::new(vec![id])) } else { self.reaching(at, depth) }
    }

    /// A file of a tree has data: in leaves that others may have too.
    fn follow_file(
        &mut self,
        id: RootId,
        extent: &Extent,
        place: &Place,
        depth: usize,
        found: &mut BTreeSet<RootId>,
    ) -> Result<(), TreeError> {
        let Some(subvolume) = self.subvolume(id)? else { return Ok(()) };
        found.insert(id);
        if subvolume.last_snapshot.get() == 0 {
            return Ok(());
        }
        let mut seen = None;
        let mut cursor = self.editor.store.cursor(&subvolume.tree, Readahead::None);
        cursor.seek(&place.first_key().max(subvolume.live_from))?;
        let end = place.end(extent);
        while let Some((key, data)) = cursor.item().filter(|(key, _)| place.may_be_at(key, end)) {
            let item = Item::parse(&key, data).map_err(|defect| TreeError::item(id, key, defect))?;
            if place.is_of(&key, &item, extent.start) {
                let leaf = cursor.leaf().map(|(leaf, _)| (leaf.header().bytenr, leaf.generation()));
                if let Some((at, generation)) = leaf.filter(|leaf| seen.replace(leaf.0) != Some(leaf.0)) {
                    if generation <= subvolume.last_snapshot {
                        found.extend(self.reaching_in(&subvolume, id, at, depth + 1)?.iter());
                    }
                }
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// A subvolume's tree; `None` if there is none of this id, or it is no subvolume's.
    fn subvolume(&mut self, id: RootId) -> Result<Option<Subvolume>, TreeError> {
        if id != RootId::FS_TREE && !id.is_subvolume() {
            return Ok(None);
        }
        if let Some(known) = self.subvolumes.get(&id) {
            return Ok(known.clone());
        }
        let found = match self.trees.root_item(id)? {
            Some(item) => {
                let tree = self.trees.tree(id)?;
                let last_snapshot = tree.read().last_snapshot;
                let live_from = if item.refs.get() == 0 { item.drop_progress } else { Key::MIN };
                Some(Subvolume { tree, last_snapshot, live_from })
            }
            None => None,
        };
        self.subvolumes.insert(id, found.clone());
        Ok(found)
    }
}

/// A file's references to an extent.
struct Place {
    objectid: ObjectId,
    /// Offset in the file at which the extent would begin; may be negative.
    offset: u64,
}

impl Place {
    fn first_key(&self) -> Key {
        let is_before = self.offset > i64::MAX.unsigned_abs();
        Key::new(self.objectid, KeyType::EXTENT_DATA, if is_before { 0 } else { self.offset })
    }

    /// Offset in the file behind all that the extent holds.
    fn end(&self, extent: &Extent) -> u64 {
        self.offset.wrapping_add(extent.length.max(COMPRESSED_BYTES_MAX))
    }

    fn may_be_at(&self, key: &Key, end: u64) -> bool {
        (key.objectid, key.item_type) == (self.objectid, KeyType::EXTENT_DATA) && key.offset() < end
    }

    fn is_of(&self, key: &Key, item: &Item<'_>, start: Logical) -> bool {
        matches!(item, Item::FileExtent(FileExtent::OnDisk { extent, .. })
            if extent.disk_bytenr == start && key.offset().wrapping_sub(extent.offset.get()) == self.offset)
    }
}

fn refuse(at: Logical, why: &'static str) -> TreeError {
    let key = Key::new(ObjectId::new(at.get()), KeyType::EXTENT_ITEM, 0);
    TreeError::item(RootId::EXTENT_TREE, key, Defect::new(why, at.get()))
}
