//! Commits come to an end: bringing the trees of space up to date must not give and take blocks for ever.

use super::{SECTOR, World};
use crate::options::WriterOptions;
use crate::space::free_space::Edits;
use crate::transaction::Need;
use crate::transaction::space_items::apply_edits;
use crate::tree::Tree;
use brindle_ondisk::{Key, KeyType, Logical, ObjectId, RootId};

/// Far behind every block group.
const FAR: u64 = 1 << 50;

fn blocks(tree: &Tree) -> Vec<Logical> {
    let mut blocks: Vec<Logical> = tree.read().dirty.keys().copied().collect();
    blocks.sort_unstable();
    blocks
}

#[test]
fn a_lone_range_that_changes_stays_in_its_leaf() {
    let world = World::new("node-4k", WriterOptions::default());
    let transaction = world.pool.join(Need::items(64)).expect("room");
    let tree = world.pool.tree(RootId::FREE_SPACE_TREE).expect("is there");
    let key =
        |number: u64| Key::new(ObjectId::new(FAR + number * 8 * SECTOR), KeyType::FREE_SPACE_EXTENT, SECTOR);
    // A full leaf, and behind it one that holds a single range.
    let (mut number, mut leaves) = (0, 0);
    while leaves < 2 {
        let before = blocks(&tree).len();
        transaction.insert(&tree, &key(number), &[]).expect("insert");
        leaves += u64::from(blocks(&tree).len() > before && number > 0);
        number += 1;
    }
    let before = blocks(&tree);
    for number in number - 1..number + 10 {
        let edits =
            Edits { removed: vec![key(number)], changed: vec![], added: vec![(key(number + 1), vec![])] };
        apply_edits(&transaction, &edits).expect("edits");
        assert_eq!(blocks(&tree), before, "no block left the tree, and none came");
    }
}
