//! Memory of requests, of all connections together.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes that requests may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Mutex<usize>,
    returned: Condvar,
}

/// Part of a budget, which goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(bytes), returned: Condvar::new() })
    }

    /// Takes a part, at most all of it, and waits until it is there.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Share {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let is_short = |left: &mut usize| *left < bytes;
        let mut left = self.returned.wait_while(left, is_short).unwrap_or_else(PoisonError::into_inner);
        *left -= bytes;
        Share { budget: Arc::clone(self), bytes }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.left.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.returned.notify_all();
    }
}
