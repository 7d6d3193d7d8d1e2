//! Failed writebacks of a file, and which of them its handles have reported.

use crate::error::FsError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failed writebacks of a file. A handle reports the last one once; a handle that is opened when none has reported it does so too.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: u64,
    /// Number of them up to the last one that a handle has reported.
    reported: u64,
    last: Option<Arc<FsError>>,
}

impl Failures {
    /// Notes a failure.
    pub(crate) fn note(&mut self, why: Arc<FsError>) {
        self.count += 1;
        self.last = Some(why);
    }

    /// Number of failures that a handle which is opened now does not report.
    pub(crate) fn reported(&self) -> u64 {
        self.reported
    }

    /// The last failure, if it is behind those that a handle knows; the handle has reported it then.
    pub(crate) fn report(&mut self, known: &AtomicU64) -> Option<Arc<FsError>> {
        let is_new = known.swap(self.count, Ordering::Relaxed) < self.count;
        if !is_new {
            return None;
        }
        self.reported = self.count;
        self.last.clone()
    }
}
