//! Data fetched before it is read: ranges of the logical space, the mirror that each comes from, and the memory that
//! holds them until they are read. The memory is bounded ([`BYTES_MAX`]); a range leaves it when all of it has been read,
//! when it is written, or when nothing has come for it for a while.

use super::fetch::Part;
use super::load::{Clock, Load};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Upper bound on the memory of what is fetched and not read yet, in bytes.
pub(crate) const BYTES_MAX: u64 = 256 << 20;
/// Upper bound on ranges.
const RANGES_MAX: usize = 4096;
/// Age at which a range is given up, in nanoseconds: a slow reader comes for it late.
const AGE_MAX_NS: u64 = 60_000_000_000;
/// The same while more than half of the memory is in use.
const CROWDED_AGE_MAX_NS: u64 = 4_000_000_000;

/// Ranges of the logical space, disjoint.
#[derive(Debug, Default)]
pub(crate) struct Prefetched {
    ranges: BTreeMap<u64, Range>,
    /// By age: where a range begins, and its number.
    order: VecDeque<(u64, u64)>,
    /// Numbers of ranges given out so far.
    made: u64,
    /// Memory in use, in bytes.
    bytes: u64,
}

/// A range that one mirror was asked for.
#[derive(Debug)]
struct Range {
    end: u64,
    way: usize,
    /// Bytes that have not been read yet.
    left: u64,
    number: u64,
    /// Load of the device, where that is counted.
    load: Option<Arc<Load>>,
    made_ns: u64,
    /// The fetches, all of the range; none if the host has it.
    slices: Vec<Slice>,
}

/// A slice of a range, in one fetch.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// Bytes from the start of the range to the end of the slice.
    pub(crate) end: u64,
    /// Bytes that have not been read yet.
    pub(crate) left: u64,
    /// The answer; none once all of it has been read.
    pub(crate) part: Option<Part>,
}

/// The range that holds an address.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) way: usize,
    /// End of the range, or of the slice whose answer is here.
    pub(crate) end: u64,
    /// True if part of the range has not been read yet.
    pub(crate) is_awaited: bool,
    /// The answer from the address on.
    pub(crate) part: Option<Part>,
}

/// A range to be remembered.
pub(crate) struct NewRange {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) way: usize,
    pub(crate) load: Option<Arc<Load>>,
    pub(crate) slices: Vec<Slice>,
}

impl Prefetched {
    /// Gives up ranges that are too old; costs nothing where there are none.
    pub(crate) fn expire(&mut self, clock: &Clock) {
        if !self.order.is_empty() {
            self.forget_old(clock.now());
        }
    }

    /// Bytes that may be fetched without passing the bound.
    pub(crate) fn room(&self) -> u64 {
        BYTES_MAX.saturating_sub(self.bytes)
    }

    /// The range that holds an address.
    pub(crate) fn find(&self, logical: u64) -> Option<Found> {
        let (start, range) = self.ranges.range(..=logical).next_back()?;
        if logical >= range.end {
            return None;
        }
        let offset = logical - start;
        let index = range.slices.partition_point(|slice| slice.end <= offset);
        let slice_start = index.checked_sub(1).map_or(0, |before| range.slices[before].end);
        let slice = range.slices.get(index);
        let part = slice.and_then(|slice| slice.part.as_ref()).map(|part| Part {
            fetch: Arc::clone(&part.fetch),
            at: part.at + brindle_ondisk::to_usize(offset - slice_start),
        });
        let end = slice.filter(|_| part.is_some()).map_or(range.end, |slice| start + slice.end);
        Some(Found { way: range.way, end, is_awaited: range.left > 0, part })
    }

    /// Start of the next range, at or after an address.
    pub(crate) fn next(&self, logical: u64) -> Option<u64> {
        self.ranges.range(logical..).next().map(|(start, _)| *start)
    }

    /// Remembers a range that is fetched. What was remembered of it before is forgotten.
    pub(crate) fn add(&mut self, new: NewRange, now: u64) {
        self.forget_old(now);
        self.forget(new.start, new.length);
        self.made += 1;
        let (start, end, number) = (new.start, new.start.saturating_add(new.length), self.made);
        self.bytes += new.slices.last().map_or(0, |slice| slice.end);
        let (way, load, slices) = (new.way, new.load, new.slices);
        self.ranges.insert(start, Range { end, way, left: new.length, number, load, made_ns: now, slices });
        self.order.push_back((start, number));
    }

    /// Notes that part of a range has been read; a slice of which nothing is left gives back its memory.
    pub(crate) fn take(&mut self, logical: u64, length: u64) {
        let Some((start, range)) = self.ranges.range_mut(..=logical).next_back() else { return };
        if logical >= range.end {
            return;
        }
        let taken = range.left.min(length);
        if let Some(load) = range.load.as_ref().filter(|_| taken > 0) {
            load.take_expected(taken, taken == range.left);
        }
        range.left -= taken;
        let offset = logical - start;
        let mut slice_start = 0;
        for slice in &mut range.slices {
            let (from, to) = (offset.max(slice_start), (offset + length).min(slice.end));
            let length = slice.end - slice_start;
            slice_start = slice.end;
            slice.left = slice.left.saturating_sub(to.saturating_sub(from));
            if slice.left == 0 && slice.part.take().is_some() {
                self.bytes -= length;
            }
        }
    }

    /// Forgets what lies in a range, which is something else from now on.
    pub(crate) fn forget(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        while let Some((at, _)) = self.ranges.range(..end).next_back().filter(|(_, range)| range.end > start)
        {
            let at = *at;
            self.give_up(at);
        }
    }

    fn forget_old(&mut self, now: u64) {
        while let Some((start, number)) = self.order.front().copied() {
            let known = self.ranges.get(&start).filter(|range| range.number == number);
            let age_max = if self.bytes > BYTES_MAX / 2 { CROWDED_AGE_MAX_NS } else { AGE_MAX_NS };
            let is_old = |range: &Range| now.saturating_sub(range.made_ns) > age_max;
            if known.is_some_and(|range| !is_old(range)) && self.order.len() < RANGES_MAX {
                return;
            }
            let is_known = known.is_some();
            self.order.pop_front();
            if is_known {
                self.give_up(start);
            }
        }
    }

    /// Drops a range; its memory is free once its readers are done.
    fn give_up(&mut self, start: u64) {
        let Some(range) = self.ranges.remove(&start) else { return };
        let mut slice_start = 0;
        for slice in &range.slices {
            if slice.part.is_some() {
                self.bytes -= slice.end - slice_start;
            }
            slice_start = slice.end;
        }
        if let Some(load) = range.load.filter(|_| range.left > 0) {
            load.take_expected(range.left, true);
        }
    }

    /// Bytes in memory, in use or under way.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::fetch::FetchPlan;
    use super::*;

    fn add(known: &mut Prefetched, load: &Arc<Load>, start: u64, length: u64, way: usize, now: u64) {
        load.expect(length, 1, now);
        let middle = length / 2;
        let slice = |start: u64, end: u64| Slice {
            end,
            left: end - start,
            part: Some(FetchPlan::default().add(0, start, end - start)),
        };
        let slices = vec![slice(0, middle), slice(middle, length)];
        known.add(NewRange { start, length, way, load: Some(Arc::clone(load)), slices }, now);
    }

    #[test]
    fn a_reader_finds_what_was_fetched_and_from_which_mirror() {
        let (mut known, load) = (Prefetched::default(), Arc::new(Load::default()));
        add(&mut known, &load, 100, 50, 2, 0);
        add(&mut known, &load, 200, 50, 1, 0);
        let way = |known: &Prefetched, at| known.find(at).map(|found| (found.way, found.end));
        let found = [99, 100, 124, 125, 149, 150, 200].map(|at| way(&known, at));
        assert_eq!(
            found,
            [None, Some((2, 125)), Some((2, 125)), Some((2, 150)), Some((2, 150)), None, Some((1, 225))]
        );
        assert_eq!(known.find(130).and_then(|found| found.part).map(|part| part.at), Some(5));
        assert_eq!((load.statistics().expected, known.bytes()), (2, 100));
        known.take(100, 25);
        assert_eq!((load.statistics().expected, known.bytes()), (2, 75), "a slice is done");
        assert_eq!(way(&known, 110), Some((2, 150)), "the way is known all the same");
        known.take(150, 9);
        assert_eq!(load.statistics().expected, 2);
        known.take(125, 25);
        assert_eq!((load.statistics().expected, known.bytes()), (1, 50));
        assert_eq!(known.find(110).map(|found| found.is_awaited), Some(false), "it may be read again");
        known.take(100, 50);
        assert_eq!((load.statistics().expected, known.bytes()), (1, 50));
        known.expire(&Clock::new(|| AGE_MAX_NS));
        assert!(known.find(110).is_some());
        known.expire(&Clock::new(|| AGE_MAX_NS + 1));
        assert_eq!((way(&known, 110), load.statistics().expected, known.bytes()), (None, 0, 0));
    }

    #[test]
    fn a_choice_needs_no_memory_and_memory_that_is_short_is_given_back_early() {
        let (mut known, load) = (Prefetched::default(), Arc::new(Load::default()));
        known.add(NewRange { start: 100, length: 50, way: 3, load: None, slices: Vec::new() }, 0);
        let found = known.find(120).expect("a choice");
        assert_eq!((found.way, found.end, found.part.is_none(), known.bytes()), (3, 150, true, 0));
        known.take(100, 50);
        assert_eq!(known.find(120).map(|found| found.is_awaited), Some(false));
        add(&mut known, &load, 1000, BYTES_MAX / 2, 0, 0);
        known.expire(&Clock::new(|| CROWDED_AGE_MAX_NS + 1));
        assert!(known.find(1000).is_some(), "half of the memory is free");
        add(&mut known, &load, 2 * BYTES_MAX, 1000, 0, CROWDED_AGE_MAX_NS + 1);
        known.expire(&Clock::new(|| CROWDED_AGE_MAX_NS + 1));
        assert!(known.find(1000).is_none() && known.find(2 * BYTES_MAX).is_some());
        assert_eq!(known.bytes(), 1000);
    }

    #[test]
    fn a_range_that_is_written_is_forgotten_whole() {
        let (mut known, load) = (Prefetched::default(), Arc::new(Load::default()));
        for start in [0, 100, 200] {
            add(&mut known, &load, start, 50, 0, 0);
        }
        known.forget(50, 50);
        assert_eq!(known.bytes(), 150);
        known.forget(149, 1);
        assert_eq!((known.bytes(), known.find(100).is_none(), known.next(60)), (100, true, Some(200)));
        known.forget(0, 1000);
        assert_eq!((known.bytes(), load.statistics().expected), (0, 0));
    }

    #[test]
    fn a_range_that_is_never_read_is_given_up() {
        let (mut known, load) = (Prefetched::default(), Arc::new(Load::default()));
        add(&mut known, &load, 0, 50, 0, 0);
        add(&mut known, &load, 100, 50, 0, AGE_MAX_NS + 1);
        assert_eq!((known.find(0).is_none(), load.statistics().expected), (true, 1));
        add(&mut known, &load, 100, 50, 0, AGE_MAX_NS + 2);
        assert_eq!((known.ranges.len(), load.statistics().expected), (1, 1), "fetched anew");
        for start in 1..=2 * RANGES_MAX as u64 {
            add(&mut known, &load, start * 1000, 50, 0, AGE_MAX_NS + 3);
        }
        assert!(known.ranges.len() <= RANGES_MAX && known.order.len() <= RANGES_MAX);
        assert_eq!(load.statistics().expected as usize, known.ranges.len());
        assert_eq!(known.bytes(), known.ranges.len() as u64 * 50);
    }
}
