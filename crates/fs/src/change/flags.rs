//! Changes of flags.

use crate::attributes::{Attributes, InodeId};
use crate::change::InodeChanges;
use crate::change::xattr::COMPRESSION;
use crate::error::FsError;
use crate::file_flags::{FileFlags, SAME};
use brindle_ondisk::Incompat;
use brindle_ondisk::item::{Compression, FileType, InodeFlags};
use brindle_tree::Need;

impl InodeChanges {
    pub(crate) fn set_flags(&self, id: InodeId, flags: FileFlags) -> Result<(), FsError> {
        let writing = self.core.writing()?;
        let options = &writing.options;
        if id.is_empty_subvolume() {
            return Err(FsError::Unsupported {
                file: id,
                what: "flags of the place of a subvolume in a snapshot",
            });
        }
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_write()?;
        let inode = self.core.inode(id);
        let mut names = inode.names();
        let before = self.items.attributes(id)?;
        let wanted = wanted_flags(&before, flags)?;
        let compression = match options.compression.map(|choice| choice.algorithm) {
            Some(Compression::Lzo) => &b"lzo"[..],
            Some(Compression::Zstd) => b"zstd",
            Some(Compression::Zlib | Compression::None) | None => b"zlib",
        };
        let had_compression = before.flags.contains(InodeFlags::COMPRESS);
        if wanted.contains(InodeFlags::COMPRESS) && !had_compression {
            self.check_xattr_room(subvolume.tree(), id, COMPRESSION, compression)?;
        }
        self.core.change(Need::items(2), |edit| {
            if !wanted.contains(InodeFlags::COMPRESS) {
                edit.drop_xattr(subvolume.tree(), id, COMPRESSION)?;
            } else if !had_compression {
                edit.replace_xattr(subvolume.tree(), id, COMPRESSION, compression)?;
                edit.editor.use_feature(feature(compression));
            }
            edit.inode(subvolume.tree(), id.number, |item| {
                item.flags.set(wanted.bits());
                item.ctime = edit.now;
            })
        })?;
        names.inherited = None;
        Ok(())
    }
}

/// Feature of a pool that has something with this compression.
fn feature(compression: &[u8]) -> Incompat {
    match compression {
        b"lzo" => Incompat::COMPRESS_LZO,
        b"zstd" => Incompat::COMPRESS_ZSTD,
        _ => Incompat::empty(),
    }
}

/// The flags that an inode has after they were set so, or a refusal.
fn wanted_flags(before: &Attributes, flags: FileFlags) -> Result<InodeFlags, FsError> {
    let invalid = |why| Err(FsError::Invalid { file: before.id, why });
    if contradicts(FileFlags::of(before.flags), flags) {
        return invalid("compression contradicts another flag");
    }
    if flags.contains(FileFlags::VERITY) != before.flags.contains(InodeFlags::RO_VERITY) {
        return invalid("fs-verity is not a flag that can be set");
    }
    if flags.bits() & !FileFlags::all().bits() != 0 {
        return Err(FsError::Unsupported { file: before.id, what: "a flag" });
    }
    let is_in_place = before.flags.contains(InodeFlags::NODATACOW);
    let mut wanted = before.flags;
    for (file, inode) in SAME {
        wanted.set(inode, flags.contains(file));
    }
    if before.kind == FileType::Regular && flags.contains(FileFlags::NOCOW) != is_in_place {
        // The extents that a file has can't change how they are kept. The kernel passes over the flag then.
        if before.size > 0 {
            wanted.set(InodeFlags::NODATACOW, is_in_place);
        } else {
            wanted.set(InodeFlags::NODATASUM, flags.contains(FileFlags::NOCOW));
        }
    }
    if flags.contains(FileFlags::COMPRESS)
        && before.kind == FileType::Regular
        && wanted.contains(InodeFlags::NODATASUM)
    {
        return invalid("a file without checksums is not compressed");
    }
    Ok(wanted)
}

/// Returns true if flags can't be set of an inode that has these. A file that an older brindle found not to be worth
/// compressing has both flags of compression, and may keep them.
fn contradicts(before: FileFlags, flags: FileFlags) -> bool {
    let compressions = FileFlags::COMPRESS | FileFlags::NOCOMPRESS;
    let is_both = |flags: FileFlags| flags.contains(compressions);
    is_both(flags) && !is_both(before)
        || flags.contains(FileFlags::COMPRESS | FileFlags::NOCOW)
        || before.contains(FileFlags::NOCOW) && flags.intersects(compressions)
        || before.intersects(compressions) && flags.contains(FileFlags::NOCOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::RootId;

    fn file(size: u64, flags: InodeFlags) -> Attributes {
        let empty = Attributes::empty_subvolume(InodeId::root_of(RootId::FS_TREE));
        Attributes { kind: FileType::Regular, size, flags, ..empty }
    }

    #[test]
    fn flags_are_shown_as_they_were_set() {
        for flags in [FileFlags::IMMUTABLE | FileFlags::NOATIME, FileFlags::COMPRESS, FileFlags::NOCOMPRESS] {
            let inode = wanted_flags(&file(9, InodeFlags::empty()), flags).expect("allowed");
            assert_eq!(FileFlags::of(inode), flags);
        }
    }

    #[test]
    fn only_an_empty_file_begins_to_be_overwritten_in_place() {
        let wanted = wanted_flags(&file(0, InodeFlags::empty()), FileFlags::NOCOW).expect("allowed");
        assert_eq!(wanted, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
        let with_contents = wanted_flags(&file(1, InodeFlags::empty()), FileFlags::NOCOW | FileFlags::SYNC);
        assert_eq!(with_contents.expect("passed over"), InodeFlags::SYNC);
        let again = wanted_flags(&file(1, wanted), FileFlags::NOCOW | FileFlags::NODUMP).expect("as it was");
        assert_eq!(again, wanted | InodeFlags::NODUMP);
        assert_eq!(wanted_flags(&file(1, wanted), FileFlags::empty()).expect("passed over"), wanted);
    }

    #[test]
    fn contradictions_are_refused() {
        let file = file(0, InodeFlags::empty());
        for flags in [
            FileFlags::COMPRESS | FileFlags::NOCOMPRESS,
            FileFlags::COMPRESS | FileFlags::NOCOW,
            FileFlags::VERITY,
            FileFlags::from_bits_retain(1),
        ] {
            assert!(wanted_flags(&file, flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn compression_and_writing_in_place_take_turns_by_way_of_neither() {
        let (compressed, in_place) = (InodeFlags::COMPRESS, InodeFlags::NODATACOW);
        for before in [compressed, InodeFlags::NOCOMPRESS] {
            assert!(wanted_flags(&file(0, before), FileFlags::NOCOW).is_err());
        }
        for flags in [FileFlags::COMPRESS, FileFlags::NOCOMPRESS, FileFlags::NOCOW | FileFlags::NOCOMPRESS] {
            assert!(wanted_flags(&file(0, in_place), flags).is_err());
        }
        let neither = wanted_flags(&file(0, InodeFlags::empty()), FileFlags::NOCOW | FileFlags::NOCOMPRESS);
        assert!(neither.is_ok(), "the kernel has it so");
    }

    #[test]
    fn both_flags_of_compression_stay_where_they_are() {
        let both = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
        let shown = FileFlags::of(both);
        let wanted = wanted_flags(&file(9, both), shown | FileFlags::NODUMP);
        assert_eq!(wanted.expect("allowed"), both | InodeFlags::NODUMP);
        assert_eq!(wanted_flags(&file(9, both), FileFlags::empty()).expect("allowed"), InodeFlags::empty());
    }

    #[test]
    fn flags_that_chattr_does_not_know_stay() {
        let before = file(5, InodeFlags::PREALLOC | InodeFlags::NODATASUM);
        let wanted = wanted_flags(&before, FileFlags::SYNC).expect("allowed");
        assert_eq!(wanted, InodeFlags::PREALLOC | InodeFlags::NODATASUM | InodeFlags::SYNC);
    }
}
