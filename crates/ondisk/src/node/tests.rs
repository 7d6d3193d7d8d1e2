use super::*;
use crate::testing::{AT, TRANSID, context, expectation, header, leaf, node, walk};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn any_key() -> impl Strategy<Value = Key> {
    let part = || prop_oneof![0..4u64, any::<u64>()];
    let item_type = prop_oneof![0..3u8, any::<u8>()];
    (part(), item_type, part())
        .prop_map(|(objectid, kind, offset)| Key::new(ObjectId::new(objectid), KeyType(kind), offset))
}

/// Keys of a type that brindle does not know, in order.
fn strange_keys() -> impl Strategy<Value = Vec<Key>> {
    let key = any_key().prop_map(|key| Key::new(key.objectid, KeyType(7), key.offset()));
    btree_set(key, 0..40).prop_map(|keys| keys.into_iter().collect())
}

fn checked(bytes: Vec<u8>) -> Result<Node, CorruptNode> {
    Node::check(bytes.into(), &context(), &expectation())
}

fn child(key: Key) -> KeyPtr {
    KeyPtr { key, blockptr: AT + 4096, generation: Generation::new(TRANSID) }
}

proptest! {
    #[test]
    fn search_in_a_leaf_is_that_of_a_sorted_list(keys in strange_keys(), wanted in vec(any_key(), 1..20)) {
        let items: Vec<_> = keys.iter().map(|key| (*key, vec![1; 3])).collect();
        let node = checked(leaf(&context(), header(RootId::new(300), 0), &items)).expect("the leaf is good");
        for key in wanted.iter().chain(&keys) {
            prop_assert_eq!(node.search(key), keys.binary_search(key));
        }
    }

    #[test]
    fn search_in_a_node_is_that_of_a_sorted_list(keys in btree_set(any_key(), 1..40), wanted in vec(any_key(), 1..20)) {
        let keys: Vec<_> = keys.into_iter().collect();
        let children: Vec<_> = keys.iter().map(|key| child(*key)).collect();
        let node = checked(node(&context(), header(RootId::new(300), 3), &children)).expect("the node is good");
        for key in wanted.iter().chain(&keys) {
            prop_assert_eq!(node.search(key), keys.binary_search(key));
        }
    }

    #[test]
    fn items_come_back_as_they_went_in(keys in strange_keys(), data in vec(vec(any::<u8>(), 0..40), 40)) {
        let items: Vec<_> = keys.into_iter().zip(data).collect();
        let node = checked(leaf(&context(), header(RootId::new(300), 0), &items)).expect("the leaf is good");
        let back: Vec<_> = (0..node.len()).filter_map(|slot| node.item(slot)).collect();
        let items: Vec<_> = items.iter().map(|(key, data)| (*key, data.as_slice())).collect();
        prop_assert_eq!(back, items);
        walk(&node);
    }
}

#[test]
fn a_node_shows_what_it_is() {
    let node = checked(node(&context(), header(RootId::FS_TREE, 2), &[child(Key::MIN)])).expect("it is good");
    assert_eq!(format!("{node:?}"), "node 1048576 level 2 items 1 generation 50 owner 5");
    assert!(node.items().is_empty() && !node.is_leaf() && node.key(1).is_none());
}

#[test]
fn a_refusal_names_tree_slot_and_key() {
    let items = [(Key::new(ObjectId::new(256), KeyType::INODE_ITEM, 0), vec![])];
    let refusal = checked(leaf(&context(), header(RootId::FS_TREE, 0), &items)).expect_err("it is too short");
    let text = "corrupt leaf at logical 1048576 of FS_TREE slot 0 key (FIRST_CHUNK_TREE INODE_ITEM 0): \
                inode item size, found 0x0, expected 0xa0";
    assert_eq!(refusal.to_string(), text);
}
