//! Intervals of addresses, and sets of them: the bytes of a file that changed, the free space of a block group, the places of
//! a device where a write failed.
//! Must not know: the meaning of an address.
//!
//! An address is any [`Point`]: a plain `u64`, or one of the typed addresses. An [`IntervalSet`] holds the longest intervals that
//! its points make up, so that equal sets are equal values: a map from the start of each interval to its end, the sum of
//! the lengths, and perhaps an [`Index`] that finds intervals by other means than their places ([`ByLength`]: by best fit).
//! Each operation costs one search of the map, and what it removes or returns.

mod index;
mod ordered;
mod set;
#[cfg(test)]
mod tests;

pub use index::{ByLength, Index};
pub use ordered::{gaps, runs};
pub use set::IntervalSet;

use std::fmt;
use std::ops::{Add, Range, Sub};

/// An address: a number, with distances in bytes. The default is the least one.
pub trait Point:
    Copy + Default + Ord + fmt::Debug + Add<u64, Output = Self> + Sub<Self, Output = u64>
{
}

impl<K> Point for K where
    K: Copy + Default + Ord + fmt::Debug + Add<u64, Output = Self> + Sub<Self, Output = u64>
{
}

/// The addresses from `start` up to, and without, `end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval<K = u64> {
    /// The first address.
    pub start: K,
    /// The first address after it.
    pub end: K,
}

impl<K: Point> Interval<K> {
    /// The interval of `length` addresses from `start` on.
    pub fn new(start: K, length: u64) -> Self {
        Self { start, end: start + length }
    }

    /// Number of addresses.
    pub fn length(&self) -> u64 {
        if self.is_empty() { 0 } else { self.end - self.start }
    }

    /// Returns true if there is no address.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Returns true if an address lies in it.
    pub fn contains(&self, point: K) -> bool {
        self.start <= point && point < self.end
    }

    /// The addresses that both intervals have; perhaps none.
    pub fn intersection(&self, other: &Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

impl<K> From<Range<K>> for Interval<K> {
    fn from(range: Range<K>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

impl<K: Copy> From<&Range<K>> for Interval<K> {
    fn from(range: &Range<K>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

impl<K> From<Interval<K>> for Range<K> {
    fn from(interval: Interval<K>) -> Self {
        interval.start..interval.end
    }
}

impl<K: fmt::Debug> fmt::Debug for Interval<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.start, self.end)
    }
}
