use super::{OTHER, judge, judges, key, zeroed};
use crate::item::{BlockGroupItem, DevExtent, DevItem, DevReplaceItem, FreeSpaceInfo, RootItem};
use crate::item::{ChunkHeader, Stripe};
use crate::testing::{TRANSID, chunk};
use crate::{DevId, Generation, Key, KeyType, Logical, ObjectId, Physical, RootId};
use zerocopy::IntoBytes;

const MIB: u64 = 1 << 20;

fn sums(address: u64, size: usize) -> (Key, Vec<u8>) {
    (Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, address), vec![0; size])
}

judges! {
    good_csums: RootId::CSUM_TREE, [sums(4096, 8), sums(12288, 4)] => "good";
    csums_of_another_object: RootId::CSUM_TREE, [(key(1, KeyType::EXTENT_CSUM, 4096), vec![0; 4])] =>
        "objectid of checksums";
    no_csums: RootId::CSUM_TREE, [sums(4096, 0)] => "size of checksum item is not of whole checksums";
    half_a_csum: RootId::CSUM_TREE, [sums(4096, 6)] => "size of checksum item is not of whole checksums";
    csums_off_their_sector: RootId::CSUM_TREE, [sums(4097, 4)] => "address of checksums";
    csums_past_the_end: RootId::CSUM_TREE, [sums(0u64.wrapping_sub(4096), 8)] => "address of checksums";
    csums_over_others: RootId::CSUM_TREE, [sums(4096, 8), sums(8192, 4)] => "checksums lie over those before";
}

fn info(objectid: u64, length: u64, count: u32) -> [(Key, Vec<u8>); 1] {
    let data = zeroed(|info: &mut FreeSpaceInfo| info.extent_count.set(count));
    [(key(objectid, KeyType::FREE_SPACE_INFO, length), data)]
}

fn free(start: u64, length: u64) -> (Key, Vec<u8>) {
    (key(start, KeyType::FREE_SPACE_EXTENT, length), vec![])
}

fn bitmap(start: u64, length: u64, size: usize) -> (Key, Vec<u8>) {
    (key(start, KeyType::FREE_SPACE_BITMAP, length), vec![0; size])
}

judges! {
    good_free_space: RootId::FREE_SPACE_TREE, [free(MIB, 4096), free(MIB + 8192, MIB)] => "good";
    good_bitmaps: RootId::FREE_SPACE_TREE, [bitmap(0, 8 * MIB, 256), bitmap(8 * MIB, 9 * 4096, 2)] => "good";
    good_free_space_info: RootId::FREE_SPACE_TREE, info(MIB, 8 * MIB, 1) => "good";
    free_space_info_of_no_length: RootId::FREE_SPACE_TREE, info(MIB, 0, 0) => "range of free space info";
    free_space_info_of_too_many: RootId::FREE_SPACE_TREE, info(MIB, 4096, 2) => "extent_count of free space info";
    free_space_of_no_length: RootId::FREE_SPACE_TREE, [free(MIB, 0)] => "range of free space";
    free_space_off_its_sector: RootId::FREE_SPACE_TREE, [free(1, 4096)] => "range of free space";
    free_space_past_the_end: RootId::FREE_SPACE_TREE, [free(0u64.wrapping_sub(4096), 8192)] =>
        "range of free space";
    free_space_over_other: RootId::FREE_SPACE_TREE, [free(MIB, 8192), free(MIB + 4096, 4096)] =>
        "free space lies over the range before";
    bitmap_over_free_space: RootId::FREE_SPACE_TREE, [free(MIB, 8192), bitmap(MIB + 4096, 4096, 1)] =>
        "free space lies over the range before";
    bitmap_too_short: RootId::FREE_SPACE_TREE, [bitmap(0, 9 * 4096, 1)] => "size of free space bitmap";
    free_space_with_data: RootId::FREE_SPACE_TREE, [(key(MIB, KeyType::FREE_SPACE_EXTENT, 4096), vec![0])] =>
        "free space extent size";
}

fn root_item(change: impl FnOnce(&mut RootItem)) -> Vec<u8> {
    zeroed(|root: &mut RootItem| {
        root.generation = Generation::new(TRANSID);
        root.generation_v2 = Generation::new(TRANSID);
        root.bytenr = Logical::new(MIB);
        root.refs.set(1);
        change(root);
    })
}

fn root(change: impl FnOnce(&mut RootItem)) -> [(Key, Vec<u8>); 1] {
    [(key(300, KeyType::ROOT_ITEM, 0), root_item(change))]
}

fn root_ref(item_type: KeyType, ids: [u64; 2], dirid: u64, name: &[u8]) -> [(Key, Vec<u8>); 1] {
    let length = u16::try_from(name.len()).expect("a test's name is short");
    let data = [&dirid.to_le_bytes()[..], &[0; 8], &length.to_le_bytes(), name].concat();
    [(key(ids[0], item_type, ids[1]), data)]
}

const FUTURE: Generation = Generation::new(TRANSID + 2);

judges! {
    good_root: RootId::ROOT_TREE, root(|_| ()) => "good";
    good_root_of_2010: RootId::ROOT_TREE,
        [(key(300, KeyType::ROOT_ITEM, 0), root_item(|_| ())[..239].to_vec())] => "good";
    root_half_new: RootId::ROOT_TREE,
        [(key(300, KeyType::ROOT_ITEM, 0), root_item(|_| ())[..240].to_vec())] => "root item size";
    root_of_number_zero: RootId::ROOT_TREE, [(key(0, KeyType::ROOT_ITEM, 0), root_item(|_| ()))] =>
        "objectid of root item";
    relocation_of_no_tree: RootId::ROOT_TREE,
        [(Key::new(ObjectId::TREE_RELOC, KeyType::ROOT_ITEM, 0), root_item(|_| ()))] =>
        "relocation root of no tree";
    root_from_the_future: RootId::ROOT_TREE, root(|root| root.generation = FUTURE) =>
        "generation of root lies in the future";
    snapshot_from_the_future: RootId::ROOT_TREE, root(|root| root.last_snapshot = FUTURE) =>
        "last_snapshot of root lies in the future";
    root_off_its_sector: RootId::ROOT_TREE, root(|root| root.bytenr = Logical::new(1)) =>
        "bytenr of root is not aligned";
    root_too_high: RootId::ROOT_TREE, root(|root| root.level = 8) => "level of root";
    root_dropped_too_high: RootId::ROOT_TREE, root(|root| root.drop_level = 8) => "drop_level of root";
    root_dropped_above_itself: RootId::ROOT_TREE, root(|root| {
        root.drop_progress = key(256, KeyType::INODE_ITEM, 0);
        root.drop_level = 1;
    }) => "dropping a root has come to a level that it lacks";
    good_root_ref: RootId::ROOT_TREE, root_ref(KeyType::ROOT_REF, [5, 300], 256, b"sub") => "good";
    good_root_backref: RootId::ROOT_TREE, root_ref(KeyType::ROOT_BACKREF, [300, 5], 256, b"sub") => "good";
    root_ref_of_no_parent: RootId::ROOT_TREE, root_ref(KeyType::ROOT_REF, [2, 300], 256, b"sub") =>
        "parent of a subvolume";
    root_backref_of_no_child: RootId::ROOT_TREE, root_ref(KeyType::ROOT_BACKREF, [7, 5], 256, b"sub") =>
        "child of a subvolume";
    root_ref_in_no_directory: RootId::ROOT_TREE, root_ref(KeyType::ROOT_REF, [5, 300], 1, b"sub") =>
        "directory of a subvolume is no inode number";
    root_ref_with_a_slash: RootId::ROOT_TREE, root_ref(KeyType::ROOT_REF, [5, 300], 256, b"/") =>
        "byte of a name";
    root_ref_cut_off: RootId::ROOT_TREE, [(key(5, KeyType::ROOT_REF, 300), vec![0; 17])] =>
        "root ref is cut off";
    root_ref_with_a_tail: RootId::ROOT_TREE, [(key(5, KeyType::ROOT_REF, 300), vec![0; 19])] =>
        "length of root ref name";
}

fn device(objectid: u64, change: impl FnOnce(&mut DevItem)) -> [(Key, Vec<u8>); 1] {
    let data = zeroed(|device: &mut DevItem| {
        device.devid = DevId::new(1);
        device.total_bytes.set(1 << 30);
        change(device);
    });
    [(key(objectid, KeyType::DEV_ITEM, 1), data)]
}

fn dev_extent(start: u64, change: impl FnOnce(&mut DevExtent)) -> (Key, Vec<u8>) {
    let data = zeroed(|extent: &mut DevExtent| {
        extent.chunk_tree = RootId::CHUNK_TREE;
        extent.chunk_objectid = ObjectId::FIRST_CHUNK_TREE;
        extent.chunk_offset = Logical::new(MIB);
        extent.length.set(8 * MIB);
        change(extent);
    });
    (key(1, KeyType::DEV_EXTENT, start), data)
}

fn block_group(length: u64, flags: u64, change: impl FnOnce(&mut BlockGroupItem)) -> [(Key, Vec<u8>); 1] {
    let data = zeroed(|group: &mut BlockGroupItem| {
        group.chunk_objectid = ObjectId::FIRST_CHUNK_TREE;
        group.flags.set(flags);
        change(group);
    });
    [(key(MIB, KeyType::BLOCK_GROUP_ITEM, length), data)]
}

judges! {
    good_device: RootId::CHUNK_TREE, device(1, |_| ()) => "good";
    device_of_another_object: RootId::CHUNK_TREE, device(2, |_| ()) => "objectid of device item";
    device_of_another_id: RootId::CHUNK_TREE, device(1, |device| device.devid = DevId::new(2)) =>
        "devid of device item";
    device_fuller_than_it_is: RootId::CHUNK_TREE, device(1, |device| device.bytes_used.set(2 << 30)) =>
        "bytes_used of device item";
    good_dev_extents: RootId::DEV_TREE, [dev_extent(MIB, |_| ()), dev_extent(9 * MIB, |_| ())] => "good";
    dev_extent_of_another_tree: RootId::DEV_TREE,
        [dev_extent(MIB, |extent| extent.chunk_tree = RootId::FS_TREE)] => "chunk_tree of device extent";
    dev_extent_of_another_object: RootId::DEV_TREE,
        [dev_extent(MIB, |extent| extent.chunk_objectid = ObjectId::new(1))] => "chunk_objectid of device extent";
    dev_extent_of_a_crooked_chunk: RootId::DEV_TREE,
        [dev_extent(MIB, |extent| extent.chunk_offset = Logical::new(1))] => "chunk_offset of device extent";
    dev_extent_of_no_length: RootId::DEV_TREE, [dev_extent(MIB, |extent| extent.length.set(0))] =>
        "length of device extent";
    dev_extent_past_the_end: RootId::DEV_TREE,
        [dev_extent(MIB, |extent| extent.length.set(0u64.wrapping_sub(4096)))] => "length of device extent";
    dev_extent_over_another: RootId::DEV_TREE, [dev_extent(MIB, |_| ()), dev_extent(2 * MIB, |_| ())] =>
        "device extent lies over the one before";
    good_block_group: RootId::EXTENT_TREE, block_group(8 * MIB, 0x24, |_| ()) => "good";
    good_mixed_block_group: RootId::EXTENT_TREE, block_group(8 * MIB, 5, |_| ()) => "good";
    block_group_of_no_length: RootId::EXTENT_TREE, block_group(0, 1, |_| ()) => "range of block group";
    block_group_of_another_object: RootId::EXTENT_TREE,
        block_group(8 * MIB, 1, |group| group.chunk_objectid = ObjectId::new(1)) => "chunk_objectid of block group";
    block_group_fuller_than_it_is: RootId::EXTENT_TREE,
        block_group(8 * MIB, 1, |group| group.used.set(9 * MIB)) => "used of block group";
    block_group_of_two_profiles: RootId::EXTENT_TREE, block_group(8 * MIB, 0x19, |_| ()) =>
        "more than one profile in block group type";
    block_group_of_nothing: RootId::EXTENT_TREE, block_group(8 * MIB, 0x10, |_| ()) =>
        "block group type says nothing of what it holds";
    block_group_of_system_and_data: RootId::EXTENT_TREE, block_group(8 * MIB, 3, |_| ()) =>
        "system block group also holds something else";
    block_group_of_unknown_kind: RootId::EXTENT_TREE, block_group(8 * MIB, 1 << 11 | 1, |_| ()) =>
        "unknown bits in block group type";
    good_replacement: RootId::DEV_TREE,
        [(key(0, KeyType::DEV_REPLACE, 0), zeroed(|state: &mut DevReplaceItem| state.replace_state.set(4)))] => "good";
    replacement_in_an_unknown_state: RootId::DEV_TREE,
        [(key(0, KeyType::DEV_REPLACE, 0), zeroed(|state: &mut DevReplaceItem| state.replace_state.set(5)))] =>
        "state of a device replacement";
}

fn chunk_at(
    start: u64,
    chunk_type: u64,
    stripes: usize,
    change: impl FnOnce(&mut ChunkHeader, &mut Stripe),
) -> (Key, Vec<u8>) {
    let (mut header, mut stripe) = chunk(chunk_type);
    header.num_stripes.set(u16::try_from(stripes).expect("a test's chunk is small"));
    change(&mut header, &mut stripe);
    let data = [header.as_bytes(), &stripe.as_bytes().repeat(stripes)].concat();
    (Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start), data)
}

fn one(
    chunk_type: u64,
    stripes: usize,
    change: impl FnOnce(&mut ChunkHeader, &mut Stripe),
) -> [(Key, Vec<u8>); 1] {
    [chunk_at(MIB, chunk_type, stripes, change)]
}

judges! {
    good_chunk: RootId::CHUNK_TREE, [chunk_at(MIB, 1, 1, |_, _| ()), chunk_at(9 * MIB, 1, 1, |_, _| ())] => "good";
    chunk_of_another_object: RootId::CHUNK_TREE, [(key(1, KeyType::CHUNK_ITEM, MIB), one(1, 1, |_, _| ())[0].1.clone())] =>
        "objectid of chunk";
    chunk_over_another: RootId::CHUNK_TREE, [chunk_at(MIB, 1, 1, |_, _| ()), chunk_at(2 * MIB, 1, 1, |_, _| ())] =>
        "chunk lies over the one before";
    chunk_cut_off: RootId::CHUNK_TREE, [(key(256, KeyType::CHUNK_ITEM, MIB), vec![0; 47])] => "chunk item is cut off";
    chunk_of_more_stripes_than_it_has: RootId::CHUNK_TREE, one(1, 1, |header, _| header.num_stripes.set(2)) =>
        "size of a chunk's stripes";
    chunk_off_its_sector: RootId::CHUNK_TREE, [chunk_at(1, 1, 1, |_, _| ())] => "chunk begins between sectors";
    chunk_of_no_length: RootId::CHUNK_TREE, one(1, 1, |header, _| header.length.set(0)) => "length of chunk";
    chunk_past_the_end: RootId::CHUNK_TREE, [chunk_at(0u64.wrapping_sub(4096), 1, 1, |_, _| ())] =>
        "chunk passes the end of the logical space, its length";
    chunk_of_another_sectorsize: RootId::CHUNK_TREE, one(1, 1, |header, _| header.sector_size.set(512)) =>
        "sector_size of chunk";
    chunk_of_another_stripe_len: RootId::CHUNK_TREE, one(1, 1, |header, _| header.stripe_len.set(4096)) =>
        "stripe_len of chunk";
    single_chunk_of_two_stripes: RootId::CHUNK_TREE, one(1, 2, |_, _| ()) => "number of stripes of chunk";
    raid1c3_chunk_of_two_stripes: RootId::CHUNK_TREE, one(0x201, 2, |_, _| ()) => "number of stripes of chunk";
    raid6_chunk_of_two_stripes: RootId::CHUNK_TREE, one(0x101, 2, |_, _| ()) =>
        "too few stripes for the chunk's profile";
    raid10_chunk_of_three_stripes: RootId::CHUNK_TREE, one(0x41, 3, |header, _| header.sub_stripes.set(2)) =>
        "stripes of raid10 chunk are not in pairs";
    raid10_chunk_without_pairs: RootId::CHUNK_TREE, one(0x41, 4, |_, _| ()) =>
        "stripes of raid10 chunk are not in pairs";
    chunk_that_its_stripes_do_not_divide: RootId::CHUNK_TREE, one(9, 3, |_, _| ()) =>
        "length of chunk is no multiple of its stripes";
    stripe_off_its_sector: RootId::CHUNK_TREE, one(1, 1, |_, stripe| stripe.offset = Physical::new(1)) =>
        "stripe of chunk begins between sectors";
    stripe_past_the_end: RootId::CHUNK_TREE,
        one(1, 1, |_, stripe| stripe.offset = Physical::new(0u64.wrapping_sub(4096))) =>
        "stripe of chunk passes the end of any device, its offset";
    item_of_unknown_type: OTHER, [(key(1, KeyType(99), 7), vec![1, 2, 3])] => "good";
}

/// Types of which only the size is judged, with the size that is refused.
#[test]
fn items_of_fixed_size_have_it() {
    let cases: [(Key, usize, &str); 11] = [
        (key(0, KeyType::QGROUP_STATUS, 0), 33, "qgroup status size"),
        (key(0, KeyType::QGROUP_STATUS, 0), 31, "qgroup status is cut off"),
        (key(0, KeyType::QGROUP_INFO, 5), 39, "qgroup info size"),
        (key(0, KeyType::QGROUP_LIMIT, 5), 41, "qgroup limit size"),
        (key(5, KeyType::QGROUP_RELATION, 6), 1, "qgroup relation size"),
        (key(0, KeyType::PERSISTENT_ITEM, 1), 41, "size of device statistics is not of whole counters"),
        (key(1, KeyType::UUID_KEY_SUBVOL, 1), 9, "uuid item size is not of whole ids"),
        (key(257, KeyType::VERITY_DESC_ITEM, 0), 24, "verity descriptor size"),
        (Key::new(ObjectId::BALANCE, KeyType::TEMPORARY_ITEM, 0), 447, "balance item size"),
        (Key::new(ObjectId::FREE_SPACE, KeyType(0), 0), 40, "free space header size"),
        (key(0, KeyType::DEV_REPLACE, 0), 71, "dev replace item size"),
    ];
    for (key, size, why) in cases {
        assert_eq!(judge(OTHER, &[(key, vec![0; size])]), why, "{key}");
    }
}
