//! The moment for which a sync waits for callers that the last one was for.
//!
//! Threads that change files and sync them in a loop fall into two groups: each waits while the sync of the other one is under way. A
//! sync is then for half of the threads, and a thread waits for two. So a sync waits for as many callers as
//! the last one was for, or had waited at its end, for half of the time that a sync takes at the most: a caller that comes again
//! within that time gains more than the others lose. A thread alone never waits. Where the moment passes and less than three
//! of four have come, which do something else between their syncs, the next times are left out: twice as many with each time in vain.

use std::time::{Duration, Instant};

/// Longest wait.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Shorter waits are not worth it.
const PAUSE_MIN: Duration = Duration::from_micros(50);
/// Most waits that are left out: two to this power.
const VAIN_MAX: u32 = 6;

/// Facts about the last syncs.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Callers that the next sync is likely to be for.
    expected: u64,
    /// Begin of the sync that is under way.
    begun: Option<Instant>,
    /// End of the last one.
    ended: Option<Instant>,
    /// Time of a sync: the mean of the last ones.
    mean: Duration,
    /// Waits in vain, one after another.
    vain: u32,
    /// Number of waits still to be left out.
    left_out: u32,
}

impl Gathering {
    /// The end of the wait for more callers, if there is one.
    pub(super) fn until(&mut self, callers: u64, now: Instant) -> Option<Instant> {
        let pause = (self.mean / 2).min(PAUSE_MAX);
        let until = self.ended? + pause;
        if self.is_complete(callers) || pause < PAUSE_MIN || until <= now {
            return None;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return None;
        }
        Some(until)
    }

    /// Returns true if no more callers are likely to come soon.
    pub(super) fn is_complete(&self, callers: u64) -> bool {
        callers >= self.expected
    }

    /// A wait has ended: the number of callers before, and now.
    pub(super) fn waited(&mut self, before: u64, now: u64) {
        let (missed, come) = (self.expected.saturating_sub(before), now.saturating_sub(before));
        let is_worth_it = come * 4 >= missed * 3;
        self.vain = if is_worth_it { 0 } else { (self.vain + 1).min(VAIN_MAX) };
        self.left_out = if is_worth_it { 0 } else { 1 << self.vain };
    }

    /// A sync begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    /// A sync is durable that was for a number of callers, while others wait for the next one.
    pub(super) fn end(&mut self, callers: u64, waiting: u64, now: Instant) {
        self.expected = callers + waiting;
        self.ended = Some(now);
        if let Some(begun) = self.begun.take() {
            let time = now - begun;
            self.mean = if self.mean.is_zero() { time } else { (self.mean * 3 + time) / 4 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(4);

    /// A sync that took its time, for some callers, while others waited; and its end.
    fn after(callers: u64, waiting: u64) -> (Gathering, Instant) {
        let (mut gathering, start) = (Gathering::default(), Instant::now());
        gathering.begin(start);
        gathering.end(callers, waiting, start + SYNC);
        (gathering, start + SYNC)
    }

    #[test]
    fn a_thread_alone_never_waits() {
        let (mut gathering, end) = after(1, 0);
        assert_eq!(gathering.until(1, end), None);
        assert_eq!(Gathering::default().until(1, end), None);
    }

    #[test]
    fn two_groups_become_one() {
        let (mut gathering, end) = after(4, 4);
        assert_eq!(gathering.until(4, end), Some(end + SYNC / 2));
        assert!(!gathering.is_complete(7) && gathering.is_complete(8));
        gathering.waited(4, 8);
        gathering.begin(end + SYNC / 4);
        gathering.end(8, 0, end + SYNC);
        assert!(gathering.until(1, end + SYNC).is_some(), "the first one waits for the others");
    }

    #[test]
    fn nothing_is_waited_for_when_the_moment_has_passed_already() {
        let (mut gathering, end) = after(4, 0);
        assert_eq!(gathering.until(1, end + SYNC / 2), None);
    }

    #[test]
    fn waits_are_bounded_and_those_that_are_too_short_are_none() {
        let (mut gathering, start) = (Gathering::default(), Instant::now());
        gathering.begin(start);
        let end = start + Duration::from_secs(5);
        gathering.end(2, 2, end);
        assert_eq!(gathering.until(2, end), Some(end + PAUSE_MAX));
        let (mut gathering, end) = (Gathering::default(), start + PAUSE_MIN);
        gathering.begin(start);
        gathering.end(2, 2, end);
        assert_eq!(gathering.until(2, end), None);
    }

    #[test]
    fn a_wait_for_which_most_do_not_come_is_in_vain() {
        let (mut gathering, end) = after(4, 4);
        gathering.waited(4, 7);
        assert!(gathering.until(4, end).is_some());
        gathering.waited(4, 6);
        assert_eq!(gathering.until(4, end), None);
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let (mut gathering, end) = after(2, 2);
        let waits: Vec<u32> = (0..200)
            .filter(|_| gathering.until(2, end).is_some().then(|| gathering.waited(2, 2)).is_some())
            .collect();
        assert_eq!(waits, [0, 3, 8, 17, 34, 67, 132, 197]);
        gathering.waited(2, 4);
        assert!(gathering.until(2, end).is_some(), "both have come");
    }
}
