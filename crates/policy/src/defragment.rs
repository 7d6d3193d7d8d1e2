//! Choice of the leaves of a tree so scattered that writing them anew, side by side, pays.
//!
//! A scan of a tree reads its leaves in the order of keys; where the next one does not lie behind the last, a disk has
//! to seek, which takes it as long as to read half a megabyte and more. So a run of that length is as good as any
//! longer one and is left alone. What lies between such runs is written anew if that leaves at most half of the seeks:
//! what was written once is not touched again unless something else has scattered it.

pub mod contents;
pub mod idle;
pub mod torn;

use brindle_ondisk::to_u64;
use std::ops::Range;

/// Length in bytes of a run of leaves that costs no more to seek to than to read.
pub const GOOD_RUN_BYTES: u64 = 512 << 10;

/// A leaf, in the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Address in bytes.
    pub at: u64,
    /// True if it may be written anew: not if another tree shares it.
    pub may_move: bool,
}

/// Scatter of a tree's leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scatter {
    /// Number of leaves.
    pub leaves: u64,
    /// Number of leaves directly after the one before.
    pub adjacent: u64,
    /// Distances from the end of a leaf to the start of the next, of those not adjacent, summed, in bytes.
    pub distance_bytes: u64,
    /// Address of the last counted leaf.
    last: Option<u64>,
}

impl Scatter {
    /// The next leaf lies here.
    pub fn add(&mut self, at: u64, nodesize: u64) {
        self.leaves += 1;
        if let Some(last) = self.last.replace(at) {
            let distance = at.abs_diff(last.saturating_add(nodesize));
            self.adjacent += u64::from(distance == 0);
            self.distance_bytes = self.distance_bytes.saturating_add(distance);
        }
    }

    /// Number of leaves that have one before them.
    pub fn siblings(&self) -> u64 {
        self.leaves.saturating_sub(1)
    }

    /// Percentage of siblings that are adjacent; 100 where there are none.
    pub fn adjacent_percent(&self) -> u64 {
        (self.adjacent * 100).checked_div(self.siblings()).unwrap_or(100)
    }
}

/// The leaves that are worth being written anew, as ranges of those given: each is to become one run. `room_bytes`: the
/// longest run that free space has.
pub fn worth_moving(leaves: &[Leaf], nodesize: u64, room_bytes: u64) -> Vec<Range<usize>> {
    let good = GOOD_RUN_BYTES.div_ceil(nodesize).max(2);
    let room = room_bytes / nodesize;
    let mut found = Vec::new();
    let mut scattered = Scattered::default();
    for run in runs(leaves, nodesize) {
        let length = to_u64(run.len());
        if length >= good || !leaves[run.start].may_move {
            found.extend(scattered.end(room));
        } else {
            scattered.add(run);
        }
    }
    found.extend(scattered.end(room));
    found
}

/// Runs that follow each other, all of them too short.
#[derive(Default)]
struct Scattered {
    leaves: Range<usize>,
    runs: u64,
}

impl Scattered {
    fn add(&mut self, run: Range<usize>) {
        if self.runs == 0 {
            self.leaves = run;
        } else {
            self.leaves.end = run.end;
        }
        self.runs += 1;
    }

    /// All of them, if it is worth it.
    fn end(&mut self, room: u64) -> Option<Range<usize>> {
        let Self { leaves, runs } = std::mem::take(self);
        let runs_after = if room == 0 { u64::MAX / 2 } else { to_u64(leaves.len()).div_ceil(room) };
        (runs >= 2 && runs_after * 2 <= runs).then_some(leaves)
    }
}

/// The leaves that lie side by side and may move, or may not, alike.
fn runs(leaves: &[Leaf], nodesize: u64) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = leaves.get(from..).filter(|rest| !rest.is_empty())?;
        let follows = |pair: &&[Leaf]| {
            pair[0].at.checked_add(nodesize) == Some(pair[1].at) && pair[0].may_move == pair[1].may_move
        };
        let run = from..from + 1 + rest.windows(2).take_while(follows).count();
        from = run.end;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODESIZE: u64 = 16384;
    const ROOM: u64 = 1 << 30;

    /// Leaves in the blocks of these numbers, all of which may move.
    fn leaves(blocks: impl IntoIterator<Item = u64>) -> Vec<Leaf> {
        blocks.into_iter().map(|block| Leaf { at: block * NODESIZE, may_move: true }).collect()
    }

    fn scatter(leaves: &[Leaf]) -> Scatter {
        let mut scatter = Scatter::default();
        leaves.iter().for_each(|leaf| scatter.add(leaf.at, NODESIZE));
        scatter
    }

    /// First and last of each range.
    fn found(leaves: &[Leaf], room: u64) -> Vec<(usize, usize)> {
        worth_moving(leaves, NODESIZE, room).iter().map(|range| (range.start, range.end - 1)).collect()
    }

    #[test]
    fn leaves_between_good_runs_are_written_anew() {
        let all = leaves((0..40).chain([100, 90, 95]).chain(200..240));
        assert_eq!(found(&all, ROOM), [(40, 42)]);
        assert_eq!(scatter(&all), Scatter { leaves: 83, adjacent: 78, ..scatter(&all) });
    }

    #[test]
    fn nothing_is_gained_by_moving_one_run_or_where_there_is_no_room() {
        assert!(worth_moving(&leaves(0..20), NODESIZE, ROOM).is_empty());
        assert!(worth_moving(&leaves((0..40).chain([100]).chain(200..240)), NODESIZE, ROOM).is_empty());
        let all = leaves((0..20).map(|number| number * 7));
        assert_eq!(found(&all, ROOM), [(0, 19)]);
        assert_eq!(found(&all, 2 * NODESIZE), [(0, 19)], "ten runs are better than twenty");
        assert!(worth_moving(&all, NODESIZE, NODESIZE).is_empty());
        assert!(worth_moving(&all, NODESIZE, 0).is_empty());
    }

    #[test]
    fn shared_leaves_stay_and_split_runs() {
        let mut all = leaves((0..20).map(|number| number * 7));
        all[10].may_move = false;
        assert_eq!(found(&all, ROOM), [(0, 9), (11, 19)]);
        all.iter_mut().for_each(|leaf| leaf.may_move = false);
        assert!(worth_moving(&all, NODESIZE, ROOM).is_empty());
    }

    proptest! {
        #[test]
        fn leaves_moved_once_are_left_alone(
            blocks in prop::collection::vec((0u64..400, prop::bool::weighted(0.95)), 0..300),
        ) {
            let mut all: Vec<Leaf> = blocks
                .iter()
                .map(|(block, may_move)| Leaf { at: block * NODESIZE, may_move: *may_move })
                .collect();
            let before = scatter(&all);
            let (mut free, mut seen) = (1000 * NODESIZE, 0);
            for range in worth_moving(&all, NODESIZE, ROOM) {
                prop_assert!(range.start >= seen && all[range.clone()].iter().all(|leaf| leaf.may_move));
                seen = range.end;
                for leaf in &mut all[range] {
                    leaf.at = free;
                    free += NODESIZE;
                }
                free += NODESIZE;
            }
            prop_assert!(scatter(&all).adjacent >= before.adjacent);
            prop_assert_eq!(worth_moving(&all, NODESIZE, ROOM), []);
        }
    }
}
