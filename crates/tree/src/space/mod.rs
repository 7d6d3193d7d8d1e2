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
mod chunks;
pub(crate) mod close;
pub(crate) mod data;
mod delta;
mod device;
mod discard;
mod estimate;
pub(crate) mod free_space;
pub(crate) mod group;
mod load;
mod log_reserve;
pub(crate) mod membership;
pub(crate) mod metadata;
pub(crate) mod pins;
pub(crate) mod readers;
pub(crate) mod renumber;
mod replace;
mod shrink;
mod state;
pub(crate) mod summary;
mod superblocks;
mod tiers;
mod verify;
pub(crate) mod write_back;
pub(crate) mod writeback_tier;

#[cfg(test)]
mod tests;

use crate::options::Clock;
use crate::options::DiscardMode;
use pins::Pinned;
use std::fmt;
use std::sync::Arc;

use crate::editor::Editor;
use crate::error::TreeError;
use crate::options::WriterOptions;
use crate::store::Store;
use brindle_interval::{ByLength, Interval, IntervalSet};
use brindle_ondisk::{BlockGroupType, Incompat, Key, KeyType, Logical, ObjectId, RootId};
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank};
use metadata::Load;
use readers::Readers;
use state::State;
use zerocopy::IntoBytes;

/// Ranges in which room is looked for. About 100 bytes of memory a range.
type FreeRanges = IntervalSet<u64, ByLength<u64>>;

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
    /// The operation frees space: it may take the reserve for that.
    Freeing,
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
            has_free_space_tree: load::has_free_space_tree(store),
            block_group_tree: load::block_group_tree(store),
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

    /// Returns true if there is anything to write back.
    pub(crate) fn has_changes(&self) -> bool {
        self.has_work()
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

    /// Looks up free space until [`allocate_blocks`](Self::allocate_blocks) can serve everything that is changed so
    /// far: call it before each round of a commit, with no tree locked, for it reads trees.
    pub(crate) fn prepare(&self, store: &Store, load: Load) -> Result<(), TreeError> {
        self.look_up_for_commit(store, load)
    }

    /// Allocates places for `count` tree blocks, in as few and as long runs as there are, behind `hint` (the last
    /// block before them) if possible. Reads no tree, so that it may be called with trees locked.
    pub(crate) fn allocate_blocks(
        &self,
        store: &Store,
        content: BlockGroupType,
        count: usize,
        hint: Option<Logical>,
    ) -> Result<Vec<Logical>, TreeError> {
        self.take_blocks(store, content, count, hint)
    }

    /// Allocates places for the `count` blocks that a sync of a log writes, in one run if there is one. Reads no tree.
    pub(crate) fn allocate_log_blocks(&self, store: &Store, count: usize) -> Result<Vec<Logical>, TreeError> {
        self.take_log_blocks(store, count)
    }

    /// Gives back the last of the places that were allocated for a sync, which nothing refers to or was written to.
    pub(crate) fn give_back_log_blocks(&self, places: &[Logical]) {
        self.give_back_log_places(places);
    }

    /// Takes a range that is known only to a log, if all of it is free, and in a block group of that kind. Reads
    /// trees.
    pub(crate) fn claim(
        &self,
        store: &Store,
        kind: BlockGroupType,
        start: Logical,
        length: u64,
    ) -> Result<bool, TreeError> {
        self.take_exactly(store, kind, interval(start, length))
    }

    /// An extent got its item in the extent tree; it was allocated by [`allocate_blocks`](Self::allocate_blocks) or
    /// [`Pool::reserve_extent`].
    pub(crate) fn extent_recorded(&self, start: Logical, length: u64) {
        self.record(interval(start, length));
    }

    /// Pins the space of an extent that is about to lose its item in the extent tree (`was_recorded`; call it before
    /// the item is removed, so that a lookup of free space never takes it for free), or is given up without ever
    /// having had one.
    pub(crate) fn extent_freed(&self, start: Logical, length: u64, was_recorded: bool) {
        self.pin(interval(start, length), was_recorded);
    }

    /// Brings free space tree, block group items, chunks and device items up to date; whether anything was to do.
    pub(crate) fn write_back(&self, editor: &Editor<'_>) -> Result<bool, TreeError> {
        self.write_changes(editor)
    }

    /// The transaction is frozen: what it has freed.
    pub(crate) fn freeze(&self) -> Pinned {
        self.freeze_pins()
    }

    /// The transaction has no superblocks of its own: the next one frees what it has freed.
    pub(crate) fn keep_pinned(&self, pinned: Pinned) {
        self.keep_pins(pinned);
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

    /// Promises metadata space for `bytes` of changed blocks on top of everything promised and dirty so far.
    /// `Ok(None)`: not now; a commit may help, and another one if others were faster. [`TreeError::NoSpace`]: it does
    /// not.
    pub(crate) fn reserve_metadata(
        &self,
        store: &Store,
        load: Load,
        bytes: u64,
        urgency: Urgency,
    ) -> Result<Option<MetadataReservation>, TreeError> {
        Rank::SpaceLoad.assert_free();
        self.promise(store, load, bytes, urgency)
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
