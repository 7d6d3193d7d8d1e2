//! Sets of addresses.

use crate::{ByLength, Index, Interval, Point};
use std::collections::BTreeMap;

/// Addresses, as the longest intervals that they make up: no two of these touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalSet<K, I = ()> {
    /// The end of each interval, by its start.
    ends: BTreeMap<K, K>,
    bytes: u64,
    index: I,
}

impl<K, I: Default> Default for IntervalSet<K, I> {
    fn default() -> Self {
        Self { ends: BTreeMap::new(), bytes: 0, index: I::default() }
    }
}

impl<K: Point, I: Index<K> + Default> IntervalSet<K, I> {
    /// The set of one interval.
    pub fn of(interval: impl Into<Interval<K>>) -> Self {
        let mut set = Self::default();
        set.insert(interval);
        set
    }
}

impl<K: Point, I: Index<K>> IntervalSet<K, I> {
    /// Number of addresses.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of intervals.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there is no address.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The intervals in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Interval<K>> + '_ {
        self.ends.iter().map(interval)
    }

    /// The intervals that begin at an address or after it, in order.
    pub fn starting_from(&self, point: K) -> impl Iterator<Item = Interval<K>> + '_ {
        self.ends.range(point..).map(interval)
    }

    /// The intervals that begin before an address, the last one first.
    pub fn starting_before(&self, point: K) -> impl Iterator<Item = Interval<K>> + '_ {
        self.ends.range(..point).rev().map(interval)
    }

    /// The interval that holds an address.
    pub fn holding(&self, point: K) -> Option<Interval<K>> {
        self.ends.range(..=point).next_back().map(interval).filter(|found| point < found.end)
    }

    /// The parts of an interval that are in the set, in order.
    pub fn within(&self, asked: impl Into<Interval<K>>) -> Vec<Interval<K>> {
        let asked = asked.into();
        if asked.is_empty() {
            return Vec::new();
        }
        let before = self.ends.range(..asked.start).next_back();
        let inside = self.ends.range(asked.start..asked.end);
        let parts = before.into_iter().chain(inside).map(|found| interval(found).intersection(&asked));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Returns true if some of an interval is in the set.
    pub fn intersects(&self, asked: impl Into<Interval<K>>) -> bool {
        let asked = asked.into();
        let last = self.ends.range(..asked.end).next_back();
        !asked.is_empty() && last.is_some_and(|(_, end)| *end > asked.start)
    }

    /// Returns true if all of an interval is in the set.
    pub fn contains(&self, asked: impl Into<Interval<K>>) -> bool {
        let asked = asked.into();
        asked.is_empty() || self.holding(asked.start).is_some_and(|found| asked.end <= found.end)
    }

    /// Adds an interval; parts of it may be there.
    pub fn insert(&mut self, added: impl Into<Interval<K>>) {
        let mut added = added.into();
        if added.is_empty() {
            return;
        }
        // All that overlaps or touches it becomes part of it.
        while let Some(found) = self.ends.range(..=added.end).next_back().map(interval) {
            if found.end < added.start {
                break;
            }
            self.take(found);
            added = Interval { start: added.start.min(found.start), end: added.end.max(found.end) };
        }
        self.put(added);
    }

    /// Removes an interval, as far as it is there; returns the parts that were, in order.
    pub fn remove(&mut self, removed: impl Into<Interval<K>>) -> Vec<Interval<K>> {
        let removed = removed.into();
        let parts = self.within(removed);
        for part in &parts {
            let found = self.holding(part.start).expect("a part of an interval that is there");
            self.take(found);
            self.put(Interval { start: found.start, end: part.start });
            self.put(Interval { start: part.end, end: found.end });
        }
        parts
    }

    /// Panics unless the intervals are apart, and their sum and their index agree with recounts: a costly check, for tests.
    pub fn verify(&self)
    where
        I: Default + PartialEq + std::fmt::Debug,
    {
        let (mut end, mut bytes, mut index) = (None, 0, I::default());
        for interval in self.iter() {
            assert!(!interval.is_empty(), "{interval:?} is empty");
            assert!(end.is_none_or(|end| interval.start > end), "{interval:?} touches the one before");
            end = Some(interval.end);
            bytes += interval.length();
            index.added(&interval);
        }
        assert_eq!(self.bytes, bytes, "kept and recounted bytes");
        assert_eq!(self.index, index, "kept and recounted index");
    }

    /// Puts an interval that touches no other, unless it is empty.
    fn put(&mut self, interval: Interval<K>) {
        if !interval.is_empty() {
            self.ends.insert(interval.start, interval.end);
            self.bytes += interval.length();
            self.index.added(&interval);
        }
    }

    /// Takes out an interval that is in the map as it is.
    fn take(&mut self, interval: Interval<K>) {
        self.ends.remove(&interval.start);
        self.bytes -= interval.length();
        self.index.removed(&interval);
    }
}

impl<K: Point> IntervalSet<K, ByLength<K>> {
    /// The longest interval, the last one of several.
    pub fn longest(&self) -> Option<Interval<K>> {
        self.index.longest()
    }

    /// The shortest interval of at least `length`, the first one of several.
    pub fn fitting(&self, length: u64) -> Option<Interval<K>> {
        self.index.fitting(length)
    }

    /// The longest interval that is shorter than `length`, the last one of several.
    pub fn longest_below(&self, length: u64) -> Option<Interval<K>> {
        self.index.longest_below(length)
    }

    /// Bytes of the intervals of at least `length`.
    pub fn bytes_from(&self, length: u64) -> u64 {
        self.index.bytes_from(length)
    }
}

impl<K: Point, I: Index<K> + Default, T: Into<Interval<K>>> FromIterator<T> for IntervalSet<K, I> {
    fn from_iter<S: IntoIterator<Item = T>>(intervals: S) -> Self {
        let mut set = Self::default();
        intervals.into_iter().for_each(|interval| set.insert(interval));
        set
    }
}

fn interval<K: Copy>((start, end): (&K, &K)) -> Interval<K> {
    Interval { start: *start, end: *end }
}
