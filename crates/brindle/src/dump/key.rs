//! Keys in text.

use brindle_ondisk::{Key, KeyType, ObjectId, RootId};

/// A key as `dump-tree` shows it, without the brackets.
pub(crate) fn key_text(key: &Key) -> String {
    format!("{} {} {}", objectid_text(key), type_text(key), offset_text(key))
}

/// The name of an object id, or its number, where nothing is known of the rest of the key.
pub(crate) fn object_name(objectid: ObjectId) -> String {
    let name = RootId::new(objectid.get()).well_known_name().or_else(|| special_name(objectid));
    name.map_or_else(|| number_text(objectid.get()), str::to_owned)
}

/// The name of a tree, or its number.
pub(crate) fn root_name(root: RootId) -> String {
    object_name(root.object_id())
}

/// Ids that are no tree.
fn special_name(objectid: ObjectId) -> Option<&'static str> {
    const LOG_FIXUP: ObjectId = ObjectId::new(0u64.wrapping_sub(7));
    match objectid {
        ObjectId::ROOT_TREE_DIR
        | ObjectId::BALANCE
        | ObjectId::ORPHAN
        | ObjectId::EXTENT_CSUM
        | ObjectId::FREE_SPACE
        | ObjectId::FREE_INO => objectid.well_known_name(),
        LOG_FIXUP => Some("LOG_FIXUP"),
        _ => None,
    }
}

/// The greatest number stands for "none" and is shown as what it was in C.
fn number_text(number: u64) -> String {
    if number == u64::MAX { "-1".to_owned() } else { number.to_string() }
}

fn objectid_text(key: &Key) -> String {
    let objectid = key.objectid;
    match key.item_type {
        KeyType::QGROUP_RELATION => qgroup_text(objectid.get()),
        KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL => format!("{:#018x}", objectid.get()),
        KeyType::DEV_EXTENT => objectid.to_string(),
        KeyType::PERSISTENT_ITEM if objectid.get() == 0 => "DEV_STATS".to_owned(),
        KeyType::PERSISTENT_ITEM => objectid.to_string(),
        KeyType::DEV_ITEM if objectid == ObjectId::DEV_ITEMS => "DEV_ITEMS".to_owned(),
        KeyType::CHUNK_ITEM if objectid == ObjectId::FIRST_CHUNK_TREE => "FIRST_CHUNK_TREE".to_owned(),
        _ => object_name(objectid),
    }
}

fn type_text(key: &Key) -> String {
    match key.item_type {
        KeyType(0) if key.objectid == ObjectId::FREE_SPACE => "UNTYPED".to_owned(),
        other => other.to_string(),
    }
}

fn offset_text(key: &Key) -> String {
    let offset = key.offset();
    match key.item_type {
        KeyType::QGROUP_RELATION | KeyType::QGROUP_INFO | KeyType::QGROUP_LIMIT => qgroup_text(offset),
        KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL => format!("{offset:#018x}"),
        KeyType::ROOT_ITEM if key.objectid == ObjectId::TREE_RELOC => object_name(ObjectId::new(offset)),
        KeyType::ROOT_ITEM => offset.to_string(),
        _ => number_text(offset),
    }
}

/// A quota group: level and id.
fn qgroup_text(qgroup: u64) -> String {
    format!("{}/{}", qgroup >> 48, qgroup & ((1 << 48) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(objectid: u64, item_type: u8, offset: u64) -> String {
        key_text(&Key::new(ObjectId::new(objectid), KeyType(item_type), offset))
    }

    const fn negative(value: u64) -> u64 {
        0u64.wrapping_sub(value)
    }

    #[test]
    fn the_meaning_of_an_objectid_depends_on_the_type() {
        assert_eq!(text(1, 216, 1), "DEV_ITEMS DEV_ITEM 1");
        assert_eq!(text(1, 132, 0), "ROOT_TREE ROOT_ITEM 0");
        assert_eq!(text(1, 204, 5), "1 DEV_EXTENT 5");
        assert_eq!(text(0, 249, 1), "DEV_STATS PERSISTENT_ITEM 1");
        assert_eq!(text(256, 228, 7), "FIRST_CHUNK_TREE CHUNK_ITEM 7");
        assert_eq!(text(256, 1, 0), "256 INODE_ITEM 0");
        assert_eq!(text(6, 84, 2), "ROOT_TREE_DIR DIR_ITEM 2");
        assert_eq!(text(negative(11), 0, 7), "FREE_SPACE UNTYPED 7");
        assert_eq!(text(negative(7), 0, 7), "LOG_FIXUP UNKNOWN.0 7");
    }

    #[test]
    fn offsets_of_quota_groups_uuids_and_the_greatest_number() {
        assert_eq!(text((1 << 48) | 100, 246, 256), "1/100 QGROUP_RELATION 0/256");
        assert_eq!(text(1, 251, 2), "0x0000000000000001 UUID_KEY_SUBVOL 0x0000000000000002");
        assert_eq!(text(300, 1, u64::MAX), "300 INODE_ITEM -1");
        assert_eq!(text(300, 132, u64::MAX), "300 ROOT_ITEM 18446744073709551615");
        assert_eq!(text(negative(8), 132, 5), "TREE_RELOC ROOT_ITEM FS_TREE");
        assert_eq!(text(u64::MAX, 84, 7), "-1 DIR_ITEM 7");
    }
}
