//! Write cache of a hard disk: ranges not on the platters yet, neighbours joined.

use super::shingles::Shingles;
use brindle_interval::{Interval, IntervalSet};

/// Bytes that are written at once when the cache is emptied.
const DRAIN_BYTES: u64 = 1 << 20;
/// Number of candidates on either side of the head.
const NEAREST: usize = 2;

/// Ranges that the device has taken and not written.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteCache(IntervalSet<u64>);

impl WriteCache {
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        self.0.contains(start..end)
    }

    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.0.insert(start..end);
    }

    /// Candidates for the next write: ranges nearest to an offset.
    pub(super) fn near(&self, offset: u64) -> impl Iterator<Item = Interval> {
        let after = self.0.starting_from(offset).take(NEAREST);
        let before = self.0.starting_before(offset).take(NEAREST);
        after.chain(before).map(|range| Interval { end: range.end.min(range.start + DRAIN_BYTES), ..range })
    }

    /// The next write of a stream that goes to the bands of a shingled disk.
    pub(super) fn stream(&self, shingles: &Shingles) -> Option<Interval> {
        let goes_on = shingles
            .stream_end()
            .and_then(|end| self.0.holding(end))
            .filter(|range| shingles.stream_end() == Some(range.start));
        let long = if self.bytes() < shingles.band_bytes() { None } else { shingles.stream(self.0.iter()) };
        let found = shingles.stream(goes_on.into_iter()).or(long)?;
        Some(Interval { end: found.end.min(found.start + DRAIN_BYTES), ..found })
    }

    /// The first ranges: a number of them and a number of bytes at most.
    pub(super) fn batch(&self, ranges: usize, mut bytes: u64) -> Vec<Interval> {
        let mut batch = Vec::new();
        for range in self.0.iter().take(ranges) {
            let part = Interval { end: range.end.min(range.start + bytes), ..range };
            if part.is_empty() {
                break;
            }
            bytes -= part.length();
            batch.push(part);
        }
        batch
    }

    /// The start of a range is on the platters. A range that has grown at its front meanwhile is written once more.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        if self.0.holding(start).is_some_and(|range| range.start == start) {
            self.0.remove(start..end);
        }
    }
}
