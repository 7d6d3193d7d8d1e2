//! Trees of a pool: those that the superblock names, those in the root tree, and log trees.

use crate::TreeName;
use crate::read::Reader;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, Item, Key, Logical, Node, NodeExpectation, ObjectId, RootId, Superblock};

/// Kind of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TreeKind {
    /// Tree roots.
    Root,
    /// Chunks and devices.
    Chunk,
    /// Extents.
    Extent,
    /// Files: a subvolume, or where balance copies data.
    Files,
    /// A relocation tree: stands in for a subvolume while a balance runs.
    Relocation,
    /// The log of a subvolume, or the tree of these: nothing of them is accounted for.
    Log,
    /// Any other of the pool's own.
    Other,
}

/// A tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) id: RootId,
    pub(crate) kind: TreeKind,
    pub(crate) root: NodeExpectation,
    /// Progress of dropping the tree: everything before the key, at this level and above, is gone.
    pub(crate) dropped_to: Option<(Key, u8)>,
    /// The root item and the offset of its key, where there is one.
    pub(crate) item: Option<(Box<RootItem>, u64)>,
}

impl Tree {
    fn new(id: RootId, kind: TreeKind, bytenr: Logical, generation: Generation, level: u8) -> Self {
        let root = NodeExpectation::root(bytenr, generation, level);
        Self { id, kind, root, dropped_to: None, item: None }
    }

    /// Name of the tree in findings.
    pub(crate) fn name(&self) -> TreeName {
        match (self.kind, &self.item) {
            (TreeKind::Log, Some((_, subvolume))) => TreeName::LogOf(RootId::new(*subvolume)),
            (TreeKind::Log, None) => TreeName::Logs,
            _ => TreeName::Id(self.id),
        }
    }

    /// The first block of the tree.
    pub(crate) fn bytenr(&self) -> u64 {
        self.root.bytenr.get()
    }

    /// Returns true if the tree is being dropped.
    pub(crate) fn is_dead(&self) -> bool {
        self.item.as_ref().is_some_and(|(item, _)| item.refs.get() == 0)
    }
}

/// Every tree that can be found, in the order of their ids.
pub(crate) fn find(reader: &Reader<'_>, superblock: &Superblock) -> Vec<Tree> {
    let Superblock { root, generation, root_level, chunk_root, chunk_root_generation, .. } = *superblock;
    let root_tree = Tree::new(RootId::ROOT_TREE, TreeKind::Root, root, generation, root_level);
    let level = superblock.chunk_root_level;
    let chunks = Tree::new(RootId::CHUNK_TREE, TreeKind::Chunk, chunk_root, chunk_root_generation, level);
    let mut trees = vec![chunks];
    reader.walk_small(root_tree.name(), &root_tree.root, &mut |leaf| add_roots(leaf, kind_of, &mut trees));
    trees.push(root_tree);
    if superblock.log_root.get() != 0 {
        // The log is of the transaction that would have been next.
        let generation = Generation::new(generation.get().saturating_add(1));
        let level = superblock.log_root_level;
        let log = Tree::new(RootId::TREE_LOG, TreeKind::Log, superblock.log_root, generation, level);
        reader.walk_small(log.name(), &log.root, &mut |leaf| {
            add_roots(leaf, |_| TreeKind::Log, &mut trees);
        });
        trees.push(log);
    }
    trees.sort_by_key(|tree| (tree.id, tree.item.as_ref().map(|(_, offset)| *offset)));
    trees
}

fn add_roots(leaf: &Node, kind: fn(RootId) -> TreeKind, trees: &mut Vec<Tree>) {
    for slot in 0..leaf.len() {
        let Some((key, data)) = leaf.item(slot) else { continue };
        let Ok(Item::Root(item)) = Item::parse(&key, data) else { continue };
        let id = RootId::new(key.objectid.get());
        let mut tree = Tree::new(id, kind(id), item.bytenr, item.generation, item.level);
        if item.refs.get() == 0 && item.drop_progress.objectid != ObjectId::new(0) {
            tree.dropped_to = Some((item.drop_progress, item.drop_level));
        }
        tree.item = Some((item, key.offset()));
        trees.push(tree);
    }
}

fn kind_of(id: RootId) -> TreeKind {
    match id {
        RootId::ROOT_TREE => TreeKind::Root,
        RootId::CHUNK_TREE => TreeKind::Chunk,
        RootId::EXTENT_TREE => TreeKind::Extent,
        RootId::TREE_RELOC => TreeKind::Relocation,
        id if id.is_file_tree() => TreeKind::Files,
        _ => TreeKind::Other,
    }
}
