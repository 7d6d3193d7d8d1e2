//! Cursors against the plainest model of a tree: a list of keys.

use brindle_device::Device;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_testing::golden::Golden;
use brindle_tree::{OpenOptions, Pool, Readahead, Tree};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

/// A tree of four levels, and its keys in order.
struct Model {
    pool: Pool,
    tree: Arc<Tree>,
    keys: Vec<Key>,
}

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let pool = open("deep-tree", 0);
    let tree = pool.tree(RootId::FS_TREE).expect("has files");
    assert!(tree.root().level >= 2, "a deep tree");
    let keys = forward(&pool, &tree);
    Model { pool, tree, keys }
});

pub(crate) fn open(name: &str, cache_bytes: usize) -> Pool {
    let golden = Golden::load(name);
    let devices = golden.devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
    Pool::open(devices, &OpenOptions { cache_bytes, ..OpenOptions::default() }).expect("opens")
}

fn forward(pool: &Pool, root: &Arc<Tree>) -> Vec<Key> {
    let mut cursor = pool.cursor(root, Readahead::Forward);
    cursor.seek(&Key::MIN).expect("seek");
    let mut keys = Vec::new();
    while let Some(key) = cursor.key() {
        keys.push(key);
        cursor.next().expect("next");
    }
    keys
}

fn backward(pool: &Pool, root: &Arc<Tree>) -> Vec<Key> {
    let mut cursor = pool.cursor(root, Readahead::None);
    cursor.seek_last(&Key::MAX).expect("seek");
    let mut keys = Vec::new();
    while let Some(key) = cursor.key() {
        keys.push(key);
        cursor.previous().expect("previous");
    }
    keys
}

#[test]
fn a_walk_back_is_the_walk_forth_reversed() {
    for name in ["single", "quota", "deep-tree", "snapshots"] {
        let pool = open(name, 1 << 20);
        let trees = [
            RootId::ROOT_TREE,
            RootId::CHUNK_TREE,
            RootId::EXTENT_TREE,
            RootId::DEV_TREE,
            RootId::FS_TREE,
            RootId::CSUM_TREE,
            RootId::UUID_TREE,
        ];
        for tree in trees.into_iter().filter_map(|id| pool.tree(id).ok()) {
            let mut keys = backward(&pool, &tree);
            keys.reverse();
            assert_eq!(forward(&pool, &tree), keys, "{name} {}", tree.id());
            assert!(keys.is_sorted());
        }
    }
}

#[test]
fn a_cursor_that_is_nowhere_stays_there() {
    let model = &*MODEL;
    let mut cursor = model.pool.cursor(&model.tree, Readahead::None);
    assert!(cursor.item().is_none());
    cursor.next().expect("nothing happens");
    cursor.previous().expect("nothing happens");
    cursor.seek(&Key::MAX).expect("seek");
    assert!(cursor.key().is_none());
    cursor.seek_last(&Key::MIN).expect("seek");
    assert!(cursor.key().is_none());
}

#[test]
fn the_cache_stays_within_its_budget_and_serves_what_it_holds() {
    let pool = open("deep-tree", 64 * 4096);
    let tree = pool.tree(RootId::FS_TREE).expect("has files");
    let keys = forward(&pool, &tree);
    let scanned = pool.cache_statistics();
    assert!(scanned.nodes <= scanned.capacity_nodes);
    assert!(scanned.misses > 0);
    let search = || {
        pool.with_item(&tree, &keys[0], |_| ()).expect("search");
        pool.cache_statistics()
    };
    let (first, second) = (search(), search());
    assert_eq!((second.hits - first.hits, second.misses - first.misses), (4, 0), "four nodes, all held");
}

/// A key that is there, or lies close to one that is.
fn near_key() -> impl Strategy<Value = Key> {
    (any::<prop::sample::Index>(), -1i64..=1, any::<bool>()).prop_map(|(index, step, exact)| {
        let key = *index.get(&MODEL.keys);
        if exact {
            return key;
        }
        let offset = key.offset().wrapping_add_signed(step);
        Key::new(key.objectid, KeyType(key.item_type.0), offset)
    })
}

/// Operation of a cursor.
#[derive(Clone, Debug)]
enum Step {
    Seek(Key),
    SeekLast(Key),
    Next,
    Previous,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => near_key().prop_map(Step::Seek),
        1 => near_key().prop_map(Step::SeekLast),
        4 => Just(Step::Next),
        4 => Just(Step::Previous),
        1 => any::<(u64, u8, u64)>().prop_map(|(id, kind, offset)| {
            Step::Seek(Key::new(ObjectId::new(id), KeyType(kind), offset))
        }),
    ]
}

proptest! {
    #[test]
    fn a_cursor_moves_as_an_index_into_the_list_does(
        steps in prop::collection::vec(step(), 1..60),
        forward in any::<bool>(),
    ) {
        let Model { pool, tree, keys } = &*MODEL;
        let readahead = if forward { Readahead::Forward } else { Readahead::None };
        let mut cursor = pool.cursor(tree, readahead);
        let mut place: Option<usize> = None;
        for step in steps {
            match step {
                Step::Seek(key) => {
                    cursor.seek(&key).expect("seek");
                    place = Some(keys.partition_point(|at| *at < key)).filter(|at| *at < keys.len());
                }
                Step::SeekLast(key) => {
                    cursor.seek_last(&key).expect("seek");
                    place = keys.partition_point(|at| *at <= key).checked_sub(1);
                }
                Step::Next => {
                    cursor.next().expect("next");
                    place = place.map(|at| at + 1).filter(|at| *at < keys.len());
                }
                Step::Previous => {
                    cursor.previous().expect("previous");
                    place = place.and_then(|at| at.checked_sub(1));
                }
            }
            prop_assert_eq!(cursor.key(), place.map(|at| keys[at]));
            prop_assert_eq!(cursor.item().map(|(key, _)| key), cursor.key());
        }
    }
}
