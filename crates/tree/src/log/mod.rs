//! State of the log of the running transaction; the essay on logs is in `log_writer`.

mod gathering;
pub(crate) mod holders;
pub(crate) mod turn;
mod verify;

use crate::histogram::Histogram;
use crate::histogram::{HistogramCounts, Timing};
use crate::space::Space;
use crate::store::Store;
use crate::tree::Tree;
use brindle_ondisk::{Generation, Logical, RootId};
use brindle_sync::atomic::{AtomicU64, Ordering};
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank, Ranked};
use brindle_volume::DeviceSet;
use holders::LogHolders;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The log of the running transaction.
#[derive(Debug)]
pub(crate) struct Log {
    state: Mutex<LogState>,
    /// Held while items are prepared, if that is told to be locked.
    pub(crate) preparation: Mutex<()>,
    /// Told when a sync has ended, or what syncs must not run beside.
    turn_ended: Condvar,
    /// Told to the holder of the turn: another caller has come, or something that syncs must not run beside.
    called: Condvar,
    /// Until this transaction is durable, nothing is logged.
    unfit: AtomicU64,
    statistics: Mutex<LogStatistics>,
    /// By [`SyncMeasure`].
    histograms: [Histogram; SyncMeasure::ALL.len()],
}

/// State of a log.
#[derive(Debug, Default)]
pub(crate) struct LogState {
    /// The transaction whose changes are logged.
    pub(crate) generation: Generation,
    /// Devices that hold what was synced.
    pub(crate) holders: Option<LogHolders>,
    /// The log trees, by subvolume.
    pub(crate) trees: BTreeMap<RootId, Arc<Tree>>,
    /// The tree of log trees.
    pub(crate) roots: Option<Arc<Tree>>,
    /// The subvolumes as of the last commit; `None` for what was none.
    pub(crate) committed: HashMap<RootId, Option<Arc<Tree>>>,
    /// Number of syncs begun, of this log and of those before: the next one takes along everything entered now.
    pub(crate) begun: u64,
    /// The number of the last one that is durable, counted from 1.
    pub(crate) synced: u64,
    /// Devices with data that was entered since: the next sync flushes them.
    pub(crate) data_on: DeviceSet,
    /// Callers that wait for the sync of an even number, and for that of an odd one: two at most are to come.
    pub(crate) callers: [u64; 2],
    /// Turns of syncs.
    turns: turn::Turns,
}

impl LogState {
    /// State after the end of the log: no sync of it is to come.
    fn ended(&mut self) -> Self {
        let turns = std::mem::take(&mut self.turns);
        Self { begun: self.begun, synced: self.begun, turns, ..Self::default() }
    }

    /// Callers that wait for a sync.
    fn callers(&mut self, number: u64) -> &mut u64 {
        &mut self.callers[usize::from(number % 2 != 0)]
    }
}

/// Receipt for an entry in the log: it is durable with this sync, or this transaction. The greater of two covers both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTicket {
    pub(crate) generation: Generation,
    pub(crate) number: u64,
}

/// Reason for which an fsync became a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlogged {
    /// Nothing is to be logged (`notreelog`).
    Off,
    /// The inode has items that no log holds.
    Kind,
    /// Subvolumes have got or lost a name.
    Names,
    /// Changes of its extents are unknown, or must not be logged.
    Extents,
    /// Chunks or devices have changed, or data was moved, or a snapshot made.
    Layout,
    /// The log has no room, or has grown large.
    Space,
    /// A device did not take it.
    Devices,
}

impl Unlogged {
    /// All of them, in the order of [`LogStatistics::commits`].
    pub const ALL: [Self; 7] =
        [Self::Off, Self::Kind, Self::Names, Self::Extents, Self::Layout, Self::Space, Self::Devices];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Kind => "kind",
            Self::Names => "names",
            Self::Extents => "extents",
            Self::Layout => "layout",
            Self::Space => "space",
            Self::Devices => "devices",
        }
    }
}

/// Measured property of syncs, each with a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMeasure {
    /// Time of an fsync or another sync of a file or directory, in microseconds, whether by the log or by a commit.
    Time,
    /// Time for which an fsync that wrote the log kept others from writing it, in microseconds.
    LockHeld,
    /// Time for which an entry kept others from being made, in microseconds.
    EntryHeld,
    /// Fsyncs that one write of the log was for.
    Callers,
    /// Size of the blocks of one write of the log, in bytes, each counted once.
    Bytes,
}

impl SyncMeasure {
    /// All of them, in the order of [`Pool::sync_histograms`].
    pub const ALL: [Self; 5] = [Self::Time, Self::LockHeld, Self::EntryHeld, Self::Callers, Self::Bytes];

    /// Name with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "sync_us",
            Self::LockHeld => "lock_held_us",
            Self::EntryHeld => "entry_held_us",
            Self::Callers => "fsyncs_per_log",
            Self::Bytes => "log_bytes",
        }
    }
}

/// Counters of the log of a pool since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Number of times a log was written.
    pub syncs: u64,
    /// Fsyncs that it was written for.
    pub fsyncs: u64,
    /// Items that they entered.
    pub items: u64,
    /// Blocks written, each counted once whatever the number of its copies.
    pub blocks: u64,
    /// Runs of adjacent places that they made up: each is a write of each copy.
    pub runs: u64,
    /// Fsyncs that were commits, by [`Unlogged`].
    pub commits: [u64; Unlogged::ALL.len()],
}

impl Default for Log {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            preparation: Mutex::new(Rank::LogPreparation, ()),
            turn_ended: Condvar::new(),
            called: Condvar::new(),
            unfit: AtomicU64::new(0),
            statistics: Mutex::default(),
            histograms: Default::default(),
        }
    }
}

impl Ranked for LogState {
    const RANK: Rank = Rank::LogState;
}

impl Ranked for LogStatistics {
    const RANK: Rank = Rank::LogStatistics;
}

impl Log {
    /// True if a panic has interrupted a change of the log.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned() || self.state().trees.values().any(|tree| tree.is_poisoned())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    /// Returns true if something was logged since the last commit.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.state().trees.is_empty()
    }

    /// Until a transaction is durable, nothing is logged.
    pub(crate) fn forbid(&self, generation: Generation) {
        self.unfit.fetch_max(generation.get(), Ordering::AcqRel);
    }

    pub(crate) fn is_forbidden(&self, generation: Generation) -> bool {
        self.unfit.load(Ordering::Acquire) >= generation.get()
    }

    /// Ends the log: the transaction is being committed, with everything logged, and has no other participants. Syncs are
    /// kept away.
    pub(crate) fn end(&self, store: &Store, space: &Space) {
        let mut state = self.state();
        let blocks = std::mem::take(&mut *store.unwritten().log.write());
        if let Some(alone) = state.holders.as_ref().map(LogHolders::alone).filter(|alone| !alone.is_empty()) {
            let sealed = |at: Logical| store.seal(at, blocks.get(&at)?).ok();
            store.volume().note_log_alone(alone, sealed);
        }
        for at in blocks.keys() {
            space.extent_freed(*at, store.nodesize().into(), false);
        }
        *state = state.ended();
    }

    /// Counters of the log.
    pub(crate) fn statistics(&self) -> LogStatistics {
        *self.counts()
    }

    /// Histograms of syncs since the pool was opened.
    pub(crate) fn histograms(&self) -> [HistogramCounts; SyncMeasure::ALL.len()] {
        SyncMeasure::ALL.map(|of| self.histogram(of).counts())
    }

    /// Counts the time of a sync, which ends when the answer is dropped.
    pub(crate) fn time_sync(&self) -> Timing<'_> {
        self.histogram(SyncMeasure::Time).time()
    }

    /// An fsync was a commit.
    pub(crate) fn count_unlogged(&self, why: Unlogged) {
        self.counts().commits[why as usize] += 1;
    }

    pub(crate) fn histogram(&self, of: SyncMeasure) -> &Histogram {
        &self.histograms[of as usize]
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, LogStatistics> {
        self.statistics.lock()
    }
}
