//! Items in text. Every expectation is what btrfs-progs 6.2 printed for the same bytes, unless the test says
//! otherwise.

use super::item::print_item;
use super::style::ItemStyle;
use brindle_ondisk::{Key, KeyType, ObjectId};

const STYLE: ItemStyle =
    ItemStyle { checksum_size: 4, sectorsize: 4096, hide_names: false, checksums: false };

/// Bytes put together from little-endian numbers of several widths.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u64s(mut self, numbers: &[u64]) -> Self {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn u32s(mut self, numbers: &[u32]) -> Self {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn u16s(mut self, numbers: &[u16]) -> Self {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn key(self, objectid: u64, item_type: u8, offset: u64) -> Self {
        self.u64s(&[objectid]).raw(&[item_type]).u64s(&[offset])
    }
}

const fn negative(value: u64) -> u64 {
    0u64.wrapping_sub(value)
}

fn text_in(style: &ItemStyle, key: (u64, u8, u64), data: &Bytes) -> String {
    let (objectid, item_type, offset) = key;
    let key = Key::new(ObjectId::new(objectid), KeyType(item_type), offset);
    let mut text = Vec::new();
    print_item(&mut text, &key, &data.0, style).expect("memory takes everything");
    let text = String::from_utf8(text).expect("the names of these tests are UTF-8");
    text.replace("\n\t\t", "\n").trim_start_matches("\t\t").trim_end().to_owned()
}

fn text(key: (u64, u8, u64), data: &Bytes) -> String {
    text_in(&STYLE, key, data)
}

fn bytes() -> Bytes {
    Bytes::default()
}

fn inode(flags: u64) -> Bytes {
    let times = [1u64, 5, 5, negative(5)].into_iter().zip([2u32, 999_999_999, 6, 1]);
    let head = bytes().u64s(&[3, 4, 5, 6, 7]).u32s(&[1, 1000, 1001, 0o100_644]);
    let head = head.u64s(&[0, flags, 9, 0, 0, 0, 0]);
    times.fold(head, |bytes, (seconds, nanoseconds)| bytes.u64s(&[seconds]).u32s(&[nanoseconds]))
}

#[test]
fn inodes() {
    let expected = "generation 3 transid 4 size 5 nbytes 6\n\
        block group 7 mode 100644 links 1 uid 1000 gid 1001 rdev 0\n\
        sequence 9 flags 0x0(none)\n\
        atime 1.2 (1970-01-01 00:00:01)\n\
        ctime 5.999999999 (1970-01-01 00:00:05)\n\
        mtime 5.6 (1970-01-01 00:00:05)\n\
        otime 18446744073709551611.1 (1969-12-31 23:59:55)";
    assert_eq!(text((256, 1, 0), &inode(0)), expected);
    let all = text((256, 1, 0), &inode(0x1_0000_0fff));
    let names = "NODATASUM|NODATACOW|READONLY|NOCOMPRESS|PREALLOC|SYNC|IMMUTABLE|APPEND|NODUMP|NOATIME|DIRSYNC|COMPRESS";
    assert!(all.contains(&format!("flags 0x100000fff({names})")));
}

#[test]
fn names_of_inodes() {
    let two = bytes().u64s(&[3]).u16s(&[2]).raw(b"ab").u64s(&[4]).u16s(&[3]).raw(b"a\0b");
    assert_eq!(text((256, 12, 5), &two), "index 3 namelen 2 name: ab\nindex 4 namelen 3 name: a");
    let extended = bytes().u64s(&[300, 3]).u16s(&[4]).raw(b"abcd");
    assert_eq!(text((256, 13, 6), &extended), "index 3 parent 300 namelen 4 name: abcd");
    let hidden = ItemStyle { hide_names: true, ..STYLE };
    assert_eq!(text_in(&hidden, (256, 13, 6), &extended), "index 3 parent 300 namelen 4 name: HIDDEN");
}

fn entry(kind: u8, name: &[u8], value: &[u8]) -> Bytes {
    let lengths = [value.len(), name.len()].map(|length| u16::try_from(length).expect("short"));
    bytes().key(300, 1, 0).u64s(&[8]).u16s(&lengths).raw(&[kind]).raw(name).raw(value)
}

#[test]
fn directory_entries_and_xattrs() {
    let packed = entry(8, b"user.z", b"ab\0cd").raw(&entry(8, b"user.q", b"").0);
    let expected = "location key (300 INODE_ITEM 0) type XATTR\n\
        transid 8 data_len 5 name_len 6\n\
        name: user.z\n\
        data ab\n\
        location key (300 INODE_ITEM 0) type XATTR\n\
        transid 8 data_len 0 name_len 6\n\
        name: user.q";
    assert_eq!(text((256, 24, 1), &packed), expected);
    assert!(text((256, 84, 1), &entry(0x81, b"x", b"")).contains("type DIR_ITEM.129"));
    assert!(text((256, 84, 1), &entry(9, b"x", b"")).contains("type DIR_ITEM.9"));
    assert!(text((256, 96, 2), &entry(7, b"x", b"")).contains("type SYMLINK"));
}

fn file_extent(kind: u8, compression: u8) -> Bytes {
    let head = bytes().u64s(&[3, 100]).raw(&[compression, 0, 0, 0, kind]);
    if kind == 0 { head.raw(b"abc") } else { head.u64s(&[8192, 4096, 0, 4096]) }
}

#[test]
fn file_extents() {
    let inline = "generation 3 type 0 (inline)\n\
        inline extent data size 3 ram_bytes 100 compression 1 (zlib)";
    assert_eq!(text((256, 108, 0), &file_extent(0, 1)), inline);
    let regular = "generation 3 type 1 (regular)\n\
        extent data disk byte 8192 nr 4096\n\
        extent data offset 0 nr 4096 ram 100\n\
        extent compression 3 (zstd)";
    assert_eq!(text((256, 108, 0), &file_extent(1, 3)), regular);
    let prealloc = "generation 3 type 2 (prealloc)\n\
        prealloc data disk byte 8192 nr 4096\n\
        prealloc data offset 0 nr 4096";
    assert_eq!(text((256, 108, 0), &file_extent(2, 0)), prealloc);
}

#[test]
fn a_file_extent_that_makes_no_sense_is_called_corrupt() {
    assert!(text((256, 108, 0), &file_extent(3, 0)).starts_with("corrupt item: unknown type of file extent"));
    assert!(text((256, 1, 0), &bytes().raw(b"abc")).starts_with("corrupt item: inode item size"));
}

fn root(flags: u64, generation_v2: u64) -> Bytes {
    let head = bytes().raw(&[0; 160]).u64s(&[9, 256, 4096, 5, 6, 7, flags]).u32s(&[1]).key(256, 84, 77);
    let uuids: Vec<u8> = (0..16).chain(1..17).chain(2..18).collect();
    let tail = head.raw(&[2, 1]).u64s(&[generation_v2]).raw(&uuids).u64s(&[11, 12, 13, 14]);
    let times = (1u32..5).fold(tail, |bytes, n| bytes.u64s(&[u64::from(n) + 20]).u32s(&[n]));
    times.raw(&[0; 64])
}

#[test]
fn roots() {
    let expected = "generation 9 root_dirid 256 bytenr 4096 byte_limit 5 bytes_used 6\n\
        last_snapshot 7 flags 0x1(RDONLY) refs 1\n\
        drop_progress key (256 DIR_ITEM 77) drop_level 2\n\
        level 1 generation_v2 9\n\
        uuid 00010203-0405-0607-0809-0a0b0c0d0e0f\n\
        parent_uuid 01020304-0506-0708-090a-0b0c0d0e0f10\n\
        received_uuid 02030405-0607-0809-0a0b-0c0d0e0f1011\n\
        ctransid 11 otransid 12 stransid 13 rtransid 14\n\
        ctime 21.1 (1970-01-01 00:00:21)\n\
        otime 22.2 (1970-01-01 00:00:22)\n\
        stime 23.3 (1970-01-01 00:00:23)\n\
        rtime 24.4 (1970-01-01 00:00:24)";
    assert_eq!(text((257, 132, 9), &root(1, 9)), expected);
    assert!(text((257, 132, 9), &root(1 << 48, 9)).contains("flags 0x1000000000000(none) refs 1"));
    // btrfs-progs shows the stale number itself.
    assert!(text((257, 132, 9), &root(0, 8)).ends_with("level 1 generation_v2 0"));
    let link = bytes().u64s(&[256, 3]).u16s(&[2]).raw(b"ab");
    assert_eq!(text((257, 144, 5), &link), "root backref key dirid 256 sequence 3 name ab");
    assert_eq!(text((5, 156, 257), &link), "root ref key dirid 256 sequence 3 name ab");
}

#[test]
fn extents_and_their_references() {
    let data_ref = |root| bytes().raw(&[178]).u64s(&[root, 257, negative(4096)]).u32s(&[3]);
    let shared = bytes().raw(&[184]).u64s(&[8192]).u32s(&[2]);
    let data = bytes().u64s(&[5, 2, 1]).raw(&data_ref(5).0).raw(&shared.0);
    let expected = "refs 5 gen 2 flags DATA\n\
        extent data backref root FS_TREE objectid 257 offset 18446744073709547520 count 3\n\
        shared data backref parent 8192 count 2";
    assert_eq!(text((4096, 168, 8192), &data), expected);
    let inline = bytes().raw(&[176]).u64s(&[negative(9)]).raw(&[182]).u64s(&[12345]);
    let skinny = bytes().u64s(&[2, 2, 2]).raw(&inline.0);
    let expected = "refs 2 gen 2 flags TREE_BLOCK\n\
        tree block skinny level 1\n\
        tree block backref root DATA_RELOC_TREE\n\
        shared block backref parent 12345";
    assert_eq!(text((8193, 169, 1), &skinny), expected);
    let old = bytes().u64s(&[1, 2, 0x102]).key(256, 1, 0).raw(&[3]);
    let expected = "refs 1 gen 2 flags TREE_BLOCK|FULL_BACKREF\ntree block key (256 INODE_ITEM 0) level 3";
    assert_eq!(text((4096, 168, 4096), &old), expected);
}

#[test]
fn references_that_are_items() {
    assert_eq!(text((4096, 176, 5), &bytes()), "tree block backref");
    assert_eq!(text((4096, 182, 7), &bytes()), "shared block backref");
    assert_eq!(text((4096, 184, 7), &bytes().u32s(&[3])), "shared data backref count 3");
    let data = bytes().u64s(&[257, 258, 4096]).u32s(&[3]);
    assert_eq!(text((4096, 178, 7), &data), "extent data backref root 257 objectid 258 offset 4096 count 3");
}

#[test]
fn block_groups_and_free_space() {
    let group = bytes().u64s(&[1, 256, 5]);
    let expected = "block group used 1 chunk_objectid 256 flags DATA|METADATA|single";
    assert_eq!(text((4096, 192, 4096), &group), expected);
    assert_eq!(text((4096, 198, 1), &bytes().u32s(&[3, 1])), "free space info extent count 3 flags 1");
    assert_eq!(text((4096, 199, 1), &bytes()), "free space extent");
    assert_eq!(text((4096, 200, 1), &bytes().raw(&[1; 10])), "free space bitmap");
    let cache = bytes().key(257, 1, 0).u64s(&[7, 8, 9]);
    let expected = "location key (257 INODE_ITEM 0)\ncache generation 7 entries 8 bitmaps 9";
    assert_eq!(text((negative(11), 0, 5), &cache), expected);
}

#[test]
fn checksums() {
    let sums = bytes().u32s(&[0x0403_0201, 0x0807_0605]);
    assert_eq!(text((negative(10), 128, 4096), &sums), "range start 4096 end 12288 length 8192");
    let listing = ItemStyle { checksums: true, ..STYLE };
    let expected = "range start 4096 end 12288 length 8192\n[4096] 0x01020304 [8192] 0x05060708";
    assert_eq!(text_in(&listing, (negative(10), 128, 4096), &sums), expected);
}

#[test]
fn devices_and_chunks() {
    let uuid: Vec<u8> = (0..16).collect();
    let device = bytes().u64s(&[1, 2, 3]).u32s(&[4, 5, 6]).u64s(&[7, 8, 9]).u32s(&[10]).raw(&[11, 12]);
    let expected = "devid 1 total_bytes 2 bytes_used 3\n\
        io_align 4 io_width 5 sector_size 6 type 7\n\
        generation 8 start_offset 9 dev_group 10\n\
        seek_speed 11 bandwidth 12\n\
        uuid 00010203-0405-0607-0809-0a0b0c0d0e0f\n\
        fsid 00010203-0405-0607-0809-0a0b0c0d0e0f";
    assert_eq!(text((1, 216, 1), &device.raw(&uuid).raw(&uuid)), expected);
    let chunk = bytes().u64s(&[1, 2, 65536, 9]).u32s(&[5, 6, 7]).u16s(&[1, 1]).u64s(&[1, 2]).raw(&uuid);
    let expected = "length 1 owner 2 stripe_len 65536 type DATA|RAID0\n\
        io_align 5 io_width 6 sector_size 7\n\
        num_stripes 1 sub_stripes 1\n\
        \tstripe 0 devid 1 offset 2\n\
        \tdev_uuid 00010203-0405-0607-0809-0a0b0c0d0e0f";
    assert_eq!(text((256, 228, 1 << 20), &chunk), expected);
    let extent = bytes().u64s(&[3, 256, 4096, 8]).raw(&uuid);
    let expected = "dev extent chunk_tree 3\n\
        chunk_objectid 256 chunk_offset 4096 length 8\n\
        chunk_tree_uuid 00010203-0405-0607-0809-0a0b0c0d0e0f";
    assert_eq!(text((1, 204, 1), &extent), expected);
    let statistics = "persistent item objectid DEV_STATS offset 1\n\
        device stats\n\
        write_errs 1 read_errs 2 flush_errs 3 corruption_errs 4 generation 5";
    assert_eq!(text((0, 249, 1), &bytes().u64s(&[1, 2, 3, 4, 5])), statistics);
}

#[test]
fn quotas() {
    let status = |flags| text((0, 240, 0), &bytes().u64s(&[1, 2, flags, 4]));
    assert_eq!(status(0), "version 1 generation 2 flags OFF scan 4");
    assert_eq!(status(7), "version 1 generation 2 flags ON|SCANNING|INCONSISTENT scan 4");
    // btrfs-progs 6.2 does not know simple quotas.
    let simple = text((0, 240, 0), &bytes().u64s(&[1, 2, 9, 4, 77]));
    assert_eq!(simple, "version 1 generation 2 flags ON|SIMPLE_MODE scan 4 enable_gen 77");
    let numbers = bytes().u64s(&[0x3f, 2, 3, 4, 5]);
    let expected = "generation 63\n\
        referenced 2 referenced_compressed 3\n\
        exclusive 4 exclusive_compressed 5";
    assert_eq!(text((0, 242, 7), &numbers), expected);
    let expected = "flags 3f\nmax_referenced 2 max_exclusive 3\nrsv_referenced 4 rsv_exclusive 5";
    assert_eq!(text((0, 244, 7), &numbers), expected);
    assert_eq!(text((1, 246, 7), &bytes()), "");
}

#[test]
fn balances() {
    let arguments = || bytes().u64s(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).u32s(&[12, 13]).u64s(&[0; 6]);
    let balance = bytes().u64s(&[7]).raw(&arguments().0).raw(&arguments().0).raw(&arguments().0);
    let part = "profiles 1 devid 3 target 8 flags 9\n\
        usage_min 2 usage_max 0 pstart 4 pend 5\n\
        vstart 6 vend 7 limit_min 10 limit_max 0\n\
        stripes_min 12 stripes_max 13";
    let head = "temporary item objectid BALANCE offset 0\nbalance status flags 7";
    let expected = format!("{head}\nDATA\n{part}\nMETADATA\n{part}\nSYSTEM\n{part}");
    assert_eq!(text((negative(4), 248, 0), &balance.u64s(&[0; 4])), expected);
}

#[test]
fn odds_and_ends() {
    assert_eq!(text((256, 60, 1), &bytes().u64s(&[77])), "dir log end 77");
    assert_eq!(text((negative(5), 48, 1), &bytes()), "orphan item");
    assert_eq!(text((1, 251, 2), &bytes().u64s(&[257, 258])), "subvol_id 257\nsubvol_id 258");
    assert_eq!(text((300, 253, 9), &bytes().raw(b"abcdef")), "item data abcdef");
    assert_eq!(text((300, 99, 9), &bytes().raw(b"abcdef")), "");
    let unknown = "temporary item objectid 77 offset 9\nunknown temporary item objectid 77";
    assert_eq!(text((77, 248, 9), &bytes()), unknown);
    let unknown = "persistent item objectid 77 offset 9\nunknown persistent item objectid 77";
    assert_eq!(text((77, 249, 9), &bytes()), unknown);
}

#[test]
fn items_that_btrfs_progs_does_not_print() {
    let replace = text((0, 250, 0), &bytes().u64s(&[1, 2, 3, 0, 2, 100, 101, 8, 9]));
    assert!(replace.contains("mode 0 state 2(FINISHED)\ntime_started 100 time_stopped 101"));
    let verity = bytes().u64s(&[256, 0, 0]).raw(&[0]);
    assert_eq!(text((256, 36, 0), &verity), "verity descriptor size 256 encryption 0");
    assert_eq!(text((256, 37, 0), &bytes().raw(b"ab")), "verity merkle data size 2");
    let owner = bytes().u64s(&[1, 2, 1]).raw(&[172]).u64s(&[257]);
    assert_eq!(text((4096, 168, 4096), &owner), "refs 1 gen 2 flags DATA\nextent owner root 257");
}
