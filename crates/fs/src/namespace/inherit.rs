//! Properties that a new inode inherits from its directory: group, flags, compression, access control lists.

use crate::acl::{self, Acl};
use crate::attributes::{Attributes, InodeId};
use crate::change::xattr::{COMPRESSION, compression_flag};
use crate::core::name_state::{Inherited, NameState};
use crate::error::FsError;
use crate::namespace::Namespace;
use crate::new_inode::{Inheritance, NewInode};
use crate::tier::TIER;
use crate::write_options::WriteOptions;
use brindle_ondisk::item::{FileType, InodeFlags};
use brindle_policy::tier::files::{SMALL_FILES, is_mark, limit_of};
use std::sync::Arc;

const SET_GROUP_ID: u32 = 0o2000;
const PERMISSIONS: u32 = 0o777;

impl Namespace {
    /// Inherited properties of new entries of a directory.
    pub(crate) fn inherited(
        &self,
        directory: InodeId,
        names: &mut NameState,
    ) -> Result<Arc<Inherited>, FsError> {
        if let Some(known) = &names.inherited {
            return Ok(Arc::clone(known));
        }
        let mut inherited = Inherited::default();
        for xattr in self.items.xattrs(directory)? {
            match &xattr.name[..] {
                // What the kernel can't read it passes over as well.
                acl::DEFAULT => inherited.default_acl = Acl::parse(&xattr.value).ok().flatten(),
                COMPRESSION => inherited.compression = Some(xattr.value),
                TIER if is_mark(&xattr.value) => inherited.tier = Some(xattr.value),
                SMALL_FILES if limit_of(&xattr.value).is_some() => {
                    inherited.small_files = Some(xattr.value);
                }
                _ => {}
            }
        }
        let inherited = Arc::new(inherited);
        names.inherited = Some(Arc::clone(&inherited));
        Ok(inherited)
    }
}

/// Properties of a new inode of this kind in this directory, from the caller's request.
pub(crate) fn inherit(
    new: &NewInode<'_>,
    kind: FileType,
    directory: &Attributes,
    inherited: &Inherited,
    options: &WriteOptions,
) -> Inheritance {
    let mut xattrs = Vec::new();
    let mut mode = new.mode;
    let mut gid = new.gid;
    if directory.mode & SET_GROUP_ID != 0 {
        gid = directory.gid;
        if kind == FileType::Directory {
            mode |= SET_GROUP_ID;
        }
    }
    match &inherited.default_acl {
        // The permissions of a link do not count.
        _ if kind == FileType::Symlink => mode |= PERMISSIONS,
        None => mode &= !(new.umask & PERMISSIONS),
        Some(default) => {
            let access = default.inherited(mode);
            mode = mode & !PERMISSIONS | access.mode();
            if kind == FileType::Directory {
                xattrs.push((acl::DEFAULT, default.to_value()));
            }
            if !access.is_minimal() {
                xattrs.push((acl::ACCESS, access.to_value()));
            }
        }
    }
    let mut flags = inherited_flags(kind, directory.flags, options);
    let is_compressible = matches!(kind, FileType::Regular | FileType::Directory)
        && !flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    if let Some(value) = inherited.compression.as_ref().filter(|_| is_compressible) {
        if compression_flag(value) == Some(InodeFlags::COMPRESS) {
            flags = (flags - InodeFlags::NOCOMPRESS) | InodeFlags::COMPRESS;
            xattrs.push((COMPRESSION, value.clone()));
        }
    }
    let can_be_marked = matches!(kind, FileType::Regular | FileType::Directory);
    for (name, value) in [(TIER, &inherited.tier), (SMALL_FILES, &inherited.small_files)] {
        if let Some(value) = value.as_ref().filter(|_| can_be_marked) {
            xattrs.push((name, value.clone()));
        }
    }
    Inheritance { mode, gid, flags, xattrs }
}

fn inherited_flags(kind: FileType, directory: InodeFlags, options: &WriteOptions) -> InodeFlags {
    let mut flags = directory & (InodeFlags::COMPRESS | InodeFlags::NODATACOW);
    if directory.contains(InodeFlags::NOCOMPRESS) {
        flags = (flags - InodeFlags::COMPRESS) | InodeFlags::NOCOMPRESS;
    }
    if kind == FileType::Regular {
        flags.set(InodeFlags::NODATACOW, options.nodatacow || flags.contains(InodeFlags::NODATACOW));
        // What is overwritten in place can't keep its checksums right.
        flags.set(InodeFlags::NODATASUM, options.nodatasum || flags.contains(InodeFlags::NODATACOW));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(mode: u32, flags: InodeFlags) -> Attributes {
        Attributes {
            mode,
            flags,
            gid: 7,
            ..Attributes::empty_subvolume(InodeId::root_of(brindle_ondisk::RootId::FS_TREE))
        }
    }

    fn new(mode: u32) -> NewInode<'static> {
        NewInode { mode, umask: 0o022, uid: 5, gid: 6, ..NewInode::default() }
    }

    fn made(new: &NewInode<'_>, directory: &Attributes, inherited: &Inherited) -> Inheritance {
        let kind = FileType::from_mode(new.mode).expect("a type");
        inherit(new, kind, directory, inherited, &WriteOptions::default())
    }

    #[test]
    fn without_anything_to_inherit_the_umask_counts() {
        let made = made(&new(0o100_666), &directory(0o040_755, InodeFlags::empty()), &Inherited::default());
        assert_eq!((made.mode, made.gid, made.flags), (0o100_644, 6, InodeFlags::empty()));
        assert!(made.xattrs.is_empty());
    }

    #[test]
    fn group_and_bit_come_from_a_directory_that_sets_them() {
        let directory = directory(0o042_755, InodeFlags::empty());
        let file = made(&new(0o100_666), &directory, &Inherited::default());
        assert_eq!((file.mode, file.gid), (0o100_644, 7));
        let below = made(&new(0o040_777), &directory, &Inherited::default());
        assert_eq!((below.mode, below.gid), (0o042_755, 7));
    }

    #[test]
    fn a_default_list_counts_instead_of_the_umask() {
        // The list of `setfacl -d -m u:1000:rwx` on a directory of mode 755, and what the kernel made of it.
        let list = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255,
            255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255,
        ];
        let default_acl = Acl::parse(&list).expect("a list");
        let inherited = Inherited { default_acl, ..Inherited::default() };
        let directory = directory(0o040_755, InodeFlags::empty());
        let file = made(&new(0o100_666), &directory, &inherited);
        assert_eq!(file.mode, 0o100_664);
        assert_eq!(file.xattrs.iter().map(|xattr| xattr.0).collect::<Vec<_>>(), [acl::ACCESS]);
        let below = made(&new(0o040_777), &directory, &inherited);
        assert_eq!(below.mode, 0o040_775);
        assert_eq!(below.xattrs[0], (acl::DEFAULT, list.to_vec()));
        let link = made(&new(0o120_777), &directory, &inherited);
        assert_eq!((link.mode, link.xattrs.len()), (0o120_777, 0));
    }

    #[test]
    fn flags_go_down_as_the_kernel_passes_them() {
        let cases = [
            (InodeFlags::NODATACOW, 0o100_644, InodeFlags::NODATACOW | InodeFlags::NODATASUM),
            (InodeFlags::NODATACOW, 0o040_755, InodeFlags::NODATACOW),
            (InodeFlags::COMPRESS, 0o100_644, InodeFlags::COMPRESS),
            (InodeFlags::NOCOMPRESS | InodeFlags::COMPRESS, 0o100_644, InodeFlags::NOCOMPRESS),
            (InodeFlags::IMMUTABLE | InodeFlags::NODUMP | InodeFlags::SYNC, 0o100_644, InodeFlags::empty()),
        ];
        for (flags, mode, expected) in cases {
            let made = made(&new(mode), &directory(0o040_755, flags), &Inherited::default());
            assert_eq!(made.flags, expected, "{flags:?} {mode:o}");
        }
    }

    #[test]
    fn compression_goes_down_but_not_to_what_is_overwritten_in_place() {
        let inherited = Inherited { compression: Some(b"zstd".to_vec()), ..Inherited::default() };
        let below = |flags| made(&new(0o100_644), &directory(0o040_755, flags), &inherited);
        assert_eq!(below(InodeFlags::COMPRESS).xattrs, [(COMPRESSION, b"zstd".to_vec())]);
        assert!(below(InodeFlags::NODATACOW).xattrs.is_empty());
        let link = made(&new(0o120_777), &directory(0o040_755, InodeFlags::empty()), &inherited);
        assert!(link.xattrs.is_empty());
    }

    #[test]
    fn marks_go_down_to_files_and_directories() {
        let inherited = Inherited {
            tier: Some(b"fast".to_vec()),
            small_files: Some(b"4096".to_vec()),
            ..Inherited::default()
        };
        let parent = directory(0o040_755, InodeFlags::empty());
        let xattrs = |mode| made(&new(mode), &parent, &inherited).xattrs;
        let both = [(TIER, b"fast".to_vec()), (SMALL_FILES, b"4096".to_vec())];
        assert_eq!(xattrs(0o100_644), both);
        assert_eq!(xattrs(0o040_755), both);
        assert!(xattrs(0o120_777).is_empty() && xattrs(0o010_644).is_empty());
    }
}
