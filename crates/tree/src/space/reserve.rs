//! The log reserve, as block groups and the state have it; its essay is in `log_reserve`.

use super::FreeRanges;
use brindle_interval::Interval;

/// The part of a block group that is kept for logs.
#[derive(Clone, Debug)]
pub(super) struct LogReserve {
    /// All of it.
    pub(super) span: Interval,
    /// Free ranges of it, which are none of the group's others.
    pub(super) free: FreeRanges,
    /// End of the last run taken.
    pub(super) next: u64,
}

/// Facts about the log reserve of a pool.
#[derive(Debug, Default)]
pub(super) struct LogReserveState {
    /// Start of the block group that has it.
    pub(super) group: Option<u64>,
    /// The ranges that are looked up were too short for it.
    pub(super) is_short: bool,
}

impl LogReserve {
    /// The next run of a length.
    pub(super) fn run(&self, length: u64) -> Option<Interval> {
        let near = self.free.holding(self.next).map(|free| Interval { start: self.next, end: free.end });
        let ranges = near.into_iter().chain(self.free.iter());
        ranges.filter(|range| range.length() >= length).map(|range| Interval::new(range.start, length)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(free: &[(u64, u64)], next: u64) -> LogReserve {
        let free = free.iter().map(|(start, end)| *start..*end).collect();
        LogReserve { span: Interval::new(0, 100), free, next }
    }

    #[test]
    fn runs_go_on_where_the_last_one_ended_and_go_round() {
        let reserve = |next| reserve(&[(0, 20), (40, 45), (60, 100)], next);
        assert_eq!(reserve(70).run(10), Some(Interval::new(70, 10)));
        assert_eq!(reserve(95).run(10), Some(Interval::new(0, 10)), "behind the last one there is no room");
        assert_eq!(reserve(20).run(5), Some(Interval::new(0, 5)));
        assert_eq!(reserve(20).run(30), Some(Interval::new(60, 30)));
        assert_eq!(reserve(70).run(41), None);
    }
}
