//! A refused change has no effect.

use super::world::{Model, World};
use super::{apply, key, operations, remove};
use crate::editor::tests::Step;
use crate::error::TreeError;
use brindle_ondisk::{Key, Logical, Node, RootId};
use std::sync::Arc;

/// A tree of a root and many leaves, on disk.
fn planted() -> (World, Model) {
    let (world, mut model) = (World::new(4096), Model::new());
    super::insert_all(&world, &mut model, 0, 1, &[40; 1000]);
    world.commit();
    (world, model)
}

/// Address of a leaf, by its place among its siblings.
fn leaf_at(world: &World, slot: usize) -> Logical {
    world.disk.borrow()[&world.tree.root().bytenr].key_ptrs()[slot].blockptr
}

fn damage(world: &World, at: Logical, change: impl FnOnce(&mut Node)) {
    let mut disk = world.disk.borrow_mut();
    change(Arc::make_mut(disk.get_mut(&at).expect("there is a block")));
}

#[test]
fn a_leaf_that_cannot_be_read() {
    let (world, mut model) = planted();
    world.broken.set(Some(leaf_at(&world, 0)));
    let read_error = |done: Result<(), TreeError>| assert!(matches!(done, Err(TreeError::NoSpace(_))));
    read_error(operations::insert(&world, &world.tree, &key(0), &[]));
    read_error(operations::update(&world, &world.tree, &key(0), |_| ()).map(|_| ()));
    read_error(remove::remove(&world, &world.tree, &key(0)).map(|_| ()));
    // The neighbour does without it.
    let range = Step::RemoveRange { first: 61, last: 119, keep: 100, stop: usize::MAX };
    apply(&world, &mut model, &range);
    world.verify(&model);
}

#[test]
fn a_copy_that_fails_leaves_the_tree_whole() {
    let (world, mut model) = planted();
    for copies in 0..2 {
        world.copies_max.set(world.copies.get() + copies);
        operations::replace(&world, &world.tree, &key(500), b"other").expect_err("nothing can be copied");
        world.copies_max.set(usize::MAX);
        world.verify(&model);
        world.commit();
    }
    apply(&world, &mut model, &Step::Replace(500, 5, 1));
    world.verify(&model);
}

#[test]
fn a_leaf_of_another_tree() {
    let (world, _) = planted();
    let at = leaf_at(&world, 0);
    damage(&world, at, |leaf| *leaf = leaf.copy(at, RootId::CHUNK_TREE, leaf.generation()));
    let refusal = operations::insert(&world, &world.tree, &key(5000), &[]);
    refusal.expect("the damage is elsewhere");
    let refusal = remove::remove(&world, &world.tree, &key(0)).expect_err("it is not ours");
    assert!(matches!(refusal, TreeError::WrongTree { owner: RootId::CHUNK_TREE, .. }), "{refusal}");
}

#[test]
fn a_leaf_that_reaches_into_the_next() {
    let (world, _) = planted();
    let at = leaf_at(&world, 0);
    damage(&world, at, |leaf| leaf.set_key(leaf.len() - 1, &Key::MAX));
    let refusal = remove::remove(&world, &world.tree, &key(0)).expect_err("it is out of order");
    assert!(matches!(refusal, TreeError::KeyBeyondBound { last: Key::MAX, .. }), "{refusal}");
}

#[test]
fn a_root_keeps_an_only_child_that_cannot_be_read() {
    let (world, mut model) = planted();
    let leaves = world.verify(&model).leaves;
    let last = leaf_at(&world, leaves - 1);
    let first_kept = world.disk.borrow()[&last].key(0).expect("leaves are not empty");
    world.broken.set(Some(last));
    let range = Step::RemoveRange { first: 0, last: number(&first_kept) - 1, keep: 1, stop: usize::MAX };
    apply(&world, &mut model, &range);
    assert_eq!(world.tree.root().level, 1, "the only child can't become the root");
    world.verify(&model);
    world.broken.set(None);
    let rest = Step::RemoveRange { first: 0, last: 5000, keep: 1, stop: usize::MAX };
    apply(&world, &mut model, &rest);
    assert_eq!((world.tree.root().level, world.verify(&model).blocks.len()), (0, 1));
}

/// The number that a key was made of.
fn number(key: &Key) -> u64 {
    (key.objectid.get() - 1000) * 64 + key.offset()
}
