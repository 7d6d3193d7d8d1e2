//! Fail-stop: what an error or a panic leaves half done is never published.

use crate::writing::{Bench, Model, attribute, found, key, set};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_tree::{Need, Pool, TreeError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

/// Turns given to a commit that another thread has begun.
const YIELDS: usize = 20_000;

/// A pool with one committed attribute, and a second one that is not committed.
fn begin(bench: &Bench) -> (Pool, Model) {
    let pool = bench.open(1 << 20);
    let mut model = Model::new();
    set(&pool, &mut model, 1, 100);
    pool.commit().expect("committed");
    let committed = model.clone();
    set(&pool, &mut model, 2, 100);
    (pool, committed)
}

/// The pool is stopped for `why`, and holds the last commit once it is opened again.
fn assert_stopped(bench: &Bench, pool: Pool, committed: &Model, why: &str) {
    for refused in [pool.commit(), pool.join(Need::items(1)).map(|_| ()), pool.exclusively(|_| Ok(()))] {
        assert!(
            matches!(&refused, Err(TreeError::ReadOnly(said)) if said.contains(why)),
            "{why} is why nothing is written: {refused:?}"
        );
    }
    drop(pool);
    bench.assert_clean(why);
    assert_eq!(&found(&bench.open(1 << 20)), committed, "{why}: the last commit");
}

#[test]
fn a_panic_in_the_middle_of_a_change_publishes_nothing() {
    let bench = Bench::new(1, 256, |_| ());
    let (pool, committed) = begin(&bench);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let transaction = pool.join(Need::items(1)).expect("room");
        let tree = pool.tree(RootId::FS_TREE).expect("a tree");
        let inode = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
        transaction.update(&tree, &inode, |_| -> () { panic!("in the middle of a change") }).expect("there");
    }));
    assert!(panicked.is_err());
    assert_stopped(&bench, pool, &committed, "panic");
}

#[test]
fn a_panic_while_the_gate_is_closed_keeps_no_thread_waiting() {
    let bench = Bench::new(1, 256, |_| ());
    let (pool, committed) = begin(&bench);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        pool.exclusively(|_| -> Result<(), TreeError> { panic!("while nobody else is inside") })
    }));
    assert!(panicked.is_err());
    assert_stopped(&bench, pool, &committed, "panic");
}

#[test]
fn a_change_that_fails_half_way_is_not_published_by_a_waiting_commit() {
    let bench = Bench::new(1, 256, |_| ());
    let (pool, committed) = begin(&bench);
    std::thread::scope(|scope| {
        let (inside, is_inside) = channel();
        let pool = &pool;
        let transaction = pool.join(Need::items(1)).expect("room");
        let commit = scope.spawn(move || {
            inside.send(()).expect("received");
            pool.commit()
        });
        is_inside.recv().expect("sent");
        let tree = pool.tree(RootId::FS_TREE).expect("a tree");
        // An item that the tree checker lets pass: nothing else keeps it from the disk.
        transaction.insert(&tree, &key(3), &attribute(3, b"half of an operation")).expect("inserted");
        // The commit comes as far as the gate meanwhile; where it does not, it is refused sooner.
        (0..YIELDS).for_each(|_| std::thread::yield_now());
        pool.abort(&"the other half failed");
        drop(transaction);
        assert!(matches!(commit.join().expect("no panic"), Err(TreeError::ReadOnly(_))));
    });
    assert_stopped(&bench, pool, &committed, "the other half failed");
}
