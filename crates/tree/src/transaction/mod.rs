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

mod ages;
mod assign;
pub(crate) mod commit;
pub(crate) mod exclusive;
mod gate;
mod open;
pub(crate) mod options;
pub(crate) mod pressure;
mod publish;
mod roots;
pub(crate) mod statistics;
pub(crate) mod stop;
mod superblock;
mod verify;

use exclusive::Exclusive;
use options::WriterOptions;
use pressure::PressureListener;
use statistics::CommitStatistics;
use stop::Inside;
use stop::StopOnPanic;

use crate::editor::Editor;
use crate::error::TreeError;
use crate::log::Log;
use crate::pool::Pool;
use crate::refs::delayed::DelayedRefs;
use crate::space::{MetadataReservation, Space, Urgency};
use crate::statistics::Statistics;
use crate::tree::virtual_address;
use brindle_ondisk::{Generation, IdMap, Incompat, Logical, Node};
use brindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use brindle_sync::{Mutex, RwLock};
use gate::Gate;
use pressure::{Degree, Pressure};
use publish::SeriesState;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Blocks that one changed item may make dirty: a path of a tree of three levels, and a split.
const BLOCKS_PER_ITEM: u64 = 4;
/// Number of attempts to reserve metadata space, with a commit in between.
const RESERVE_TRIES: usize = 8;

/// State that a writable pool has on top of one that is only read.
pub(crate) struct Writer {
    pub(crate) refs: DelayedRefs,
    pub(crate) space: Space,
    pub(crate) statistics: Statistics,
    pub(crate) pressure: Pressure,
    pub(crate) log: Log,
    gate: Gate,
    next_virtual: AtomicU64,
    /// Blocks that are final and not written yet.
    frozen: RwLock<IdMap<Logical, Arc<Node>>>,
    /// Held during a commit, and by callers that need none to run.
    pub(crate) commit: Mutex<Durable>,
    /// The generation that is durable, for readers without the commit lock.
    durable: AtomicU64,
    /// Features that the next superblock is to have.
    pub(crate) features: Mutex<Incompat>,
    /// The label that the next superblock is to have, if another.
    label: Mutex<Option<Box<[u8; 256]>>>,
    /// True if the copies of the superblock behind the first have the log that the first has.
    pub(crate) copies_are_current: AtomicBool,
    series: SeriesState,
    /// Counters of commits.
    commits: Mutex<CommitStatistics>,
    /// The operation of which there is one at a time.
    exclusive: Exclusive,
    /// The log that the pool has is not in any transaction yet: none may be committed, for that would give it up.
    pub(crate) waits_for_log: AtomicBool,
    /// Reason for which nothing is written any more.
    aborted: OnceLock<Arc<str>>,
    pub(crate) options: WriterOptions,
}

/// Durable state.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) generation: Generation,
}

impl Writer {
    /// An address for a block that has no place yet.
    pub(crate) fn next_virtual(&self, nodesize: u32) -> Logical {
        virtual_address(self.next_virtual.fetch_add(1, Ordering::Relaxed), nodesize)
    }

    /// A block that is final and not written yet.
    pub(crate) fn frozen_node(&self, at: Logical) -> Option<Arc<Node>> {
        self.frozen.read().get(&at).map(Arc::clone)
    }

    /// Ends all writing.
    fn abort(&self, error: &dyn fmt::Display) {
        let why: Arc<str> = error.to_string().into();
        if self.aborted.set(Arc::clone(&why)).is_ok() {
            tracing::error!("the pool is read-only from now on, as of its last commit: {why}");
        }
    }

    /// The generation that is durable.
    pub(crate) fn durable_generation(&self) -> Generation {
        Generation::new(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn check_alive(&self) -> Result<(), TreeError> {
        match self.aborted.get() {
            Some(why) => Err(TreeError::ReadOnly(Arc::clone(why))),
            None => Ok(()),
        }
    }
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
        self.editor.writer.space.release_metadata(std::mem::take(&mut self.reservation));
    }
}

impl Pool {
    /// Takes part in the running transaction. Waits while one is being closed; [`TreeError::NoSpace`] if there is
    /// no room for what the operation needs.
    pub fn join(&self, need: Need) -> Result<Transaction<'_>, TreeError> {
        let writer = self.writer()?;
        let _stops = StopOnPanic::of(writer);
        writer.check_alive()?;
        match writer.pressure.degree() {
            Degree::Low => {}
            Degree::Noticeable => writer.pressure.tell(),
            Degree::Full => self.commit()?,
        }
        let nodesize = u64::from(self.volume().tree_context().nodesize);
        let bytes = brindle_ondisk::to_u64(need.items) * BLOCKS_PER_ITEM * nodesize;
        let reservation = self.reserve_metadata(writer, bytes, need.urgency)?;
        let inside = writer.enter();
        let editor = Editor { pool: self, writer, generation: inside.generation() };
        let transaction = Transaction { editor, reservation, _inside: inside };
        writer.check_alive()?;
        Ok(transaction)
    }

    /// Promises metadata space, after a commit if that helps: what is pinned is free then. Others may be faster, so
    /// that it takes several; an operation that frees space does not give up because of them.
    fn reserve_metadata(
        &self,
        writer: &Writer,
        bytes: u64,
        urgency: Urgency,
    ) -> Result<MetadataReservation, TreeError> {
        let mut tries = 0;
        while tries < RESERVE_TRIES {
            if let Some(reservation) = writer.space.reserve_metadata(self, bytes, urgency)? {
                return Ok(reservation);
            }
            self.commit()?;
            writer.space.wait_for_readers();
            if urgency == Urgency::Normal || !writer.space.wait_for_others() {
                tries += 1;
            }
        }
        Err(TreeError::NoSpace("metadata".to_owned()))
    }

    /// Runs `act` while nothing else changes and no commit can come between: needed by a snapshot. An error must
    /// leave everything as it was; a caller that fails half way calls [`abort`](Self::abort).
    pub fn exclusively<T>(
        &self,
        act: impl FnOnce(&Editor<'_>) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        let writer = self.writer()?;
        let _stops = StopOnPanic::of(writer);
        let _durable = writer.lock_commit()?;
        let _no_syncs = writer.log.lock_sync();
        let closed = writer.close_gate();
        self.check_sound(writer)?;
        // What is done now may move what files have, and a log would not know.
        writer.log.forbid(closed.generation());
        act(&Editor { pool: self, writer, generation: closed.generation() })
    }

    /// The same, with metadata space reserved for `blocks` changed blocks.
    pub(crate) fn exclusively_with<T>(
        &self,
        blocks: usize,
        act: impl FnOnce(&Editor<'_>) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        let writer = self.writer()?;
        let bytes = brindle_ondisk::to_u64(blocks) * u64::from(self.nodesize());
        let reservation = self.reserve_metadata(writer, bytes, Urgency::Normal)?;
        let done = self.exclusively(act);
        writer.space.release_metadata(reservation);
        done
    }

    /// Sets the listener that is called when changed blocks take enough memory that a commit should begin. Operations
    /// wait for a commit when they take twice as much, with or without a listener. The first listener stays.
    pub fn on_pressure(&self, listener: PressureListener) -> Result<(), TreeError> {
        self.writer()?.pressure.listen(listener);
        Ok(())
    }

    /// Returns true if changed blocks take that much memory.
    pub fn is_under_pressure(&self) -> bool {
        self.writer().is_ok_and(|writer| writer.pressure.degree() != Degree::Low)
    }

    /// Ends all writing, as an error inside a commit does: for an operation that failed half way, and contents that
    /// the devices refused.
    pub fn abort(&self, error: &dyn fmt::Display) {
        if let Ok(writer) = self.writer() {
            writer.abort(error);
        }
    }

    /// Reason for which nothing can be written (any more); `None` if it can.
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        match self.writer() {
            Ok(writer) => writer.aborted.get().map(Arc::clone),
            Err(_) => Some("it was opened to be read only".into()),
        }
    }

    /// Counters of commits since the pool was opened: zero if it is only read.
    pub fn commit_statistics(&self) -> CommitStatistics {
        let of_writer = |writer: &Writer| {
            let commits = *writer.commits.lock();
            CommitStatistics { log: writer.log.statistics(), ..commits }
        };
        self.writer().map_or_else(|_| CommitStatistics::default(), of_writer)
    }

    /// Gives the pool another label, with zeros behind it, from the next commit on.
    pub fn set_label(&self, label: &[u8; 256]) -> Result<(), TreeError> {
        let writer = self.writer()?;
        let _stops = StopOnPanic::of(writer);
        writer.check_alive()?;
        *writer.label.lock() = Some(Box::new(*label));
        Ok(())
    }

    /// Returns true if nothing that is written lasts.
    pub fn is_transient(&self) -> bool {
        self.writer().is_ok_and(|writer| writer.options.is_transient)
    }

    pub(crate) fn writer(&self) -> Result<&Writer, TreeError> {
        let read_only = || TreeError::ReadOnly("it was opened to be read only".into());
        self.writer_slot().get().ok_or_else(read_only)
    }
}

impl Editor<'_> {
    /// Says that the pool uses a feature from now on; the next superblock has its bit.
    pub fn use_feature(&self, feature: Incompat) {
        *self.writer.features.lock() |= feature;
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("gate", &self.gate)
            .field("aborted", &self.aborted)
            .finish_non_exhaustive()
    }
}
