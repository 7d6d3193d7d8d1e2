//! Damage to files, directories and subvolumes.

use super::pool::{Place, Pool, add};
use super::{Damage, try_out};
use brindle_ondisk::item::{DirEntryHeader, FileExtentHeader, FileExtentRef, InodeItem, QgroupInfo};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use std::mem::offset_of;

fn inode(pool: &Pool, holds: impl Fn(&InodeItem) -> bool) -> Place {
    pool.find(RootId::FS_TREE, KeyType::INODE_ITEM, |place| {
        let item = Item::parse(&place.key, &place.data);
        place.key.objectid > ObjectId::FIRST_FREE && matches!(item, Ok(Item::Inode(item)) if holds(item))
    })
}

/// Both entries of a file, `DIR_ITEM` first.
fn entries(pool: &Pool) -> (Place, Place) {
    let item = pool.find(RootId::FS_TREE, KeyType::DIR_ITEM, |place| {
        let Ok(Item::DirItem(mut entries)) = Item::parse(&place.key, &place.data) else { return false };
        let is_file = |header: &DirEntryHeader| {
            header.location.item_type == KeyType::INODE_ITEM && header.file_type == 1
        };
        entries.any(|entry| entry.is_ok_and(|entry| is_file(entry.header)))
    });
    let index = pool.find(RootId::FS_TREE, KeyType::DIR_INDEX, |place| {
        place.key.objectid == item.key.objectid && place.data == item.data
    });
    (item, index)
}

const LOCATION: usize = offset_of!(DirEntryHeader, location);

const DAMAGES: &[Damage] = &[
    Damage {
        name: "number of links",
        image: "single",
        mutate: |pool| {
            let place = inode(pool, InodeItem::is_regular);
            pool.edit_item(&place, |data| add(data, offset_of!(InodeItem, nlink), 4, 1));
        },
        pass: "files",
        says: "nlink is",
    },
    Damage {
        name: "size of a directory",
        image: "single",
        mutate: |pool| {
            let place = inode(pool, InodeItem::is_directory);
            pool.edit_item(&place, |data| add(data, offset_of!(InodeItem, size), 8, 2));
        },
        pass: "files",
        says: "size of directory is",
    },
    Damage {
        name: "nbytes",
        image: "single",
        mutate: |pool| {
            let place = inode(pool, |inode| inode.is_regular() && inode.nbytes.get() > 0);
            pool.edit_item(&place, |data| add(data, offset_of!(InodeItem, nbytes), 8, 4096));
        },
        pass: "files",
        says: "nbytes is",
    },
    Damage {
        name: "type of an inode",
        image: "single",
        mutate: |pool| {
            let place = inode(pool, |inode| inode.is_regular() && inode.nbytes.get() == 0);
            pool.edit_item(&place, |data| add(data, offset_of!(InodeItem, mode), 4, 0o040_000));
        },
        pass: "files",
        says: "the inode is of another type",
    },
    Damage {
        name: "an entry that points nowhere",
        image: "single",
        mutate: |pool| {
            let (item, index) = entries(pool);
            pool.edit_item(&item, |data| add(data, LOCATION, 8, 1_000_000));
            pool.edit_item(&index, |data| add(data, LOCATION, 8, 1_000_000));
        },
        pass: "files",
        says: "another inode has this name",
    },
    Damage {
        name: "a DIR_INDEX that is not there",
        image: "single",
        mutate: |pool| {
            let (_, index) = entries(pool);
            pool.delete(&index);
        },
        pass: "files",
        says: "has no DIR_INDEX",
    },
    Damage {
        name: "a DIR_ITEM that is not there",
        image: "single",
        mutate: |pool| {
            let (item, _) = entries(pool);
            pool.delete(&item);
        },
        pass: "files",
        says: "has no DIR_ITEM",
    },
    Damage {
        name: "a name of which the directory knows nothing",
        image: "single",
        mutate: |pool| {
            let (item, index) = entries(pool);
            pool.delete(&item);
            let index = pool.find(RootId::FS_TREE, KeyType::DIR_INDEX, |place| place.key == index.key);
            pool.delete(&index);
        },
        pass: "files",
        says: "the directory has no such entry",
    },
    Damage {
        name: "an entry of another type than its other",
        image: "single",
        mutate: |pool| {
            let (item, _) = entries(pool);
            pool.edit_item(&item, |data| data[offset_of!(DirEntryHeader, file_type)] = 5);
        },
        pass: "files",
        says: "DIR_ITEM and DIR_INDEX stand for different things",
    },
    Damage {
        name: "another index in the inode",
        image: "single",
        mutate: |pool| {
            let place = pool
                .find(RootId::FS_TREE, KeyType::INODE_REF, |place| place.key.objectid > ObjectId::FIRST_FREE);
            pool.edit_item(&place, |data| add(data, 0, 8, 1000));
        },
        pass: "files",
        says: "the inode has another index for it",
    },
    Damage {
        name: "an inode without its names",
        image: "single",
        mutate: |pool| {
            let place = pool
                .find(RootId::FS_TREE, KeyType::INODE_REF, |place| place.key.objectid > ObjectId::FIRST_FREE);
            pool.delete(&place);
        },
        pass: "files",
        says: "the inode has no such name",
    },
    Damage {
        name: "a file extent from the future",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::FS_TREE, KeyType::EXTENT_DATA, |_| true);
            pool.edit_item(&place, |data| add(data, offset_of!(FileExtentHeader, generation), 8, 1 << 40));
        },
        pass: "files",
        says: "the generation of a file extent lies in the future",
    },
    Damage {
        name: "a hole without extent",
        image: "holes",
        mutate: |pool| {
            let place = pool.find(RootId::FS_TREE, KeyType::EXTENT_DATA, |place| {
                let offset = size_of::<FileExtentHeader>() + offset_of!(FileExtentRef, disk_bytenr);
                place.data.get(offset..offset + 8) == Some(&[0; 8])
            });
            pool.delete(&place);
        },
        pass: "files",
        says: "no file extent from offset",
    },
    Damage {
        name: "an orphan item that is not there",
        image: "orphans",
        mutate: |pool| {
            let place = pool.find(RootId::FS_TREE, KeyType::ORPHAN_ITEM, |_| true);
            pool.delete(&place);
        },
        pass: "files",
        says: "has no names and no orphan item",
    },
    Damage {
        name: "a subvolume's way back",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::ROOT_TREE, KeyType::ROOT_BACKREF, |_| true);
            pool.delete(&place);
        },
        pass: "subvolumes",
        says: "ROOT_REF without equal ROOT_BACKREF",
    },
    Damage {
        name: "a subvolume's name",
        image: "single",
        mutate: |pool| {
            for kind in [KeyType::ROOT_BACKREF, KeyType::ROOT_REF] {
                let place = pool.find(RootId::ROOT_TREE, kind, |_| true);
                pool.edit_item(&place, |data| *data.last_mut().expect("a name") ^= 1);
            }
        },
        pass: "subvolumes",
        says: "the parent's directory does not have it",
    },
    Damage {
        name: "a UUID of nobody",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::UUID_TREE, KeyType::UUID_KEY_SUBVOL, |_| true);
            pool.edit_item(&place, |data| add(data, 0, 8, 1000));
        },
        pass: "subvolumes",
        says: "there is no such subvolume",
    },
    Damage {
        name: "a subvolume without quota group",
        image: "quota",
        mutate: |pool| {
            let place =
                pool.find(RootId::QUOTA_TREE, KeyType::QGROUP_INFO, |place| place.key.offset() >= 256);
            pool.delete(&place);
        },
        pass: "quotas",
        says: "has no quota group",
    },
    Damage {
        name: "a wrong number of a quota group",
        image: "quota",
        mutate: |pool| {
            let place =
                pool.find(RootId::QUOTA_TREE, KeyType::QGROUP_INFO, |place| place.key.offset() >= 256);
            pool.edit_item(&place, |info| info[offset_of!(QgroupInfo, rfer) + 1] ^= 0x10);
        },
        pass: "quotas",
        says: "bytes referenced",
    },
    Damage {
        name: "an inode that is not there",
        image: "single",
        mutate: |pool| {
            let place = inode(pool, |inode| inode.is_regular() && inode.nbytes.get() == 0);
            pool.edit_items(place.leaf, |items| {
                items.retain(|(key, _): &(Key, _)| key.objectid != place.key.objectid);
            });
        },
        pass: "files",
        says: "the inode has no such name",
    },
];

#[test]
fn damage_to_files_is_found() {
    try_out(DAMAGES);
}
