//! Contents in the kernel's page cache that the pool had no room for.
//!
//! Programs are told when they sync or close, or write on. The pages stay, though, marked clean, and would be read as if they were in
//! the file, until they are dropped some time. So the kernel is told to forget them. To do that it waits for pages that
//! are being read or written, by requests that we have to answer: a thread that serves requests must not wait for it.

use crate::control_thread::{ControlThread, OwnThread};
use crate::operations::Operations;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ranges of files that are to be forgotten, one a file.
#[derive(Debug, Default)]
pub(super) struct RefusedPages(Mutex<HashMap<u64, Range<u64>>>);

impl RefusedPages {
    /// Notes a range; returns true if no thread has been asked yet to have it forgotten.
    fn note(&self, node: u64, range: &Range<u64>) -> bool {
        let mut waiting = self.waiting();
        let is_first = waiting.is_empty();
        let known = waiting.entry(node).or_insert_with(|| range.clone());
        *known = known.start.min(range.start)..known.end.max(range.end);
        is_first
    }

    /// Notes a range, and has the thread forget it with all else that is noted.
    pub(super) fn forget_soon(
        self: &Arc<Self>,
        node: u64,
        range: &Range<u64>,
        operations: Arc<Operations>,
        thread: &ControlThread,
    ) {
        if self.note(node, range) {
            let refused = Arc::clone(self);
            thread.run(Box::new(move |own| refused.forget(own, &operations)));
        }
    }

    /// Drops everything noted from the kernel's cache.
    fn forget(&self, own: &OwnThread, operations: &Operations) {
        for (node, range) in self.take() {
            operations.pages.forget(own, node, &range);
        }
    }

    /// Takes all noted ranges.
    fn take(&self) -> HashMap<u64, Range<u64>> {
        std::mem::take(&mut *self.waiting())
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Range<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_asked_for_all_that_comes_until_it_is_done() {
        let refused = RefusedPages::default();
        assert!(refused.note(300, &(4096..8192)));
        assert!(!refused.note(300, &(0..4096)));
        assert!(!refused.note(301, &(0..10)));
        let mut taken: Vec<_> = refused.take().into_iter().collect();
        taken.sort_unstable_by_key(|(node, _)| *node);
        assert_eq!(taken, [(300, 0..8192), (301, 0..10)]);
        assert!(refused.note(300, &(0..1)), "what comes later is asked for anew");
    }
}
