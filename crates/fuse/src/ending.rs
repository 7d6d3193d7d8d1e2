//! The last commit of a mount. It comes once: when the kernel says that the mount ends and waits for the answer (mounts on
//! a block device), else when all threads that serve it have ended. Nothing is written afterwards.

use crate::operations::Operations;
use brindle_fs::{Filesystem, FsError, Upkeep};
use std::sync::{Arc, Mutex, PoisonError};

/// The end of a mount, yet to come or passed.
#[derive(Debug)]
pub(crate) struct Ending {
    operations: Arc<Operations>,
    filesystem: Arc<Filesystem>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Upkeep of a mount that is written.
    upkeep: Option<Upkeep>,
    is_over: bool,
    error: Option<FsError>,
}

impl Ending {
    pub(crate) fn new(
        operations: Arc<Operations>,
        filesystem: Arc<Filesystem>,
        upkeep: Option<Upkeep>,
    ) -> Self {
        Self { operations, filesystem, state: Mutex::new(State { upkeep, ..State::default() }) }
    }

    /// Ends the upkeep, and makes durable what was written. Does nothing the second time, but to wait for the first.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        drop(state.upkeep.take());
        self.operations.end();
        if self.operations.mode.is_written() {
            state.error = self.filesystem.shutdown().err();
        }
        if state.error.is_none() {
            self.filesystem.release_lease();
        }
    }

    /// The error of the last commit. It is told once.
    pub(crate) fn take_error(&self) -> Option<FsError> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).error.take()
    }
}
