//! Inode flags as `lsattr` sees them.

use brindle_fs::{FileFlags, InodeFlags};
use rustix::io::Errno;

/// `FS_IOC_GETFLAGS` as FUSE passes it on: four bytes of flags.
pub(crate) const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`.
pub(crate) const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSSETXATTR`.
pub(crate) const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// `FS_IOC_FSGETXATTR`: a `struct fsxattr`, of which the first four bytes are flags.
pub(crate) const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
/// The size of `struct fsxattr`.
const FSXATTR_BYTES: usize = 28;

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

/// Answer to the ioctl; `None` if it is not one about flags.
pub(crate) fn answer(command: u32, flags: InodeFlags) -> Option<Vec<u8>> {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag));
    match command {
        FS_IOC_GETFLAGS => Some(set.fold(0, |all, (_, flag, _)| all | flag).to_ne_bytes().to_vec()),
        FS_IOC_FSGETXATTR => {
            let mut bytes = set.fold(0, |all, (.., flag)| all | flag).to_ne_bytes().to_vec();
            bytes.resize(FSXATTR_BYTES, 0);
            Some(bytes)
        }
        _ => None,
    }
}

/// Flags that an inode with the flags `current` is to have; a change of the extended flags keeps those that these
/// have no word for.
pub(crate) fn wanted(command: u32, input: &[u8], current: FileFlags) -> Result<FileFlags, Errno> {
    let (word, behind) = input.split_first_chunk().ok_or(Errno::INVAL)?;
    let word = u32::from_ne_bytes(*word);
    match command {
        FS_IOC_SETFLAGS => FileFlags::from_bits(word).ok_or(Errno::OPNOTSUPP),
        FS_IOC_FSSETXATTR => {
            // Hints for extents, and projects.
            if behind.iter().any(|byte| *byte != 0) {
                return Err(Errno::OPNOTSUPP);
            }
            let extended = || FLAGS.iter().filter(|(.., extended)| *extended != 0);
            let known = extended().fold(0, |all, (.., extended)| all | extended);
            if word & !known != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            let (others, set) = extended().fold((current.bits(), 0), |(others, set), (_, flag, extended)| {
                (others & !flag, if word & extended == 0 { set } else { set | flag })
            });
            Ok(FileFlags::from_bits_retain(others | set))
        }
        _ => Err(Errno::NOTTY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_set_by_either_word() {
        let current = FileFlags::NOCOW | FileFlags::APPEND;
        let wanted = |command, bytes: &[u8]| wanted(command, bytes, current);
        let plain = 0x10u32.to_ne_bytes();
        assert_eq!(wanted(FS_IOC_SETFLAGS, &plain), Ok(FileFlags::IMMUTABLE));
        assert_eq!(wanted(FS_IOC_SETFLAGS, &0x8000_0000u32.to_ne_bytes()), Err(Errno::OPNOTSUPP));
        assert_eq!(wanted(FS_IOC_SETFLAGS, &[1]), Err(Errno::INVAL));
        let mut extended = vec![0; FSXATTR_BYTES];
        extended[..4].copy_from_slice(&0x8u32.to_ne_bytes());
        assert_eq!(wanted(FS_IOC_FSSETXATTR, &extended), Ok(FileFlags::IMMUTABLE | FileFlags::NOCOW));
        extended[12] = 1;
        assert_eq!(wanted(FS_IOC_FSSETXATTR, &extended), Err(Errno::OPNOTSUPP), "a project");
    }

    #[test]
    fn flags_are_translated() {
        let flags = InodeFlags::IMMUTABLE | InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        assert_eq!(answer(FS_IOC_GETFLAGS, flags), Some(0x80_0010u32.to_ne_bytes().to_vec()));
        let extended = answer(FS_IOC_FSGETXATTR, flags).expect("a known command");
        assert_eq!((extended.len(), &extended[..4]), (28, &8u32.to_ne_bytes()[..]));
        assert_eq!(answer(0x1234, flags), None);
    }
}
