//! Sets of bytes of a file, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a file, as the longest ranges that they make up: no two touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteRanges {
    /// The end of each range, by its start.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl ByteRanges {
    /// The number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns true if there is no byte.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }

    /// The parts of a range that are in the set, in order.
    pub(crate) fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.ranges.range(..range.start).next_back();
        let inside = self.ranges.range(range.start..range.end.max(range.start));
        let clipped = before.into_iter().chain(inside).map(|(start, end)| {
            let (start, end) = ((*start).max(range.start), (*end).min(range.end));
            start..end
        });
        clipped.filter(|part| part.start < part.end).collect()
    }

    /// Adds a range; parts of it may be there.
    pub(crate) fn add(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range.clone();
        while let Some((first, last)) = self.ranges.range(..=end).next_back().map(|(f, l)| (*f, *l)) {
            if last < start {
                break;
            }
            (start, end) = (start.min(first), end.max(last));
            self.ranges.remove(&first);
            self.bytes -= last - first;
        }
        self.put(start..end);
    }

    /// Takes a range out, as far as it is there.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((first, last)) = self.ranges.range(..range.end).next_back().map(|(f, l)| (*f, *l)) {
            if last <= range.start {
                return;
            }
            self.ranges.remove(&first);
            self.bytes -= last - first;
            if last > range.end {
                self.put(range.end..last);
            }
            if first < range.start {
                self.put(first..range.start);
                return;
            }
        }
    }

    fn put(&mut self, range: Range<u64>) {
        self.bytes += range.end - range.start;
        self.ranges.insert(range.start, range.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::to_usize;
    use proptest::prelude::*;

    const END: usize = 80;

    proptest! {
        #[test]
        fn ranges_hold_the_bytes_that_were_added_and_not_taken_out(
            steps in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..40),
            asked in (0u64..60, 0u64..20),
        ) {
            let (mut ranges, mut plain) = (ByteRanges::default(), [false; END]);
            for (is_added, start, length) in steps {
                let range = start..start + length;
                if is_added { ranges.add(&range) } else { ranges.remove(&range) }
                plain[to_usize(range.start)..to_usize(range.end)].fill(is_added);
                let mut found = [false; END];
                ranges.iter().flatten().for_each(|at| found[to_usize(at)] = true);
                prop_assert_eq!(found, plain);
                prop_assert_eq!(ranges.bytes(), plain.iter().filter(|is_there| **is_there).count() as u64);
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", all);
                prop_assert_eq!((ranges.len(), ranges.is_empty()), (all.len(), all.is_empty()));
            }
            let range = asked.0..asked.0 + asked.1;
            let within: Vec<u64> = ranges.within(&range).into_iter().flatten().collect();
            let expected: Vec<u64> = range.filter(|at| plain[to_usize(*at)]).collect();
            prop_assert_eq!(within, expected);
        }
    }
}
