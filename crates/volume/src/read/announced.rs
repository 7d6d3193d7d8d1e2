//! Reads that were announced: which mirror was told to fetch which range. Who reads it goes to the same mirror, however
//! the policy would choose by now.

use super::load::{Clock, Load};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// So many are remembered.
const RANGES_MAX: usize = 4096;
/// After this time nobody will come for a range any more, in nanoseconds.
const AGE_MAX_NS: u64 = 4_000_000_000;

/// Ranges of the logical space, disjoint but for races.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    ranges: BTreeMap<u64, Range>,
    /// By age: where a range begins, and its number.
    order: VecDeque<(u64, u64)>,
    made: u64,
}

/// A range that a mirror was told to fetch.
#[derive(Clone, Debug)]
struct Range {
    end: u64,
    way: usize,
    /// What of it nobody has read yet.
    left: u64,
    number: u64,
    load: Arc<Load>,
    made_ns: u64,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) way: usize,
    /// Up to here.
    pub(super) end: u64,
    /// Somebody is still to read some of it.
    pub(super) is_awaited: bool,
}

impl Announced {
    /// Forgets what nobody comes for any more; costs nothing where nothing is announced.
    pub(super) fn expire(&mut self, clock: &Clock) {
        if !self.order.is_empty() {
            self.forget_old(clock.now());
        }
    }

    /// The range that holds an address.
    pub(super) fn find(&self, logical: u64) -> Option<Found> {
        let (_, range) = self.ranges.range(..=logical).next_back()?;
        let found = Found { way: range.way, end: range.end, is_awaited: range.left > 0 };
        (logical < range.end).then_some(found)
    }

    /// A mirror was told to fetch a range.
    pub(super) fn add(&mut self, start: u64, length: u64, way: usize, load: &Arc<Load>, now: u64) {
        self.forget_old(now);
        self.made += 1;
        let (end, number) = (start.saturating_add(length), self.made);
        let range = Range { end, way, left: length, number, load: Arc::clone(load), made_ns: now };
        if let Some(before) = self.ranges.insert(start, range) {
            before.give_up();
        }
        self.order.push_back((start, number));
    }

    /// Part of what was announced has been read.
    pub(super) fn take(&mut self, logical: u64, length: u64) {
        let range = self.ranges.range_mut(..=logical).next_back();
        if let Some((_, range)) = range.filter(|(_, range)| logical < range.end && range.left > 0) {
            let taken = range.left.min(length);
            range.left -= taken;
            range.load.take_expected(taken, range.left == 0);
        }
    }

    fn forget_old(&mut self, now: u64) {
        while let Some((start, number)) = self.order.front().copied() {
            let known = self.ranges.get(&start).filter(|range| range.number == number);
            let is_old = |range: &Range| now.saturating_sub(range.made_ns) > AGE_MAX_NS;
            if known.is_some_and(|range| !is_old(range)) && self.order.len() < RANGES_MAX {
                return;
            }
            self.order.pop_front();
            if known.is_some()
                && let Some(range) = self.ranges.remove(&start)
            {
                range.give_up();
            }
        }
    }
}

impl Range {
    fn give_up(self) {
        if self.left > 0 {
            self.load.take_expected(self.left, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(announced: &mut Announced, load: &Arc<Load>, start: u64, length: u64, way: usize, now: u64) {
        load.expect(0, length, 1, now);
        announced.add(start, length, way, load, now);
    }

    #[test]
    fn who_reads_what_was_announced_learns_of_whom() {
        let (mut announced, load) = (Announced::default(), Arc::new(Load::default()));
        add(&mut announced, &load, 100, 50, 2, 0);
        add(&mut announced, &load, 200, 50, 1, 0);
        let way = |announced: &Announced, at| announced.find(at).map(|found| (found.way, found.end));
        let found = [99, 100, 149, 150, 200].map(|at| way(&announced, at));
        assert_eq!(found, [None, Some((2, 150)), Some((2, 150)), None, Some((1, 250))]);
        assert_eq!(load.statistics().expected, 2);
        announced.take(100, 20);
        announced.take(150, 9);
        assert_eq!(load.statistics().expected, 2);
        announced.take(120, 30);
        assert_eq!(load.statistics().expected, 1);
        assert_eq!(announced.find(110).map(|found| found.is_awaited), Some(false), "it may be read again");
        announced.take(100, 50);
        assert_eq!(load.statistics().expected, 1);
        announced.expire(&Clock::new(|| AGE_MAX_NS));
        assert!(announced.find(110).is_some());
        announced.expire(&Clock::new(|| AGE_MAX_NS + 1));
        assert_eq!((announced.find(110), load.statistics().expected), (None, 0));
    }

    #[test]
    fn what_nobody_comes_for_is_given_up() {
        let (mut announced, load) = (Announced::default(), Arc::new(Load::default()));
        add(&mut announced, &load, 0, 50, 0, 0);
        add(&mut announced, &load, 100, 50, 0, AGE_MAX_NS + 1);
        assert_eq!((announced.find(0), load.statistics().expected), (None, 1));
        add(&mut announced, &load, 100, 50, 0, AGE_MAX_NS + 2);
        assert_eq!((announced.ranges.len(), load.statistics().expected), (1, 1), "announced anew");
        for start in 1..=2 * RANGES_MAX as u64 {
            add(&mut announced, &load, start * 1000, 50, 0, AGE_MAX_NS + 3);
        }
        assert!(announced.ranges.len() <= RANGES_MAX && announced.order.len() <= RANGES_MAX);
        assert_eq!(load.statistics().expected as usize, announced.ranges.len());
    }
}
