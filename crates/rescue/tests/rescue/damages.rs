//! Damages that can be repaired.

use brindle_ondisk::item::{
    BlockGroupItem, DevItem, ExtentDataRef, ExtentFlags, ExtentItemHeader, FreeSpaceInfo, InodeItem,
};
use brindle_ondisk::{CompatRo, Item, Key, KeyType, ObjectId, RootId};
use brindle_testing::damage::Victim;

/// A damage, and a part of what is found of it.
pub(crate) struct Damage {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&mut Victim),
    pub(crate) says: &'static str,
}

/// The tree that block group items lie in.
fn group_tree(victim: &Victim) -> RootId {
    let has_own = victim.superblock().compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
    if has_own { RootId::BLOCK_GROUP_TREE } else { RootId::EXTENT_TREE }
}

/// The first key of a type of which an item holds something.
fn key(victim: &Victim, tree: RootId, kind: KeyType, holds: impl Fn(&Item<'_>) -> bool) -> Key {
    let found = victim.find_item(tree, |item| {
        item.key.item_type == kind && Item::parse(&item.key, &item.data).is_ok_and(|item| holds(&item))
    });
    found.expect("the image has such an item").1.key
}

/// The last key of a type in the free space tree: mkfs.btrfs leaves items of block groups that are no more at the beginning.
fn last_free_space(victim: &Victim, kind: KeyType) -> Key {
    let items = victim.leaves(RootId::FREE_SPACE_TREE).flat_map(|leaf| victim.leaf_items(leaf.at));
    items.map(|item| item.key).filter(|key| key.item_type == kind).last().expect("the image has free space")
}

fn inode(victim: &Victim, holds: impl Fn(&InodeItem) -> bool) -> Key {
    key(
        victim,
        RootId::FS_TREE,
        KeyType::INODE_ITEM,
        |item| matches!(item, Item::Inode(inode) if holds(inode)),
    )
}

pub(crate) const DAMAGES: &[Damage] = &[
    Damage {
        name: "used bytes of a block group",
        make: |victim| {
            let tree = group_tree(victim);
            let key = key(victim, tree, KeyType::BLOCK_GROUP_ITEM, |_| true);
            victim.edit_item(tree, &key, |item: &mut BlockGroupItem| item.used += 8192);
        },
        says: "used is",
    },
    Damage {
        name: "more used than a block group has",
        make: |victim| {
            let tree = group_tree(victim);
            let key = key(victim, tree, KeyType::BLOCK_GROUP_ITEM, |_| true);
            victim.edit_item(tree, &key, |item: &mut BlockGroupItem| item.used.set(key.offset()));
        },
        says: "used is",
    },
    Damage {
        name: "used bytes of a device",
        make: |victim| {
            let key = key(victim, RootId::CHUNK_TREE, KeyType::DEV_ITEM, |_| true);
            victim.edit_item(RootId::CHUNK_TREE, &key, |item: &mut DevItem| item.bytes_used -= 1 << 20);
        },
        says: "bytes_used is",
    },
    Damage {
        name: "totals of the superblock",
        make: |victim| {
            victim.edit_superblocks(|superblock| {
                superblock.bytes_used += 4096;
                superblock.total_bytes += 4096;
            });
        },
        says: "superblock: total_bytes is",
    },
    Damage {
        name: "number of free ranges",
        make: |victim| {
            let key = last_free_space(victim, KeyType::FREE_SPACE_INFO);
            let add = |item: &mut FreeSpaceInfo| item.extent_count += 1;
            victim.edit_item(RootId::FREE_SPACE_TREE, &key, add);
        },
        says: "extent_count is",
    },
    Damage {
        name: "a free range that is not there",
        make: |victim| {
            let gone = last_free_space(victim, KeyType::FREE_SPACE_EXTENT);
            let found = victim.find_item(RootId::FREE_SPACE_TREE, |item| item.key == gone);
            let (leaf, _) = found.expect("it has just been found");
            victim.edit_leaf(leaf, |items| items.retain(|item| item.key != gone));
        },
        says: "neither allocated nor free",
    },
    Damage {
        name: "a free space tree that is lost",
        make: |victim| {
            let root = victim.leaves(RootId::FREE_SPACE_TREE).next().expect("there is one").at;
            victim.edit_block_raw(root, |bytes| bytes.fill(0x5a));
        },
        says: "tree 10",
    },
    Damage {
        name: "a UUID tree that is lost",
        make: |victim| {
            let root = victim.leaves(RootId::UUID_TREE).next().expect("there is one").at;
            victim.edit_block_raw(root, |bytes| bytes.fill(0x5a));
        },
        says: "tree 9",
    },
    Damage {
        name: "number of links",
        make: |victim| {
            let key = inode(victim, InodeItem::is_regular);
            victim.edit_item(RootId::FS_TREE, &key, |item: &mut InodeItem| item.nlink += 1);
        },
        says: "nlink is",
    },
    Damage {
        name: "size of a directory",
        make: |victim| {
            let key = inode(victim, InodeItem::is_directory);
            victim.edit_item(RootId::FS_TREE, &key, |item: &mut InodeItem| item.size += 2);
        },
        says: "size of directory is",
    },
    Damage {
        name: "bytes of a file",
        make: |victim| {
            let key = inode(victim, |inode| inode.is_regular() && inode.nbytes.get() > 0);
            victim.edit_item(RootId::FS_TREE, &key, |item: &mut InodeItem| item.nbytes += 4096);
        },
        says: "nbytes is",
    },
    Damage {
        name: "number of references to data",
        make: |victim| {
            let key = data_extent(victim);
            victim.edit_item(RootId::EXTENT_TREE, &key, |item: &mut ExtentItemHeader| item.refs += 3);
        },
        says: "its back references count",
    },
    Damage {
        name: "count of a back reference to data",
        make: |victim| {
            let key = data_extent(victim);
            victim.edit_item(RootId::EXTENT_TREE, &key, |item: &mut ExtentItemHeader| item.refs += 2);
            let at = size_of::<ExtentItemHeader>() + 1;
            victim.edit_item_at(RootId::EXTENT_TREE, &key, at, |item: &mut ExtentDataRef| item.count += 2);
        },
        says: "back reference of",
    },
    Damage {
        name: "copies of a superblock",
        make: |victim| {
            for image in victim.images_mut() {
                image.write_at(64 << 20, &[0x5a; 4096]).expect("within");
            }
        },
        says: "superblock at offset 67108864",
    },
    Damage {
        name: "first copies of a superblock",
        make: |victim| {
            for image in victim.images_mut() {
                image.write_at(64 << 10, &[0; 4096]).expect("within");
            }
        },
        says: "superblock at offset 65536",
    },
];

/// An extent of data with one back reference, of a file.
fn data_extent(victim: &Victim) -> Key {
    key(victim, RootId::EXTENT_TREE, KeyType::EXTENT_ITEM, |item| {
        let Item::Extent(extent) = item else { return false };
        let references: Vec<_> = extent.inline_refs.flatten().collect();
        extent.flags().contains(ExtentFlags::DATA)
            && matches!(references.as_slice(), [brindle_ondisk::item::BackRef::Data(data)]
                if data.objectid >= ObjectId::FIRST_FREE)
    })
}
