//! A wait for what another thread changes.

use crate::MutexGuard;
use crate::platform::{self, entered};
use std::time::Duration;

/// A wait for what another thread changes under a [`Mutex`](crate::Mutex), which is free meanwhile.
#[derive(Debug, Default)]
pub struct Condvar(platform::Condvar);

impl Condvar {
    /// One that no thread waits for.
    pub fn new() -> Self {
        Self(platform::Condvar::new())
    }

    /// Waits to be woken. Panics if a thread has panicked meanwhile with the lock held.
    #[track_caller]
    pub fn wait<'l, T>(&self, guard: MutexGuard<'l, T>) -> MutexGuard<'l, T> {
        let MutexGuard { inner, held, rank } = guard;
        let (waited, held) = held.released(|| self.0.wait(inner));
        MutexGuard { inner: entered(waited, || rank.name()), held, rank }
    }

    /// Waits as long as the condition holds.
    #[track_caller]
    pub fn wait_while<'l, T>(
        &self,
        mut guard: MutexGuard<'l, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'l, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits to be woken, but no longer than `limit`. The second value is true if the time was over. An explored build
    /// has no time: it waits until it is woken.
    #[track_caller]
    pub fn wait_timeout<'l, T>(
        &self,
        guard: MutexGuard<'l, T>,
        limit: Duration,
    ) -> (MutexGuard<'l, T>, bool) {
        let MutexGuard { inner, held, rank } = guard;
        let (waited, held) = held.released(|| self.0.wait_timeout(inner, limit));
        let (inner, timeout) = entered(waited, || rank.name());
        (MutexGuard { inner, held, rank }, timeout.timed_out())
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
