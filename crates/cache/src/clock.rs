//! Time, as a cache sees it.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clock of a cache; a test brings its own.
pub trait CacheClock: Send + Sync + Debug {
    /// Time since some moment.
    fn now(&self) -> Duration;

    /// Seconds since some moment that is the same for later processes.
    fn calendar_seconds(&self) -> u64 {
        self.now().as_secs()
    }

    /// Returns true if the time is a modelled one, which passes by [`pause`](Self::pause). Elsewhere a thread that waits
    /// for another one sleeps until it is woken.
    fn is_modelled(&self) -> bool {
        false
    }

    /// Lets a moment of modelled time pass.
    fn pause(&self) {}
}

/// The host's clock.
#[derive(Debug)]
pub struct HostClock(Instant);

impl HostClock {
    /// Clock that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for HostClock {
    fn default() -> Self {
        Self::new()
    }
}

impl CacheClock for HostClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn calendar_seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
    }
}
