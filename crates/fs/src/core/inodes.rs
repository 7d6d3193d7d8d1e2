//! Inodes in memory: one [`Inode`] each, shared by all its users, gone with the last. The directories whose names
//! changed lately stay a while, with their cached lookups.
//!
//! **Locks**, outermost first; [`Rank`](brindle_sync::Rank) has the whole order, which debug builds check:
//! 1. the lock of renames ([`WriteState::renames`](crate::core::WriteState)): held by a thread that moves a directory to another
//!    one, so that no ancestors change meanwhile;
//! 2. the subvolumes' [`WriteAccess`](crate::subvolume::WriteAccess), by ascending id: held shared by each operation
//!    that writes, alone by what makes a subvolume read-only or deletes it;
//! 3. [`Inode::names`], **by ascending [`InodeId`]**, whatever is whose parent. A directory's is held by threads that change
//!    or list its entries, any inode's by threads that change its link count, and by those that open or close it;
//! 4. what `data` has;
//! 5. part in the running transaction ([`Pool::join`](brindle_tree::Pool::join)), never twice: a thread that waits for
//!    a commit with part in the transaction waits for itself;
//! 6. the trees' own locks.
//!
//! An operation that needs a directory and the target of a name in it looks the name up, locks both in their order, looks again,
//! and begins anew if the name stands for something else after that. Lookups and `stat` take no lock but the trees'.
//!
//! A commit takes none of these locks; it waits for the parts in the transaction only.

use crate::attributes::InodeId;
use crate::core::name_state::NameState;
use crate::pages::state::FileState;
use brindle_ondisk::{IdMap, RootId};
use brindle_policy::read::Readahead;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked, RwLockWriteGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Number of shards of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// Lower bound on the entries at which a shard is swept; otherwise at twice as many as after the last sweep.
const SWEEP_MIN: usize = 64;
/// Number of directories that a shard keeps.
const DIRECTORIES: usize = 8;

/// An inode in use.
#[derive(Debug)]
pub struct Inode {
    id: InodeId,
    names: Mutex<NameState>,
    /// Sequential readers: those that share the host's page cache take turns in asking us.
    readahead: Mutex<Readahead>,
    /// True if it is known to have no privileges to lose; changes with the lock of its names held.
    pub(crate) is_unprivileged: AtomicBool,
    /// Openings through the host's page cache.
    pub(crate) cached_openings: AtomicU32,
    /// State of contents that are in memory only.
    pub(crate) data: FileState,
}

impl Inode {
    fn new(id: InodeId) -> Self {
        Self {
            id,
            names: Mutex::new(Rank::Names, NameState::default()),
            readahead: Mutex::new(Rank::Readahead, Readahead::default()),
            is_unprivileged: AtomicBool::new(false),
            cached_openings: AtomicU32::new(0),
            data: FileState::default(),
        }
    }

    /// Id of the inode.
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// The lock of its names; see the module's text for the order.
    #[track_caller]
    pub(crate) fn names(&self) -> MutexGuard<'_, NameState> {
        self.names.lock_by_key(self.id.lock_key())
    }

    /// Counts an opening that reads and writes through the host's page cache, or takes one back.
    pub fn count_cached_opening(&self, is_opened: bool) {
        match is_opened {
            true => self.cached_openings.fetch_add(1, Ordering::AcqRel),
            false => self.cached_openings.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Counts an opening that fills the host's page cache if there is none. Returns true if it was counted.
    pub fn begin_only_cached_opening(&self) -> bool {
        self.cached_openings.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns true if the host may be filling its page cache with contents of this inode.
    pub fn is_cached_by_host(&self) -> bool {
        self.cached_openings.load(Ordering::Acquire) > 0
    }

    /// Takes an opening back. Returns true if the inode has to be removed: it has no name, and this was the last one.
    pub(crate) fn give_back(&self) -> bool {
        let mut names = self.names();
        assert!(names.opens > 0, "{} is released as often as it was acquired", self.id);
        names.opens -= 1;
        names.opens == 0 && names.is_unnamed
    }

    /// Sequential readers. Held for a moment.
    pub(crate) fn readahead(&self) -> MutexGuard<'_, Readahead> {
        self.readahead.lock()
    }
}

/// The gates of two files, alone: in the order of their ids, once if they are one.
pub(crate) fn exclusive_both<'i>(
    a: &'i Inode,
    b: &'i Inode,
) -> (RwLockWriteGuard<'i, ()>, Option<RwLockWriteGuard<'i, ()>>) {
    let alone = |inode: &'i Inode| inode.data.exclusive_of(inode.id());
    match a.id().cmp(&b.id()) {
        std::cmp::Ordering::Less => {
            let first = alone(a);
            (first, Some(alone(b)))
        }
        std::cmp::Ordering::Equal => (alone(a), None),
        std::cmp::Ordering::Greater => {
            let first = alone(b);
            (first, Some(alone(a)))
        }
    }
}

/// Inodes in use.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    inodes: IdMap<InodeId, Weak<Inode>>,
    /// Directories that came last, the oldest one first.
    directories: VecDeque<Arc<Inode>>,
    /// Number of entries at which those without an inode are looked for.
    sweep_at: usize,
}

impl Ranked for Shard {
    const RANK: Rank = Rank::InodeTable;
}

impl InodeTable {
    /// The inode of this id, in memory from now on for as long as the answer is kept.
    pub(crate) fn get(&self, id: InodeId) -> Arc<Inode> {
        self.shard(id).get(id)
    }

    /// The same, for a directory whose names are about to change: it stays for the next change.
    pub(crate) fn directory(&self, id: InodeId) -> Arc<Inode> {
        let mut shard = self.shard(id);
        let inode = shard.get(id);
        if !shard.directories.iter().any(|kept| Arc::ptr_eq(kept, &inode)) {
            if shard.directories.len() == DIRECTORIES {
                shard.directories.pop_front();
            }
            shard.directories.push_back(Arc::clone(&inode));
        }
        inode
    }

    /// The inode of this id, if it is in memory.
    pub(crate) fn find(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.shard(id).inodes.get(&id).and_then(Weak::upgrade)
    }

    /// The inodes of a subvolume that are in memory.
    pub(crate) fn of_subvolume(&self, tree: RootId) -> Vec<Arc<Inode>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let inodes = shard.inodes.iter().filter(|(id, _)| id.tree == tree);
            found.extend(inodes.filter_map(|(_, inode)| inode.upgrade()));
        }
        found
    }

    fn shard(&self, id: InodeId) -> MutexGuard<'_, Shard> {
        let mixed = id.number.get() ^ id.tree.get().rotate_left(7);
        let index = brindle_ondisk::to_usize(mixed) % SHARDS;
        self.shards[index].lock()
    }
}

impl Shard {
    fn get(&mut self, id: InodeId) -> Arc<Inode> {
        if let Some(inode) = self.inodes.get(&id).and_then(Weak::upgrade) {
            return inode;
        }
        if self.inodes.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.inodes.retain(|_, inode| inode.strong_count() > 0);
            self.sweep_at = self.inodes.len() * 2;
        }
        let inode = Arc::new(Inode::new(id));
        self.inodes.insert(id, Arc::downgrade(&inode));
        inode
    }
}

/// Locks the names of several inodes, each once, in their order.
pub(crate) fn lock_names<'i>(inodes: &[&'i Arc<Inode>]) -> NameLocks<'i> {
    let mut sorted: Vec<&'i Arc<Inode>> = inodes.to_vec();
    sorted.sort_unstable_by_key(|inode| inode.id);
    sorted.dedup_by_key(|inode| inode.id);
    NameLocks(sorted.into_iter().map(|inode| (inode.id, inode.names())).collect())
}

/// The locked names of several inodes.
#[derive(Debug)]
pub(crate) struct NameLocks<'i>(Vec<(InodeId, MutexGuard<'i, NameState>)>);

impl<'i> NameLocks<'i> {
    /// Locks the names of a directory, and of an inode in it with a greater id.
    pub(crate) fn in_order(
        (directory, above): (&Inode, MutexGuard<'i, NameState>),
        child: &'i Inode,
    ) -> NameLocks<'i> {
        assert!(directory.id < child.id, "names are locked by ascending id");
        NameLocks(vec![(directory.id, above), (child.id, child.names())])
    }

    /// The state of one of them.
    pub(crate) fn of(&mut self, id: InodeId) -> &mut NameState {
        let found = self.0.iter_mut().find(|(locked, _)| *locked == id);
        &mut found.expect("a state that is asked for is locked").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::ObjectId;

    fn id(number: u64) -> InodeId {
        InodeId { tree: RootId::FS_TREE, number: ObjectId::new(number) }
    }

    #[test]
    fn an_inode_is_the_same_for_all_and_forgotten_when_unused() {
        let table = InodeTable::default();
        let first = table.get(id(257));
        assert!(Arc::ptr_eq(&first, &table.get(id(257))));
        assert!(!Arc::ptr_eq(&first, &table.get(id(258))));
        first.names().opens = 3;
        drop(first);
        assert!(table.find(id(257)).is_none());
        assert_eq!(table.get(id(257)).names().opens, 0, "the state went with the last user");
    }

    #[test]
    fn unused_inodes_take_no_memory_for_long() {
        let table = InodeTable::default();
        let kept = table.get(id(256));
        for number in 257..100_000 {
            let _ = table.get(id(number));
        }
        let entries: usize =
            (256..256 + SHARDS as u64).map(|number| table.shard(id(number)).inodes.len()).sum();
        assert!(entries <= SHARDS * (SWEEP_MIN + 1), "{entries} entries");
        assert!(Arc::ptr_eq(&kept, &table.get(id(256))));
    }

    #[test]
    fn a_few_directories_stay_with_what_is_known_of_them() {
        let table = InodeTable::default();
        table.directory(id(256)).names().next_index = Some(7);
        assert_eq!(table.get(id(256)).names().next_index, Some(7), "nobody had to hold it");
        for number in 257..100_000 {
            table.directory(id(number));
        }
        assert!(table.find(id(256)).is_none());
        let kept = (256..100_000).filter(|number| table.find(id(*number)).is_some()).count();
        assert_eq!(kept, SHARDS * DIRECTORIES);
    }

    #[test]
    fn several_are_locked_in_their_order_and_each_once() {
        let table = InodeTable::default();
        let (a, b) = (table.get(id(300)), table.get(id(299)));
        let mut locks = lock_names(&[&a, &b, &a]);
        assert_eq!(locks.0.iter().map(|(id, _)| id.number.get()).collect::<Vec<_>>(), [299, 300]);
        locks.of(id(300)).opens = 1;
        drop(locks);
        assert_eq!(a.names().opens, 1);
    }
}
