use super::*;
use proptest::prelude::*;

const SPACE: u64 = 64;

/// A typed address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Address(u64);

impl Add<u64> for Address {
    type Output = Self;

    fn add(self, length: u64) -> Self {
        Self(self.0 + length)
    }
}

impl Sub for Address {
    type Output = u64;

    fn sub(self, start: Self) -> u64 {
        self.0 - start.0
    }
}

/// The plain model: a flag an address.
#[derive(Clone, PartialEq, Eq)]
struct Flags([bool; 64]);

impl Flags {
    fn fill(&mut self, interval: Interval<Address>, value: bool) {
        (interval.start.0..interval.end.0).for_each(|at| self.0[index(at)] = value);
    }

    /// The runs of an interval that are set.
    fn runs(&self, interval: Interval<Address>, value: bool) -> Vec<Interval<Address>> {
        let mut runs: Vec<Interval<Address>> = Vec::new();
        for at in (interval.start.0..interval.end.0).filter(|at| self.0[index(*at)] == value) {
            match runs.last_mut().filter(|run| run.end == Address(at)) {
                Some(run) => run.end = Address(at + 1),
                None => runs.push(Interval::new(Address(at), 1)),
            }
        }
        runs
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("small")
}

fn intervals() -> impl Strategy<Value = Interval<Address>> {
    (0..SPACE, 0..SPACE).prop_map(|(start, length)| Interval::new(Address(start), length.min(SPACE - start)))
}

proptest! {
    #[test]
    fn a_set_is_a_table_of_flags(
        steps in prop::collection::vec((any::<bool>(), intervals()), 1..80),
        asked in intervals(),
        length in 1..SPACE,
    ) {
        let everything = Interval::new(Address(0), SPACE);
        let mut set = IntervalSet::<Address, ByLength<Address>>::default();
        let mut flags = Flags([false; 64]);
        for (is_insertion, interval) in steps {
            let there = flags.runs(interval, true);
            prop_assert_eq!(set.within(interval), there.clone());
            if is_insertion {
                set.insert(interval);
            } else {
                prop_assert_eq!(set.remove(interval), there);
            }
            flags.fill(interval, is_insertion);
            set.verify();

            let expected = flags.runs(everything, true);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!((set.len(), set.is_empty()), (expected.len(), expected.is_empty()));
            prop_assert_eq!(set.bytes(), expected.iter().map(Interval::length).sum::<u64>());
            let longest = expected.iter().max_by_key(|run| (run.length(), run.start));
            prop_assert_eq!(set.longest(), longest.copied());
            let fitting = expected.iter().filter(|run| run.length() >= length);
            prop_assert_eq!(set.bytes_from(length), fitting.clone().map(Interval::length).sum::<u64>());
            prop_assert_eq!(set.fitting(length), fitting.min_by_key(|run| (run.length(), run.start)).copied());
            let below = expected.iter().filter(|run| run.length() < length);
            prop_assert_eq!(set.longest_below(length), below.max_by_key(|run| (run.length(), run.start)).copied());

            let holding = expected.iter().find(|run| run.contains(asked.start));
            prop_assert_eq!(set.holding(asked.start), holding.copied());
            prop_assert_eq!(set.intersects(asked), !flags.runs(asked, true).is_empty());
            prop_assert_eq!(set.contains(asked), flags.runs(asked, false).is_empty());
            prop_assert_eq!(gaps(asked, set.within(asked)), flags.runs(asked, false));
            prop_assert_eq!(gaps(asked, set.iter()), flags.runs(asked, false));
            let (before, after): (Vec<_>, Vec<_>) = expected.iter().partition(|run| run.start < asked.start);
            prop_assert_eq!(set.starting_from(asked.start).collect::<Vec<_>>(), after);
            prop_assert_eq!(set.starting_before(asked.start).collect::<Vec<_>>(), before.into_iter().rev().collect::<Vec<_>>());
        }
    }

    #[test]
    fn runs_and_gaps_of_parts_that_overlap(whole in intervals(), mut parts in prop::collection::vec(intervals(), 0..10)) {
        parts.sort_unstable();
        let mut flags = Flags([false; 64]);
        parts.iter().for_each(|part| flags.fill(*part, true));
        prop_assert_eq!(gaps(whole, parts.clone()), flags.runs(whole, false));
        prop_assert_eq!(runs(parts), flags.runs(Interval::new(Address(0), SPACE), true));
    }
}

#[test]
fn an_empty_part_cuts_no_gap() {
    let whole = Interval { start: 0, end: 42u64 };
    assert_eq!(gaps(whole, [Interval { start: 1, end: 1 }]), [whole]);
}

#[test]
fn the_last_address_is_an_end() {
    let mut set = IntervalSet::<u64>::default();
    set.insert(10..u64::MAX);
    set.insert(0..10);
    assert_eq!(set.iter().collect::<Vec<_>>(), [Interval { start: 0, end: u64::MAX }]);
    assert_eq!(set.remove(5..u64::MAX), [Interval { start: 5, end: u64::MAX }]);
    assert_eq!(set.bytes(), 5);
}

#[test]
fn intervals_that_end_before_they_begin_are_empty() {
    let backwards = Interval { start: 7u64, end: 3 };
    assert_eq!((backwards.length(), backwards.is_empty()), (0, true));
    let mut set = IntervalSet::<u64>::of(0..10);
    set.insert(backwards);
    assert_eq!(set.remove(backwards), []);
    assert!(!set.intersects(backwards));
    assert_eq!((set.bytes(), set.len()), (10, 1));
}
