//! Operations of which a pool has one at a time: those that empty block groups, and those that change its devices.
//!
//! One that goes on by itself in the background *yields*: another one waits until it has ended, and it ends soon when it
//! is told so.

use crate::error::TreeError;
use crate::pool::Pool;
use brindle_sync::{Condvar, Mutex, Rank, Ranked};

/// Such an operation runs as long as this lives.
#[derive(Debug)]
pub struct ExclusiveOperation<'p> {
    pool: &'p Pool,
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

impl Pool {
    /// Begins one, with its name for the callers that are refused meanwhile: [`TreeError::Busy`]. Waits for the end of one that
    /// yields.
    pub fn begin_exclusive(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        let _stops = self.stop_on_panic();
        let exclusive = &self.writer()?.exclusive;
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
                Ok(ExclusiveOperation { pool: self })
            }
        }
    }

    /// Begins one that yields to others, and so does not begin while one runs: [`TreeError::Busy`].
    pub fn begin_yielding(&self, name: &'static str) -> Result<ExclusiveOperation<'_>, TreeError> {
        let _stops = self.stop_on_panic();
        let mut state = self.writer()?.exclusive.state.lock();
        match state.0 {
            Some(Running { name: running, .. }) => Err(TreeError::Busy { running }),
            None => {
                state.0 = Some(Running { name, yields: true, is_awaited: false });
                Ok(ExclusiveOperation { pool: self })
            }
        }
    }
}

impl ExclusiveOperation<'_> {
    /// Returns true if another one waits for the end of this one.
    pub fn is_awaited(&self) -> bool {
        let running = self.pool.writer().ok().and_then(|writer| writer.exclusive.state.lock().0);
        running.is_some_and(|running| running.is_awaited)
    }
}

impl Drop for ExclusiveOperation<'_> {
    fn drop(&mut self) {
        let _stops = self.pool.stop_on_panic();
        if let Ok(writer) = self.pool.writer() {
            writer.exclusive.state.lock().0 = None;
            writer.exclusive.ended.notify_all();
        }
    }
}
