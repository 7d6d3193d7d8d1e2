//! Choice of the extents of a file so torn apart that writing them anew, side by side, pays.
//!
//! A reader of a file goes through its extents in their order; where the next one does not lie behind the last, a disk has to
//! seek. A run of extents that lie side by side is left alone once it is long enough. What lies between such runs is
//! written anew if at most half of the seeks are left.

use std::ops::Range;

/// Length in bytes of a run on the devices from which on it is left alone, unless the caller chooses another: a disk reads it
/// in ten times the time of a seek.
pub const GOOD_RUN_BYTES: u64 = 32 << 20;

/// Extent of a file that has data on the devices, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornExtent {
    /// Address of its data, in bytes.
    pub at: u64,
    /// Length of its data on the devices, in bytes.
    pub stored_bytes: u64,
    /// True if it may be written anew: not if something else shares it that is to go on sharing.
    pub may_move: bool,
    /// True if it is to be written anew wherever it lies, for its compression is not the wanted one.
    pub is_wanted: bool,
}

impl TornExtent {
    /// Returns true if the data of another one lies behind that of this one.
    fn goes_on_in(&self, next: &Self) -> bool {
        self.at.checked_add(self.stored_bytes) == Some(next.at) && self.may_move == next.may_move
    }
}

/// Has the runs at the ends of a part of a file stay where they may go on outside of it: their length is unknown.
pub fn keep_ends(extents: &mut [TornExtent], goes_on_before: bool, goes_on_behind: bool) {
    let first = 1 + extents.windows(2).take_while(|pair| pair[0].goes_on_in(&pair[1])).count();
    let last = 1 + extents.windows(2).rev().take_while(|pair| pair[0].goes_on_in(&pair[1])).count();
    let before = extents.iter_mut().take(if goes_on_before { first } else { 0 });
    before.for_each(|extent| extent.may_move = false);
    let behind = extents.iter_mut().rev().take(if goes_on_behind { last } else { 0 });
    behind.for_each(|extent| extent.may_move = false);
}

/// The extents that are worth being written anew, as ranges of those given. `run_bytes`: length from which on a run is left
/// alone.
pub fn worth_rewriting(extents: &[TornExtent], run_bytes: u64) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut torn = Torn::default();
    let mut from = 0;
    while let Some(rest) = extents.get(from..).filter(|rest| !rest.is_empty()) {
        let count = 1 + rest.windows(2).take_while(|pair| pair[0].goes_on_in(&pair[1])).count();
        let run = &rest[..count];
        let bytes = run.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.stored_bytes));
        let is_wanted = run.iter().any(|extent| extent.is_wanted);
        if !run[0].may_move || (bytes >= run_bytes && !is_wanted) {
            found.extend(torn.end(run_bytes));
        } else {
            torn.add(from..from + count, bytes, is_wanted);
        }
        from += count;
    }
    found.extend(torn.end(run_bytes));
    found
}

/// Runs that follow each other, all of them too short.
#[derive(Default)]
struct Torn {
    extents: Range<usize>,
    runs: u64,
    bytes: u64,
    is_wanted: bool,
}

impl Torn {
    fn add(&mut self, run: Range<usize>, bytes: u64, is_wanted: bool) {
        let start = if self.runs == 0 { run.start } else { self.extents.start };
        self.extents = start..run.end;
        self.runs += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_wanted |= is_wanted;
    }

    /// All of them, if it is worth it.
    fn end(&mut self, run_bytes: u64) -> Option<Range<usize>> {
        let Self { extents, runs, bytes, is_wanted } = std::mem::take(self);
        let runs_after = bytes.div_ceil(run_bytes.max(1)).max(1);
        let is_worth_it = runs >= 2 && runs_after.saturating_mul(2) <= runs;
        (runs > 0 && (is_worth_it || is_wanted)).then_some(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECTOR: u64 = 4096;
    const RUN: u64 = 16 * SECTOR;

    fn extent(sector: u64, sectors: u64) -> TornExtent {
        TornExtent { at: sector * SECTOR, stored_bytes: sectors * SECTOR, may_move: true, is_wanted: false }
    }

    /// First of each range, and the one behind its last.
    fn found(extents: &[TornExtent]) -> Vec<(usize, usize)> {
        worth_rewriting(extents, RUN).into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn short_runs_between_long_ones_are_written_anew() {
        let extents = [extent(0, 16), extent(90, 1), extent(70, 1), extent(100, 20), extent(50, 2)];
        assert_eq!(found(&extents), [(1, 3)], "one run alone gains nothing");
    }

    #[test]
    fn extents_that_lie_side_by_side_are_one_run() {
        let extents: Vec<TornExtent> = (0..32).map(|number| extent(number, 1)).collect();
        assert!(worth_rewriting(&extents, RUN).is_empty());
        let apart: Vec<TornExtent> = (0..32).map(|number| extent(number * 3, 1)).collect();
        assert_eq!(found(&apart), [(0, 32)]);
    }

    #[test]
    fn runs_at_the_ends_of_a_part_stay_where_they_may_go_on() {
        let extents = [extent(0, 1), extent(1, 1), extent(9, 1), extent(7, 1), extent(20, 1), extent(21, 2)];
        let stay = |before, behind| {
            let mut extents = extents;
            keep_ends(&mut extents, before, behind);
            extents.map(|extent| !extent.may_move)
        };
        assert_eq!(stay(false, false), [false; 6]);
        assert_eq!(stay(true, false), [true, true, false, false, false, false]);
        assert_eq!(stay(true, true), [true, true, false, false, true, true]);
        keep_ends(&mut [], true, true);
        let mut one = [extent(0, 1)];
        keep_ends(&mut one, false, true);
        assert!(!one[0].may_move);
    }

    #[test]
    fn shared_extents_stay_and_split_runs() {
        let mut extents: Vec<TornExtent> = (0..8).map(|number| extent(number * 3, 1)).collect();
        extents[4].may_move = false;
        assert_eq!(found(&extents), [(0, 4), (5, 8)]);
    }

    #[test]
    fn extents_of_another_compression_are_written_anew_wherever_they_lie() {
        let wanted = TornExtent { is_wanted: true, ..extent(0, 100) };
        assert_eq!(found(&[wanted]), [(0, 1)]);
        let stays = TornExtent { may_move: false, ..wanted };
        assert!(worth_rewriting(&[stays], RUN).is_empty());
    }

    proptest! {
        #[test]
        fn extents_written_anew_once_are_left_alone(
            places in prop::collection::vec((0u64..4000, 1u64..8, prop::bool::weighted(0.95)), 0..200),
            run_sectors in 1u64..64,
        ) {
            let mut extents: Vec<TornExtent> = places
                .iter()
                .map(|(at, sectors, may_move)| TornExtent { may_move: *may_move, ..extent(*at, *sectors) })
                .collect();
            let (mut free, mut seen) = (1_000_000 * SECTOR, 0);
            for range in worth_rewriting(&extents, run_sectors * SECTOR) {
                prop_assert!(range.start >= seen && extents[range.clone()].iter().all(|one| one.may_move));
                seen = range.end;
                for one in &mut extents[range] {
                    one.at = free;
                    free += one.stored_bytes;
                }
                free += SECTOR;
            }
            prop_assert_eq!(worth_rewriting(&extents, run_sectors * SECTOR), []);
        }
    }
}
