//! The choice of mirrors: its settings, and what it remembers from one read to the next.

use super::load::Clock;
use super::prefetched::Prefetched;
use brindle_policy::read::ReadSettings;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Settings and state of the choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choosing {
    pub(crate) settings: ReadSettings,
    /// True if statistics were asked for.
    pub(crate) is_counted: bool,
    /// True if requests of other processes count, as the host reports them.
    pub(crate) asks_host: bool,
    pub(crate) clock: Clock,
    /// For `round-robin`.
    bytes_read: Arc<AtomicU64>,
    prefetched: Arc<Mutex<Prefetched>>,
}

impl Ranked for Prefetched {
    const RANK: Rank = Rank::Prefetched;
}

impl Choosing {
    pub(crate) fn prefetched(&self) -> MutexGuard<'_, Prefetched> {
        self.prefetched.lock()
    }

    /// Bytes that were read under `round-robin` so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// Counts bytes that are read under `round-robin`; returns the number before.
    pub(crate) fn count_bytes_read(&self, length: u64) -> u64 {
        self.bytes_read.fetch_add(length, Relaxed)
    }
}
