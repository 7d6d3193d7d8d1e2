//! The difference of two trees against the plainest model: that of two maps.

use crate::cursor::open;
use brindle_ondisk::{Key, RootId};
use brindle_tree::{Committed, Pool, Readahead, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

type Items = BTreeMap<Key, Vec<u8>>;

fn items(pool: &Pool, tree: &Arc<Tree>) -> Items {
    let mut cursor = pool.cursor(tree, Readahead::Forward);
    cursor.seek(&Key::MIN).expect("seek");
    let mut items = Items::new();
    while let Some((key, data)) = cursor.item() {
        items.insert(key, data.to_vec());
        cursor.next().expect("next");
    }
    items
}

/// Compares a difference with that of the maps. Returns the number of blocks that were passed over.
fn compare(committed: &Committed<'_>, [old, new]: [&Arc<Tree>; 2], [before, after]: [&Items; 2]) -> u64 {
    let mut difference = committed.difference(old, new);
    let mut last = None;
    let mut count = 0;
    while let Some(item) = difference.next().expect("readable") {
        assert!(last < Some(item.key), "in order");
        last = Some(item.key);
        let data = |place: Option<&brindle_tree::ItemPlace>| place.map(|place| place.data().to_vec());
        assert_eq!(data(item.old.as_ref()), before.get(&item.key).cloned(), "{}", item.key);
        assert_eq!(data(item.new.as_ref()), after.get(&item.key).cloned(), "{}", item.key);
        count += 1;
    }
    let keys: std::collections::BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    let expected = keys.into_iter().filter(|key| before.get(key) != after.get(key)).count();
    assert_eq!(count, expected, "{} and {}", old.id(), new.id());
    difference.counts().shared
}

#[test]
fn a_difference_is_that_of_two_maps() {
    let mut shared = 0;
    for name in ["snapshots", "deep-tree", "single"] {
        let pool = open(name, 1 << 20);
        let committed = pool.committed().expect("readable");
        let ids = [RootId::FS_TREE].into_iter().chain((256..300).map(RootId::new));
        let trees: Vec<Arc<Tree>> = ids.filter_map(|id| committed.tree(id).expect("readable")).collect();
        let maps: Vec<Items> = trees.iter().map(|tree| items(&pool, tree)).collect();
        for (old, before) in trees.iter().zip(&maps) {
            for (new, after) in trees.iter().zip(&maps) {
                shared += compare(&committed, [old, new], [before, after]);
            }
        }
    }
    assert!(shared > 0, "some of the trees are snapshots of others");
}
