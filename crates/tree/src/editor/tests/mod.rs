mod errors;
mod shape;
mod world;

use super::{Verdict, operations, remove};
use crate::error::TreeError;
use brindle_ondisk::{Key, KeyType, ObjectId};
use proptest::collection::vec;
use proptest::prelude::*;
use world::{Model, World};

/// One change. Keys are numbers, data is a size and what it is filled with.
#[derive(Clone, Debug)]
enum Step {
    Insert(u64, usize, u8),
    InsertAll {
        first: u64,
        stride: u64,
        sizes: Vec<usize>,
    },
    Replace(u64, usize, u8),
    Update(u64, u8),
    Edit(u64, usize),
    Remove(u64),
    /// Removes every item of a range, or all but every `keep`th.
    RemoveRange {
        first: u64,
        last: u64,
        keep: usize,
        stop: usize,
    },
    Assign,
    Commit,
    Snapshot,
}

/// A key of a type that brindle does not know.
fn key(number: u64) -> Key {
    Key::new(ObjectId::new(1000 + number / 64), KeyType(7), number % 64)
}

fn step(keys: u64, largest: usize) -> impl Strategy<Value = Step> {
    let size =
        move || prop_oneof![8 => 0..largest / 16, 2 => 0..largest / 3, 1 => 0..=largest, 1 => Just(largest)];
    prop_oneof![
        12 => (0..keys, size(), any::<u8>()).prop_map(|(key, size, fill)| Step::Insert(key, size, fill)),
        4 => (0..keys, 1..9u64, vec(size(), 1..40))
            .prop_map(|(first, stride, sizes)| Step::InsertAll { first, stride, sizes }),
        4 => (0..keys, size(), any::<u8>()).prop_map(|(key, size, fill)| Step::Replace(key, size, fill)),
        3 => (0..keys, any::<u8>()).prop_map(|(key, fill)| Step::Update(key, fill)),
        3 => (0..keys, size()).prop_map(|(key, size)| Step::Edit(key, size)),
        8 => (0..keys).prop_map(Step::Remove),
        2 => (0..keys, 0..keys / 4, 1..6usize, prop_oneof![Just(usize::MAX), 0..50usize]).prop_map(
            |(first, length, keep, stop)| Step::RemoveRange { first, last: first + length, keep, stop }
        ),
        2 => Just(Step::Assign),
        2 => Just(Step::Commit),
        1 => Just(Step::Snapshot),
    ]
}

fn apply(world: &World, model: &mut Model, step: &Step) {
    match step {
        Step::Insert(number, size, fill) => {
            let (key, data) = (key(*number), vec![*fill; *size]);
            let done = operations::insert(world, &world.tree, &key, &data);
            match model.contains_key(&key) {
                true => assert!(matches!(done, Err(TreeError::Exists { key: at, .. }) if at == key)),
                false => {
                    done.expect("there is no such item");
                    model.insert(key, data);
                }
            }
        }
        Step::InsertAll { first, stride, sizes } => insert_all(world, model, *first, *stride, sizes),
        Step::Replace(number, size, fill) => {
            let (key, data) = (key(*number), vec![*fill; *size]);
            operations::replace(world, &world.tree, &key, &data).expect("it fits");
            model.insert(key, data);
        }
        Step::Update(number, fill) => {
            let key = key(*number);
            let done = operations::update(world, &world.tree, &key, |data| {
                data.fill(*fill);
                data.len()
            });
            let data = model.get_mut(&key).map(|data| {
                data.fill(*fill);
                data.len()
            });
            assert_eq!(done.expect("updates"), data);
        }
        Step::Edit(number, size) => edit(world, model, &key(*number), *size),
        Step::Remove(number) => {
            let done = remove::remove(world, &world.tree, &key(*number)).expect("removes");
            assert_eq!(done, model.remove(&key(*number)).is_some());
        }
        Step::RemoveRange { first, last, keep, stop } => {
            remove_range(world, model, [&key(*first), &key(*last)], *keep, *stop);
        }
        Step::Assign => world.assign(),
        Step::Commit => world.commit(),
        Step::Snapshot => world.snapshot(model),
    }
}

fn insert_all(world: &World, model: &mut Model, first: u64, stride: u64, sizes: &[usize]) {
    let data: Vec<Vec<u8>> = sizes.iter().map(|size| vec![3; *size]).collect();
    let items: Vec<(Key, &[u8])> =
        (0..).zip(&data).map(|(at, data)| (key(first + at * stride), data.as_slice())).collect();
    let done = operations::insert_all(world, &world.tree, &items);
    for (key, data) in items {
        if model.contains_key(&key) {
            assert!(matches!(done, Err(TreeError::Exists { key: at, .. }) if at == key));
            return;
        }
        model.insert(key, data.to_vec());
    }
    done.expect("none was there");
}

fn edit(world: &World, model: &mut Model, key: &Key, size: usize) {
    let before = operations::edit(world, &world.tree, key, |data| {
        let before = data.clone();
        data.resize(size, 9);
        before
    });
    assert_eq!(before.expect("edits"), model.get(key).cloned().unwrap_or_default());
    if size == 0 && model.get(key).is_some_and(Vec::is_empty) {
        return;
    }
    let mut data = model.remove(key).unwrap_or_default();
    data.resize(size, 9);
    if size > 0 {
        model.insert(*key, data);
    }
}

fn remove_range(world: &World, model: &mut Model, [first, last]: [&Key; 2], keep: usize, stop: usize) {
    let judge = |count: &mut usize| {
        *count += 1;
        match *count {
            count if count > stop => Verdict::Stop,
            count if keep > 1 && count % keep == 0 => Verdict::Keep,
            _ => Verdict::Remove,
        }
    };
    let mut seen = Vec::new();
    let mut count = 0;
    let done = remove::remove_range(world, &world.tree, first, last, |key, data| {
        seen.push((*key, data.to_vec()));
        judge(&mut count)
    });
    let mut count = 0;
    let mut wanted = Vec::new();
    let mut gone = Vec::new();
    for (key, data) in model.range(*first..=*last) {
        wanted.push((*key, data.clone()));
        match judge(&mut count) {
            Verdict::Keep => {}
            Verdict::Remove => gone.push(*key),
            Verdict::Stop => break,
        }
    }
    assert_eq!(seen, wanted);
    assert_eq!(done.expect("removes"), gone.len());
    for key in gone {
        model.remove(&key);
    }
}

fn largest(nodesize: usize) -> usize {
    nodesize - 101 - 25
}

proptest! {
    #[test]
    fn a_low_tree_is_a_map(steps in vec(step(400, largest(4096)), 1..120), absent in 0..8u64) {
        let world = World::new(4096);
        world.absent.set(absent);
        let mut model = Model::new();
        for step in &steps {
            apply(&world, &mut model, step);
            world.verify(&model);
        }
    }

    #[test]
    fn a_high_tree_is_a_map(steps in vec(step(3000, largest(512)), 1..400), absent in 0..8u64) {
        let world = World::new(512);
        world.absent.set(absent);
        let mut model = Model::new();
        for (number, step) in steps.iter().enumerate() {
            apply(&world, &mut model, step);
            if number % 8 == 0 {
                world.verify(&model);
            }
        }
        world.verify(&model);
        remove_range(&world, &mut model, [&Key::MIN, &Key::MAX], 1, usize::MAX);
        prop_assert_eq!(world.verify(&model).blocks.len(), 1);
    }
}
