//! Calls of a thread that works from time to time.

use brindle_sync::{Condvar, Mutex, Rank};
use std::time::Duration;

/// Reasons for which a thread is called.
#[derive(Debug)]
pub(super) struct Calls {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// True to end.
    is_over: bool,
    /// True to work at once.
    is_pressed: bool,
}

impl Default for Calls {
    fn default() -> Self {
        Self { waiting: Mutex::new(Rank::UpkeepCalls, Waiting::default()), changed: Condvar::new() }
    }
}

impl Calls {
    /// Waits until the time is over or there is a call; true if it is time to end.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.is_over && !waiting.is_pressed {
            waiting = self.changed.wait_timeout(waiting, time).0;
        }
        waiting.is_pressed = false;
        waiting.is_over
    }

    /// Has the thread work at once.
    pub(super) fn press(&self) {
        self.waiting.lock().is_pressed = true;
        self.changed.notify_all();
    }

    /// Has the thread end after its present step.
    pub(super) fn end(&self) {
        self.waiting.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Returns true if the thread is to end.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.lock().is_over
    }
}
