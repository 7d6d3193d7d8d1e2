//! The mode of a mount: written or only read, at rest or not, and the interval of its commits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Mode of a mount. A remount changes all but one thing: a mount that began as one that is only read stays so.
#[derive(Debug)]
pub(crate) struct MountMode {
    is_written: bool,
    rests: AtomicBool,
    commit_interval_ms: AtomicU64,
}

impl MountMode {
    pub(super) fn new(is_written: bool, commit_interval: Duration) -> Self {
        let mode = Self { is_written, rests: AtomicBool::new(false), commit_interval_ms: AtomicU64::new(0) };
        mode.set_commit_interval(commit_interval);
        mode
    }

    /// Returns true if the mount began as one that is written; an error may have ended that.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written
    }

    /// Returns true if the mount was remounted read-only.
    pub(super) fn is_resting(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    /// Begins or ends a rest; returns true if the mount rested before.
    pub(super) fn set_resting(&self, rests: bool) -> bool {
        self.rests.swap(rests, Ordering::Relaxed)
    }

    pub(super) fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.commit_interval_ms.load(Ordering::Relaxed))
    }

    pub(super) fn set_commit_interval(&self, interval: Duration) {
        let milliseconds = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.commit_interval_ms.store(milliseconds, Ordering::Relaxed);
    }
}
