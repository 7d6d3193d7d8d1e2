//! Indices of the intervals of a set.

use crate::{Interval, Point};
use std::collections::BTreeSet;

/// Index of a set's intervals.
pub trait Index<K> {
    /// An interval has come into the set.
    fn added(&mut self, interval: &Interval<K>);
    /// An interval has left the set.
    fn removed(&mut self, interval: &Interval<K>);
}

impl<K> Index<K> for () {
    fn added(&mut self, _: &Interval<K>) {}
    fn removed(&mut self, _: &Interval<K>) {}
}

/// Intervals by their length, those of one length by their start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByLength<K>(BTreeSet<(u64, K)>);

impl<K> Default for ByLength<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Point> ByLength<K> {
    /// The longest interval, the last one of several.
    pub fn longest(&self) -> Option<Interval<K>> {
        self.0.last().map(|(length, start)| Interval::new(*start, *length))
    }

    /// The shortest interval of at least `length`, the first one of several.
    pub fn fitting(&self, length: u64) -> Option<Interval<K>> {
        let (length, start) = self.0.range((length, K::default())..).next()?;
        Some(Interval::new(*start, *length))
    }

    /// The longest interval that is shorter than `length`, the last one of several.
    pub fn longest_below(&self, length: u64) -> Option<Interval<K>> {
        let (length, start) = self.0.range(..(length, K::default())).next_back()?;
        Some(Interval::new(*start, *length))
    }

    /// Bytes of the intervals of at least `length`.
    pub fn bytes_from(&self, length: u64) -> u64 {
        self.0.range((length, K::default())..).map(|(length, _)| length).sum()
    }
}

impl<K: Point> Index<K> for ByLength<K> {
    fn added(&mut self, interval: &Interval<K>) {
        self.0.insert((interval.length(), interval.start));
    }

    fn removed(&mut self, interval: &Interval<K>) {
        self.0.remove(&(interval.length(), interval.start));
    }
}
