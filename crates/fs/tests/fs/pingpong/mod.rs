//! The library and the kernel take turns on one pool. After each turn `btrfs check`, our own examination, a scrub and
//! the model have their say. Needs root, loop devices and btrfs-progs. `BRINDLE_PINGPONG_ROUNDS` makes it longer.

mod case;
mod degraded;
mod game;
mod large;
pub(crate) mod pool;

use crate::kernel::can_make;
use case::{Case, Maker, SIMPLE_QUOTAS};
use game::Game;
pub(crate) use pool::SharedPool;

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Plays on a pool of each maker that can make it.
fn play(case: &Case, makers: &[Maker]) {
    if !can_make() {
        return;
    }
    let rounds = number("BRINDLE_PINGPONG_ROUNDS", 1);
    let operations = number("BRINDLE_PINGPONG_OPERATIONS", 120);
    let seed = number("BRINDLE_SEED", 1) as u64;
    // Quotas are turned on by the kernel or by mkfs.btrfs only.
    let makers = makers.iter().filter(|maker| **maker == Maker::Progs || case.runtime != "quota");
    for maker in makers {
        Game::new(case, *maker, seed, operations).play(rounds);
    }
}

/// Only ours can be made with these features; of the others each maker makes every other one, and both make all where
/// the test is to be long.
const BRINDLE: &[Maker] = &[Maker::Brindle];

/// One pool of each kind, unless the game is to be long: it takes minutes.
fn play_all(cases: &[Case]) {
    let is_long = std::env::var_os("BRINDLE_PINGPONG_ROUNDS").is_some();
    let cases = if is_long { cases } else { &cases[..1] };
    for (index, case) in cases.iter().enumerate() {
        let makers = [Maker::Progs, Maker::Brindle];
        play(case, if is_long { &makers } else { &makers[index % 2..=index % 2] });
    }
}

#[test]
fn copies() {
    play_all(&[
        Case::of(1, "single", "single"),
        Case::of(1, "dup", "dup"),
        Case::of(2, "single", "raid1"),
        Case::of(3, "raid1", "raid1"),
        Case::of(3, "raid1c3", "raid1c3"),
        Case::of(4, "raid1c4", "raid1c4"),
    ]);
}

#[test]
fn stripes() {
    play_all(&[
        Case::of(2, "raid0", "raid0"),
        Case::of(4, "raid10", "raid10"),
        Case::of(3, "raid0", "raid1"),
        Case::of(5, "raid10", "raid1c3"),
    ]);
}

#[test]
fn parity() {
    play_all(&[
        Case::of(3, "raid5", "raid5"),
        Case::of(4, "raid6", "raid6"),
        Case::of(4, "raid6", "raid1c3"),
        Case::of(3, "raid5", "raid1"),
    ]);
}

#[test]
fn checksums_and_nodesizes() {
    let usual = Case::of(2, "single", "raid1");
    play_all(&[
        Case { checksum: "xxhash", nodesize: 4096, ..usual },
        Case { checksum: "sha256", nodesize: 65536, ..usual },
        Case { checksum: "blake2", nodesize: 32768, ..usual },
        Case { checksum: "sha256", nodesize: 4096, ..usual },
    ]);
}

/// Our examination counts them by itself, after each turn of either.
#[test]
fn simple_quotas() {
    if !can_make() {
        return;
    }
    let (rounds, seed) = (number("BRINDLE_PINGPONG_ROUNDS", 2), number("BRINDLE_SEED", 1) as u64);
    let case = Case::with("", SIMPLE_QUOTAS);
    for (maker, seed) in [(Maker::Progs, seed), (Maker::Brindle, seed + 1)] {
        Game::new(&case, maker, seed, number("BRINDLE_PINGPONG_OPERATIONS", 120)).play(rounds);
    }
}

#[test]
fn features() {
    play_all(&[
        Case::with("^block-group-tree", "^free-space-tree"),
        Case::with("^no-holes,^block-group-tree", ""),
        Case::with("", "quota"),
        Case { data: "dup", nodesize: 4096, ..Case::with("mixed-bg", "") },
    ]);
    let is_long = std::env::var_os("BRINDLE_PINGPONG_ROUNDS").is_some();
    let old =
        ["^skinny-metadata", "^extref", "^block-group-tree,^free-space-tree,^no-holes,^skinny-metadata"];
    for features in old.into_iter().filter(|_| is_long) {
        play(&Case::with(features, ""), BRINDLE);
    }
}
