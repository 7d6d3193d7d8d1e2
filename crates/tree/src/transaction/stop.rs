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

use super::{Durable, Writer};
use crate::error::TreeError;
use crate::pool::Pool;
use brindle_ondisk::Generation;
use brindle_sync::{HeldRank, MutexGuard, Rank, thread};
use std::fmt;

/// The reason that the pool gives after a panic.
const PANIC: &str = "a panic has left a change half done";

/// Guard of an operation: ends all writing if it is dropped by a thread that unwinds.
#[must_use = "it guards as long as it lives"]
pub struct StopOnPanic<'p>(Option<&'p Writer>);

impl<'p> StopOnPanic<'p> {
    pub(crate) fn of(writer: &'p Writer) -> Self {
        Self(Some(writer))
    }
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0
            && thread::panicking()
        {
            writer.abort(&PANIC);
        }
    }
}

impl fmt::Debug for StopOnPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopOnPanic")
    }
}

/// Part in the running transaction: its commit waits until this is dropped.
#[derive(Debug)]
#[must_use = "part in the transaction lasts as long as it lives"]
pub(crate) struct Inside<'w> {
    writer: &'w Writer,
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
        let _stops = StopOnPanic::of(self.writer);
        self.writer.stop_if_panicking();
        self.writer.gate.leave();
    }
}

/// The closed gate of the running transaction: it opens when this is dropped.
#[must_use = "the gate is closed as long as it lives"]
pub(crate) struct ClosedGate<'w> {
    writer: &'w Writer,
    generation: Generation,
    _rank: HeldRank,
}

impl ClosedGate<'_> {
    /// The running transaction.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Makes the next transaction the running one.
    pub(crate) fn advance(&mut self) {
        self.generation = Generation::new(self.generation.get() + 1);
    }
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        let _stops = StopOnPanic::of(self.writer);
        self.writer.stop_if_panicking();
        self.writer.gate.open(self.generation);
    }
}

impl Writer {
    /// The right to commit, unless writing has ended. A holder that panics stops the pool on its way out, so the lock may
    /// be entered after it to find that.
    #[track_caller]
    pub(crate) fn lock_commit(&self) -> Result<MutexGuard<'_, Durable>, TreeError> {
        let _stops = StopOnPanic::of(self);
        let durable = self.commit.lock_after_panic();
        self.check_alive()?;
        Ok(durable)
    }

    /// Takes part in the running transaction, once the gate is open.
    #[track_caller]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let _stops = StopOnPanic::of(self);
        let rank = Rank::Transaction.hold();
        Inside { writer: self, generation: self.gate.enter(), _rank: rank }
    }

    /// Closes the gate and waits until every operation has left. The caller holds the commit lock.
    #[track_caller]
    pub(crate) fn close_gate(&self) -> ClosedGate<'_> {
        let _stops = StopOnPanic::of(self);
        let rank = Rank::Transaction.hold();
        ClosedGate { writer: self, generation: self.gate.close(), _rank: rank }
    }

    /// Ends all writing if the calling thread unwinds.
    fn stop_if_panicking(&self) {
        drop(StopOnPanic::of(self));
    }
}

impl Pool {
    /// Ends all writing if the caller unwinds before it has dropped the guard: for operations that change more than
    /// trees. Of a pool that is only read, nothing is to be stopped.
    pub fn stop_on_panic(&self) -> StopOnPanic<'_> {
        StopOnPanic(self.writer().ok())
    }

    /// Refuses to go on if writing has ended, or a panic has poisoned what a commit would publish. To be asked once more
    /// with the gate closed: an operation that the gate waited for may have failed half way.
    pub(crate) fn check_sound(&self, writer: &Writer) -> Result<(), TreeError> {
        let has_panicked = writer.space.is_poisoned()
            || writer.refs.is_poisoned()
            || writer.log.is_poisoned()
            || self.known_trees().iter().any(|tree| tree.is_poisoned());
        if has_panicked {
            writer.abort(&PANIC);
        }
        writer.check_alive()
    }
}
