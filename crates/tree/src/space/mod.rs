//! Space: block groups, what of them is free, taken or pinned, and chunks made and returned.
//!
//! The life of an extent: *free* → *reserved* (taken by one owner) → *used* (it has an item in the extent tree)
//! → *pinned* (its item is gone, but the last durable transaction still has it, or a reader may
//! ([`readers`]) still read it) → *free*. What is given up before it
//! has an item goes from reserved to pinned, or straight back if nothing ever pointed to it.
//!
//! Invariants:
//! - What is free in memory is free in the last durable transaction and in the running one: it may be overwritten.
//! - The free space tree of a transaction has, for each block group, exactly what no extent item holds, superblocks
//!   included, which in memory are never free.
//! - Metadata space is promised before an operation begins (see `metadata`), data space before data is accepted, so
//!   that nothing runs out of space later.
//! - A chunk serves as soon as it is made; its items come with the next commit, before which nothing in it is reached
//!   from a superblock. What an empty one took of devices is free when its removal is durable.
//!
//! Free ranges are looked up block group by block group, when first something is to be taken from one; of each that
//! was looked up they stay in memory, about 100 bytes a range, a million ranges at the
//! most after a commit (then those of block groups that can be looked up again are forgotten). Without a (valid) free space tree they come from the
//! extent tree, and none is written; the kernel makes it anew.
//!
//! Locks: `loading` before `state`. Operations that may look up free ranges assert that the caller holds no lock from `loading` on,
//! whether or not there is anything to look up. Nothing is read or written with `state` locked. With a tree locked, only functions may be called that
//! do not read trees, as each one says.

pub(crate) mod allocate;
pub(crate) mod chunks;
mod classes;
pub(crate) mod close;
pub(crate) mod data;
mod delta;
mod device;
mod discard;
mod estimate;
pub(crate) mod free_space;
pub(crate) mod group;
pub(crate) mod load;
pub(crate) mod log_reserve;
pub(crate) mod membership;
pub(crate) mod metadata;
pub(crate) mod pins;
pub(crate) mod readers;
pub(crate) mod recount;
pub(crate) mod renumber;
mod replace;
mod reserve;
mod shrink;
pub(crate) mod state;
pub(crate) mod summary;
mod superblocks;
mod tiers;
pub(crate) mod unwritten;
mod verify;
pub(crate) mod writeback_space;
pub(crate) mod writeback_tier;

#[cfg(test)]
mod tests;

use crate::options::Clock;
use crate::options::DiscardMode;
use pins::Pinned;
use std::fmt;
use std::sync::Arc;

use crate::error::TreeError;
use crate::options::WriterOptions;
use crate::store::Store;
use brindle_interval::{ByLength, Interval, IntervalSet};
use brindle_ondisk::{Incompat, Key, KeyType, Logical, ObjectId, RootId};
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank};
use readers::Readers;
use state::State;
use zerocopy::IntoBytes;

/// Ranges in which room is looked for. About 100 bytes of memory a range.
type FreeRanges = IntervalSet<u64, ByLength<u64>>;

/// Blocks that one changed item may make dirty: a path of a tree of three levels, and a split.
pub(crate) const BLOCKS_PER_ITEM: u64 = 4;
/// Items that an operation of [`Urgency::Rescue`] may change for which there is always room.
pub const RESCUE_ITEMS: usize = 10;

/// The space of the pool.
pub(crate) struct Space {
    /// Taken before `state`.
    readers: Readers,
    state: Mutex<State>,
    /// A promise of metadata space was taken back.
    promise_ended: Condvar,
    /// Held while free ranges are read from the free space tree, or it is changed.
    loading: Mutex<()>,
    is_mixed: bool,
    has_free_space_tree: bool,
    block_group_tree: RootId,
    nodesize: u64,
    sectorsize: u64,
    discard: DiscardMode,
    clock: Clock,
}

/// A promise of metadata space, for one operation.
#[derive(Debug, Default)]
pub(crate) struct MetadataReservation {
    pub(crate) bytes: u64,
}

/// Urgency of a need of metadata space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Like any operation.
    #[default]
    Normal,
    /// The operation frees space, but may cost some first: it may take the reserve for that.
    Freeing,
    /// The operation gives back what it costs with the next commits, or adds space: it may take what no other may.
    Rescue,
}

impl Space {
    /// Reads the block groups and what of devices belongs to chunks, not what is free.
    pub(crate) fn load(store: &Store, options: &WriterOptions) -> Result<Self, TreeError> {
        let superblock = store.superblock();
        let space = Self {
            readers: Readers::default(),
            state: Mutex::new(Rank::Space, State::default()),
            promise_ended: Condvar::new(),
            loading: Mutex::new(Rank::SpaceLoad, ()),
            is_mixed: superblock.incompat().contains(Incompat::MIXED_GROUPS),
            has_free_space_tree: load::has_free_space_tree(store)
                || (options.recount.space && recount::makes_free_space_tree(store)),
            block_group_tree: store.block_group_tree(),
            nodesize: store.nodesize().into(),
            sectorsize: superblock.sectorsize.get().into(),
            discard: options.discard,
            clock: Arc::clone(&options.clock),
        };
        let mut state = space.load_state(store, options)?;
        let has_empty = state.groups().any(group::Group::is_empty);
        state.may_remove = has_empty;
        if store.volume().is_writable() {
            space.announce(&state);
            state.tell_expendable(store);
        }
        *space.lock() = state;
        Ok(space)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// True if a panic has interrupted a change of the state.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned() || self.loading.is_poisoned() || self.readers.is_poisoned()
    }

    /// Keeps the free space tree from being read while it is changed.
    pub(crate) fn lock_free_space(&self) -> MutexGuard<'_, ()> {
        self.loading.lock()
    }

    /// Returns true if there is a free space tree.
    pub(crate) fn has_free_space_tree(&self) -> bool {
        self.has_free_space_tree
    }

    /// The tree that has the items of block groups.
    pub(crate) fn block_group_tree(&self) -> RootId {
        self.block_group_tree
    }

    /// Contents of the superblock's array of system chunks, if that has changed since the pool was opened.
    pub(crate) fn system_chunk_array(&self) -> Option<Vec<u8>> {
        let state = self.lock();
        if !state.system_chunks_changed {
            return None;
        }
        let key = |start| Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start);
        let pairs = state.system_chunks.iter().map(|(start, item)| [key(*start).as_bytes(), item].concat());
        Some(pairs.flatten().collect())
    }

    /// The transaction is durable: what it has freed is free, as soon as no reader without a lock may still read it.
    pub(crate) fn unpin(&self, store: &Store, pinned: Pinned) {
        self.release_when_unread(store, pinned);
        // Trees grow and shrink; if they can't be looked at now, the next operation will hear of it.
        if let Ok(sizes) = self.tree_sizes(store) {
            self.lock().sizes = sizes;
        }
        // So can free ranges for the next log.
        if let Err(error) = self.look_up_for_log(store) {
            tracing::debug!("no free space was looked up for the log: {error}");
        }
    }

    /// Takes a promise back.
    #[expect(clippy::needless_pass_by_value, reason = "a promise that was taken back is none any more")]
    pub(crate) fn release_metadata(&self, reservation: MetadataReservation) {
        // A destructor's call; the count is whole whatever else is not.
        let mut state = self.state.lock_after_panic();
        state.promised_metadata = state.promised_metadata.saturating_sub(reservation.bytes);
        if state.waiting_for_promises > 0 {
            drop(state);
            self.promise_ended.notify_all();
        }
    }

    /// Bytes in use, for the superblock.
    pub(crate) fn bytes_used(&self) -> u64 {
        let state = self.lock();
        state.groups().map(|group| group.used).sum()
    }
}

/// The addresses of an extent; all to the end of the logical space if its length passes that.
fn interval(start: Logical, length: u64) -> Interval {
    let start = start.get();
    Interval { start, end: start.saturating_add(length) }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("state", &self.state).finish_non_exhaustive()
    }
}
