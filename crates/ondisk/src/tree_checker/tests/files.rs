use super::{FILES, OTHER, judge, judges, key, zeroed};
use crate::item::{DirEntryHeader, FileExtentHeader, FileExtentRef, InodeItem};
use crate::testing::TRANSID;
use crate::{Generation, Key, KeyType, Logical, ObjectId, RootId, extref_hash, name_hash};
use zerocopy::IntoBytes;

const REGULAR: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;

fn inode(change: impl FnOnce(&mut InodeItem)) -> Vec<u8> {
    zeroed(|inode: &mut InodeItem| {
        inode.mode.set(REGULAR);
        inode.nlink.set(1);
        change(inode);
    })
}

/// Inode 257 alone, changed.
fn inodes(change: impl FnOnce(&mut InodeItem)) -> [(Key, Vec<u8>); 1] {
    [(key(257, KeyType::INODE_ITEM, 0), inode(change))]
}

/// Inode 257, and an item of it.
fn with_inode(item_type: KeyType, offset: u64, data: Vec<u8>) -> [(Key, Vec<u8>); 2] {
    [(key(257, KeyType::INODE_ITEM, 0), inode(|_| ())), (key(257, item_type, offset), data)]
}

judges! {
    good_inode: FILES, inodes(|_| ()) => "good";
    inode_of_odd_nanoseconds: FILES, inodes(|inode| inode.mtime.nsec.set(u32::MAX)) => "good";
    inode_with_unknown_flags: FILES, inodes(|inode| inode.flags.set(1 << 30)) => "good";
    inode_number_too_low: FILES, [(key(255, KeyType::INODE_ITEM, 0), inode(|_| ()))] => "inode number";
    inode_key_with_offset: FILES, [(key(257, KeyType::INODE_ITEM, 1), inode(|_| ()))] =>
        "key offset of inode item";
    inode_from_the_future: FILES, inodes(|inode| inode.generation = Generation::new(TRANSID + 2)) =>
        "generation of inode lies in the future";
    inode_changed_in_the_future: FILES, inodes(|inode| inode.transid = Generation::new(TRANSID + 2)) =>
        "transid of inode lies in the future";
    inode_of_no_type: FILES, inodes(|inode| inode.mode.set(0o644)) => "mode of inode";
    inode_of_two_types: FILES, inodes(|inode| inode.mode.set(0o110_644)) => "mode of inode";
    inode_mode_too_wide: FILES, inodes(|inode| inode.mode.set(1 << 16 | REGULAR)) => "mode of inode";
    directory_with_two_names: FILES, inodes(|inode| { inode.mode.set(DIRECTORY); inode.nlink.set(2); }) =>
        "nlink of a directory";
    file_larger_than_offsets_go: FILES, inodes(|inode| inode.size.set(1 << 63)) => "size of inode";
    inode_cut_off: FILES, [(key(257, KeyType::INODE_ITEM, 0), vec![0; 159])] => "inode item size";
}

fn name_ref(name: &[u8]) -> Vec<u8> {
    let length = u16::try_from(name.len()).expect("a test's name is short");
    [&[0; 8][..], &length.to_le_bytes(), name].concat()
}

fn refs(data: Vec<u8>) -> [(Key, Vec<u8>); 2] {
    with_inode(KeyType::INODE_REF, 256, data)
}

fn extref(parent: u64, name: &[u8]) -> Vec<u8> {
    [&parent.to_le_bytes()[..], &name_ref(name)].concat()
}

judges! {
    good_inode_ref: FILES, refs([name_ref(b"a"), name_ref(&[b'x'; 255])].concat()) => "good";
    root_directory_is_its_own_parent: FILES, [
        (key(256, KeyType::INODE_ITEM, 0), inode(|_| ())),
        (key(256, KeyType::INODE_REF, 256), name_ref(b".."))] => "good";
    default_subvolume_in_the_root_tree: RootId::ROOT_TREE,
        [(key(5, KeyType::INODE_REF, 6), name_ref(b"default"))] => "good";
    tree_number_as_inode_elsewhere: OTHER, [(key(5, KeyType::INODE_REF, 256), name_ref(b"default"))] =>
        "objectid of an inode's item is no inode number";
    inode_ref_without_its_inode: FILES, [
        (key(257, KeyType::INODE_ITEM, 0), inode(|_| ())),
        (key(258, KeyType::INODE_REF, 256), name_ref(b"a"))] =>
        "no inode item before an inode's items (previous objectid shown)";
    inode_ref_without_its_inode_in_a_log: OTHER, [
        (key(257, KeyType::INODE_ITEM, 0), inode(|_| ())),
        (key(258, KeyType::INODE_REF, 256), name_ref(b"a"))] => "good";
    inode_ref_without_a_name: FILES, refs(vec![]) => "inode ref without a name";
    inode_ref_cut_off: FILES, refs(vec![0; 9]) => "inode ref is cut off";
    inode_ref_name_cut_off: FILES, refs(name_ref(b"abc")[..12].to_vec()) => "inode ref name is cut off";
    inode_ref_of_no_parent: FILES, with_inode(KeyType::INODE_REF, 5, name_ref(b"a")) =>
        "parent of inode ref is no inode number";
    empty_name: FILES, refs(name_ref(b"")) => "length of a name";
    name_too_long: FILES, refs(name_ref(&[b'x'; 256])) => "length of a name";
    name_with_a_slash: FILES, refs(name_ref(b"a/b")) => "byte of a name";
    name_with_a_zero: FILES, refs(name_ref(b"a\0b")) => "byte of a name";
    name_that_leads_up: FILES, refs(name_ref(b"..")) => "name is . or .. (its length shown)";
    good_extref: FILES,
        with_inode(KeyType::INODE_EXTREF, extref_hash(ObjectId::new(256), b"a"), extref(256, b"a")) => "good";
    extref_under_another_hash: FILES, with_inode(KeyType::INODE_EXTREF, 3, extref(256, b"a")) =>
        "key offset of inode extref is not its hash";
    extref_of_no_parent: FILES, with_inode(KeyType::INODE_EXTREF, 3, extref(1, b"a")) =>
        "parent of inode extref is no inode number";
    extref_without_a_name: FILES, with_inode(KeyType::INODE_EXTREF, 3, vec![]) => "inode extref without a name";
    extref_cut_off: FILES, with_inode(KeyType::INODE_EXTREF, 3, vec![0; 17]) => "inode extref is cut off";
    extref_name_cut_off: FILES,
        with_inode(KeyType::INODE_EXTREF, 3, extref(256, b"abc")[..20].to_vec()) => "inode extref name is cut off";
    good_orphan: FILES, [(Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, 257), vec![])] => "good";
    orphan_of_another_object: FILES, [(key(257, KeyType::ORPHAN_ITEM, 257), vec![])] =>
        "objectid of orphan item";
    orphan_with_data: FILES, [(Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, 257), vec![0])] =>
        "orphan item size";
    log_range_that_ends_first: OTHER, [(key(257, KeyType::DIR_LOG_INDEX, 5), vec![4, 0, 0, 0, 0, 0, 0, 0])] =>
        "dir log range ends before it begins";
    log_range_of_no_inode: OTHER, [(key(3, KeyType::DIR_LOG_INDEX, 5), vec![255; 8])] =>
        "objectid of dir log range is no inode number";
    log_range_of_one: OTHER, [(key(257, KeyType::DIR_LOG_ITEM, 5), vec![5, 0, 0, 0, 0, 0, 0, 0])] => "good";
}

fn entry(name: &[u8], value: &[u8], change: impl FnOnce(&mut DirEntryHeader)) -> Vec<u8> {
    let mut data = zeroed(|header: &mut DirEntryHeader| {
        header.location = key(258, KeyType::INODE_ITEM, 0);
        header.file_type = 1;
        header.name_len.set(u16::try_from(name.len()).expect("a test's name is short"));
        header.data_len.set(u16::try_from(value.len()).expect("a test's value is short"));
        change(header);
    });
    data.extend_from_slice(name);
    data.extend_from_slice(value);
    data
}

fn xattr(name: &[u8], value: &[u8], change: impl FnOnce(&mut DirEntryHeader)) -> Vec<u8> {
    entry(name, value, |header| {
        header.location = Key::MIN;
        header.file_type = 8;
        change(header);
    })
}

/// The directory item of "a", changed.
fn dir_item(change: impl FnOnce(&mut DirEntryHeader)) -> [(Key, Vec<u8>); 2] {
    with_inode(KeyType::DIR_ITEM, name_hash(b"a"), entry(b"a", b"", change))
}

fn xattrs(name: &[u8], change: impl FnOnce(&mut DirEntryHeader)) -> [(Key, Vec<u8>); 2] {
    with_inode(KeyType::XATTR_ITEM, name_hash(name), xattr(name, b"value", change))
}

fn located(location: Key) -> impl FnOnce(&mut DirEntryHeader) {
    move |header| header.location = location
}

judges! {
    good_entry: FILES, dir_item(|_| ()) => "good";
    good_entry_of_a_subvolume: FILES, dir_item(|header| {
        header.location = key(300, KeyType::ROOT_ITEM, u64::MAX);
        header.file_type = 2;
    }) => "good";
    entry_under_another_hash: FILES, with_inode(KeyType::DIR_ITEM, 3, entry(b"a", b"", |_| ())) =>
        "key offset is not the hash of the name";
    dir_item_without_an_entry: FILES, with_inode(KeyType::DIR_ITEM, 3, vec![]) => "dir item without an entry";
    entry_cut_off: FILES, with_inode(KeyType::DIR_ITEM, 3, vec![0; 29]) => "directory entry is cut off";
    entry_name_cut_off: FILES, dir_item(|header| header.name_len.set(2)) => "name is cut off";
    entry_value_cut_off: FILES, dir_item(|header| header.data_len.set(2)) => "value is cut off";
    entry_with_a_value: FILES, with_inode(KeyType::DIR_ITEM, name_hash(b"a"), entry(b"a", b"v", |_| ())) =>
        "data_len of a directory entry";
    entry_of_type_unknown: FILES, dir_item(|header| header.file_type = 0) => "file type of a directory entry";
    entry_of_type_xattr: FILES, dir_item(|header| header.file_type = 8) => "file type of a directory entry";
    entry_of_type_nine: FILES, dir_item(|header| header.file_type = 9) => "file type of a directory entry";
    entry_of_a_chunk: FILES, dir_item(located(key(256, KeyType::CHUNK_ITEM, 0))) =>
        "type of an entry's location";
    entry_of_no_inode: FILES, dir_item(located(key(5, KeyType::INODE_ITEM, 0))) =>
        "location of an entry is no inode number";
    entry_of_an_inode_with_offset: FILES, dir_item(located(key(258, KeyType::INODE_ITEM, 1 << 30))) =>
        "key offset of an entry's location";
    entry_of_the_extent_tree: FILES, dir_item(located(key(2, KeyType::ROOT_ITEM, 0))) =>
        "location of an entry is no subvolume";
    subvolume_that_is_a_file: FILES, dir_item(located(key(300, KeyType::ROOT_ITEM, 0))) =>
        "entry of a subvolume is no directory";
    good_index: FILES, with_inode(KeyType::DIR_INDEX, 2, entry(b"a", b"", |_| ())) => "good";
    index_of_two: FILES, with_inode(KeyType::DIR_INDEX, 2,
        [entry(b"a", b"", |_| ()), entry(b"b", b"", |_| ())].concat()) => "number of entries of a dir index";
    index_of_none: FILES, with_inode(KeyType::DIR_INDEX, 2, vec![]) => "number of entries of a dir index";
    good_xattr: FILES, xattrs(b"user.a/b", |_| ()) => "good";
    xattr_under_another_hash: FILES, with_inode(KeyType::XATTR_ITEM, 3, xattr(b"user.a", b"v", |_| ())) =>
        "key offset is not the hash of the name";
    xattr_item_of_none: FILES, with_inode(KeyType::XATTR_ITEM, 3, vec![]) => "xattr item without an xattr";
    xattr_without_a_name: FILES, xattrs(b"", |_| ()) => "length of a name";
    xattr_with_a_zero: FILES, xattrs(b"user\0", |_| ()) => "zero byte in the name of an xattr";
    xattr_with_a_location: FILES, xattrs(b"user.a", located(key(258, KeyType::INODE_ITEM, 0))) =>
        "xattr has a location (its objectid shown)";
    xattr_that_is_a_file: FILES, xattrs(b"user.a", |header| header.file_type = 1) => "file type of xattr";
}

#[test]
fn names_of_one_hash_share_an_item() {
    // Two names whose CRC-32C collide would do; the same name twice takes the same way.
    let data = [entry(b"a", b"", |_| ()), entry(b"a", b"", |_| ())].concat();
    assert_eq!(judge(FILES, &with_inode(KeyType::DIR_ITEM, name_hash(b"a"), data)), "good");
}

fn inline(compression: u8, ram_bytes: u64, data: &[u8]) -> Vec<u8> {
    let mut item = zeroed(|header: &mut FileExtentHeader| {
        header.compression = compression;
        header.ram_bytes.set(ram_bytes);
    });
    item.extend_from_slice(data);
    item
}

/// A compressed piece [4 KiB, 12 KiB) of an extent of 16 KiB, 8 KiB on disk, changed.
fn regular(change: impl FnOnce(&mut FileExtentHeader, &mut FileExtentRef)) -> Vec<u8> {
    let mut header: FileExtentHeader = zerocopy::FromZeros::new_zeroed();
    let mut extent: FileExtentRef = zerocopy::FromZeros::new_zeroed();
    header.extent_type = 1;
    header.compression = 3;
    header.ram_bytes.set(16384);
    extent.disk_bytenr = Logical::new(1 << 20);
    extent.disk_num_bytes.set(8192);
    extent.offset.set(4096);
    extent.num_bytes.set(8192);
    change(&mut header, &mut extent);
    [header.as_bytes(), extent.as_bytes()].concat()
}

fn extent(change: impl FnOnce(&mut FileExtentHeader, &mut FileExtentRef)) -> [(Key, Vec<u8>); 2] {
    with_inode(KeyType::EXTENT_DATA, 0, regular(change))
}

fn after(first: Vec<u8>, offset: u64) -> Vec<(Key, Vec<u8>)> {
    let next = (key(257, KeyType::EXTENT_DATA, offset), regular(|_, _| ()));
    with_inode(KeyType::EXTENT_DATA, 0, first).into_iter().chain([next]).collect()
}

judges! {
    good_inline: FILES, with_inode(KeyType::EXTENT_DATA, 0, inline(0, 3, b"abc")) => "good";
    good_compressed_inline: FILES, with_inode(KeyType::EXTENT_DATA, 0, inline(1, 4096, b"abc")) => "good";
    inline_further_on: FILES, with_inode(KeyType::EXTENT_DATA, 4096, inline(0, 3, b"abc")) =>
        "offset in the file of an inline extent";
    inline_that_claims_more: FILES, with_inode(KeyType::EXTENT_DATA, 0, inline(0, 4, b"abc")) =>
        "ram_bytes of an inline extent";
    compressed_inline_that_claims_more: FILES, with_inode(KeyType::EXTENT_DATA, 0, inline(1, 4097, b"abc")) =>
        "ram_bytes of a compressed inline extent";
    file_extent_cut_off: FILES, with_inode(KeyType::EXTENT_DATA, 0, vec![0; 20]) => "file extent is cut off";
    regular_extent_cut_off: FILES, with_inode(KeyType::EXTENT_DATA, 0, regular(|_, _| ())[..52].to_vec()) =>
        "size of regular file extent";
    good_regular: FILES, extent(|_, _| ()) => "good";
    good_prealloc_of_stale_ram_bytes: FILES, extent(|header, extent| {
        header.extent_type = 2;
        header.compression = 0;
        header.ram_bytes.set(4096);
        extent.num_bytes.set(4096);
    }) => "good";
    good_hole: FILES, extent(|_, extent| extent.disk_bytenr = Logical::new(0)) => "good";
    extent_of_unknown_compression: FILES, extent(|header, _| header.compression = 4) =>
        "unknown compression of file extent";
    extent_of_unknown_type: FILES, extent(|header, _| header.extent_type = 3) => "unknown type of file extent";
    encrypted_extent: FILES, extent(|header, _| header.encryption = 1) => "encryption of file extent";
    encoded_extent: FILES, extent(|header, _| header.other_encoding.set(1)) => "other_encoding of file extent";
    extent_off_its_sector: FILES, with_inode(KeyType::EXTENT_DATA, 1, regular(|_, _| ())) =>
        "file extent begins between sectors";
    extent_of_no_length: FILES, extent(|_, extent| extent.num_bytes.set(0)) => "num_bytes of file extent";
    extent_of_half_a_sector: FILES, extent(|_, extent| extent.num_bytes.set(512)) => "num_bytes of file extent";
    extent_past_the_end_of_files: FILES,
        with_inode(KeyType::EXTENT_DATA, 0u64.wrapping_sub(4096), regular(|_, _| ())) => "num_bytes of file extent";
    piece_off_its_sector: FILES, extent(|_, extent| extent.offset.set(1)) =>
        "offset of file extent is not aligned";
    disk_bytenr_off_its_sector: FILES, extent(|_, extent| extent.disk_bytenr = Logical::new(4097)) =>
        "disk_bytenr of file extent is not aligned";
    extent_of_no_bytes_on_disk: FILES, extent(|_, extent| extent.disk_num_bytes.set(0)) =>
        "disk_num_bytes of file extent";
    extent_past_the_end_of_the_pool: FILES,
        extent(|_, extent| extent.disk_bytenr = Logical::new(0u64.wrapping_sub(4096))) =>
        "disk_num_bytes of file extent";
    ram_bytes_off_its_sector: FILES, extent(|header, _| header.ram_bytes.set(12289)) =>
        "ram_bytes of file extent is not aligned";
    compressed_extent_too_large_on_disk: FILES, extent(|_, extent| extent.disk_num_bytes.set(132 << 10)) =>
        "disk_num_bytes of a compressed extent";
    compressed_extent_too_large: FILES, extent(|header, _| header.ram_bytes.set(132 << 10)) =>
        "ram_bytes of a compressed extent";
    piece_past_the_end_of_its_extent: FILES, extent(|_, extent| extent.offset.set(12288)) =>
        "piece of a file passes the end of its extent";
    piece_that_wraps: FILES, extent(|_, extent| extent.offset.set(0u64.wrapping_sub(4096))) =>
        "piece of a file passes the end of its extent";
    piece_past_the_end_of_an_uncompressed_extent: FILES, extent(|header, _| header.compression = 0) =>
        "piece of a file passes the end of its extent";
    extent_after_another: FILES, after(regular(|_, _| ()), 8192) => "good";
    extent_over_another: FILES, after(regular(|_, _| ()), 4096) => "file extent lies over the one before";
    extent_after_inline: FILES, after(inline(0, 3, b"abc"), 4096) => "good";
}

#[test]
fn an_inline_extent_of_more_than_a_sector_covers_what_it_holds() {
    let mut context = crate::testing::context();
    context.nodesize = 16384;
    let items: Vec<(Key, Vec<u8>)> = after(inline(0, 5000, &[0; 5000]), 4096);
    let block = crate::testing::leaf(&context, crate::testing::header(FILES, 0), &items);
    let refusal = crate::Node::check(block.into(), &context, &crate::testing::expectation());
    assert_eq!(super::reason(&refusal.expect_err("they overlap")), "file extent lies over the one before");
}
