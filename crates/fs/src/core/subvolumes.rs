//! Subvolumes in use, and the right to change them.

use crate::error::FsError;
use brindle_ondisk::item::RootFlags;
use brindle_ondisk::{IdMap, Key, KeyType, ObjectId, RootId};
use brindle_sync::{Mutex, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use brindle_tree::{Pool, Readahead, Tree, TreeError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The subvolumes in use, each looked up once.
#[derive(Debug)]
pub(crate) struct SubvolumeTable(RwLock<IdMap<RootId, Arc<SubvolumeState>>>);

/// State shared by all users of a subvolume.
#[derive(Debug)]
pub(crate) struct SubvolumeState {
    tree: Arc<Tree>,
    access: RwLock<WriteAccess>,
    /// True from the moment on at which it has lost its name. Changes under the exclusive lock alone.
    is_deleted: AtomicBool,
    /// Number of holds. It rises under the shared lock alone.
    holds: AtomicUsize,
    /// The greatest number of an inode before anything was changed.
    first_highest: Option<u64>,
    /// The number of the next inode, once it has been looked up.
    next_number: Mutex<Option<u64>>,
}

/// Permission to change a subvolume. Holders of the shared lock may; an operation that forbids it waits for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteAccess {
    pub(crate) is_read_only: bool,
    /// True if nothing of it can be used any more: it is deleted, and nothing of it is open.
    pub(crate) is_gone: bool,
}

impl Default for SubvolumeTable {
    fn default() -> Self {
        Self(RwLock::new(Rank::SubvolumeTable, IdMap::default()))
    }
}

impl SubvolumeTable {
    pub(crate) fn get(&self, pool: &Pool, id: RootId) -> Result<Arc<SubvolumeState>, FsError> {
        if let Some(state) = self.0.read().get(&id) {
            return Ok(Arc::clone(state));
        }
        // The lock is held over the look, so that a deletion can't come between it and the entry.
        let mut known = self.0.write();
        if let Some(state) = known.get(&id) {
            return Ok(Arc::clone(state));
        }
        let Some((_, item)) = pool.root_item(id)?.filter(|_| id.is_file_tree()) else {
            return Err(FsError::NoSubvolume(id));
        };
        let flags = item.root_flags();
        if item.refs.get() == 0 || flags.contains(RootFlags::DEAD) {
            return Err(FsError::DeletedSubvolume(id));
        }
        let access = WriteAccess { is_read_only: flags.contains(RootFlags::RDONLY), is_gone: false };
        let access = RwLock::new(Rank::SubvolumeAccess, access);
        let next_number = Mutex::new(Rank::NextInode, None);
        let tree = pool.tree(id)?;
        // What is only read may be damaged there.
        let is_writable = pool.read_only_reason().is_none();
        let first_highest = if is_writable { highest_number(pool, &tree)? } else { None };
        let (is_deleted, holds) = (AtomicBool::new(false), AtomicUsize::new(0));
        let state = Arc::new(SubvolumeState { tree, access, is_deleted, holds, first_highest, next_number });
        known.insert(id, Arc::clone(&state));
        Ok(state)
    }

    /// A subvolume, if it is in use.
    pub(crate) fn find(&self, id: RootId) -> Option<Arc<SubvolumeState>> {
        self.0.read().get(&id).map(Arc::clone)
    }

    /// Forgets a subvolume that is deleted.
    pub(crate) fn forget(&self, id: RootId) {
        self.0.write().remove(&id);
    }
}

impl SubvolumeState {
    /// Its tree.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Its place among the subvolumes that an operation holds: by ascending id.
    fn key(&self) -> u128 {
        self.tree.id().get().into()
    }

    /// The right to change it, for one operation.
    #[track_caller]
    pub(crate) fn begin_write(&self) -> Result<RwLockReadGuard<'_, WriteAccess>, FsError> {
        let access = self.access.read_by_key(self.key());
        access.check(self.tree.id())?;
        Ok(access)
    }

    /// The right to finish work begun before it became read-only: contents written back, orphans removed. Not to be
    /// taken by a thread that has the right to write already.
    #[track_caller]
    pub(crate) fn begin_upkeep(&self) -> Result<RwLockReadGuard<'_, WriteAccess>, FsError> {
        let access = self.access.read_by_key(self.key());
        access.check_there(self.tree.id())?;
        Ok(access)
    }

    /// Keeps the subvolume from being deleted, and its permission from changing, meanwhile.
    #[track_caller]
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, WriteAccess> {
        self.access.read_by_key(self.key())
    }

    /// The right to change the permission; waits for operations that write.
    #[track_caller]
    pub(crate) fn exclusive(&self) -> RwLockWriteGuard<'_, WriteAccess> {
        self.access.write_by_key(self.key())
    }

    /// The right to change it that no other thread has meanwhile.
    #[track_caller]
    pub(crate) fn exclusive_write(&self) -> Result<RwLockWriteGuard<'_, WriteAccess>, FsError> {
        let access = self.exclusive();
        access.check(self.tree.id())?;
        Ok(access)
    }

    /// The same, whether it is read-only or not, as long as it is there.
    #[track_caller]
    pub(crate) fn exclusive_upkeep(&self) -> Result<RwLockWriteGuard<'_, WriteAccess>, FsError> {
        let access = self.exclusive();
        access.check_there(self.tree.id())?;
        Ok(access)
    }

    /// Returns true if it has lost its name. What was open of it at that moment is used on until it is closed.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Takes note that it has lost its name. The caller has it alone.
    pub(crate) fn note_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Refuses a subvolume that has lost its name: it holds and becomes no other one.
    pub(crate) fn require_name(&self) -> Result<(), FsError> {
        if self.is_deleted() { Err(FsError::DeletedSubvolume(self.tree.id())) } else { Ok(()) }
    }

    /// Refuses to make it writable, or to delete it, as long as it has a hold. To be asked with the exclusive lock held.
    pub(crate) fn require_no_hold(&self) -> Result<(), FsError> {
        match self.holds.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(FsError::HeldSubvolume(self.tree.id())),
        }
    }

    /// Counts a hold of it; false if it is writable.
    pub(crate) fn count_hold(&self) -> Result<bool, FsError> {
        let access = self.begin_upkeep()?;
        self.require_name()?;
        if access.is_read_only {
            self.holds.fetch_add(1, Ordering::AcqRel);
        }
        Ok(access.is_read_only)
    }

    /// Ends a hold that was counted.
    pub(crate) fn end_hold(&self) {
        let ended =
            self.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, |holds| holds.checked_sub(1));
        assert!(ended.is_ok(), "a hold of subvolume {} ends that was not counted", self.tree.id());
    }

    /// A number that no inode has, or ever had since the filesystem was opened: the log, and the last commit, may have the
    /// inode that had it before.
    pub(crate) fn new_number(&self, pool: &Pool) -> Result<ObjectId, FsError> {
        let mut next = self.next_number.lock();
        let number = match *next {
            Some(number) => number,
            None => {
                let highest = self.first_highest.max(highest_number(pool, &self.tree)?);
                highest.map_or(ObjectId::FIRST_FREE.get(), |last| last + 1)
            }
        };
        if number > ObjectId::LAST_FREE.get() {
            return Err(TreeError::NoSpace("inode numbers".to_owned()).into());
        }
        *next = Some(number + 1);
        Ok(ObjectId::new(number))
    }
}

impl WriteAccess {
    fn check(self, id: RootId) -> Result<(), FsError> {
        self.check_there(id)?;
        if self.is_read_only { Err(FsError::ReadOnlySubvolume(id)) } else { Ok(()) }
    }

    fn check_there(self, id: RootId) -> Result<(), FsError> {
        if self.is_gone { Err(FsError::DeletedSubvolume(id)) } else { Ok(()) }
    }
}

/// The greatest number among those of files and subvolumes that a tree has items of.
pub(crate) fn highest_number(pool: &Pool, tree: &Arc<Tree>) -> Result<Option<u64>, FsError> {
    let mut cursor = pool.cursor(tree, Readahead::None);
    cursor.seek_last(&Key::new(ObjectId::LAST_FREE, KeyType(u8::MAX), u64::MAX))?;
    Ok(cursor.key().map(|key| key.objectid.get()).filter(|number| *number >= ObjectId::FIRST_FREE.get()))
}
