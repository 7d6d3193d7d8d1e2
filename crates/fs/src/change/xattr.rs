//! Changing extended attributes: POSIX ACLs, which change the mode too, and `btrfs.compression`, which sets flags.

use crate::acl::{self, Acl};
use crate::attributes::{Attributes, InodeId};
use crate::change::InodeChanges;
use crate::core::edit::Edit;
use crate::directory::name::NAME_BYTES_MAX;
use crate::error::FsError;
use crate::packed::{append, entry_bytes, find, remove};
use crate::tier::TIER;
use brindle_ondisk::item::{DirEntryHeader, FileType, InodeFlags, InodeItem};
use brindle_ondisk::{Incompat, KeyType, name_hash};
use brindle_policy::tier::files::{SMALL_FILES, is_mark, limit_of};
use brindle_tree::{Need, Tree, TreeError};
use std::sync::Arc;

/// The property that says how contents are compressed.
pub(crate) const COMPRESSION: &[u8] = b"btrfs.compression";
/// File capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// Attributes that are properties begin so.
const PROPERTIES: &[u8] = b"btrfs.";

/// Condition on the presence of an extended attribute before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    #[default]
    Any,
    /// The attribute must not exist (`XATTR_CREATE`).
    Create,
    /// The attribute must exist (`XATTR_REPLACE`).
    Replace,
}

/// Effect of setting an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Effect {
    /// Stored value; `None` if it goes, or was not there.
    value: Option<Vec<u8>>,
    /// The permission bits that the inode gets.
    mode: Option<u32>,
    /// The flags that the inode gets.
    flags: Option<InodeFlags>,
}

impl InodeChanges {
    pub(crate) fn set_xattr(
        &self,
        id: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        self.change_xattr(id, name, Some(value), mode)
    }

    pub(crate) fn remove_xattr(&self, id: InodeId, name: &[u8]) -> Result<(), FsError> {
        self.change_xattr(id, name, None, XattrMode::Replace)
    }

    fn change_xattr(
        &self,
        id: InodeId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(FsError::InvalidName(name.to_vec()));
        }
        if id.is_empty_subvolume() {
            return Err(FsError::Unsupported {
                file: id,
                what: "attributes of the place of a subvolume in a snapshot",
            });
        }
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_write()?;
        let inode = self.core.inode(id);
        let mut names = inode.names();
        let before = self.items.attributes(id)?;
        if before.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(FsError::NotPermitted { file: id, why: "its attributes can't be changed" });
        }
        let effect = effect(&before, name, value)?;
        let (is_there, _) = self.xattr_place(subvolume.tree(), id, name)?;
        match mode {
            XattrMode::Create if is_there => return Err(FsError::XattrExists(name.to_vec())),
            // Setting an ACL that says what the mode says, and removing it again, is no error.
            XattrMode::Replace if !is_there && (value.is_some() || !acl_name(name)) => {
                return Err(FsError::NoXattr(name.to_vec()));
            }
            _ => {}
        }
        if name == CAPABILITY {
            inode.may_have_privileges();
        }
        if let Some(value) = &effect.value {
            self.check_xattr_room(subvolume.tree(), id, name, value)?;
        }
        self.core.change(Need::items(2), |edit| {
            match &effect.value {
                Some(value) => edit.replace_xattr(subvolume.tree(), id, name, value)?,
                None => edit.drop_xattr(subvolume.tree(), id, name)?,
            }
            if let Some(feature) = effect.feature(name) {
                edit.editor.use_feature(feature);
            }
            edit.inode(subvolume.tree(), id.number, |item| {
                effect.apply(item);
                item.ctime = edit.now;
            })
        })?;
        names.inherited = None;
        Ok(())
    }

    /// Refuses an attribute that a leaf can't hold beside others whose names have the same hash.
    pub(crate) fn check_xattr_room(
        &self,
        tree: &Arc<Tree>,
        id: InodeId,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), FsError> {
        let (_, others) = self.xattr_place(tree, id, name)?;
        match others + entry_bytes::<DirEntryHeader>(name, value) <= self.core.item_bytes_max() {
            true => Ok(()),
            false => Err(FsError::XattrTooLarge(name.to_vec())),
        }
    }

    /// Presence of an attribute of an inode, and bytes that others take in its item.
    fn xattr_place(&self, tree: &Arc<Tree>, id: InodeId, name: &[u8]) -> Result<(bool, usize), FsError> {
        let key = id.key(KeyType::XATTR_ITEM, name_hash(name));
        let found = self.core.pool().with_item(tree, &key, |data| {
            match find::<DirEntryHeader>(data, |_, found| found == name) {
                Some(entry) => (true, data.len() - entry.range.len()),
                None => (false, data.len()),
            }
        })?;
        Ok(found.unwrap_or((false, 0)))
    }
}

impl Edit<'_> {
    /// Sets an attribute, whether it was there or not.
    pub(crate) fn replace_xattr(
        &self,
        tree: &Tree,
        id: InodeId,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), TreeError> {
        let header = self.xattr_header(name, value);
        let key = id.key(KeyType::XATTR_ITEM, name_hash(name));
        self.editor.edit(tree, &key, |data| {
            remove::<DirEntryHeader>(data, |_, found| found == name);
            append(data, &header, name, value);
        })
    }

    /// Removes an attribute, if it is there.
    pub(crate) fn drop_xattr(&self, tree: &Tree, id: InodeId, name: &[u8]) -> Result<(), TreeError> {
        let key = id.key(KeyType::XATTR_ITEM, name_hash(name));
        let is_wanted = |_: &DirEntryHeader, found: &[u8]| found == name;
        self.editor.edit(tree, &key, |data| remove(data, is_wanted)).map(|_| ())
    }
}

impl Effect {
    fn apply(&self, item: &mut InodeItem) {
        if let Some(permissions) = self.mode {
            item.mode.set(item.mode.get() & !0o777 | permissions);
        }
        if let Some(flags) = self.flags {
            item.flags.set(flags.bits());
        }
    }

    /// The feature that a pool has from then on.
    fn feature(&self, name: &[u8]) -> Option<Incompat> {
        let value = self.value.as_ref().filter(|_| name == COMPRESSION)?;
        match &value[..] {
            value if value.starts_with(b"zstd") => Some(Incompat::COMPRESS_ZSTD),
            value if value.starts_with(b"lzo") => Some(Incompat::COMPRESS_LZO),
            _ => None,
        }
    }
}

fn acl_name(name: &[u8]) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

/// Effect of setting (`value`) or removing an attribute.
fn effect(before: &Attributes, name: &[u8], value: Option<&[u8]>) -> Result<Effect, FsError> {
    let invalid = |why| Err(FsError::Invalid { file: before.id, why });
    if acl_name(name) {
        let list = Acl::parse(value.unwrap_or(&[2, 0, 0, 0]));
        let Ok(list) = list else {
            return invalid("not an access control list");
        };
        return match list {
            Some(_) if before.kind == FileType::Symlink => {
                invalid("a symbolic link has no access control list")
            }
            Some(_) if name == acl::DEFAULT && before.kind != FileType::Directory => {
                Err(FsError::NotADirectory(before.id))
            }
            Some(list) if name == acl::DEFAULT => {
                Ok(Effect { value: Some(list.to_value()), ..Effect::default() })
            }
            Some(list) => Ok(Effect {
                mode: Some(list.mode()),
                value: (!list.is_minimal()).then(|| list.to_value()),
                flags: None,
            }),
            None => Ok(Effect::default()),
        };
    }
    if name == TIER && value.is_some_and(|value| !is_mark(value)) {
        return invalid("a tier is fast, bulk or the name of a class");
    }
    if name == SMALL_FILES && value.is_some_and(|value| limit_of(value).is_none()) {
        return invalid("a limit of small files is a number of bytes");
    }
    if !name.starts_with(PROPERTIES) {
        return Ok(Effect { value: value.map(<[u8]>::to_vec), ..Effect::default() });
    }
    if name != COMPRESSION {
        return invalid("there is no such property");
    }
    compression_effect(before, value.unwrap_or_default())
}

/// Effect of setting the compression of an inode; empty to take it away.
fn compression_effect(before: &Attributes, value: &[u8]) -> Result<Effect, FsError> {
    let invalid = |why| Err(FsError::Invalid { file: before.id, why });
    let others = before.flags - InodeFlags::COMPRESS - InodeFlags::NOCOMPRESS;
    if value.is_empty() {
        return Ok(Effect { flags: Some(others), ..Effect::default() });
    }
    if !matches!(before.kind, FileType::Regular | FileType::Directory) {
        return invalid("only files and directories are compressed");
    }
    if before.flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM) {
        return invalid("a file that is overwritten in place, or has no checksums, is not compressed");
    }
    match compression_flag(value) {
        Some(flag) => {
            Ok(Effect { value: Some(value.to_vec()), flags: Some(others | flag), ..Effect::default() })
        }
        None => invalid("there is no such compression"),
    }
}

/// The flag that a value of the property sets; a level may stand behind the name of the algorithm.
pub(crate) fn compression_flag(value: &[u8]) -> Option<InodeFlags> {
    match value {
        b"no" | b"none" => Some(InodeFlags::NOCOMPRESS),
        _ if [&b"zlib"[..], b"lzo", b"zstd"].iter().any(|name| value.starts_with(name)) => {
            Some(InodeFlags::COMPRESS)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::RootId;

    fn inode(kind: FileType, flags: InodeFlags) -> Attributes {
        let empty = Attributes::empty_subvolume(InodeId::root_of(RootId::FS_TREE));
        Attributes { kind, flags, ..empty }
    }

    #[test]
    fn ordinary_attributes_are_kept_as_they_are() {
        let file = inode(FileType::Regular, InodeFlags::empty());
        let set = effect(&file, b"user.a", Some(b"x")).expect("allowed");
        assert_eq!(set, Effect { value: Some(b"x".to_vec()), ..Effect::default() });
        assert_eq!(effect(&file, b"user.a", None).expect("allowed"), Effect::default());
    }

    #[test]
    fn a_list_that_says_what_a_mode_says_becomes_the_mode() {
        let file = inode(FileType::Regular, InodeFlags::empty());
        let entry = |tag: u8, permissions: u8| [tag, 0, permissions, 0, 255, 255, 255, 255];
        let minimal = [&[2, 0, 0, 0][..], &entry(1, 6), &entry(4, 4), &entry(0x20, 0)].concat();
        let set = effect(&file, acl::ACCESS, Some(&minimal)).expect("a list");
        assert_eq!(set, Effect { mode: Some(0o640), ..Effect::default() });
        assert!(effect(&file, acl::DEFAULT, Some(&minimal)).is_err(), "only directories have defaults");
        assert!(effect(&file, acl::ACCESS, Some(b"nonsense")).is_err());
        assert_eq!(effect(&file, acl::ACCESS, None).expect("none"), Effect::default());
    }

    #[test]
    fn compression_is_a_flag_too() {
        let file = inode(FileType::Regular, InodeFlags::NOCOMPRESS | InodeFlags::NODUMP);
        let flags = |value: &[u8]| effect(&file, COMPRESSION, Some(value)).map(|effect| effect.flags);
        assert_eq!(flags(b"zstd:3").expect("known"), Some(InodeFlags::COMPRESS | InodeFlags::NODUMP));
        assert_eq!(flags(b"none").expect("known"), Some(InodeFlags::NOCOMPRESS | InodeFlags::NODUMP));
        assert_eq!(flags(b"").expect("known"), Some(InodeFlags::NODUMP));
        assert!(flags(b"gzip").is_err());
        assert!(effect(&file, b"btrfs.other", Some(b"x")).is_err());
        let in_place = inode(FileType::Regular, InodeFlags::NODATACOW);
        assert!(effect(&in_place, COMPRESSION, Some(b"zlib")).is_err());
        let zstd = effect(&file, COMPRESSION, Some(b"zstd")).expect("known");
        assert_eq!(zstd.feature(COMPRESSION), Some(Incompat::COMPRESS_ZSTD));
    }
}
