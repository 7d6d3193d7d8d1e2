//! Which of several ways to obtain the same bytes is tried first, and which next.

use std::cmp::Reverse;

/// Reads within one such run of the logical space stay on one mirror, so that a sequential reader keeps
/// one disk streaming; the next run is another mirror's, so that mirrors share the load. In bytes.
pub const RUN_BYTES: u64 = 1 << 20;

/// What is known of one way to obtain the bytes: a mirror, or a rebuild from parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorFacts {
    /// Every device that it needs is there.
    pub present: bool,
    /// Some device that it needs has missed transactions.
    pub stale: bool,
    /// The bytes would be rebuilt from other stripes.
    pub rebuilt: bool,
    /// Errors that its devices have shown since the pool was opened.
    pub errors: u64,
    /// Some device that it needs rotates.
    pub rotating: bool,
}

/// What is known of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequestFacts {
    /// Logical address, in bytes.
    pub logical: u64,
    /// Length, in bytes.
    pub length: u64,
}

/// The way to try first. Without any, 0.
pub fn choose_mirror(mirrors: &[MirrorFacts], request: &ReadRequestFacts) -> usize {
    let Some(best) = mirrors.iter().map(rank).min() else { return 0 };
    let equals = mirrors.iter().filter(|facts| rank(facts) == best).count();
    let mut candidates = (0..mirrors.len()).filter(|index| rank(&mirrors[*index]) == best);
    candidates.nth(turn(request, equals)).unwrap_or(0)
}

/// Every way, in the order in which to try them; the first is that of [`choose_mirror`].
pub fn order_mirrors(mirrors: &[MirrorFacts], request: &ReadRequestFacts) -> Vec<usize> {
    let mut order: Vec<usize> = (0..mirrors.len()).collect();
    order.sort_by_key(|index| rank(&mirrors[*index]));
    for equals in order.chunk_by_mut(|a, b| rank(&mirrors[*a]) == rank(&mirrors[*b])) {
        equals.rotate_left(turn(request, equals.len()));
    }
    order
}

/// Whose turn it is among so many equals.
fn turn(request: &ReadRequestFacts, equals: usize) -> usize {
    let equals = equals.max(1) as u64;
    usize::try_from(request.logical / RUN_BYTES % equals).unwrap_or(0)
}

/// The smaller, the better. Errors count by their order of magnitude: one more is no news of a device that
/// has had a thousand.
fn rank(facts: &MirrorFacts) -> (Reverse<bool>, bool, bool, u32, bool) {
    let magnitude = u64::BITS - facts.errors.leading_zeros();
    (Reverse(facts.present), facts.stale, facts.rebuilt, magnitude, facts.rotating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: MirrorFacts =
        MirrorFacts { present: true, stale: false, rebuilt: false, errors: 0, rotating: false };

    fn at(logical: u64) -> ReadRequestFacts {
        ReadRequestFacts { logical, length: 4096 }
    }

    fn facts() -> impl Strategy<Value = MirrorFacts> {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (flags, prop_oneof![Just(0), 0..10u64, any::<u64>()]).prop_map(
            |((present, stale, rebuilt, rotating), errors)| MirrorFacts {
                present,
                stale,
                rebuilt,
                errors,
                rotating,
            },
        )
    }

    #[test]
    fn each_fact_outweighs_those_after_it() {
        let ladder = [
            GOOD,
            MirrorFacts { rotating: true, ..GOOD },
            MirrorFacts { errors: 1, ..GOOD },
            MirrorFacts { rebuilt: true, ..GOOD },
            MirrorFacts { stale: true, ..GOOD },
            MirrorFacts { present: false, ..GOOD },
        ];
        for logical in [0, RUN_BYTES, 17 * RUN_BYTES] {
            assert_eq!(order_mirrors(&ladder, &at(logical)), [0, 1, 2, 3, 4, 5]);
            let reversed: Vec<_> = ladder.into_iter().rev().collect();
            assert_eq!(order_mirrors(&reversed, &at(logical)), [5, 4, 3, 2, 1, 0]);
        }
    }

    #[test]
    fn equals_take_turns_run_by_run() {
        let mirrors = [GOOD; 3];
        let chosen = |logical| choose_mirror(&mirrors, &at(logical));
        assert_eq!([chosen(0), chosen(RUN_BYTES - 4096)], [0, 0]);
        assert_eq!([chosen(RUN_BYTES), chosen(2 * RUN_BYTES), chosen(3 * RUN_BYTES)], [1, 2, 0]);
    }

    #[test]
    fn nothing_to_choose_from() {
        assert_eq!(choose_mirror(&[], &at(0)), 0);
        assert!(order_mirrors(&[], &at(0)).is_empty());
    }

    proptest! {
        #[test]
        fn the_order_is_a_permutation_by_rank(mirrors in prop::collection::vec(facts(), 1..20), logical: u64) {
            let order = order_mirrors(&mirrors, &at(logical));
            prop_assert_eq!(order[0], choose_mirror(&mirrors, &at(logical)));
            prop_assert!(order.iter().map(|index| rank(&mirrors[*index])).is_sorted());
            let mut seen = order.clone();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..mirrors.len()).collect::<Vec<_>>());
        }

        #[test]
        fn an_absent_mirror_is_never_chosen_over_a_present_one(
            mirrors in prop::collection::vec(facts(), 1..8),
            logical: u64,
        ) {
            let chosen = choose_mirror(&mirrors, &at(logical));
            prop_assert!(mirrors[chosen].present || mirrors.iter().all(|facts| !facts.present));
        }

        #[test]
        fn equals_share_the_load_evenly(count in 1..6usize, start in 0..1u64 << 40) {
            let mirrors = vec![GOOD; count];
            let mut load = vec![0; count];
            for run in 0..count as u64 * 10 {
                load[choose_mirror(&mirrors, &at(start + run * RUN_BYTES))] += 1;
            }
            prop_assert!(load.iter().all(|runs| *runs == 10), "{:?}", load);
        }
    }
}
