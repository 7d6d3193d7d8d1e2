//! Fail-stop: no commit publishes what an error or a panic has left half changed.
//!
//! A change that ends half way leaves trees, space and references that contradict each other, though each block by
//! itself passes the tree checker. An operation that returns an error half way calls [`Pool::abort`]; a panic is noticed
//! here, in two ways:
//!
//! - *On the way out.* Part in a transaction, the closed gate and the commit itself end all writing when they are dropped
//!   by a thread that unwinds, before another thread enters, and so does the guard that operations of files and of devices
//!   hold ([`StopOnPanic`]): what they keep in memory may be half changed, though the trees are whole. So a commit that waits
//!   for the thread finds the pool stopped.
//! - *Before each commit begins, and before it settles* with the gate closed: a poisoned lock of trees, space or
//!   references tells of a panic outside any transaction.
//!
//! Until then an operation that needs a poisoned lock panics, too (`brindle_sync` says why), and what it had begun is
//! stopped by the first rule.
//!
//! The pool on disk stays that of the last commit and its log.

use super::gate::Gate;
use super::{Durable, Transactions};
use crate::error::TreeError;
use crate::stop::{PANIC, Stop, StopOnPanic};
use brindle_ondisk::Generation;
use brindle_sync::{HeldRank, MutexGuard, Rank};

/// Part in the running transaction: its commit waits until this is dropped.
#[derive(Debug)]
#[must_use = "part in the transaction lasts as long as it lives"]
pub(crate) struct Inside<'w> {
    gate: &'w Gate,
    stop: &'w Stop,
    generation: Generation,
    _rank: HeldRank,
}

impl Inside<'_> {
    /// The running transaction.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let _stops = StopOnPanic::of(self.stop);
        self.stop.abort_if_panicking();
        self.gate.leave();
    }
}

/// The lock of commits, held or lent: the right to close the gate.
pub(crate) trait CommitLock {}

impl CommitLock for MutexGuard<'_, Durable> {}
impl CommitLock for &MutexGuard<'_, Durable> {}

/// The closed gate of the running transaction: it opens when this is dropped, and then the lock is given back if it was held.
#[must_use = "the gate is closed as long as it lives"]
pub(crate) struct ClosedGate<'w, L: CommitLock> {
    gate: &'w Gate,
    stop: &'w Stop,
    generation: Generation,
    _rank: HeldRank,
    _lock: L,
}

impl<L: CommitLock> ClosedGate<'_, L> {
    /// The running transaction.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Makes the next transaction the running one.
    pub(crate) fn advance(&mut self) {
        self.generation = Generation::new(self.generation.get() + 1);
    }
}

impl<L: CommitLock> Drop for ClosedGate<'_, L> {
    fn drop(&mut self) {
        let _stops = StopOnPanic::of(self.stop);
        self.stop.abort_if_panicking();
        self.gate.open(self.generation);
    }
}

impl Transactions {
    /// The right to commit, unless writing has ended. A holder that panics stops the pool on its way out, so the lock may
    /// be entered after it to find that.
    #[track_caller]
    pub(crate) fn lock_commit(&self) -> Result<MutexGuard<'_, Durable>, TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        let durable = self.commit.lock_after_panic();
        self.store.stop().check()?;
        Ok(durable)
    }

    /// Takes part in the running transaction, once the gate is open.
    #[track_caller]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let _stops = StopOnPanic::of(self.store.stop());
        let rank = Rank::Transaction.hold();
        Inside { gate: &self.gate, stop: self.store.stop(), generation: self.gate.enter(), _rank: rank }
    }

    /// Closes the gate and waits until every operation has left.
    #[track_caller]
    pub(crate) fn close_gate<L: CommitLock>(&self, lock: L) -> ClosedGate<'_, L> {
        let _stops = StopOnPanic::of(self.store.stop());
        let rank = Rank::Transaction.hold();
        let (gate, stop) = (&self.gate, self.store.stop());
        ClosedGate { gate, stop, generation: gate.close(), _rank: rank, _lock: lock }
    }

    /// Refuses to go on if writing has ended, or a panic has poisoned what a commit would publish. To be asked once more
    /// with the gate closed: an operation that the gate waited for may have failed half way.
    pub(crate) fn check_sound(&self) -> Result<(), TreeError> {
        let has_panicked = self.changes.space.is_poisoned()
            || self.changes.refs.is_poisoned()
            || self.changes.log.is_poisoned()
            || self.changes.quotas.is_poisoned()
            || self.store.unwritten().log.is_poisoned()
            || self.store.known_trees().iter().any(|tree| tree.is_poisoned());
        if has_panicked {
            self.store.stop().abort(&PANIC);
        }
        self.store.stop().check()
    }
}
