//! The library against the plain model of a filesystem.

mod concurrent;
mod kernel;
mod orphans;
pub(crate) mod pool;
mod quotas;
mod rules;
mod simple_quotas;
mod subvolumes;
pub(crate) mod target;

use brindle_testing::operations::{Mix, Trial};
use pool::Pool;
use std::rc::Rc;
use target::Library;

#[test]
fn names_are_those_of_the_model() {
    for seed in seeds(0, 3) {
        Trial::new(seed, 600, Mix { names_max: 60, ..Mix::names() }.without_subvolumes()).run(Library::new);
    }
}

#[test]
fn names_and_subvolumes_are_those_of_the_model() {
    for seed in seeds(10, 3) {
        Trial::new(seed, 600, Mix { names_max: 60, ..Mix::names() }).run(Library::new);
    }
}

#[test]
fn everything_is_that_of_the_model() {
    for seed in seeds(20, 2) {
        Trial::new(seed, 400, Mix { names_max: 40, ..Mix::default() }).run(Library::new);
    }
}

#[test]
fn a_large_tree_of_small_blocks_is_that_of_the_model() {
    for seed in seeds(30, 1) {
        let mix = Mix { names_max: 1500, invalid_percent: 1, ..Mix::names() };
        let trial = Trial { compare_every: 500, ..Trial::new(seed, 4000, mix) };
        trial.run(|| Library::of(Rc::new(Pool::with(|options| options.nodesize = Some(4096)))));
    }
}

/// Range of seeds; more of them by `BRINDLE_SEEDS`.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let more = std::env::var("BRINDLE_SEEDS").ok().and_then(|count| count.parse().ok());
    first..first + more.unwrap_or(count)
}
