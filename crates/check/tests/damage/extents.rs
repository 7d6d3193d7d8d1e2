//! Damage to the extent tree, and to what is counted by address.

use super::pool::{Pool, add};
use super::{Damage, try_out};
use brindle_ondisk::item::{
    BackRef, BlockGroupItem, ExtentDataRef, ExtentFlags, ExtentItemHeader, FileExtentHeader, FileExtentRef,
};
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId};
use std::mem::offset_of;

/// Behind the fixed part of an extent item and the type of its first inline reference.
const FIRST_REF: usize = size_of::<ExtentItemHeader>() + 1;

fn is_data(place: &super::pool::Place) -> bool {
    let item = Item::parse(&place.key, &place.data);
    matches!(item, Ok(Item::Extent(extent)) if extent.flags().contains(ExtentFlags::DATA)
        && extent.header.refs.get() == 1)
}

fn data_extent(pool: &Pool) -> super::pool::Place {
    pool.find(RootId::EXTENT_TREE, KeyType::EXTENT_ITEM, is_data)
}

fn block_extent(pool: &Pool) -> super::pool::Place {
    pool.find(RootId::EXTENT_TREE, KeyType::METADATA_ITEM, |_| true)
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "one reference too many in the count",
        image: "single",
        mutate: |pool| {
            let place = data_extent(pool);
            pool.edit_item(&place, |data| add(data, offset_of!(ExtentItemHeader, refs), 8, 1));
        },
        pass: "extents",
        says: "refs is 2, its back references count 1",
    },
    Damage {
        name: "a back reference of another inode",
        image: "single",
        mutate: |pool| {
            let place = data_extent(pool);
            pool.edit_item(&place, |data| {
                add(data, FIRST_REF + offset_of!(ExtentDataRef, objectid), 8, 1000);
            });
        },
        pass: "extents",
        says: "counts 0, expected 1",
    },
    Damage {
        name: "a tree block's back reference of another tree",
        image: "single",
        mutate: |pool| {
            let place = block_extent(pool);
            pool.edit_item(&place, |data| add(data, FIRST_REF, 8, 1000));
        },
        pass: "extents",
        says: "counts 1, expected 0",
    },
    Damage {
        name: "a data extent that is not allocated",
        image: "single",
        mutate: |pool| {
            let place = data_extent(pool);
            pool.delete(&place);
        },
        pass: "extents",
        says: "not allocated, but used by tree",
    },
    Damage {
        name: "a tree block that is not allocated",
        image: "single",
        mutate: |pool| {
            let place = block_extent(pool);
            pool.delete(&place);
        },
        pass: "extents",
        says: "not allocated, but used by tree",
    },
    Damage {
        name: "a data extent that nobody uses",
        image: "single",
        mutate: |pool| {
            let place = data_extent(pool);
            pool.edit_items(place.leaf, |items| {
                let start = place.key.objectid.get() + (4 << 20);
                let key = Key::new(ObjectId::new(start), KeyType::EXTENT_ITEM, 4096);
                items.push((key, place.data.clone()));
            });
        },
        pass: "extents",
        says: "4096 bytes: allocated, but nothing uses it",
    },
    Damage {
        name: "a tree block of another level",
        image: "single",
        mutate: |pool| {
            let place = block_extent(pool);
            pool.edit_key(&place, Key::new(place.key.objectid, KeyType::METADATA_ITEM, 3));
        },
        pass: "extents",
        says: "level is 3",
    },
    Damage {
        name: "a file extent that takes its extent for longer",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::FS_TREE, KeyType::EXTENT_DATA, |place| {
                matches!(Item::parse(&place.key, &place.data),
                    Ok(Item::FileExtent(brindle_ondisk::item::FileExtent::OnDisk { extent, .. }))
                        if extent.disk_bytenr.get() != 0)
            });
            let offset = size_of::<FileExtentHeader>() + offset_of!(FileExtentRef, disk_num_bytes);
            pool.edit_item(&place, |data| add(data, offset, 8, 4096));
        },
        pass: "extents",
        says: "length is",
    },
    Damage {
        name: "the leaf of a shared reference is another",
        image: "snapshots",
        mutate: |pool| {
            let is_shared = |place: &super::pool::Place| {
                let Ok(Item::Extent(extent)) = Item::parse(&place.key, &place.data) else { return false };
                extent.inline_refs.flatten().any(|one| matches!(one, BackRef::SharedData { .. }))
            };
            let places = pool.items(RootId::EXTENT_TREE);
            let place = places.into_iter().find(is_shared).expect("the image has shared data");
            // Of the sorted references it is the last: the leaf, then the count.
            let at = place.data.len() - 12;
            pool.edit_item(&place, |data| add(data, at, 8, 1 << 20));
        },
        pass: "extents",
        says: "the leaf at logical",
    },
    Damage {
        name: "an extent over the end of its block group",
        image: "single",
        mutate: |pool| {
            let is_data = |place: &super::pool::Place| {
                matches!(Item::parse(&place.key, &place.data), Ok(Item::BlockGroup(group))
                    if group.flags.get() & 1 != 0)
            };
            // The last one: behind it nothing is in the way.
            let group = pool.items(RootId::EXTENT_TREE).into_iter().rfind(is_data).expect("there is data");
            let end = group.key.objectid.get() + group.key.offset();
            let extent = data_extent(pool);
            let key = Key::new(ObjectId::new(end - 4096), KeyType::EXTENT_ITEM, 8192);
            let last = pool.items(RootId::EXTENT_TREE).into_iter().rfind(|place| place.key < key);
            pool.insert(last.expect("an item before").leaf, key, &extent.data);
        },
        pass: "extents",
        says: "passes the end of its block group",
    },
    Damage {
        name: "used of a block group",
        image: "single",
        mutate: |pool| {
            let group = pool.find(RootId::EXTENT_TREE, KeyType::BLOCK_GROUP_ITEM, |_| true);
            pool.edit_item(&group, |data| add(data, offset_of!(BlockGroupItem, used), 8, 4096));
        },
        pass: "block_groups",
        says: "used is",
    },
    Damage {
        name: "a block group that is not there",
        image: "single",
        mutate: |pool| {
            let group = pool.find(RootId::EXTENT_TREE, KeyType::BLOCK_GROUP_ITEM, |_| true);
            pool.delete(&group);
        },
        pass: "block_groups",
        says: "chunk without block group",
    },
    Damage {
        name: "a block group of another type",
        image: "single",
        mutate: |pool| {
            let group = pool.find(RootId::EXTENT_TREE, KeyType::BLOCK_GROUP_ITEM, |_| true);
            pool.edit_item(&group, |data| add(data, offset_of!(BlockGroupItem, flags), 8, 1 << 5));
        },
        pass: "block_groups",
        says: "is of type",
    },
    Damage {
        name: "a free range that is shorter",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::FREE_SPACE_TREE, KeyType::FREE_SPACE_EXTENT, |place| {
                place.key.offset() > 8192 && place.key.objectid.get() > 13 << 20
            });
            let key = Key::new(place.key.objectid, place.key.item_type, place.key.offset() - 4096);
            pool.edit_key(&place, key);
        },
        pass: "free_space",
        says: "4096 bytes: neither allocated nor free",
    },
    Damage {
        name: "a number of free ranges",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::FREE_SPACE_TREE, KeyType::FREE_SPACE_INFO, |place| {
                place.key.objectid.get() > 13 << 20
            });
            pool.edit_item(&place, |data| add(data, 0, 4, 1));
        },
        pass: "free_space",
        says: "extent_count is",
    },
    Damage {
        name: "checksums of nothing",
        image: "single",
        mutate: |pool| {
            let last = pool.items(RootId::CSUM_TREE).pop().expect("there are checksums");
            let end = last.key.offset() + (8 << 20);
            pool.insert(last.leaf, Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, end), &[1, 2, 3, 4]);
        },
        pass: "checksums",
        says: "4096 bytes, where no data is allocated",
    },
    Damage {
        name: "data without checksums",
        image: "single",
        mutate: |pool| {
            let place = pool.find(RootId::CSUM_TREE, KeyType::EXTENT_CSUM, |_| true);
            pool.delete(&place);
        },
        pass: "checksums",
        says: "no checksum, used by tree",
    },
    Damage {
        name: "data that does not match its checksum, in one copy",
        image: "dup",
        mutate: |pool| {
            let place = pool.items(RootId::CSUM_TREE).remove(0);
            pool.edit_raw(Logical::new(place.key.offset()), 1, 1, |bytes| bytes[0] ^= 1);
        },
        pass: "data",
        says: "mirror 0 (",
    },
];

#[test]
fn damage_to_extents_is_found() {
    try_out(DAMAGES);
}
