//! A tree that may change: where it begins now, and its blocks that are not on disk yet.

use crate::habit::RecentKeys;
use crate::root::TreeRoot;
use brindle_ondisk::{Generation, IdMap, Logical, Node, NodeExpectation, RootId};
use brindle_sync::{Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bit that tells a virtual address, of a block that has no place on a device yet, from a real one.
const VIRTUAL: u64 = 1 << 63;

/// A tree of the pool, shared by all its readers and writers.
///
/// A reader holds the lock while it goes down from the root, through blocks in memory; a writer, while it changes one
/// item or a few. Neither waits for a device meanwhile.
#[derive(Debug)]
pub struct Tree {
    id: RootId,
    state: RwLock<TreeState>,
    /// Moves on with each change; a cursor that sees it unmoved may trust its path.
    version: AtomicU64,
}

/// Mutable state of a tree.
#[derive(Debug)]
pub(crate) struct TreeState {
    /// The root; its address is virtual while the root is changed and has no place yet.
    pub(crate) root: TreeRoot,
    /// The blocks that the running transaction has made, by virtual or (once assigned) real address.
    pub(crate) dirty: IdMap<Logical, Arc<Node>>,
    /// Blocks of this generation or older may be shared with a snapshot; 0 where nothing is ever shared.
    pub(crate) last_snapshot: Generation,
    /// Root in the tree of roots, as far as this transaction has brought it up to date.
    pub(crate) recorded: Option<TreeRoot>,
    /// True if items have changed since the root item's times were updated. Its blocks may move without that.
    pub(crate) has_news: bool,
    /// Blocks that the tree has gained since, for the root item's `bytes_used`.
    pub(crate) grown: i64,
    /// Keys of the items added last.
    pub(crate) recent: RecentKeys,
}

impl Tree {
    /// A tree that begins here.
    pub fn new(root: TreeRoot, last_snapshot: Generation) -> Self {
        let state = TreeState {
            root,
            dirty: IdMap::default(),
            last_snapshot,
            recorded: Some(root),
            has_news: false,
            grown: 0,
            recent: RecentKeys::default(),
        };
        Self { id: root.id, state: RwLock::new(rank_of(root.id), state), version: AtomicU64::new(0) }
    }

    /// A tree that does not change, such as a log tree or that of a backup root.
    pub fn fixed(root: TreeRoot) -> Arc<Self> {
        Arc::new(Self::new(root, Generation::new(0)))
    }

    /// Id of the tree.
    pub fn id(&self) -> RootId {
        self.id
    }

    /// Present root.
    pub fn root(&self) -> TreeRoot {
        self.read().root
    }

    /// Returns true if the running transaction has changed it.
    pub fn is_dirty(&self) -> bool {
        !self.read().dirty.is_empty()
    }

    /// Returns true if no snapshot can have blocks of the tree: none was ever made of it, and it is none.
    pub fn is_unshared(&self) -> bool {
        self.read().last_snapshot.get() == 0
    }

    /// True if a panic has interrupted a change of the tree.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    #[track_caller]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, TreeState> {
        self.state.read()
    }

    /// The right to change the tree. Cursors that are in it will look for their place anew.
    #[track_caller]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, TreeState> {
        let state = self.state.write();
        self.version.fetch_add(1, Ordering::Relaxed);
        state
    }

    /// The right to change what is said of the tree, not its blocks.
    #[track_caller]
    pub(crate) fn write_quietly(&self) -> RwLockWriteGuard<'_, TreeState> {
        self.state.write()
    }

    /// The state's version; call it with the state locked.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

impl TreeState {
    /// Expectation of the root.
    pub(crate) fn root_expectation(&self) -> NodeExpectation {
        self.root.expectation()
    }
}

/// The place of a tree's lock in the order of locks.
fn rank_of(tree: RootId) -> Rank {
    match tree {
        RootId::ROOT_TREE => Rank::RootTree,
        RootId::TREE_LOG => Rank::FileTree,
        _ if tree.is_file_tree() => Rank::FileTree,
        _ => Rank::OtherTree,
    }
}

/// Returns true for an address that stands for a block without a place.
pub(crate) fn is_virtual(at: Logical) -> bool {
    at.get() & VIRTUAL != 0
}

/// The `number`th virtual address.
pub(crate) fn virtual_address(number: u64, nodesize: u32) -> Logical {
    Logical::new(VIRTUAL | number.wrapping_mul(nodesize.into()))
}
