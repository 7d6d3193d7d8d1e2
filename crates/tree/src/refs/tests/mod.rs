//! Whole pools: subvolumes changed at random, snapshots, deletions in steps.

mod relocations;
mod verify;
mod world;

use brindle_ondisk::RootId;
use proptest::prelude::*;
use std::collections::HashMap;
use verify::verify;
use world::{FILES, World};

#[derive(Clone, Debug)]
enum Step {
    Write { to: u64, file: u64, block: u64, sectors: u64 },
    Clone { from: u64, number: u64, to: u64, file: u64, block: u64 },
    Remove { from: u64, file: u64, block: u64, count: u64 },
    Run(usize),
    Commit,
    Reopen,
    Snapshot(u64),
    Drop { which: u64, budget: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let number = || any::<u64>();
    let block = || 0..400u64;
    prop_oneof![
        8 => (number(), 0..FILES, block(), 1..9u64)
            .prop_map(|(to, file, block, sectors)| Step::Write { to, file, block, sectors }),
        8 => (number(), number(), number(), 0..FILES, block())
            .prop_map(|(from, number, to, file, block)| Step::Clone { from, number, to, file, block }),
        5 => (number(), 0..FILES, block(), 1..60u64)
            .prop_map(|(from, file, block, count)| Step::Remove { from, file, block, count }),
        2 => (1..100usize).prop_map(Step::Run),
        2 => Just(Step::Commit),
        1 => Just(Step::Reopen),
        3 => number().prop_map(Step::Snapshot),
        2 => (number(), 1..40usize).prop_map(|(which, budget)| Step::Drop { which, budget }),
    ]
}

fn apply(world: &mut World, step: &Step) {
    match *step {
        Step::Write { to, file, block, sectors } => world.write(world.choose(to), file, block, sectors),
        Step::Clone { from, number, to, file, block } => {
            world.clone(world.choose(from), number, world.choose(to), file, block);
        }
        Step::Remove { from, file, block, count } => {
            let id = world.choose(from);
            (block..block + count).for_each(|block| world.remove(id, file, block));
        }
        Step::Run(limit) => world.run(limit),
        Step::Commit => {
            world.commit();
        }
        Step::Reopen => world.reopen(),
        Step::Snapshot(source) if world.subvolumes.len() < 8 => {
            world.snapshot(world.choose(source));
        }
        Step::Drop { which, budget } if world.choose(which) != RootId::FS_TREE => {
            world.drop_subvolume(world.choose(which), budget, |_| {});
        }
        Step::Snapshot(_) | Step::Drop { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_reference_is_counted_whatever_is_done(
        image in prop::sample::select(vec!["node-4k", "snapshots", "old-features"]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(image);
        for step in &steps {
            apply(&mut world, step);
        }
        world.commit();
    }
}

/// Fills a subvolume so that its tree is several levels high.
fn filled() -> World {
    let mut world = World::new("node-4k");
    for block in 0..1200 {
        world.write(RootId::FS_TREE, block % FILES, block * 8, 7);
    }
    world.commit();
    assert!(world.tree(RootId::FS_TREE).root().level >= 2);
    world
}

#[test]
fn a_snapshot_and_its_source_part_and_either_may_go_first() {
    for source_first in [false, true] {
        let mut world = filled();
        let middle = world.snapshot(RootId::FS_TREE);
        let last = world.snapshot(middle);
        for number in 0..40 {
            world.write(RootId::FS_TREE, number % FILES, number * 37, 1);
            world.remove(middle, number % FILES, number * 31);
            world.clone(middle, number * 7, last, number % FILES, 2000 + number);
        }
        world.commit();
        let extents = verify(&world.pool);
        for id in if source_first { [middle, last] } else { [last, middle] } {
            world.drop_subvolume(id, 3, |_| {});
        }
        assert!(world.commit() < extents);
    }
}

#[test]
fn a_drop_goes_on_after_reopening_while_its_relatives_change() {
    let mut world = filled();
    let first = world.snapshot(RootId::FS_TREE);
    // Every other leaf is its own, and then shared again.
    (0..120).for_each(|number| world.write(first, number % FILES, number * 80, 1));
    let second = world.snapshot(first);
    let mut number = 0;
    world.drop_subvolume(first, 5, |world| {
        number += 1;
        world.write(second, number % FILES, number * 11, 1);
        world.remove(RootId::FS_TREE, number % FILES, number * 13);
        if number % 3 == 0 {
            world.reopen();
        }
    });
    assert!(number > 5, "in several steps");
    world.commit();
}

#[test]
fn blocks_of_a_snapshot_are_younger_than_its_key() {
    let mut world = World::new("node-4k");
    let id = world.snapshot(RootId::FS_TREE);
    world.write(id, 0, 0, 1);
    world.commit();
    let (key, _) = world.pool.root_item(id).expect("reads").expect("is there");
    assert!(world.tree(id).root().generation.get() > key.offset());
}

#[test]
fn an_extent_that_comes_and_goes_leaves_nothing() {
    let mut world = World::new("node-4k");
    let before = world.commit();
    world.write(RootId::FS_TREE, 0, 0, 8);
    (0..8).for_each(|block| world.remove(RootId::FS_TREE, 0, block));
    assert_eq!(world.commit(), before);
}

#[test]
fn thousands_of_references_to_one_extent() {
    let mut world = World::new("single");
    world.write(RootId::FS_TREE, 0, 0, 1);
    for block in 1..3000 {
        world.clone(RootId::FS_TREE, 0, RootId::FS_TREE, block % FILES, block);
        if block % 700 == 0 {
            world.commit();
        }
    }
    world.commit();
    let before = verify(&world.pool);
    (0..3000).for_each(|block| (0..FILES).for_each(|file| world.remove(RootId::FS_TREE, file, block)));
    assert!(world.commit() < before);
}

/// Two places in a file whose references have the same hash. Neighbours never have: a CRC tells any two numbers apart
/// that differ within 32 bits.
fn colliding() -> [u64; 2] {
    let mut seen = HashMap::new();
    let blocks = (1u64..1 << 20).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 14);
    for block in blocks {
        if let Some(other) = seen.insert(World::hash(RootId::FS_TREE, 0, block), block) {
            return [other, block];
        }
    }
    unreachable!("a million of hashes of 32 bits that matter")
}

#[test]
fn references_of_one_hash_are_told_apart() {
    let places = colliding();
    for order in [[0, 1], [1, 0]] {
        let mut world = World::new("node-4k");
        world.write(RootId::FS_TREE, 0, 0, 1);
        // As many as fit the item, and more.
        (1..20).for_each(|block| world.clone(RootId::FS_TREE, 0, RootId::FS_TREE, 0, block));
        for block in places {
            world.clone(RootId::FS_TREE, 0, RootId::FS_TREE, 0, block);
        }
        world.commit();
        for which in order {
            world.remove(RootId::FS_TREE, 0, places[which]);
            world.commit();
        }
    }
}
