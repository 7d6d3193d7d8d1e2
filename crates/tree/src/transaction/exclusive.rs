//! Operations of which a pool has one at a time: those that empty block groups, and those that change its devices.
//!
//! One that goes on by itself in the background *yields*: another one waits until it has ended, and it ends soon when it
//! is told so.

use super::Transactions;
use crate::error::TreeError;
use crate::stop::{Stop, StopOnPanic};
use brindle_sync::{Condvar, Mutex, Rank, Ranked};

/// Such an operation runs as long as this lives.
#[derive(Debug)]
pub struct ExclusiveOperation<'p> {
    exclusive: &'p Exclusive,
    stop: &'p Stop,
}

/// The operation that runs.
#[derive(Debug, Default)]
pub(crate) struct Exclusive {
    state: Mutex<State>,
    ended: Condvar,
}

/// The operation, if one runs.
#[derive(Clone, Copy, Debug, Default)]
struct State(Option<Running>);

#[derive(Clone, Copy, Debug)]
struct Running {
    name: &'static str,
    yields: bool,
    /// Another one waits for it to end.
    is_awaited: bool,
}

impl Ranked for State {
    const RANK: Rank = Rank::Exclusive;
}

impl Transactions {
    /// Returns true if an operation is one of this pool.
    pub(crate) fn runs(&self, operation: &ExclusiveOperation<'_>) -> bool {
        std::ptr::eq(operation.exclusive, &raw const self.exclusive)
    }

    /// Begins one, with its name for the callers that are refused meanwhile: [`TreeError::Busy`]. Waits for the end of one that
    /// yields.
    pub(crate) fn begin_exclusive(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        let exclusive = &self.exclusive;
        let yields = |state: &mut State| match &mut state.0 {
            Some(running) => {
                running.is_awaited = true;
                running.yields
            }
            None => false,
        };
        let mut state = exclusive.ended.wait_while(exclusive.state.lock(), yields);
        match state.0 {
            Some(Running { name: running, .. }) => Err(TreeError::Busy { running }),
            None => {
                state.0 = Some(Running { name, yields: false, is_awaited: false });
                Ok(ExclusiveOperation { exclusive: &self.exclusive, stop: self.store.stop() })
            }
        }
    }

    /// Begins one that yields to others, and so does not begin while one runs: [`TreeError::Busy`].
    pub(crate) fn begin_yielding(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        let mut state = self.exclusive.state.lock();
        match state.0 {
            Some(Running { name: running, .. }) => Err(TreeError::Busy { running }),
            None => {
                state.0 = Some(Running { name, yields: true, is_awaited: false });
                Ok(ExclusiveOperation { exclusive: &self.exclusive, stop: self.store.stop() })
            }
        }
    }
}

impl ExclusiveOperation<'_> {
    /// Returns true if another one waits for the end of this one.
    pub fn is_awaited(&self) -> bool {
        self.exclusive.state.lock().0.is_some_and(|running| running.is_awaited)
    }
}

impl Drop for ExclusiveOperation<'_> {
    fn drop(&mut self) {
        let _stops = StopOnPanic::of(self.stop);
        self.exclusive.state.lock().0 = None;
        self.exclusive.ended.notify_all();
    }
}
