use super::{FILES, OTHER, key, reason};
use crate::testing::{AT, TRANSID, context, expectation, header, leaf, node, seal};
use crate::{Generation, Key, KeyPtr, KeyType, Logical, Node, NodeExpectation, NodeHeader, RootId, Uuid};
use zerocopy::FromBytes;

fn verdict(bytes: Vec<u8>, expected: &NodeExpectation) -> &'static str {
    Node::check(bytes.into(), &context(), expected).map_or_else(|refusal| reason(&refusal), |_| "good")
}

/// A leaf of two items that brindle does not know, with the header changed.
fn leaf_verdict(change: impl FnOnce(&mut NodeHeader)) -> &'static str {
    let items = [(key(1, KeyType(7), 0), vec![0; 10]), (key(2, KeyType(7), 0), vec![0; 10])];
    changed(leaf(&context(), header(FILES, 0), &items), change)
}

fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut NodeHeader)) -> &'static str {
    let (header, _) = NodeHeader::mut_from_prefix(&mut bytes).expect("a block has a header");
    change(header);
    seal(&mut bytes, &context());
    verdict(bytes, &expectation())
}

fn node_verdict(children: &[KeyPtr]) -> &'static str {
    verdict(node(&context(), header(FILES, 1), children), &expectation())
}

fn child(objectid: u64) -> KeyPtr {
    let generation = Generation::new(TRANSID);
    KeyPtr { key: key(objectid, KeyType::INODE_ITEM, 0), blockptr: AT + 4096, generation }
}

/// Writes a 32-bit number into the slots, where the item headers have offset and size.
fn with_slot(place: usize, value: u32) -> &'static str {
    let items = [(key(1, KeyType(7), 0), vec![0; 10]), (key(2, KeyType(7), 0), vec![0; 10])];
    let mut bytes = leaf(&context(), header(FILES, 0), &items);
    let place = size_of::<NodeHeader>() + place;
    bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
    seal(&mut bytes, &context());
    verdict(bytes, &expectation())
}

macro_rules! verdicts {
    ($($name:ident: $verdict:expr => $why:literal;)*) => {
        $(#[test] fn $name() { assert_eq!($verdict, $why); })*
    };
}

verdicts! {
    good_leaf: leaf_verdict(|_| ()) => "good";
    block_of_another_size: verdict(vec![0; 512], &expectation()) => "size of block";
    empty_block: verdict(vec![], &expectation()) => "size of block";
    block_of_zeros: verdict(vec![0; 4096], &expectation()) => "checksum";
    block_from_elsewhere: leaf_verdict(|header| header.bytenr = Logical::new(0)) =>
        "bytenr is that of another block";
    block_of_another_pool: leaf_verdict(|header| header.fsid = Uuid::NIL) => "fsid is that of another pool";
    level_eight: leaf_verdict(|header| header.level = 8) => "level too high";
    never_written: leaf_verdict(|header| header.flags.set(0)) => "header lacks the flag that it was written";
    block_from_the_future: leaf_verdict(|header| header.generation = Generation::new(TRANSID + 2)) =>
        "generation lies in the future";
    more_items_than_fit: leaf_verdict(|header| header.nritems.set(u32::MAX)) => "more slots than fit";
    one_more_item_than_there_is: leaf_verdict(|header| header.nritems.set(3)) =>
        "keys are not in ascending order (previous objectid shown)";
    empty_leaf_of_a_tree_that_may_be: verdict(leaf(&context(), header(OTHER, 0), &[]), &expectation()) => "good";
    empty_leaf_of_a_tree_that_never_is:
        verdict(leaf(&context(), header(RootId::FS_TREE, 0), &[]), &expectation()) =>
        "block of a tree that is never empty is empty";
    empty_leaf_of_no_tree: verdict(leaf(&context(), header(RootId::new(0), 0), &[]), &expectation()) =>
        "block of a tree that is never empty is empty";
    empty_leaf_of_a_relocation_tree:
        changed(leaf(&context(), header(RootId::FS_TREE, 0), &[]), |header| header.flags |= 2) => "good";
    item_data_past_the_end: with_slot(17, 4096) => "end of item data";
    item_data_that_wraps: with_slot(21, u32::MAX) => "end of item data";
    gap_between_item_data: with_slot(25 + 17, 3000) => "end of item data";
    good_node: node_verdict(&[child(1), child(2)]) => "good";
    empty_node: node_verdict(&[]) => "block of a tree that is never empty is empty";
    more_children_than_fit:
        changed(node(&context(), header(FILES, 1), &[child(1)]), |header| header.nritems.set(122)) =>
        "more slots than fit";
    children_out_of_order: node_verdict(&[child(2), child(1)]) =>
        "keys are not in ascending order (previous objectid shown)";
    child_twice: node_verdict(&[child(2), child(2)]) =>
        "keys are not in ascending order (previous objectid shown)";
    child_nowhere: node_verdict(&[KeyPtr { blockptr: Logical::new(0), ..child(1) }]) => "blockptr is null";
    child_off_its_sector: node_verdict(&[KeyPtr { blockptr: Logical::new(513), ..child(1) }]) =>
        "blockptr is not aligned";
    child_younger_than_its_parent:
        node_verdict(&[KeyPtr { generation: Generation::new(TRANSID + 1), ..child(1) }]) =>
        "child is younger than its parent";
}

#[test]
fn item_data_over_the_slots_is_refused() {
    // One slot of 25 bytes, and data that would begin inside it.
    let mut bytes = leaf(&context(), header(FILES, 0), &[(key(1, KeyType(7), 0), vec![0; 3970])]);
    let slot = size_of::<NodeHeader>();
    bytes[slot + 17..slot + 21].copy_from_slice(&24u32.to_le_bytes());
    bytes[slot + 21..slot + 25].copy_from_slice(&3971u32.to_le_bytes());
    seal(&mut bytes, &context());
    assert_eq!(verdict(bytes, &expectation()), "item data lies over the slots");
}

#[test]
fn a_block_must_match_its_parents_pointer() {
    let good = || node(&context(), header(FILES, 1), &[child(7)]);
    let parent = KeyPtr { key: child(7).key, blockptr: AT, generation: Generation::new(TRANSID) };
    let of = |pointer: &KeyPtr, level| verdict(good(), &NodeExpectation::child(pointer, level));
    assert_eq!(of(&parent, 2), "good");
    assert_eq!(of(&parent, 3), "level differs from its parent's word");
    let older = KeyPtr { generation: Generation::new(TRANSID - 1), ..parent };
    assert_eq!(of(&older, 2), "generation differs from its parent's word");
    let other = KeyPtr { key: Key::MIN, ..parent };
    assert_eq!(of(&other, 2), "first key differs from its parent's word (objectids shown)");
    let below = NodeExpectation { first_key: Some(Key::MIN), ..expectation() };
    assert_eq!(verdict(leaf(&context(), header(FILES, 0), &[]), &below), "block below a node is empty");
}
