//! Cursors over a tree that others change meanwhile, from a cache that holds little of it.

use super::writing::Bench;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_tree::{Need, Pool, Readahead, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};

/// Items that stay all the time, and between each two of them several that come and go.
const STAYING: u64 = 2_000;
const BETWEEN: u64 = 8;

/// A key of a type that brindle does not know.
fn key(number: u64) -> Key {
    Key::new(ObjectId::new(1000), KeyType(7), number)
}

fn insert(pool: &Pool, numbers: impl Iterator<Item = u64>) {
    let transaction = pool.join(Need::items(20)).expect("room");
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    for number in numbers {
        transaction.insert(&tree, &key(number), &[1; 100]).expect("it was not there");
    }
}

/// Adds what comes and goes, in bursts here and there, and takes it away again.
fn change(pool: &Pool, rounds: u64) {
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    for round in 0..rounds {
        let places = || (0..STAYING).filter(move |place| (place * 7 + round) % 13 < 6);
        for place in places() {
            insert(pool, (1..BETWEEN).map(|at| place * BETWEEN + at));
        }
        pool.commit().expect("committed");
        let comes_and_goes = |key: &Key, _: &[u8]| match key.offset() % BETWEEN {
            0 => Verdict::Keep,
            _ => Verdict::Remove,
        };
        let transaction = pool.join(Need::freeing(20)).expect("room");
        let gone = transaction.remove_range(&tree, &key(0), &key(u64::MAX), comes_and_goes).expect("removed");
        assert_eq!(gone as u64, places().count() as u64 * (BETWEEN - 1));
    }
}

/// Number of items that stay, as a cursor finds them; everything is in order.
fn staying(keys: &[Key]) -> usize {
    assert!(keys.is_sorted_by(|one, next| one < next), "a cursor never goes back");
    keys.iter().filter(|key| key.offset() % BETWEEN == 0).count()
}

fn scan(pool: &Pool, readahead: Readahead, is_forward: bool) -> Vec<Key> {
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    let mut cursor = pool.cursor(&tree, readahead);
    if is_forward {
        cursor.seek(&key(0)).expect("seek");
    } else {
        cursor.seek_last(&key(u64::MAX)).expect("seek");
    }
    let mut keys = Vec::new();
    while let Some(key) = cursor.key().filter(|key| key.item_type == KeyType(7)) {
        keys.push(key);
        if is_forward { cursor.next() } else { cursor.previous() }.expect("moves");
    }
    if !is_forward {
        keys.reverse();
    }
    keys
}

#[test]
fn a_cursor_misses_nothing_that_stays() {
    let bench = Bench::new(1, 512, |options| options.nodesize = Some(4096));
    let pool = bench.open(1 << 20);
    for place in 0..STAYING {
        insert(&pool, std::iter::once(place * BETWEEN));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |readahead, is_forward| {
            let (pool, is_over) = (&pool, &is_over);
            scope.spawn(move || {
                let mut scans = 0;
                while scans == 0 || !is_over.load(Ordering::Relaxed) {
                    assert_eq!(staying(&scan(pool, readahead, is_forward)) as u64, STAYING);
                    scans += 1;
                }
            })
        };
        let readers =
            [reader(Readahead::Forward, true), reader(Readahead::None, true), reader(Readahead::None, false)];
        let writer = scope.spawn(|| change(&pool, 6));
        let written = writer.join();
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("reads"));
        written.expect("writes");
    });
    pool.commit().expect("committed");
    assert_eq!(scan(&pool, Readahead::None, true).len() as u64, STAYING);
}
