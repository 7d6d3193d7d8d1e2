//! Items of files that lie: names, sizes, extents.

use super::Outcome::Fails;
use super::{Case, disk_extent, extents_of, key_of, run};
use crate::bounds::within;
use brindle_fs::{Filesystem, OpenOptions};
use brindle_ondisk::item::{DirEntryHeader, FileExtentHeader, FileExtentRef, InodeItem};
use brindle_ondisk::{Key, KeyType, Logical, ObjectId, RootId};
use brindle_testing::damage::{LeafItem, Victim};

const FS: RootId = RootId::FS_TREE;

/// Offset of the part of a file extent that points to the disk.
const ON_DISK: usize = size_of::<FileExtentHeader>();

fn edit_inode(victim: &mut Victim, image: &str, path: &str, edit: impl FnOnce(&mut InodeItem)) {
    victim.edit_item(FS, &key_of(image, path, KeyType::INODE_ITEM, 0), edit);
}

/// Lets both entries of a name, by its hash and by its index, name another inode.
fn point_entry(victim: &mut Victim, directory: &Key, name: &str, inode: u64) {
    let is_entry = |item: &LeafItem| {
        item.key.objectid == directory.objectid
            && matches!(item.key.item_type, KeyType::DIR_ITEM | KeyType::DIR_INDEX)
            && item.data.ends_with(name.as_bytes())
    };
    let items = victim.leaves(FS).flat_map(|leaf| victim.leaf_items(leaf.at));
    let keys: Vec<Key> = items.filter(is_entry).map(|item| item.key).collect();
    assert_eq!(keys.len(), 2, "{name} has two entries");
    for key in keys {
        victim.edit_item(FS, &key, |entry: &mut DirEntryHeader| {
            entry.location.objectid = ObjectId::new(inode);
        });
    }
}

#[test]
fn names_that_lead_nowhere() {
    run(&[
        Case {
            name: "an entry of an inode that is not there",
            image: "node-4k",
            damage: |victim| {
                let directory = key_of("node-4k", "", KeyType::INODE_ITEM, 0);
                point_entry(victim, &directory, "elsewhere", 999_999);
            },
            outcome: Fails(&["elsewhere: inode 999999 of subvolume 5 does not exist"]),
        },
        Case {
            name: "an entry that names something else by its hash than by its index",
            image: "node-4k",
            damage: |victim| {
                let directory = key_of("node-4k", "", KeyType::DIR_ITEM, 0);
                let is_entry = |item: &LeafItem| {
                    (item.key.objectid, item.key.item_type) == (directory.objectid, KeyType::DIR_ITEM)
                        && item.data.ends_with(b"elsewhere")
                };
                let (_, item) = victim.find_item(FS, is_entry).expect("it has an entry");
                victim.edit_item(FS, &item.key, |entry: &mut DirEntryHeader| entry.file_type = 99);
            },
            outcome: Fails(&["file type of a directory entry, found 0x63"]),
        },
        Case {
            name: "an entry whose name is longer than the item",
            image: "node-4k",
            damage: |victim| {
                let directory = key_of("node-4k", "", KeyType::DIR_ITEM, 0);
                let is_entry = |item: &LeafItem| {
                    (item.key.objectid, item.key.item_type) == (directory.objectid, KeyType::DIR_ITEM)
                };
                let (_, item) = victim.find_item(FS, is_entry).expect("it has entries");
                victim.edit_item(FS, &item.key, |entry: &mut DirEntryHeader| entry.name_len.set(u16::MAX));
            },
            outcome: Fails(&["of FS_TREE slot ", "name is cut off"]),
        },
        Case {
            name: "a symbolic link of absurd size",
            image: "node-4k",
            damage: |victim| edit_inode(victim, "node-4k", "symlinks/valid", |inode| inode.size.set(1 << 62)),
            outcome: Fails(&["symlinks/valid: ", "length of symbolic link, found 0x4000000000000000"]),
        },
        Case {
            name: "a symbolic link longer than its contents",
            image: "node-4k",
            damage: |victim| edit_inode(victim, "node-4k", "symlinks/valid", |inode| inode.size.set(20)),
            outcome: Fails(&["symlinks/valid: ", "zero byte in a symbolic link"]),
        },
    ]);
}

#[test]
fn a_directory_that_holds_itself_is_walked_as_deep_as_asked() {
    let mut victim = Victim::load("node-4k");
    let directory = key_of("node-4k", "level-0/level-1", KeyType::INODE_ITEM, 0);
    point_entry(&mut victim, &directory, "level-2", directory.objectid.get());
    within("a directory that holds itself", move || {
        let filesystem = super::open(&victim, &crate::golden::top_level()).expect("opens");
        let limits = crate::walk::Limits { depth: 50, ..crate::walk::Limits::NONE };
        let walk = crate::walk::Walk::of(&filesystem, limits);
        let troubles: Vec<String> = walk.troubles.iter().map(ToString::to_string).collect();
        assert_eq!(troubles.len(), 1, "{troubles:?}");
        assert!(troubles[0].ends_with("level-2/level-2: limit reached"), "{troubles:?}");
    });
}

#[test]
fn subvolumes_that_hold_each_other_are_noticed() {
    let mut victim = Victim::load("node-4k");
    let is_backref = |item: &LeafItem| {
        (item.key.objectid, item.key.item_type) == (ObjectId::new(256), KeyType::ROOT_BACKREF)
    };
    let (leaf, _) = victim.find_item(RootId::ROOT_TREE, is_backref).expect("the subvolume has a parent");
    victim.edit_leaf(leaf, |items| {
        let item = items.iter_mut().find(|item| is_backref(item)).expect("has just been found");
        item.key = Key::new(ObjectId::new(256), KeyType::ROOT_BACKREF, 258);
        // In the root directory there.
        item.data[..8].copy_from_slice(&256_u64.to_le_bytes());
    });
    within("subvolumes that hold each other", move || {
        let filesystem = Filesystem::open(victim.devices(), &OpenOptions::default()).expect("opens");
        let error = filesystem.subvolumes().expect_err("they form a loop").to_string();
        assert_eq!(error, "the subvolumes above 256 form a loop");
    });
}

const EXTENTS: &[Case] = &[
    Case {
        name: "extents over each other",
        image: "node-4k",
        damage: |victim| {
            let extents = extents_of(victim, "node-4k", "holes/middle");
            let (first, second) = (extents[0].key, extents[1].key);
            let length = second.offset() - first.offset() + 4096;
            victim.edit_item_at(FS, &first, ON_DISK, |extent: &mut FileExtentRef| {
                extent.num_bytes.set(length);
                extent.disk_num_bytes.set(length);
            });
        },
        outcome: Fails(&[
            "of FS_TREE slot ",
            "file extent lies over the one before, found 0x",
            "expected 0x",
        ]),
    },
    Case {
        name: "a compressed extent of 2^60 bytes",
        image: "lzo",
        damage: |victim| {
            let (key, _) = disk_extent(victim, "lzo", "lzo-0/regular");
            victim.edit_item(FS, &key, |header: &mut FileExtentHeader| header.ram_bytes.set(1 << 60));
        },
        outcome: Fails(&["ram_bytes of a compressed extent, found 0x1000000000000000, expected 0x20000"]),
    },
    Case {
        name: "a compressed extent of 2^60 bytes on disk",
        image: "zstd-levels",
        damage: |victim| {
            let (key, _) = disk_extent(victim, "zstd-levels", "zstd-1/regular");
            victim.edit_item_at(FS, &key, ON_DISK, |extent: &mut FileExtentRef| {
                extent.disk_num_bytes.set(1 << 60);
            });
        },
        outcome: Fails(&["disk_num_bytes of a compressed extent, found 0x1000000000000000"]),
    },
    Case {
        name: "a compressed inline extent of 2^60 bytes",
        image: "zlib-levels",
        damage: |victim| {
            let key = key_of("zlib-levels", "zlib-1/inline", KeyType::EXTENT_DATA, 0);
            victim.edit_item(FS, &key, |header: &mut FileExtentHeader| header.ram_bytes.set(1 << 60));
        },
        outcome: Fails(&["ram_bytes of a compressed inline extent, found 0x1000000000000000"]),
    },
    Case {
        name: "an inline extent of 2^60 bytes",
        image: "node-4k",
        damage: |victim| {
            let key = key_of("node-4k", "elsewhere", KeyType::EXTENT_DATA, 0);
            victim.edit_item(FS, &key, |header: &mut FileExtentHeader| header.ram_bytes.set(1 << 60));
        },
        outcome: Fails(&["ram_bytes of an inline extent, found 0x1000000000000000, expected 0xb"]),
    },
    Case {
        name: "an extent that is not there",
        image: "node-4k",
        damage: |victim| {
            let (key, _) = disk_extent(victim, "node-4k", "sizes/4097");
            victim.edit_item_at(FS, &key, ON_DISK, |extent: &mut FileExtentRef| {
                extent.disk_bytenr = Logical::new(1 << 50);
            });
        },
        outcome: Fails(&["sizes/4097: inode ", "have a checksum", "logical 1125899906842624"]),
    },
    Case {
        name: "an extent at the end of the address space",
        image: "node-4k",
        damage: |victim| {
            let (key, _) = disk_extent(victim, "node-4k", "sizes/4097");
            victim.edit_item_at(FS, &key, ON_DISK, |extent: &mut FileExtentRef| {
                extent.disk_bytenr = Logical::new(!0xfff);
            });
        },
        outcome: Fails(&["of FS_TREE slot ", "file extent"]),
    },
    Case {
        name: "a compression of the future",
        image: "node-4k",
        damage: |victim| {
            let (key, _) = disk_extent(victim, "node-4k", "sizes/4097");
            victim.edit_item(FS, &key, |header: &mut FileExtentHeader| header.compression = 4);
        },
        outcome: Fails(&["unknown compression of file extent, found 0x4"]),
    },
];

#[test]
fn extents_that_cannot_be() {
    run(EXTENTS);
}

#[test]
fn a_file_of_absurd_size_ends_where_it_is_asked_to() {
    let mut victim = Victim::load("node-4k");
    edit_inode(&mut victim, "node-4k", "megabyte", |inode| inode.size.set(1 << 62));
    within("a file of absurd size", move || {
        let filesystem = super::open(&victim, &crate::golden::top_level()).expect("opens");
        let id = filesystem.resolve(filesystem.root(), b"megabyte").expect("is there");
        let file = filesystem.open_file(id).expect("opens");
        let mut buffer = vec![1; 10_000];
        assert_eq!(filesystem.read(&file, (1 << 62) - 5000, &mut buffer).expect("reads a hole"), 5000);
        assert!(buffer[..5000].iter().all(|byte| *byte == 0));
        assert_eq!(filesystem.seek(&file, 1 << 40, brindle_fs::Whence::Data).expect("seeks"), None);
    });
}
