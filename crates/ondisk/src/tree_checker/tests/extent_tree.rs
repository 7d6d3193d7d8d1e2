use super::{judges, key, zeroed};
use crate::item::{ExtentDataRef, ExtentItemHeader};
use crate::testing::TRANSID;
use crate::{Generation, Key, KeyType, ObjectId, RootId};
use zerocopy::IntoBytes;

const TREE: RootId = RootId::EXTENT_TREE;
const DATA: u64 = 1;
const TREE_BLOCK: u64 = 2;
const START: u64 = 1 << 20;

fn header(flags: u64, refs: u64) -> ExtentItemHeader {
    ExtentItemHeader { refs: refs.into(), generation: Generation::new(TRANSID), flags: flags.into() }
}

fn inline(kind: KeyType, offset: u64) -> Vec<u8> {
    [&[kind.0][..], &offset.to_le_bytes()].concat()
}

fn data_ref(objectid: u64, offset: u64, count: u32) -> ExtentDataRef {
    let (root, objectid) = (RootId::FS_TREE, ObjectId::new(objectid));
    ExtentDataRef { root, objectid, offset: offset.into(), count: count.into() }
}

fn inline_data(reference: ExtentDataRef) -> Vec<u8> {
    [&[KeyType::EXTENT_DATA_REF.0][..], reference.as_bytes()].concat()
}

fn inline_shared(parent: u64, count: u32) -> Vec<u8> {
    [inline(KeyType::SHARED_DATA_REF, parent), count.to_le_bytes().to_vec()].concat()
}

fn extent(header: ExtentItemHeader, refs: &[Vec<u8>]) -> [(Key, Vec<u8>); 1] {
    let data = [header.as_bytes(), &refs.concat()].concat();
    [(key(START, KeyType::EXTENT_ITEM, 8192), data)]
}

fn metadata(flags: u64, level: u64, refs: &[Vec<u8>]) -> [(Key, Vec<u8>); 1] {
    let data = [header(flags, 1).as_bytes(), &refs.concat()].concat();
    [(key(START, KeyType::METADATA_ITEM, level), data)]
}

/// A tree block with its first key and level, as pools without skinny metadata have it.
fn fat(length: u64, level: u8) -> [(Key, Vec<u8>); 1] {
    let info = [&[0; 17][..], &[level], &inline(KeyType::TREE_BLOCK_REF, 5)].concat();
    let data = [header(TREE_BLOCK, 1).as_bytes(), &info].concat();
    [(key(START, KeyType::EXTENT_ITEM, length), data)]
}

/// Two references from files, in the order of their hashes or the other way.
fn two_sorted(ascending: bool) -> [(Key, Vec<u8>); 1] {
    let mut refs = [data_ref(257, 0, 1), data_ref(258, 0, 1)];
    refs.sort_by_key(ExtentDataRef::hash);
    if !ascending {
        refs.reverse();
    }
    extent(header(DATA, 2), &refs.map(inline_data))
}

fn two(first: Key, second: Key) -> [(Key, Vec<u8>); 2] {
    let item = |key: Key| match key.item_type {
        KeyType::METADATA_ITEM => (key, header(TREE_BLOCK, 1).as_bytes().to_vec()),
        _ => (key, header(DATA, 1).as_bytes().to_vec()),
    };
    [item(first), item(second)]
}

judges! {
    good_data_extent: TREE, extent(header(DATA, 5), &[inline_data(data_ref(257, 0, 1)), inline_shared(4096, 2)]) =>
        "good";
    good_data_extent_of_negative_offset: TREE,
        extent(header(DATA, 1), &[inline_data(data_ref(257, 0u64.wrapping_sub(4096), 1))]) => "good";
    good_owned_extent: TREE, extent(header(DATA, 1),
        &[inline(KeyType::EXTENT_OWNER_REF, 5), inline_data(data_ref(257, 0, 1))]) => "good";
    good_metadata: TREE, metadata(TREE_BLOCK, 7, &[inline(KeyType::TREE_BLOCK_REF, 5)]) => "good";
    good_shared_metadata: TREE, metadata(TREE_BLOCK | 256, 0, &[inline(KeyType::SHARED_BLOCK_REF, 4096)]) => "good";
    good_fat_metadata: TREE, fat(4096, 7) => "good";
    extent_item_cut_off: TREE, [(key(START, KeyType::EXTENT_ITEM, 8192), vec![0; 23])] =>
        "extent item is cut off";
    fat_metadata_cut_off: TREE, extent(header(TREE_BLOCK, 1), &[vec![0; 17]]) => "tree block info is cut off";
    fat_metadata_too_high: TREE, fat(4096, 8) => "level of a tree block";
    metadata_too_high: TREE, metadata(TREE_BLOCK, 8, &[]) => "level of a tree block";
    metadata_of_data: TREE, metadata(DATA, 0, &[]) => "metadata item of a data extent";
    tree_block_of_another_size: TREE, fat(8192, 0) => "length of a tree block";
    extent_of_no_kind: TREE, extent(header(0, 1), &[]) => "extent is not either data or tree block";
    extent_of_both_kinds: TREE, metadata(3, 0, &[]) => "extent is not either data or tree block";
    data_with_full_backref: TREE, extent(header(DATA | 256, 1), &[]) =>
        "data extent has the flag of a shared tree block";
    extent_from_the_future: TREE,
        extent(ExtentItemHeader { generation: Generation::new(TRANSID + 2), ..header(DATA, 1) }, &[]) =>
        "generation of extent lies in the future";
    extent_off_its_sector: TREE, [(key(4097, KeyType::EXTENT_ITEM, 4096), header(DATA, 1).as_bytes().to_vec())] =>
        "range of extent";
    extent_of_no_length: TREE, [(key(START, KeyType::EXTENT_ITEM, 0), header(DATA, 1).as_bytes().to_vec())] =>
        "range of extent";
    extent_past_the_end: TREE,
        [(key(0u64.wrapping_sub(4096), KeyType::EXTENT_ITEM, 8192), header(DATA, 1).as_bytes().to_vec())] =>
        "range of extent";
    extents_side_by_side: TREE,
        two(key(START, KeyType::EXTENT_ITEM, 8192), key(START + 8192, KeyType::METADATA_ITEM, 0)) => "good";
    extent_over_data: TREE,
        two(key(START, KeyType::EXTENT_ITEM, 8192), key(START + 4096, KeyType::METADATA_ITEM, 0)) =>
        "extent lies over the one before";
    extent_over_a_tree_block: TREE,
        two(key(START, KeyType::EXTENT_ITEM, 4096), key(START, KeyType::METADATA_ITEM, 0)) =>
        "extent lies over the one before";
    extent_of_no_reference: TREE, extent(header(DATA, 0), &[]) => "extent without references";
    more_inline_than_there_are: TREE, extent(header(DATA, 1), &[inline_data(data_ref(257, 0, 2))]) =>
        "more inline refs than references";
    inline_refs_sorted_by_hash: TREE, two_sorted(false) => "good";
    inline_refs_not_sorted_by_hash: TREE, two_sorted(true) => "inline refs are not sorted (type shown)";
    inline_refs_not_sorted_by_type: TREE,
        extent(header(DATA, 5), &[inline_shared(4096, 2), inline_data(data_ref(257, 0, 1))]) =>
        "inline refs are not sorted (type shown)";
    inline_refs_not_sorted_by_parent: TREE,
        extent(header(DATA, 5), &[inline_shared(4096, 2), inline_shared(8192, 2)]) =>
        "inline refs are not sorted (type shown)";
    inline_ref_of_unknown_type: TREE, extent(header(DATA, 1), &[inline(KeyType(1), 0)]) =>
        "unknown type of inline ref";
    inline_ref_cut_off: TREE, extent(header(DATA, 1), &[vec![KeyType::TREE_BLOCK_REF.0, 0]]) =>
        "inline ref is cut off";
    inline_data_ref_cut_off: TREE, extent(header(DATA, 1), &[inline(KeyType::EXTENT_DATA_REF, 0)]) =>
        "inline data ref is cut off";
    inline_shared_ref_cut_off: TREE, extent(header(DATA, 1), &[inline(KeyType::SHARED_DATA_REF, 0)]) =>
        "inline shared ref is cut off";
    tree_reference_to_data: TREE, extent(header(DATA, 1), &[inline(KeyType::TREE_BLOCK_REF, 5)]) =>
        "inline ref of the other kind of extent";
    data_reference_to_a_tree_block: TREE, metadata(TREE_BLOCK, 0, &[inline_shared(4096, 1)]) =>
        "inline ref of the other kind of extent";
    parent_off_its_sector: TREE, metadata(TREE_BLOCK, 0, &[inline(KeyType::SHARED_BLOCK_REF, 1)]) =>
        "parent of a shared reference is not aligned";
    shared_data_parent_off_its_sector: TREE, extent(header(DATA, 1), &[inline_shared(1, 1)]) =>
        "parent of a shared reference is not aligned";
    data_reference_off_its_sector: TREE, extent(header(DATA, 1), &[inline_data(data_ref(257, 1, 1))]) =>
        "offset of a data reference is not aligned";
    inline_reference_of_none: TREE, extent(header(DATA, 1), &[inline_data(data_ref(257, 0, 0))]) =>
        "reference that counts nothing";
}

judges! {
    good_keyed_tree_ref: TREE, [(key(START, KeyType::TREE_BLOCK_REF, 5), vec![])] => "good";
    good_keyed_data_ref: TREE,
        [(key(START, KeyType::EXTENT_DATA_REF, 3), data_ref(257, 0, 1).as_bytes().to_vec())] => "good";
    keyed_ref_off_its_sector: TREE, [(key(START + 1, KeyType::TREE_BLOCK_REF, 5), vec![])] =>
        "extent of a reference is not aligned";
    keyed_ref_with_a_tail: TREE, [(key(START, KeyType::TREE_BLOCK_REF, 5), vec![0])] =>
        "bytes left behind an extent reference";
    keyed_parent_off_its_sector: TREE, [(key(START, KeyType::SHARED_BLOCK_REF, 5), vec![])] =>
        "parent of a shared reference is not aligned";
    keyed_data_ref_cut_off: TREE, [(key(START, KeyType::EXTENT_DATA_REF, 3), vec![0; 27])] =>
        "extent data ref is cut off";
    keyed_shared_ref_cut_off: TREE, [(key(START, KeyType::SHARED_DATA_REF, 4096), vec![0; 3])] =>
        "shared data ref is cut off";
    keyed_ref_of_none: TREE, [(key(START, KeyType::SHARED_DATA_REF, 4096), vec![0; 4])] =>
        "reference that counts nothing";
}

#[test]
fn hash_of_a_data_reference_is_the_one_of_the_kernel() {
    // From an extent tree that Linux 6.18 wrote:
    // item key (16252928 EXTENT_DATA_REF 1007496931575399953), root FS_TREE objectid 794 offset 2621440.
    assert_eq!(data_ref(794, 2_621_440, 1).hash(), 1_007_496_931_575_399_953);
    let zero = zeroed(|reference: &mut ExtentDataRef| reference.count.set(1));
    assert_eq!(zero.len(), 28);
}
