//! Sets of addresses as disjoint ranges, with an index by length where one has to look for room.

use std::collections::{BTreeMap, BTreeSet};

/// A range: where it begins, and its length.
pub(super) type Span = (u64, u64);

/// Index of a set's ranges, so that they can be found by other means than their place.
pub(super) trait Index {
    /// A range is there.
    fn added(&mut self, span: Span);
    /// A range is there no more.
    fn removed(&mut self, span: Span);
}

impl Index for () {
    fn added(&mut self, _: Span) {}
    fn removed(&mut self, _: Span) {}
}

/// Ranges by length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ByLength(BTreeSet<Span>);

impl ByLength {
    /// The index of ranges, given by length and start.
    pub(super) fn of(ranges: BTreeSet<Span>) -> Self {
        Self(ranges)
    }
}

impl Index for ByLength {
    fn added(&mut self, (start, length): Span) {
        self.0.insert((length, start));
    }

    fn removed(&mut self, (start, length): Span) {
        self.0.remove(&(length, start));
    }
}

/// Addresses, as the longest ranges that they make up: no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSet<I = ()> {
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
    index: I,
}

/// Ranges in which one looks for room. About 100 bytes of memory a range.
pub(super) type FreeRanges = RangeSet<ByLength>;

impl<I: Index> RangeSet<I> {
    /// Number of addresses.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns true if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.ranges.iter().map(|(start, length)| (*start, *length))
    }

    /// The range that holds an address.
    pub(super) fn holding(&self, address: u64) -> Option<Span> {
        let (start, length) = self.ranges.range(..=address).next_back()?;
        (address - start < *length).then_some((*start, *length))
    }

    /// The parts of a range that are in the set.
    pub(super) fn within(&self, (start, length): Span) -> Vec<Span> {
        let end = start + length;
        let before = self.holding(start).filter(|(first, _)| *first < start);
        let inside = self.ranges.range(start..end).map(|(start, length)| (*start, *length));
        let clip = |(first, length): Span| {
            let (from, to) = (first.max(start), (first + length).min(end));
            (from, to - from)
        };
        before.into_iter().chain(inside).map(clip).filter(|(_, length)| *length > 0).collect()
    }

    /// Returns true if all of a range is in the set.
    pub(super) fn contains(&self, (start, length): Span) -> bool {
        self.holding(start).is_some_and(|(first, whole)| start + length <= first + whole)
    }

    /// Adds a range; parts of it may be there already.
    pub(super) fn insert(&mut self, (start, length): Span) {
        if length == 0 {
            return;
        }
        let (mut from, mut to) = (start, start + length);
        // Whatever overlaps or touches it becomes part of it.
        while let Some((first, whole)) = self.ranges.range(..=to).next_back().map(|(s, l)| (*s, *l)) {
            if first + whole < from {
                break;
            }
            self.drop_range((first, whole));
            from = from.min(first);
            to = to.max(first + whole);
        }
        self.put((from, to - from));
    }

    /// Takes a range out; the parts of it that were there.
    pub(super) fn remove(&mut self, (start, length): Span) -> Vec<Span> {
        let parts = self.within((start, length));
        for (from, size) in &parts {
            let (first, whole) = self.holding(*from).expect("a part of a range that is there");
            self.drop_range((first, whole));
            let (to, end) = (from + size, first + whole);
            if first < *from {
                self.put((first, from - first));
            }
            if to < end {
                self.put((to, end - to));
            }
        }
        parts
    }

    fn put(&mut self, span: Span) {
        self.ranges.insert(span.0, span.1);
        self.bytes += span.1;
        self.index.added(span);
    }

    fn drop_range(&mut self, span: Span) {
        self.ranges.remove(&span.0);
        self.bytes -= span.1;
        self.index.removed(span);
    }
}

impl FreeRanges {
    /// The index.
    pub(super) fn by_length(&self) -> &ByLength {
        &self.index
    }

    /// The longest range, the last one of several.
    pub(super) fn longest(&self) -> Option<Span> {
        self.index.0.last().map(|(length, start)| (*start, *length))
    }

    /// The shortest range that is at least so long, the first one of several.
    pub(super) fn fitting(&self, length: u64) -> Option<Span> {
        self.index.0.range((length, 0)..).next().map(|(length, start)| (*start, *length))
    }
}

impl<I: Index + Default> FromIterator<Span> for RangeSet<I> {
    fn from_iter<T: IntoIterator<Item = Span>>(spans: T) -> Self {
        let mut set = Self::default();
        for span in spans {
            set.insert(span);
        }
        set
    }
}

/// Rest of a range without some parts of it, given in order.
pub(super) fn gaps((start, length): Span, parts: &[Span]) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut at = start;
    for (from, size) in parts {
        if *from > at {
            gaps.push((at, from - at));
        }
        at = from + size;
    }
    if at < start + length {
        gaps.push((at, start + length - at));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::to_usize;
    use proptest::prelude::*;

    const SPACE: u64 = 64;

    /// The ranges of a bitmap.
    fn runs(bits: &[bool]) -> Vec<Span> {
        let mut runs: Vec<Span> = Vec::new();
        for (at, _) in (0..).zip(bits).filter(|(_, bit)| **bit) {
            match runs.last_mut() {
                Some((start, length)) if *start + *length == at => *length += 1,
                _ => runs.push((at, 1)),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn a_set_is_a_bitmap(
            steps in prop::collection::vec((any::<bool>(), 0..SPACE, 0..SPACE), 1..80),
            probe in 0..SPACE,
        ) {
            let mut set = FreeRanges::default();
            let mut bits = [false; to_usize(SPACE)];
            for (insert, start, length) in steps {
                let span = (start, length.min(SPACE - start));
                let window = to_usize(span.0)..to_usize(span.0 + span.1);
                let there: Vec<Span> =
                    runs(&bits[window.clone()]).iter().map(|(at, length)| (at + start, *length)).collect();
                prop_assert_eq!(set.within(span), there.clone());
                if insert {
                    set.insert(span);
                } else {
                    prop_assert_eq!(set.remove(span), there);
                }
                bits[window].fill(insert);
                let expected = runs(&bits);
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.clone());
                prop_assert_eq!(set.bytes(), bits.iter().filter(|bit| **bit).count() as u64);
                prop_assert_eq!(set.longest().map(|span| span.1), expected.iter().map(|span| span.1).max());
                prop_assert_eq!(
                    set.fitting(length + 1).map(|span| span.1),
                    expected.iter().map(|span| span.1).filter(|size| *size > length).min()
                );
                prop_assert_eq!(set.holding(probe).is_some(), bits[to_usize(probe)]);
            }
        }
    }

    #[test]
    fn gaps_are_what_the_parts_leave() {
        assert_eq!(gaps((10, 10), &[]), [(10, 10)]);
        assert_eq!(gaps((10, 10), &[(10, 2), (15, 1)]), [(12, 3), (16, 4)]);
        assert_eq!(gaps((10, 10), &[(10, 10)]), []);
    }
}
