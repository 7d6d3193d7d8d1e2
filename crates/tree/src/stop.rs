//! The end of all writing: after an error or a panic that has left a change half done, nothing is published any more.
//! The essay on that is in `transaction/stop.rs`.

use crate::error::TreeError;
use brindle_sync::thread;
use brindle_volume::{StopReason, Volume};
use std::fmt;
use std::sync::Arc;

/// The reason that the pool gives after a panic.
pub(crate) const PANIC: &str = "a panic has left a change half done";

/// Reason for which nothing is written any more, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Stop(StopReason);

impl Stop {
    /// One that the volume has a part in: it may lose its lease.
    pub(crate) fn of(volume: &Volume) -> Self {
        Self(volume.stop_reason())
    }

    /// Ends all writing.
    pub(crate) fn abort(&self, error: &dyn fmt::Display) {
        let why: Arc<str> = error.to_string().into();
        if self.0.set(Arc::clone(&why)).is_ok() {
            tracing::error!("the pool is read-only from now on, as of its last commit: {why}");
        }
    }

    /// Ends all writing of a pool that is given up: its user is told of that already.
    pub(crate) fn give_up(&self, why: &str) {
        self.0.set(why.into()).ok();
    }

    /// Reason for which nothing is written any more.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.0.get().map(Arc::clone)
    }

    /// Refuses to go on if writing has ended.
    pub(crate) fn check(&self) -> Result<(), TreeError> {
        match self.0.get() {
            Some(why) => Err(TreeError::ReadOnly(Arc::clone(why))),
            None => Ok(()),
        }
    }

    /// Ends all writing if the calling thread unwinds.
    pub(crate) fn abort_if_panicking(&self) {
        if thread::panicking() {
            self.abort(&PANIC);
        }
    }
}

/// Guard of an operation: ends all writing if it is dropped by a thread that unwinds.
#[must_use = "it guards as long as it lives"]
pub struct StopOnPanic<'p>(Option<&'p Stop>);

impl<'p> StopOnPanic<'p> {
    pub(crate) fn of(stop: &'p Stop) -> Self {
        Self(Some(stop))
    }

    /// The guard of a pool that is only read, where nothing is to be stopped.
    pub(crate) fn of_reader() -> Self {
        Self(None)
    }
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if let Some(stop) = self.0 {
            stop.abort_if_panicking();
        }
    }
}

impl fmt::Debug for StopOnPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopOnPanic")
    }
}
