//! Upper bound on the average rate, in bytes a second.

use std::time::Duration;

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
