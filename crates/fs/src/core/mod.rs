//! State that all parts of a filesystem share: the pool, the inodes and subvolumes in use, the notes for the log, the
//! rights and locks of writing. Knows none of the parts.

pub(crate) mod edit;
pub(crate) mod inode_hold;
pub(crate) mod inodes;
pub(crate) mod log_book;
pub(crate) mod name_groups;
pub(crate) mod name_state;
pub(crate) mod orphan_queue;
pub(crate) mod subvolume_hold;
pub(crate) mod subvolumes;

use crate::attributes::InodeId;
use crate::core::edit::Edit;
use crate::core::inodes::{Inode, InodeTable};
use crate::core::log_book::LogBook;
use crate::core::orphan_queue::OrphanQueue;
use crate::core::subvolumes::{SubvolumeState, SubvolumeTable};
use crate::error::FsError;
use crate::interruption::begin_effects;
use crate::write_options::WriteOptions;
use brindle_ondisk::{Incompat, ItemHeader, NodeHeader, RootId};
use brindle_sync::{Mutex, Rank};
use brindle_tree::{Need, Pool, StopOnPanic, Store, Transaction, Tree, TreeError};
use std::ops::Deref;
use std::sync::Arc;

/// State that all parts share.
#[derive(Debug)]
pub(crate) struct Core {
    pool: Pool,
    /// The subvolumes in use.
    pub(crate) subvolumes: SubvolumeTable,
    /// The inodes in use.
    pub(crate) inodes: InodeTable,
    /// Changes of files that the log does not have.
    pub(crate) log_book: LogBook,
    /// State needed for changes; `None` if the filesystem is only read.
    write: Option<WriteState>,
}

/// The largest item that a leaf of a pool can hold, in bytes.
pub(crate) fn item_bytes_max(store: &Store) -> usize {
    let nodesize = usize::try_from(store.nodesize()).expect("at most 64 KiB");
    nodesize - size_of::<NodeHeader>() - size_of::<ItemHeader>()
}

/// State needed for changes.
#[derive(Debug)]
pub(crate) struct WriteState {
    pub(crate) options: WriteOptions,
    /// Held while something moves from one directory to another.
    pub(crate) renames: Mutex<()>,
    /// Held while a deleted subvolume is dropped, or blocks are moved that could be part of one.
    pub(crate) drops: Mutex<()>,
    /// Places where orphans are still to be looked for.
    pub(crate) orphans: Arc<OrphanQueue>,
    /// The id of the next subvolume, once it has been looked up.
    pub(crate) next_subvolume: Mutex<Option<u64>>,
}

impl WriteState {
    pub(crate) fn new(options: WriteOptions) -> Self {
        Self {
            options,
            renames: Mutex::new(Rank::Renames, ()),
            drops: Mutex::new(Rank::SubvolumeDrop, ()),
            orphans: Arc::default(),
            next_subvolume: Mutex::new(Rank::NextSubvolume, None),
        }
    }
}

/// Operation that changes something. A panic in its course ends all writing: what it has changed in memory would not
/// agree with the trees.
#[derive(Debug)]
#[must_use = "a panic stops the pool as long as it lives"]
pub(crate) struct Writing<'f> {
    state: &'f WriteState,
    _stops: StopOnPanic<'f>,
}

impl Deref for Writing<'_> {
    type Target = WriteState;

    fn deref(&self) -> &WriteState {
        self.state
    }
}

impl Core {
    pub(crate) fn new(pool: Pool, write: Option<WriteState>) -> Self {
        let (subvolumes, inodes) = (SubvolumeTable::default(), InodeTable::default());
        Self { pool, subvolumes, inodes, log_book: LogBook::default(), write }
    }

    /// The trees below.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns true if anything can be changed; false from the first error on that left a commit undone.
    pub(crate) fn is_writable(&self) -> bool {
        self.write.is_some() && self.pool.read_only_reason().is_none()
    }

    /// Returns true if it was opened to be read.
    pub(crate) fn is_only_read(&self) -> bool {
        self.write.is_none()
    }

    /// Places where orphans are still to be looked for, also once writing has ended; `None` if the filesystem is only
    /// read.
    pub(crate) fn orphans(&self) -> Option<&Arc<OrphanQueue>> {
        self.write.as_ref().map(|write| &write.orphans)
    }

    /// Guard of an operation that may join a transaction or wait for a commit. The caller has no part in a transaction
    /// and no lock of a tree; builds with debug assertions panic if it has, whether or not the
    /// operation comes to wait.
    #[track_caller]
    pub(crate) fn may_wait_for_commits(&self) -> StopOnPanic<'_> {
        Rank::Commit.assert_free();
        self.pool.stop_on_panic()
    }

    /// State needed for changes, or a refusal.
    #[track_caller]
    pub(crate) fn writing(&self) -> Result<Writing<'_>, FsError> {
        let stops = self.may_wait_for_commits();
        let read_only = |why| FsError::Tree(TreeError::ReadOnly(why));
        match (self.pool.read_only_reason(), &self.write) {
            (Some(why), _) => Err(read_only(why)),
            (None, None) => Err(read_only("it was opened to be read only".into())),
            (None, Some(state)) => Ok(Writing { state, _stops: stops }),
        }
    }

    /// The tree of a subvolume.
    pub(crate) fn tree(&self, id: RootId) -> Result<Arc<Tree>, FsError> {
        Ok(Arc::clone(self.subvolume_state(id)?.tree()))
    }

    /// State shared by all users of a subvolume.
    pub(crate) fn subvolume_state(&self, id: RootId) -> Result<Arc<SubvolumeState>, FsError> {
        self.subvolumes.get(&self.pool, id)
    }

    /// Returns true if a file of a subvolume is open.
    pub(crate) fn is_open(&self, id: RootId) -> bool {
        self.inodes.of_subvolume(id).iter().any(|inode| inode.names().opens > 0)
    }

    /// Ends the use of a deleted subvolume, unless something of it is open; false if it is. To be called without a lock of an
    /// inode.
    pub(crate) fn end_use_of_deleted(&self, id: RootId) -> bool {
        let Some(subvolume) = self.subvolumes.find(id) else { return true };
        if self.is_open(id) {
            return false;
        }
        // What is opened meanwhile is counted with the lock held.
        let mut access = subvolume.exclusive();
        if self.is_open(id) {
            return false;
        }
        access.is_gone = true;
        self.subvolumes.forget(id);
        true
    }

    /// Returns true if holes need no items.
    pub(crate) fn has_implicit_holes(&self) -> bool {
        self.pool().superblock().incompat().contains(Incompat::NO_HOLES)
    }

    /// The sector size in bytes.
    pub(crate) fn sector(&self) -> u64 {
        self.pool().volume().tree_context().sectorsize.into()
    }

    /// A transaction of a writeback: the data has been taken in already, so where there is no other room for metadata
    /// it gets what is kept back for freeing space.
    pub(crate) fn enter_transaction<T>(
        &self,
        items: usize,
        act: impl FnOnce(&Transaction<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let transaction = match self.pool().join(Need::items(items)) {
            Err(TreeError::NoSpace(_)) => self.pool().join(Need::freeing(items))?,
            joined => joined?,
        };
        self.act_in(&transaction, act)
    }

    /// Acts in a transaction; an act that fails half way ends all writing, for its partial effect is unknown.
    pub(crate) fn act_in<'p, T>(
        &self,
        transaction: &Transaction<'p>,
        act: impl FnOnce(&Transaction<'p>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let done = act(transaction);
        match &done {
            Ok(_) => {}
            Err(error) => self.pool().abort(error),
        }
        done
    }

    /// Needs of a removal of `items` items of a subvolume. Where no snapshot can have the blocks that are copied for it, the
    /// next commit frees as many.
    pub(crate) fn removal(tree: &Tree, items: usize) -> Need {
        if tree.is_unshared() { Need::rescuing(items) } else { Need::freeing(items) }
    }

    /// Changes something, as one part of a transaction, if the caller is still there. An error of `act` means that only a part
    /// of it may have been done: the pool takes no more changes then.
    pub(crate) fn change<T>(
        &self,
        need: Need,
        act: impl FnOnce(&Edit<'_>) -> Result<T, TreeError>,
    ) -> Result<T, FsError> {
        self.change_if(need, begin_effects, act)
    }

    /// The same, of what the caller does not wait for.
    pub(crate) fn change_aside<T>(
        &self,
        need: Need,
        act: impl FnOnce(&Edit<'_>) -> Result<T, TreeError>,
    ) -> Result<T, FsError> {
        self.change_if(need, || Ok(()), act)
    }

    /// Changes something if `condition` allows it behind all waits.
    fn change_if<T>(
        &self,
        need: Need,
        condition: impl FnOnce() -> Result<(), FsError>,
        act: impl FnOnce(&Edit<'_>) -> Result<T, TreeError>,
    ) -> Result<T, FsError> {
        let now = self.writing()?.options.host.now().into();
        let transaction = self.pool().join(need)?;
        condition()?;
        let done = act(&Edit { editor: *transaction, now, log_book: &self.log_book });
        if let Err(error) = &done {
            self.pool().abort(error);
        }
        Ok(done?)
    }

    /// The largest item that a leaf can hold, in bytes.
    pub(crate) fn item_bytes_max(&self) -> usize {
        item_bytes_max(self.pool())
    }

    pub(crate) fn inode(&self, id: InodeId) -> Arc<Inode> {
        self.inodes.get(id)
    }

    /// The same of a directory whose names are about to change.
    pub(crate) fn directory(&self, id: InodeId) -> Arc<Inode> {
        self.inodes.directory(id)
    }
}
