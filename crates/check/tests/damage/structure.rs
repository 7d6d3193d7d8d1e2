//! Damage to superblocks, chunks, and to the shape of trees.

use super::pool::{Pool, add};
use super::{Damage, try_out};
use brindle_check::CheckOptions;
use brindle_ondisk::item::{DevExtent, DevItem};
use brindle_ondisk::{Generation, Item, Key, KeyType, Logical, NodeHeader, RootId, Superblock};
use std::mem::offset_of;
use zerocopy::FromBytes;

/// A node of level 1 and its first children.
fn low_node(pool: &Pool) -> (Logical, Vec<Logical>) {
    let mut found = None;
    pool.each_block(pool.root(RootId::FS_TREE), &mut |node| {
        if node.level() == 1 && found.is_none() {
            let children = node.key_ptrs().iter().map(|pointer| pointer.blockptr);
            found = Some((node.header().bytenr, children.collect()));
        }
    });
    found.expect("the tree has nodes")
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "a copy of the superblock that is old",
        image: "single",
        mutate: |pool| {
            pool.edit_superblock(1..2, |superblock| {
                superblock.generation = Generation::new(superblock.generation.get() - 2);
            });
        },
        pass: "superblocks",
        says: "has generation",
    },
    Damage {
        name: "a copy of the superblock that says something else",
        image: "single",
        mutate: |pool| pool.edit_superblock(1..2, |superblock| superblock.num_devices.set(7)),
        pass: "superblocks",
        says: "says num_devices 7, expected 1",
    },
    Damage {
        name: "a backup of roots from the future",
        image: "single",
        mutate: |pool| {
            pool.edit_superblock(0..2, |superblock| {
                superblock.super_roots[2].tree_root_gen = Generation::new(1 << 40);
            });
        },
        pass: "superblocks",
        says: "backup roots 2: generation lies in the future",
    },
    Damage {
        name: "total_bytes of the superblock",
        image: "single",
        mutate: |pool| {
            pool.edit_superblock(0..2, |superblock| {
                superblock.total_bytes.set(superblock.total_bytes.get() + 4096);
            });
        },
        pass: "chunks",
        says: "total_bytes is",
    },
    Damage {
        name: "bytes_used of the superblock",
        image: "single",
        mutate: |pool| {
            pool.edit_superblock(0..2, |superblock| superblock.bytes_used.set(1 << 20));
        },
        pass: "block_groups",
        says: "bytes_used is 1048576",
    },
    Damage {
        name: "bytes_used of a device",
        image: "single",
        mutate: |pool| {
            let place = pool.items(RootId::CHUNK_TREE).remove(0);
            assert_eq!(place.key.item_type, KeyType::DEV_ITEM);
            pool.edit_item(&place, |data| add(data, offset_of!(DevItem, bytes_used), 8, 4096));
        },
        pass: "chunks",
        says: "device 1: bytes_used is",
    },
    Damage {
        name: "a device extent of another chunk",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::DEV_TREE, KeyType::DEV_EXTENT, |_| true);
            pool.edit_item(&place, |data| add(data, offset_of!(DevExtent, chunk_offset), 8, 1 << 20));
        },
        pass: "chunks",
        says: "its device extent is of another chunk",
    },
    Damage {
        name: "a device extent that is not there",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::DEV_TREE, KeyType::DEV_EXTENT, |_| true);
            pool.delete(&place);
        },
        pass: "chunks",
        says: "has no device extent",
    },
    Damage {
        name: "a device extent over the next one",
        image: "single",
        mutate: |pool| {
            let places = pool.items(RootId::DEV_TREE);
            let place = places.iter().find(|place| place.key.item_type == KeyType::DEV_EXTENT);
            let place = place.expect("there are device extents").clone();
            pool.edit_item(&place, |data| add(data, offset_of!(DevExtent, length), 8, 4096));
        },
        pass: "trees",
        says: "device extent lies over the one before",
    },
    Damage {
        name: "a device extent that passes the end of the device",
        image: "single",
        mutate: |pool| {
            let place = pool.items(RootId::DEV_TREE).pop().expect("there are device extents");
            pool.edit_item(&place, |data| add(data, offset_of!(DevExtent, length), 8, 1 << 30));
        },
        pass: "chunks",
        says: "passes the end of the device",
    },
    Damage {
        name: "a wrong first key in the parent",
        image: "deep-tree",
        mutate: |pool| {
            let (node, _) = low_node(pool);
            pool.edit_pointer(node, 1, |pointer| {
                let Key { objectid, item_type, .. } = pointer.key;
                pointer.key = Key::new(objectid, item_type, pointer.key.offset() + 1);
            });
        },
        pass: "trees",
        says: "first key differs",
    },
    Damage {
        name: "a wrong generation in the parent",
        image: "deep-tree",
        mutate: |pool| {
            let (node, _) = low_node(pool);
            pool.edit_pointer(node, 1, |pointer| {
                pointer.generation = Generation::new(pointer.generation.get() - 1);
            });
        },
        pass: "trees",
        says: "generation differs",
    },
    Damage {
        name: "keys that pass the next block's",
        image: "deep-tree",
        mutate: |pool| {
            let (node, children) = low_node(pool);
            let leaf = pool.read(children[0]);
            let last = leaf.key(leaf.items().len() - 1).expect("a leaf is not empty");
            pool.edit_pointer(node, 1, |pointer| pointer.key = last);
        },
        pass: "trees",
        says: "is not less than its parent's next key",
    },
    Damage {
        name: "a loop: a node that is its own grandchild",
        image: "deep-tree",
        mutate: |pool| {
            let (node, _) = low_node(pool);
            pool.edit_pointer(node, 1, |pointer| pointer.blockptr = node);
        },
        pass: "trees",
        says: "level differs",
    },
    Damage {
        name: "a chunk tree that can't be read",
        image: "single",
        mutate: |pool| {
            let root = pool.root(RootId::CHUNK_TREE);
            pool.edit_raw(root, 4096, usize::MAX, |bytes| bytes[1000] ^= 4);
        },
        pass: "trees",
        says: "tree 3: logical",
    },
    Damage {
        name: "a log that can't be read",
        image: "log-tree",
        mutate: |pool| {
            let place = pool.items(RootId::TREE_LOG).remove(0);
            assert_eq!(place.key.offset(), RootId::FS_TREE.get());
            let Ok(Item::Root(root)) = Item::parse(&place.key, &place.data) else { panic!("a root item") };
            pool.edit_raw(root.bytenr, 4096, usize::MAX, |bytes| bytes[1000] ^= 4);
        },
        pass: "trees",
        says: "log tree of subvolume 5: logical",
    },
    Damage {
        name: "a tree of log trees that can't be read",
        image: "log-tree",
        mutate: |pool| {
            let root = pool.root(RootId::TREE_LOG);
            pool.edit_raw(root, 4096, usize::MAX, |bytes| bytes[1000] ^= 4);
        },
        pass: "trees",
        says: "tree of log trees: logical",
    },
    Damage {
        name: "a leaf of a tree that does not have it",
        image: "single",
        mutate: |pool| {
            let leaf = pool.items(RootId::UUID_TREE).remove(0).leaf;
            pool.edit_block(leaf, |block| add(block, offset_of!(NodeHeader, owner), 8, 100));
        },
        pass: "extents",
        says: "says it is of tree 109, which does not have it",
    },
    Damage {
        name: "a leaf that no balance has written",
        image: "single",
        mutate: |pool| {
            let leaf = pool.items(RootId::FS_TREE).remove(0).leaf;
            pool.edit_block(leaf, |block| {
                add(block, offset_of!(NodeHeader, flags), 8, NodeHeader::FLAG_RELOC);
            });
        },
        pass: "extents",
        says: "has the relocation flag",
    },
    Damage {
        name: "a leaf of an unknown backref revision",
        image: "single",
        mutate: |pool| {
            let leaf = pool.items(RootId::FS_TREE).remove(0).leaf;
            pool.edit_block(leaf, |block| add(block, offset_of!(NodeHeader, flags), 8, 1 << 56));
        },
        pass: "trees",
        says: "backref revision is 2",
    },
    Damage {
        name: "a root item with an offset in its key",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::ROOT_TREE, KeyType::ROOT_ITEM, |place| {
                place.key.objectid == RootId::DEV_TREE.object_id()
            });
            pool.edit_key(&place, Key::new(place.key.objectid, place.key.item_type, 7));
        },
        pass: "subvolumes",
        says: "the key of its root item has an offset",
    },
    Damage {
        name: "a leaf that is zero",
        image: "single",
        mutate: |pool| {
            let leaf = pool.items(RootId::UUID_TREE).remove(0).leaf;
            pool.edit_raw(leaf, 4096, usize::MAX, |bytes| bytes.fill(0));
        },
        pass: "trees",
        says: "checksum is 0x00000000",
    },
    Damage {
        name: "a flipped bit in every copy",
        image: "dup",
        mutate: |pool| {
            let leaf = pool.items(RootId::FS_TREE).remove(0).leaf;
            pool.edit_raw(leaf, 4096, usize::MAX, |bytes| bytes[1000] ^= 4);
        },
        pass: "trees",
        says: "tree 5: logical",
    },
    Damage {
        name: "a flipped bit in one copy",
        image: "dup",
        mutate: |pool| {
            let leaf = pool.items(RootId::FS_TREE).remove(0).leaf;
            pool.edit_raw(leaf, 4096, 1, |bytes| bytes[1000] ^= 4);
        },
        pass: "trees",
        says: "bad copy, another one is good: mirror 0",
    },
];

#[test]
fn damage_to_structure_is_found() {
    try_out(DAMAGES);
}

/// The first copy is durable before the others are written.
#[test]
fn a_copy_of_the_superblock_that_is_one_behind_is_no_damage() {
    let mut pool = Pool::load("single");
    let behind = |superblock: &mut Superblock| {
        superblock.generation = Generation::new(superblock.generation.get() - 1);
    };
    pool.edit_superblock(1..2, behind);
    let report = pool.check(&CheckOptions::default());
    assert!(report.is_clean());
    let notes = &report.pass("superblocks").expect("it ran").notes;
    assert!(notes.iter().any(|note| note.contains("is one behind")), "{notes:?}");
}

/// Takes the superblock of the second device back by some commits, and checks the pool. True if it is clean, and the
/// notes on superblocks.
fn check_behind(pool: &mut Pool, commits: u64) -> (bool, Vec<String>) {
    let behind = |superblock: &mut Superblock| {
        superblock.generation = Generation::new(superblock.generation.get() - commits);
        let backups = superblock.super_roots;
        if let Some(backup) = backups.iter().find(|backup| backup.tree_root_gen == superblock.generation) {
            (superblock.root, superblock.root_level) = (backup.tree_root, backup.tree_root_level);
        }
    };
    pool.edit_superblock_of(1, 0..2, behind);
    let report = pool.check(&CheckOptions::default());
    (report.is_clean(), report.pass("superblocks").expect("it ran").notes.clone())
}

/// A power cut between the superblocks of two devices leaves one of them behind, and it lacks nothing.
#[test]
fn a_device_that_has_missed_the_last_superblock_alone_is_no_damage() {
    let (is_clean, notes) = check_behind(&mut Pool::load("raid1"), 1);
    assert!(notes.iter().any(|note| note.contains("is one behind")), "{notes:?}");
    assert!(is_clean);
}

#[test]
fn a_device_that_has_missed_more_commits_is_damage() {
    let (is_clean, _) = check_behind(&mut Pool::load("raid1"), 6);
    assert!(!is_clean);
}

/// The mark in the device's item tells that it lacks blocks of the last commit.
#[test]
fn a_device_that_the_last_commit_has_marked_is_damage() {
    let mut pool = Pool::load("raid1");
    let generation = pool.superblock().generation;
    let item = pool.find(RootId::CHUNK_TREE, KeyType::DEV_ITEM, |place| place.key.offset() == 2);
    pool.edit_item(&item, |data| {
        DevItem::mut_from_prefix(data).expect("a device item").0.generation = generation;
    });
    let (is_clean, _) = check_behind(&mut pool, 1);
    assert!(!is_clean);
}
