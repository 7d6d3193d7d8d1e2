//! The library on pools of many layouts, against the plain model of a filesystem.

mod layout;
mod pool;
mod target;

pub(crate) use layout::Layout;
pub(crate) use pool::{FOUND_ASLEEP, Pool, check, findings};
pub(crate) use target::{Habits, Library, PART_BYTES, REFUSALS, commit_until_logs_are_reduced};

use brindle_testing::operations::{Mix, Trial};
use layout::{LAYOUTS, SPLIT};
use std::sync::atomic::Ordering;
use target::{DEFRAGMENTED, DESTAGED, LAID_TOGETHER};

#[test]
fn contents_are_those_of_the_model() {
    for seed in seeds(100, LAYOUTS.len() as u64) {
        run(&Trial::new(seed, 250, Mix::contents()));
    }
}

#[test]
fn everything_is_that_of_the_model() {
    for seed in seeds(20, LAYOUTS.len() as u64) {
        run(&Trial::new(seed, 300, Mix { names_max: 40, ..Mix::default() }));
    }
}

#[test]
fn moving_block_groups_changes_nothing() {
    for seed in seeds(40, LAYOUTS.len() as u64) {
        let trial = Trial::new(seed, 250, Mix { names_max: 40, subvolumes: 12, ..Mix::default() });
        let layout = Layout::of(seed);
        println!("{layout:?}");
        trial.run(|| Library::relocating(&layout));
    }
}

#[test]
fn defragmenting_metadata_changes_nothing() {
    for seed in seeds(80, LAYOUTS.len() as u64) {
        let trial = Trial::new(seed, 250, Mix { names_max: 40, subvolumes: 12, ..Mix::default() });
        let layout = Layout::of(seed);
        println!("{layout:?}");
        trial.run(|| Library::defragmenting(&layout));
    }
}

#[test]
fn defragmenting_files_changes_nothing() {
    let (before, laid_before) = (DEFRAGMENTED.load(Ordering::Relaxed), LAID_TOGETHER.load(Ordering::Relaxed));
    for seed in seeds(90, LAYOUTS.len() as u64) {
        let mix = Mix { names_max: 40, subvolumes: 12, contents: 40, ..Mix::default() };
        let trial = Trial::new(seed, 250, mix);
        let layout = Layout::of(seed);
        println!("{layout:?}");
        trial.run(|| Library::defragmenting_files(&layout));
    }
    assert!(DEFRAGMENTED.load(Ordering::Relaxed) > before, "nothing was defragmented");
    assert!(LAID_TOGETHER.load(Ordering::Relaxed) > laid_before, "nothing was laid together");
}

#[test]
fn moving_data_between_tiers_changes_nothing() {
    for seed in seeds(60, 4) {
        let trial = Trial::new(seed, 200, Mix { names_max: 40, subvolumes: 12, ..Mix::default() });
        let layout = Layout { nodesize: 4096, ..Layout::of(13 + seed % 2) };
        assert!(layout.fast > 0, "{layout:?}");
        println!("{layout:?}");
        trial.run(|| Library::sorting(&layout));
    }
    for seed in seeds(64, 2) {
        let trial = Trial::new(seed, 200, Mix { names_max: 40, subvolumes: 12, ..Mix::default() });
        trial.run(|| Library::sorting(&SPLIT));
    }
}

#[test]
fn writing_data_back_changes_nothing() {
    let before = DESTAGED.load(Ordering::Relaxed);
    for seed in seeds(70, 6) {
        let trial =
            Trial::new(seed, 250, Mix { names_max: 40, subvolumes: 12, sync_file: 15, ..Mix::default() });
        let layout = Layout { nodesize: 4096, ..Layout::of(13 + seed % 2) };
        assert!(layout.fast > 0, "{layout:?}");
        println!("{layout:?}");
        trial.run(|| Library::writing_back(&layout));
    }
    assert!(DESTAGED.load(Ordering::Relaxed) > before, "nothing was destaged");
}

#[test]
fn moving_data_in_parts_changes_nothing() {
    for seed in seeds(80, LAYOUTS.len() as u64) {
        let mix = Mix { names_max: 40, subvolumes: 12, contents: 40, ..Mix::default() };
        let trial = Trial::new(seed, 200, mix);
        let layout = Layout { nodesize: 4096, ..Layout::of(seed) };
        println!("{layout:?}");
        trial.run(|| match layout.fast {
            0 => Library::relocating(&layout).in_parts().expect("the pool opens"),
            _ => Library::sorting(&layout).in_parts().expect("the pool opens"),
        });
    }
}

/// On a layout that the seed chooses.
fn run(trial: &Trial) {
    let layout = Layout::of(trial.seed);
    println!("{layout:?}");
    trial.run(|| Library::new(&layout));
}

/// Range of seeds; more of them by `BRINDLE_SEEDS`.
pub(crate) fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let more = std::env::var("BRINDLE_SEEDS").ok().and_then(|count| count.parse().ok());
    first..first + more.unwrap_or(count)
}
