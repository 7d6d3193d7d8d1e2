//! Inode flags as `lsattr` sees them.

use brindle_fs::{FileFlags, InodeFlags};
use brindle_uapi::message::ExtendedFlags;
use rustix::io::Errno;

/// On disk, `FS_*_FL`, `FS_XFLAG_*` (0 where it has none).
const FLAGS: [(InodeFlags, u32, u32); 10] = [
    (InodeFlags::SYNC, 0x8, 0x20),
    (InodeFlags::IMMUTABLE, 0x10, 0x8),
    (InodeFlags::APPEND, 0x20, 0x10),
    (InodeFlags::NODUMP, 0x40, 0x80),
    (InodeFlags::NOATIME, 0x80, 0x40),
    (InodeFlags::DIRSYNC, 0x1_0000, 0),
    (InodeFlags::NODATACOW, 0x80_0000, 0),
    (InodeFlags::COMPRESS, 0x4, 0),
    (InodeFlags::NOCOMPRESS, 0x400, 0),
    (InodeFlags::RO_VERITY, 0x10_0000, 0),
];

/// The word of `FS_IOC_GETFLAGS`.
pub(crate) fn plain(flags: InodeFlags) -> u32 {
    FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag)).fold(0, |all, (_, word, _)| all | word)
}

/// The answer of `FS_IOC_FSGETXATTR`.
pub(crate) fn extended(flags: InodeFlags) -> ExtendedFlags {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag));
    ExtendedFlags { flags: set.fold(0, |all, (.., word)| all | word), ..ExtendedFlags::default() }
}

/// The flags of an inode after `FS_IOC_SETFLAGS`.
pub(crate) fn with_plain(word: u32) -> Result<FileFlags, Errno> {
    FileFlags::from_bits(word).ok_or(Errno::OPNOTSUPP)
}

/// The flags of an inode after `FS_IOC_FSSETXATTR`, which leaves alone the ones it has no word for.
pub(crate) fn with_extended(wanted: &ExtendedFlags, current: FileFlags) -> Result<FileFlags, Errno> {
    if wanted.others != [0; 6] {
        return Err(Errno::OPNOTSUPP);
    }
    let extended = || FLAGS.iter().filter(|(.., extended)| *extended != 0);
    let known = extended().fold(0, |all, (.., extended)| all | extended);
    if wanted.flags & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let (others, set) = extended().fold((current.bits(), 0), |(others, set), (_, flag, extended)| {
        (others & !flag, if wanted.flags & extended == 0 { set } else { set | flag })
    });
    Ok(FileFlags::from_bits_retain(others | set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_set_by_either_word() {
        let current = FileFlags::NOCOW | FileFlags::APPEND;
        assert_eq!(with_plain(0x10), Ok(FileFlags::IMMUTABLE));
        assert_eq!(with_plain(0x8000_0000), Err(Errno::OPNOTSUPP));
        let immutable = ExtendedFlags { flags: 0x8, others: [0; 6] };
        assert_eq!(with_extended(&immutable, current), Ok(FileFlags::IMMUTABLE | FileFlags::NOCOW));
        let project = ExtendedFlags { others: [0, 0, 1, 0, 0, 0], ..immutable };
        assert_eq!(with_extended(&project, current), Err(Errno::OPNOTSUPP), "a project");
        let unknown = ExtendedFlags { flags: 0x8000_0000, ..immutable };
        assert_eq!(with_extended(&unknown, current), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn flags_are_translated() {
        let flags = InodeFlags::IMMUTABLE | InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        assert_eq!(plain(flags), 0x80_0010);
        assert_eq!(extended(flags), ExtendedFlags { flags: 8, others: [0; 6] });
    }
}
