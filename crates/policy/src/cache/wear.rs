//! Wear: flash takes a number of bytes in its life, so the owner may say how many a day a cache may write.
//!
//! The budget outlives the process: its rest is stored at a clean end, and filled by the time that has passed since. After a
//! crash the rest is not known, and the budget begins empty.

use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Budget of bytes a day. It fills evenly, and an hour's worth of it can be saved up.
#[derive(Clone, Debug)]
pub struct WearBudget {
    bytes_per_day: u64,
    /// Bytes that may be written now; less than 0 after writes that could not be refused.
    left: i128,
    filled_at: Duration,
}

impl WearBudget {
    /// Full budget; 0 bytes a day stand for no limit.
    pub fn new(bytes_per_day: u64, now: Duration) -> Self {
        Self { bytes_per_day, left: i128::from(bytes_per_day / 24), filled_at: now }
    }

    /// Budget with a rest that was stored some time ago.
    pub fn restored(bytes_per_day: u64, left: i64, stored_ago: Duration, now: Duration) -> Self {
        let added = u128::from(bytes_per_day) * u128::from(stored_ago.as_secs()) / u128::from(DAY.as_secs());
        let added = i128::try_from(added).expect("two numbers of 64 bits, divided");
        let left = (i128::from(left) + added).min(i128::from(bytes_per_day / 24));
        Self { bytes_per_day, left, filled_at: now }
    }

    /// Bytes that may be written now; less than 0 after writes that could not be refused. `None` without a limit.
    pub fn left(&mut self, now: Duration) -> Option<i64> {
        self.fill(now);
        let left = self.left.clamp(i64::MIN.into(), i64::MAX.into());
        (self.bytes_per_day > 0).then(|| i64::try_from(left).expect("clamped"))
    }

    /// Bytes a day; 0 for no limit.
    pub fn bytes_per_day(&self) -> u64 {
        self.bytes_per_day
    }

    /// Returns true if as many bytes may be written now.
    pub fn allows(&mut self, bytes: u64, now: Duration) -> bool {
        self.fill(now);
        self.bytes_per_day == 0 || self.left >= i128::from(bytes)
    }

    /// Takes note of bytes that were written, allowed or not.
    pub fn spend(&mut self, bytes: u64) {
        if self.bytes_per_day > 0 {
            self.left -= i128::from(bytes);
        }
    }

    fn fill(&mut self, now: Duration) {
        let per_day = u128::from(self.bytes_per_day);
        let passed = now.saturating_sub(self.filled_at).min(DAY);
        let added = per_day * passed.as_nanos() / DAY.as_nanos();
        if added > 0 {
            let full = i128::from(self.bytes_per_day / 24);
            let added = i128::try_from(added).expect("a day's worth is a u64");
            self.left = self.left.saturating_add(added).min(full);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_greed_writes_the_budget_and_the_hour_saved_up() {
        let mut budget = WearBudget::new(24_000_000, Duration::ZERO);
        let mut written = 0;
        for second in 0..24 * 60 * 60 {
            while budget.allows(4096, Duration::from_secs(second)) {
                budget.spend(4096);
                written += 4096;
            }
        }
        assert!((24_900_000..25_000_000).contains(&written), "{written}");
    }

    #[test]
    fn a_budget_goes_on_where_it_was_stored() {
        let hour = Duration::from_secs(3600);
        let left = |stored: i64, ago: Duration| WearBudget::restored(24_000, stored, ago, hour).left(hour);
        assert_eq!(left(300, Duration::ZERO), Some(300));
        assert_eq!(left(-2500, hour * 2), Some(-500));
        assert_eq!(left(0, hour * 30), Some(1000), "an hour's worth at most");
        assert!(left(i64::MIN, Duration::MAX).is_some_and(|left| left < 0), "no overflow");
        assert_eq!(left(i64::MAX, Duration::MAX), Some(1000));
        assert_eq!(WearBudget::restored(0, 5, hour, hour).left(hour), None);
        let mut budget = WearBudget::restored(24_000, 300, Duration::ZERO, hour);
        budget.spend(800);
        assert_eq!((budget.left(hour), budget.left(hour * 2)), (Some(-500), Some(500)));
    }

    #[test]
    fn no_budget_is_no_limit_and_a_debt_is_paid_first() {
        let mut none = WearBudget::new(0, Duration::ZERO);
        none.spend(u64::MAX);
        assert!(none.allows(u64::MAX, Duration::ZERO));
        let mut budget = WearBudget::new(24_000, Duration::ZERO);
        budget.spend(2000);
        assert!(!budget.allows(1, Duration::from_secs(3600)));
        assert!(budget.allows(900, Duration::from_secs(7200)));
    }
}
