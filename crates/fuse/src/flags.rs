//! Inode flags as `lsattr` sees them.

use brindle_fs::InodeFlags;

/// `FS_IOC_GETFLAGS` as FUSE passes it on: four bytes of flags.
pub(crate) const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
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

/// What the ioctl answers; `None` if it is not one about flags.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_translated() {
        let flags = InodeFlags::IMMUTABLE | InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        assert_eq!(answer(FS_IOC_GETFLAGS, flags), Some(0x80_0010u32.to_ne_bytes().to_vec()));
        let extended = answer(FS_IOC_FSGETXATTR, flags).expect("a known command");
        assert_eq!((extended.len(), &extended[..4]), (28, &8u32.to_ne_bytes()[..]));
        assert_eq!(answer(0x1234, flags), None);
    }
}
