//! Directory entries and extended attributes.

use super::ItemPlace;
use super::name::{check_inode_of, check_name, check_xattr_name, is_inode_number};
use crate::item::{DirEntries, DirEntry, DirLogItem, FileType};
use crate::{Defect, Key, KeyType, RootId, name_hash, to_u64};

pub(super) fn check_dir_item(place: ItemPlace<'_>, key: &Key, entries: DirEntries<'_>) -> Result<(), Defect> {
    check_inode_of(place, key)?;
    let mut count = 0;
    for entry in entries {
        let entry = entry?;
        check_entry(&entry)?;
        check_hash(key, &entry)?;
        count += 1;
    }
    if count == 0 { Err(Defect::new("dir item without an entry", 0)) } else { Ok(()) }
}

pub(super) fn check_dir_index(
    place: ItemPlace<'_>,
    key: &Key,
    entries: DirEntries<'_>,
) -> Result<(), Defect> {
    check_inode_of(place, key)?;
    let mut count = 0;
    for entry in entries {
        check_entry(&entry?)?;
        count += 1;
    }
    if count == 1 { Ok(()) } else { Err(Defect::expected("number of entries of a dir index", 1, count)) }
}

pub(super) fn check_xattrs(place: ItemPlace<'_>, key: &Key, entries: DirEntries<'_>) -> Result<(), Defect> {
    check_inode_of(place, key)?;
    let mut count = 0;
    for entry in entries {
        let entry = entry?;
        check_xattr_name(entry.name)?;
        check_hash(key, &entry)?;
        if entry.header.location != Key::MIN {
            let found = entry.header.location.objectid.get();
            return Err(Defect::new("xattr has a location (its objectid shown)", found));
        }
        if entry.file_type() != Some(FileType::Xattr) {
            return Err(Defect::new("file type of xattr", entry.header.file_type.into()));
        }
        count += 1;
    }
    if count == 0 { Err(Defect::new("xattr item without an xattr", 0)) } else { Ok(()) }
}

/// A range of a log, of hashes or of indexes, from the key's offset on.
pub(super) fn check_log_range(key: &Key, range: &DirLogItem) -> Result<(), Defect> {
    if !is_inode_number(key.objectid) {
        return Err(Defect::new("objectid of dir log range is no inode number", key.objectid.get()));
    }
    if range.end.get() < key.offset() {
        return Err(Defect::expected("dir log range ends before it begins", key.offset(), range.end.get()));
    }
    Ok(())
}

fn check_entry(entry: &DirEntry<'_>) -> Result<(), Defect> {
    check_name(entry.name)?;
    if !entry.value.is_empty() {
        return Err(Defect::expected("data_len of a directory entry", 0, to_u64(entry.value.len())));
    }
    let kind = match entry.file_type() {
        Some(kind) if kind != FileType::Xattr => kind,
        _ => return Err(Defect::new("file type of a directory entry", entry.header.file_type.into())),
    };
    let location = entry.header.location;
    match location.item_type {
        KeyType::INODE_ITEM => check_inode_location(location),
        // The key offset of a root is the transid of a snapshot, or whatever stood there in old days.
        KeyType::ROOT_ITEM => {
            let root = RootId::new(location.objectid.get());
            if !root.is_subvolume() && root != RootId::FS_TREE {
                return Err(Defect::new("location of an entry is no subvolume", root.get()));
            }
            if kind != FileType::Directory {
                let found = entry.header.file_type.into();
                return Err(Defect::new("entry of a subvolume is no directory", found));
            }
            Ok(())
        }
        other => Err(Defect::new("type of an entry's location", other.0.into())),
    }
}

fn check_inode_location(location: Key) -> Result<(), Defect> {
    if !is_inode_number(location.objectid) {
        return Err(Defect::new("location of an entry is no inode number", location.objectid.get()));
    }
    if location.offset() != 0 {
        return Err(Defect::expected("key offset of an entry's location", 0, location.offset()));
    }
    Ok(())
}

fn check_hash(key: &Key, entry: &DirEntry<'_>) -> Result<(), Defect> {
    let hash = name_hash(entry.name);
    if hash == key.offset() {
        Ok(())
    } else {
        Err(Defect::expected("key offset is not the hash of the name", hash, key.offset()))
    }
}
