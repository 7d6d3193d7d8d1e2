//! Shapes of trees after different histories.

use super::world::{Model, Walk, World};
use super::{Verdict, apply, key, largest, operations, remove};
use crate::editor::tests::Step;
use brindle_ondisk::Key;

/// A shuffled row of numbers, always the same.
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut random = 7u64;
    for at in (1..count).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = (random >> 33) % (at + 1);
        numbers.swap(brindle_ondisk::to_usize(at), brindle_ondisk::to_usize(other));
    }
    numbers
}

/// A tree into which items of 40 bytes came in some order.
fn grown(numbers: impl IntoIterator<Item = u64>) -> (World, Model) {
    let (world, mut model) = (World::new(4096), Model::new());
    for number in numbers {
        operations::insert(&world, &world.tree, &key(number), &[1; 40]).expect("inserts");
        model.insert(key(number), vec![1; 40]);
    }
    (world, model)
}

fn fill((world, model): &(World, Model)) -> usize {
    world.verify(model).fill(4096)
}

#[test]
fn ascending_keys_fill_every_leaf() {
    let full = fill(&grown(0..20_000));
    assert!(full >= 99, "{full} %");
}

#[test]
fn descending_keys_fill_every_leaf() {
    let full = fill(&grown((0..20_000).rev()));
    assert!(full >= 99, "{full} %");
}

#[test]
fn streams_that_take_turns_in_the_middle_of_the_tree_fill_their_leaves() {
    let streams = (0..5000).flat_map(|at| [10_000, 30_000, 50_000].map(|stream| stream + at));
    let full = fill(&grown((0..100_000).step_by(10_000).chain(streams.map(|at| at + 1))));
    assert!(full >= 96, "{full} %");
}

#[test]
fn descending_streams_in_the_middle_do_not_leave_crumbs() {
    let streams = (0..5000).rev().flat_map(|at| [10_000, 30_000].map(|stream| stream + at));
    let full = fill(&grown((0..100_000).step_by(500).chain(streams.filter(|at| at % 500 != 0))));
    assert!(full >= 88, "{full} %");
}

#[test]
fn random_keys_fill_three_quarters() {
    let full = fill(&grown(shuffled(20_000)));
    assert!(full >= 78, "{full} %");
}

#[test]
fn random_keys_with_commits_in_between_fill_two_thirds() {
    let (world, mut model) = (World::new(4096), Model::new());
    for (count, number) in shuffled(20_000).into_iter().enumerate() {
        apply(&world, &mut model, &Step::Insert(number, 40, 1));
        if count % 100 == 99 {
            world.commit();
        }
    }
    let full = world.verify(&model).fill(4096);
    assert!(full >= 65, "{full} %");
}

#[test]
fn many_at_once_fill_every_leaf_wherever_they_go() {
    let (world, mut model) = grown((0..200).map(|at| at * 1000));
    for first in [5_500, 5_100, 199_001, 100_001] {
        super::insert_all(&world, &mut model, first, 1, &[40; 400]);
    }
    let full = world.verify(&model).fill(4096);
    assert!(full >= 88, "{full} %");
}

#[test]
fn something_large_comes_between() {
    let (world, mut model) = (World::new(4096), Model::new());
    for step in [Step::Insert(1, 1900, 1), Step::Insert(3, 1900, 1), Step::Insert(2, largest(4096), 2)] {
        apply(&world, &mut model, &step);
    }
    let walk = world.verify(&model);
    assert_eq!((walk.leaves, walk.blocks.len()), (3, 4));
}

#[test]
fn an_item_larger_than_a_leaf_is_refused_and_changes_nothing() {
    let (world, model) = grown(0..10);
    let key = key(20);
    let data = vec![0; largest(4096) + 1];
    let too_large = "item (1000 unknown type 7 20) of tree 300 is too large: 3971 bytes, a leaf takes 3970";
    let refusal = operations::insert(&world, &world.tree, &key, &data).expect_err("it is too large");
    assert!(
        refusal.to_string().contains("is too large: 3971 bytes, a leaf takes 3970"),
        "{refusal} {too_large}"
    );
    operations::replace(&world, &world.tree, &key, &data).expect_err("it is too large");
    operations::insert_all(&world, &world.tree, &[(key, &data)]).expect_err("it is too large");
    operations::edit(&world, &world.tree, &key, |empty| *empty = data).expect_err("it is too large");
    world.verify(&model);
}

#[test]
fn operations_without_effect_copy_no_block() {
    let (world, model) = grown(0..2000);
    world.commit();
    let nothing = || {
        operations::insert(&world, &world.tree, &key(5), &[]).expect_err("it is there");
        operations::update(&world, &world.tree, &key(5000), |_| ()).expect("looks");
        operations::edit(&world, &world.tree, &key(5), |_| ()).expect("looks");
        operations::edit(&world, &world.tree, &key(5000), |_| ()).expect("looks");
        remove::remove(&world, &world.tree, &key(5000)).expect("looks");
        remove::remove_range(&world, &world.tree, &Key::MIN, &Key::MAX, |_, _| Verdict::Keep).expect("looks");
    };
    let copies = world.copies.get();
    nothing();
    assert_eq!(world.copies.get(), copies);
    assert!(!world.tree.is_dirty());
    world.verify(&model);
}

#[test]
fn a_removal_copies_its_path_and_no_neighbour_unless_that_saves_a_block() {
    let (world, mut model) = grown(0..20_000);
    world.commit();
    let height = usize::from(world.tree.root().level) + 1;
    for number in shuffled(20_000).into_iter().take(10_000) {
        let (copies, blocks) = (world.copies.get(), world.tree.read().grown);
        apply(&world, &mut model, &Step::Remove(number));
        let more = world.copies.get() - copies;
        let fewer = usize::try_from(blocks - world.tree.read().grown).expect("a removal adds no block");
        assert!(more <= height + fewer, "{more} copies, {fewer} blocks fewer");
        world.commit();
    }
    world.verify(&model);
}

#[test]
fn removals_in_any_order_leave_no_desert() {
    let (world, mut model) = grown(0..20_000);
    let full = |world: &World, model: &Model| world.verify(model).fill(4096);
    for (count, number) in shuffled(20_000).into_iter().take(19_000).enumerate() {
        apply(&world, &mut model, &Step::Remove(number));
        if count % 200 == 199 {
            world.commit();
        }
    }
    let sparse = full(&world, &model);
    assert!(sparse >= 38, "{sparse} %");
}

#[test]
fn a_range_that_goes_takes_its_leaves_along_without_copies() {
    let (world, mut model) = grown(0..20_000);
    world.commit();
    let copies = world.copies.get();
    let range = Step::RemoveRange { first: 100, last: 19_900, keep: 1, stop: usize::MAX };
    apply(&world, &mut model, &range);
    assert!(world.copies.get() - copies <= 12, "{} copies", world.copies.get() - copies);
    let walk: Walk = world.verify(&model);
    assert!(walk.leaves <= 5, "{} leaves", walk.leaves);
}

#[test]
fn thinned_out_ranges_are_packed_on_the_way() {
    let (world, mut model) = grown(0..20_000);
    world.commit();
    let range = Step::RemoveRange { first: 0, last: 20_000, keep: 50, stop: usize::MAX };
    apply(&world, &mut model, &range);
    let packed = world.verify(&model).fill(4096);
    assert!(packed >= 76, "{packed} %");
}

#[test]
fn a_block_changed_after_a_snapshot_of_its_transaction_is_copied_once() {
    let (world, mut model) = grown(0..5000);
    world.snapshot(&model);
    let copies = world.copies.get();
    for count in 0..20 {
        apply(&world, &mut model, &Step::Update(7, count));
        if count == 10 {
            world.assign();
        }
    }
    assert_eq!(world.copies.get() - copies, usize::from(world.tree.root().level) + 1);
    world.verify(&model);
}
