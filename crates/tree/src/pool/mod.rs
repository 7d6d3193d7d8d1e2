//! The pool: its store, and (of one that is written) its transactions.

pub(crate) mod quota;
mod settings;
mod space;
mod work;

use crate::changes::Changes;
use crate::devices::replace::interrupted;
use crate::error::TreeError;
use crate::options::{OpenOptions, WriterOptions};
use crate::pressure::{Pressure, PressureListener};
use crate::quota::state::Quotas;
use crate::root::TreeRoot;
use crate::space::Space;
use crate::space::recount::makes_free_space_tree;
use crate::statistics::Statistics;
use crate::store::Store;
use crate::transaction::exclusive::ExclusiveOperation;
use crate::transaction::roots::Roots;
use crate::transaction::statistics::CommitStatistics;
use crate::transaction::{Need, SoleEditor, Transaction, Transactions};
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::{RootId, to_usize};
use brindle_volume::{LeaseMode, Volume};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The reason that a pool gives which was opened to be read.
const NOT_WRITTEN: &str = "it was opened to be read only";

/// A pool whose trees are read and (if it was opened for that) changed by many threads at once.
#[derive(Debug)]
pub struct Pool {
    store: Arc<Store>,
    /// Empty if the pool is only read.
    transactions: OnceLock<Transactions>,
}

impl Deref for Pool {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Pool {
    /// Opens the pool that lies on `devices`: superblocks, then the chunk tree, after which every logical
    /// address can be read.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, TreeError> {
        Self::from_volume(Volume::open(devices, &options.volume)?, options.cache_bytes)
    }

    /// The pool of a volume whose chunks have not been read yet.
    pub(crate) fn from_volume(volume: Volume, cache_bytes: usize) -> Result<Self, TreeError> {
        let store = Arc::new(Store::from_volume(volume, cache_bytes)?);
        Ok(Self { store, transactions: OnceLock::new() })
    }

    /// Opens a pool to read and write it. Refuses what it could not keep whole: a log that the caller does not replay, a
    /// relocation of the kernel's that it does not end, a replacement that is under way.
    pub fn open_writable(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        writer: &WriterOptions,
    ) -> Result<Self, TreeError> {
        let mut of_volume = options.volume.clone();
        if writer.is_transient {
            of_volume.lease.mode = LeaseMode::Ignored;
        }
        let volume = Volume::open_writable(devices, &of_volume)?;
        let pool = Self::from_volume(volume, options.cache_bytes)?;
        pool.check_root_tree()?;
        pool.check_nothing_is_under_way(writer)?;
        pool.store.volume().take_lease()?;
        pool.store.volume().tell_sides(&writer.classes);
        let space = Arc::new(Space::load(&pool.store, writer)?);
        let statistics = Statistics::load(&pool.store)?;
        let pressure = Pressure::new(options.cache_bytes, to_usize(pool.nodesize().into()));
        let quotas = Quotas::load(&pool.store)?;
        let changes = Changes::new(Arc::clone(&space), statistics, quotas, pressure, writer);
        let transactions = Transactions::new(Arc::clone(&pool.store), changes, pool.has_log());
        pool.store.set_keeper(space);
        assert!(pool.transactions.set(transactions).is_ok(), "a pool is made writable once");
        if writer.recount.space && makes_free_space_tree(&pool.store) {
            pool.exclusively(|editor| Roots::of(editor).replant(RootId::FREE_SPACE_TREE).map(drop))?;
        }
        Ok(pool)
    }

    /// Takes part in the running transaction. Waits while one is being closed; [`TreeError::NoSpace`] if there is
    /// no room for what the operation needs.
    pub fn join(&self, need: Need) -> Result<Transaction<'_>, TreeError> {
        self.transactions()?.join(need)
    }

    /// Makes everything durable that was changed before the call. Callers that come together share a commit.
    pub fn commit(&self) -> Result<(), TreeError> {
        self.transactions()?.commit()
    }

    /// Runs `act` while nothing else changes and no commit can come between: needed by a snapshot. An error must
    /// leave everything as it was; a caller that fails half way calls [`abort`](Self::abort).
    pub fn exclusively<T>(
        &self,
        act: impl FnOnce(&SoleEditor<'_>) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        self.transactions()?.exclusively(act)
    }

    /// Ends all writing, as an error inside a commit does: for an operation that failed half way, and contents that
    /// the devices refused.
    pub fn abort(&self, error: &dyn fmt::Display) {
        if self.transactions.get().is_some() {
            self.store.stop().abort(error);
        }
    }

    /// Ends all writing of a pool that its only user gives up, without a line in the log.
    pub fn give_up(&self, why: &str) {
        if self.transactions.get().is_some() {
            self.store.stop().give_up(why);
        }
    }

    /// Reason for which nothing can be written (any more); `None` if it can.
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        match self.transactions.get() {
            Some(_) => self.store.stop().reason(),
            None => Some(NOT_WRITTEN.into()),
        }
    }

    /// Counters of commits since the pool was opened: zero if it is only read.
    pub fn commit_statistics(&self) -> CommitStatistics {
        self.transactions.get().map_or_else(CommitStatistics::default, Transactions::commit_statistics)
    }

    /// Panics unless counts of space, changed blocks and the log agree with recounts: a costly check, for tests. No other
    /// thread uses the pool meanwhile. Of a pool that is only read, or whose writing has ended, nothing is asked.
    pub fn verify(&self) {
        if let Some(transactions) = self.transactions.get() {
            transactions.verify();
        }
    }

    /// Sets the listener that is called when changed blocks take enough memory that a commit should begin. Operations
    /// wait for a commit when they take twice as much, with or without a listener. The first listener stays.
    pub fn on_pressure(&self, listener: PressureListener) -> Result<(), TreeError> {
        self.transactions()?.on_pressure(listener);
        Ok(())
    }

    /// Returns true if changed blocks take that much memory.
    pub fn is_under_pressure(&self) -> bool {
        self.transactions.get().is_some_and(Transactions::is_under_pressure)
    }

    /// Gives the pool another label, with zeros behind it, from the next commit on.
    pub fn set_label(&self, label: &[u8; 256]) -> Result<(), TreeError> {
        self.transactions()?.set_label(label)
    }

    /// Returns true if nothing that is written lasts.
    pub fn is_transient(&self) -> bool {
        self.transactions.get().is_some_and(Transactions::is_transient)
    }

    /// Writes the superblock of the last commit to devices that sleep, and then to the others that all hold it: the pool is about
    /// to be closed.
    pub fn wake_devices(&self) -> Result<(), TreeError> {
        self.transactions()?.wake_devices()
    }

    /// Begins an operation of which there is one at a time, with its name for the callers that are refused meanwhile:
    /// [`TreeError::Busy`]. Waits for the end of one that yields.
    pub fn begin_exclusive(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        self.transactions()?.begin_exclusive(name)
    }

    /// Begins one that yields to others, and so does not begin while one runs: [`TreeError::Busy`].
    pub fn begin_yielding(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        self.transactions()?.begin_yielding(name)
    }

    /// Transactions of the pool, for an operation of it that runs.
    pub(crate) fn transactions_of(&self, alone: &ExclusiveOperation<'_>) -> Result<&Transactions, TreeError> {
        let transactions = self.transactions()?;
        assert!(transactions.runs(alone), "the operation is one of another pool");
        Ok(transactions)
    }

    /// Transactions of the pool.
    ///
    /// # Errors
    /// [`TreeError::ReadOnly`]: a pool that is only read.
    pub(crate) fn transactions(&self) -> Result<&Transactions, TreeError> {
        let read_only = || TreeError::ReadOnly(NOT_WRITTEN.into());
        self.transactions.get().ok_or_else(read_only)
    }

    /// Changes that no commit has made durable.
    pub(crate) fn changes(&self) -> Result<&Changes, TreeError> {
        Ok(self.transactions()?.changes())
    }

    fn check_nothing_is_under_way(&self, writer: &WriterOptions) -> Result<(), TreeError> {
        if !writer.recovers && TreeRoot::log_root_tree(&self.superblock()).is_some() {
            return Err(TreeError::UnderWay(
                "it has a log tree, with fsyncs after the last commit: mount it once, which replays the log",
            ));
        }
        if writer.is_transient {
            return Ok(());
        }
        if !writer.recovers && self.next_relocation_tree()?.is_some() {
            return Err(TreeError::UnderWay(
                "a relocation (balance, or removal of a device) was interrupted: mount it once, which ends it",
            ));
        }
        match interrupted(&self.store)?.filter(|_| !writer.cancels_replacement) {
            Some(item) => {
                let (devid, target) = (item.src_devid, self.store.volume().replacement_target());
                Err(TreeError::ReplacementInterrupted { devid, target })
            }
            None => Ok(()),
        }
    }
}
