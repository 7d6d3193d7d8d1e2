//! Transactions: many operations, one moment at which all of them are on disk.
//!
//! A pool has one *running* transaction; an operation takes part in it ([`Pool::join`]) while it changes trees. What
//! it changes lives in memory: blocks of the running transaction have virtual addresses, references wait in
//! `refs`, space is counted in `space`. [`Pool::commit`] makes a transaction durable, one at a time:
//!
//! 1. *Advance*: delayed references are applied while operations go on.
//! 2. *Close*: the gate closes, the operations inside finish. From here to step 4 nothing else changes.
//! 3. *Settle*, in rounds until nothing is left: blocks get addresses, tree by tree, level by level in the order of
//!    keys, so that siblings lie side by side; delayed references are applied; free space tree, block groups, chunks
//!    and devices are brought up to date; root items get the new roots. Each round changes blocks that the rounds
//!    before have copied already, so they end.
//! 4. *Freeze*: the blocks of the transaction become immutable and wait in `frozen`, the next transaction begins, the
//!    gate opens.
//! 5. *Write*: blocks in the order of their addresses, each past the tree checker once more; flush, and what devices
//!    failed to take once more; the first superblock of each device that takes part ([`publish`]); flush; its other ones,
//!    durable with the next flush: one copy is always whole.
//! 6. *Unpin*: what the transaction freed is free, once no reader is left that has looked it up before (`space/readers.rs`).
//!
//! A crash before the superblocks of step 5 leaves the pool of the last commit: nothing that it reaches has been
//! overwritten, for new blocks lie in space that was free, and what was freed since is pinned. Between the
//! superblocks of several devices either generation is whole. A device that is missing, or fails to take what it should,
//! is marked in the chunk tree; if that comes too late for the transaction, because it is settled, it gets no
//! superblocks: nothing is unpinned, and the next transaction is committed at once, in its place too. An error in
//! steps 1 to 5 ends all writing: the pool is read-only from then on, says why, and is on disk as of its last commit.
//!
//! A panic in the middle of a change does the same ([`stop`]).
//!
//! Locks are taken in the order of [`Rank`](brindle_sync::Rank): commit lock, gate, trees (subvolumes, then the tree of
//! roots, then the others), `refs`, `space`. Part in a transaction counts as a lock of the gate's rank, so builds with
//! debug assertions refuse to join twice at a time, and to commit while part of a transaction.

pub(crate) mod commit;
pub(crate) mod device_items;
pub(crate) mod exclusive;
mod gate;
pub(crate) mod placer;
mod publish;
mod replant;
mod reserve;
pub(crate) mod roots;
mod scrub;
pub(crate) mod space_items;
pub(crate) mod statistics;
pub(crate) mod stop;
mod superblock;
mod verify;
mod write_out;

use crate::changes::Changes;
use crate::editor::Editor;
use crate::error::TreeError;
use crate::pressure::{Degree, PressureListener};
use crate::space::metadata::Load;
use crate::space::{BLOCKS_PER_ITEM, MetadataReservation, Urgency};
use crate::stop::StopOnPanic;
use crate::store::Store;
use brindle_ondisk::Generation;
use brindle_ondisk::item::Timespec;
use brindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use brindle_sync::{Mutex, Rank};
use exclusive::Exclusive;
use gate::Gate;
use publish::SeriesState;
use statistics::CommitStatistics;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use stop::Inside;
use write_out::WriteOuts;

/// Transactions of a pool that is written: which one is running, and how it becomes durable.
pub(crate) struct Transactions {
    store: Arc<Store>,
    changes: Changes,
    gate: Gate,
    /// Held during a commit, and by callers that need none to run.
    commit: Mutex<Durable>,
    /// The generation that is durable, for readers without the commit lock.
    durable: AtomicU64,
    write_outs: WriteOuts,
    /// True if the copies of the superblock behind the first have the log that the first has.
    copies_are_current: AtomicBool,
    series: SeriesState,
    /// Counters of commits.
    commits: Mutex<CommitStatistics>,
    /// The operation of which there is one at a time.
    exclusive: Exclusive,
    /// The log that the pool has is not in any transaction yet: none may be committed, for that would give it up.
    waits_for_log: AtomicBool,
}

/// Editor in a transaction that nothing else takes part in.
pub struct SoleEditor<'p>(Editor<'p>);

impl<'p> Deref for SoleEditor<'p> {
    type Target = Editor<'p>;

    fn deref(&self) -> &Editor<'p> {
        &self.0
    }
}

/// Durable state.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) generation: Generation,
}

/// Needs of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Upper bound on the items that it inserts, changes or removes, each in a place of its own.
    pub items: usize,
    /// Urgency.
    pub urgency: Urgency,
}

impl Need {
    /// An operation that changes up to `items` items.
    pub const fn items(items: usize) -> Self {
        Self { items, urgency: Urgency::Normal }
    }

    /// An operation that changes up to `items` items and frees space.
    pub const fn freeing(items: usize) -> Self {
        Self { items, urgency: Urgency::Freeing }
    }

    /// An operation that changes up to `items` items and gets a full pool out of that state. There is room for
    /// [`RESCUE_ITEMS`](crate::RESCUE_ITEMS), whatever others have taken.
    pub const fn rescuing(items: usize) -> Self {
        Self { items, urgency: Urgency::Rescue }
    }
}

/// Part in the running transaction, which can't be committed until this is dropped.
#[derive(Debug)]
pub struct Transaction<'p> {
    editor: Editor<'p>,
    reservation: MetadataReservation,
    _inside: Inside<'p>,
}

impl<'p> Deref for Transaction<'p> {
    type Target = Editor<'p>;

    fn deref(&self) -> &Editor<'p> {
        &self.editor
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Part in the transaction ends with the last field, once the space is given back.
        self.editor.changes.space.release_metadata(std::mem::take(&mut self.reservation));
    }
}

impl Transactions {
    /// Transactions after the last commit. `waits_for_log` if the log that the pool has is not in any of them yet.
    pub(crate) fn new(store: Arc<Store>, changes: Changes, waits_for_log: bool) -> Self {
        let durable = store.superblock().generation;
        Self {
            store,
            changes,
            gate: Gate::new(Generation::new(durable.get() + 1)),
            commit: Mutex::new(Rank::Commit, Durable { generation: durable }),
            durable: durable.get().into(),
            // The first commit writes all.
            write_outs: WriteOuts::default(),
            copies_are_current: AtomicBool::new(true),
            series: SeriesState::default(),
            commits: Mutex::new(Rank::CommitStatistics, CommitStatistics::default()),
            exclusive: Exclusive::default(),
            waits_for_log: AtomicBool::new(waits_for_log),
        }
    }

    /// Blocks and trees.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The time, as new things get it.
    pub(crate) fn now(&self) -> Timespec {
        (self.changes.options.clock)()
    }

    /// Changes that no commit has made durable.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Pending changes, as far as space for them is concerned.
    pub(crate) fn load(&self) -> Load {
        self.changes.load(&self.store)
    }

    /// The right to change trees in a transaction, for a caller that takes part in it.
    pub(crate) fn editor(&self, generation: Generation) -> Editor<'_> {
        Editor { store: &self.store, changes: &self.changes, generation }
    }

    /// The generation that is durable.
    pub(crate) fn durable_generation(&self) -> Generation {
        Generation::new(self.durable.load(Ordering::Acquire))
    }

    /// The log that the pool has is part of the running transaction now.
    pub(crate) fn has_log_now(&self) {
        self.waits_for_log.store(false, Ordering::Release);
    }

    /// A sync of the log has changed first superblocks alone.
    pub(crate) fn copies_differ(&self) {
        self.copies_are_current.store(false, Ordering::Relaxed);
    }

    /// Takes part in the running transaction. Waits while one is being closed; [`TreeError::NoSpace`] if there is
    /// no room for what the operation needs.
    pub(crate) fn join(&self, need: Need) -> Result<Transaction<'_>, TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        self.store.stop().check()?;
        match self.changes.pressure.degree() {
            Degree::Low => {}
            Degree::Noticeable => self.changes.pressure.tell(),
            Degree::Full => self.commit()?,
        }
        let nodesize = u64::from(self.store.volume().tree_context().nodesize);
        let bytes = brindle_ondisk::to_u64(need.items) * BLOCKS_PER_ITEM * nodesize;
        let reservation = self.reserve_metadata(bytes, need.urgency)?;
        let inside = self.enter();
        let editor = self.editor(inside.generation());
        let transaction = Transaction { editor, reservation, _inside: inside };
        self.store.stop().check()?;
        Ok(transaction)
    }

    /// Runs `act` while nothing else changes and no commit can come between: needed by a snapshot. An error must
    /// leave everything as it was; a caller that fails half way calls [`abort`](Self::abort).
    pub(crate) fn exclusively<T>(
        &self,
        act: impl FnOnce(&SoleEditor<'_>) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        let durable = self.lock_commit()?;
        let _no_syncs = self.changes.log.keep_syncs_away(self.store.stop());
        let closed = self.close_gate(durable);
        self.check_sound()?;
        // What is done now may move what files have, and a log would not know.
        self.changes.log.forbid(closed.generation());
        act(&SoleEditor(self.editor(closed.generation())))
    }

    /// The same, with metadata space reserved for `blocks` changed blocks.
    pub(crate) fn exclusively_with<T>(
        &self,
        blocks: usize,
        urgency: Urgency,
        act: impl FnOnce(&SoleEditor<'_>) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        let bytes = brindle_ondisk::to_u64(blocks) * u64::from(self.store.nodesize());
        let reservation = self.reserve_metadata(bytes, urgency)?;
        let done = self.exclusively(act);
        self.changes.space.release_metadata(reservation);
        done
    }

    /// Sets the listener that is called when changed blocks take enough memory that a commit should begin. Operations
    /// wait for a commit when they take twice as much, with or without a listener. The first listener stays.
    pub(crate) fn on_pressure(&self, listener: PressureListener) {
        self.changes.pressure.listen(listener);
    }

    /// Returns true if changed blocks take that much memory.
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.changes.pressure.degree() != Degree::Low
    }

    /// Counters of commits since the pool was opened.
    pub(crate) fn commit_statistics(&self) -> CommitStatistics {
        let commits = *self.commits.lock();
        CommitStatistics { log: self.changes.log.statistics(), ..commits }
    }

    /// Gives the pool another label, with zeros behind it, from the next commit on.
    pub(crate) fn set_label(&self, label: &[u8; 256]) -> Result<(), TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        self.store.stop().check()?;
        *self.changes.label.lock() = Some(Box::new(*label));
        Ok(())
    }

    /// Returns true if nothing that is written lasts.
    pub(crate) fn is_transient(&self) -> bool {
        self.changes.options.is_transient
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("gate", &self.gate)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}
