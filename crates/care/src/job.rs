//! The protocol of long jobs: balances, and changes of devices that move data. A job tells its observer the progress after each
//! step, and goes on, pauses or ends by the control that the observer returns. The observer may wait, and so limits the rate.

use std::time::Duration;

/// Progress of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of block groups to be emptied.
    pub expected: u64,
    /// Number of those emptied, or gone when it was their turn.
    pub done: u64,
    /// Number of those without room elsewhere.
    pub left: u64,
    /// Used bytes in all that are to be emptied.
    pub expected_bytes: u64,
    /// Bytes that have been moved.
    pub moved_bytes: u64,
}

/// Answer of a caller to a running job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// The job goes on.
    #[default]
    Continue,
    /// The job ends for now, to be resumed.
    Pause,
    /// The job ends.
    Cancel,
}

/// Receiver of a job's progress after each step. It may wait.
pub type Observer<'o> = &'o mut dyn FnMut(&Progress) -> Control;

/// End of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Progress.
    pub progress: Progress,
    /// Last answer of the observer: [`Control::Continue`] if the job is complete.
    pub control: Control,
}

/// A limit on the rate at which bytes are moved.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes in a second.
    pub rate: u64,
}

impl Pace {
    /// Time to wait after `bytes` bytes that took `elapsed`.
    pub fn owed(self, bytes: u64, elapsed: Duration) -> Duration {
        let rate = u128::from(self.rate.max(1));
        let due = u128::from(bytes) * 1_000_000 / rate;
        Duration::from_micros(u64::try_from(due).unwrap_or(u64::MAX)).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_the_rate_are_waited_for() {
        let pace = Pace { rate: 10 << 20 };
        assert_eq!(pace.owed(20 << 20, Duration::from_millis(500)), Duration::from_millis(1500));
        assert_eq!(pace.owed(1 << 20, Duration::from_secs(1)), Duration::ZERO);
    }
}
