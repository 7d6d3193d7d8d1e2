//! Write cache of a hard disk: ranges not on the platters yet, neighbours joined.

use std::collections::BTreeMap;

/// Bytes that are written at once when the cache is emptied.
const DRAIN_BYTES: u64 = 1 << 20;
/// Number of candidates on either side of the head.
const NEAREST: usize = 2;

/// Ranges, by their start.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteCache {
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl WriteCache {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..=start).next_back();
        before.is_some_and(|(_, known_end)| *known_end >= end)
    }

    pub(super) fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((known, known_end)) = self.ranges.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if known_end < start {
                break;
            }
            self.ranges.remove(&known);
            self.bytes -= known_end - known;
            (start, end) = (start.min(known), end.max(known_end));
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    /// Candidates for the next write: ranges nearest to an offset.
    pub(super) fn near(&self, offset: u64) -> impl Iterator<Item = (u64, u64)> {
        let behind = self.ranges.range(offset..).take(NEAREST);
        let before = self.ranges.range(..offset).rev().take(NEAREST);
        behind.chain(before).map(|(start, end)| (*start, (*end).min(*start + DRAIN_BYTES)))
    }

    /// The start of a range is on the platters.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        if let Some(known_end) = self.ranges.remove(&start) {
            self.bytes -= end - start;
            if end < known_end {
                self.ranges.insert(end, known_end);
            }
        }
    }
}
