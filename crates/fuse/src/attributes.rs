//! Attributes as `stat` shows them.

use brindle_fs::{Attributes, DirectoryEntry, FileType, Timestamp};

/// Attributes for `stat`. Independent of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Number that the kernel asks by.
    pub(crate) node: u64,
    /// Number that is shown, unique in the mount.
    pub(crate) ino: u64,
    pub(crate) kind: FileType,
    pub(crate) permissions: u16,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Device number in the encoding that the kernel shares with userspace (`new_encode_dev`).
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    /// Blocks of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) created: Timestamp,
    /// The transaction that made the inode.
    pub(crate) generation: u64,
}

/// The size of a block, as `st_blksize` tells it.
pub(crate) const BLOCK_BYTES: u32 = 4096;
const BLOCK_UNIT_BYTES: u64 = 512;
const PERMISSION_BITS: u32 = 0o7777;

impl Stat {
    /// Attributes of an inode without names.
    pub(crate) fn gone(ino: u64) -> Self {
        let never = Timestamp { seconds: 0, nanoseconds: 0 };
        Self {
            node: ino,
            ino,
            kind: FileType::Regular,
            permissions: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: never,
            modified: never,
            changed: never,
            created: never,
            generation: 0,
        }
    }

    pub(crate) fn new(ino: u64, attributes: &Attributes) -> Self {
        let (major, minor) = attributes.device_numbers();
        Self {
            node: ino,
            ino,
            kind: attributes.kind,
            permissions: u16::try_from(attributes.mode & PERMISSION_BITS).expect("twelve bits fit"),
            nlink: attributes.nlink,
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: encode_device(major, minor),
            size: attributes.size,
            blocks: blocks(attributes.disk_bytes),
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
            created: attributes.created,
            generation: attributes.generation,
        }
    }

    /// Attributes known from a directory entry alone.
    pub(crate) fn of_entry(ino: u64, kind: FileType) -> Self {
        Self {
            node: ino,
            ino,
            kind,
            permissions: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: Timestamp::default(),
            generation: 0,
        }
    }
}

/// Offset at which a listing goes on after an entry. Offsets 0 and 1 are those of `.` and `..`; btrfs counts its
/// entries from 2 on for that reason.
pub(crate) fn offset_behind(entry: &DirectoryEntry) -> u64 {
    entry.index.saturating_add(1)
}

/// Space on disk in units of 512 bytes. The kernel rounds up to whole sectors, even for inline files.
fn blocks(disk_bytes: u64) -> u64 {
    disk_bytes.div_ceil(u64::from(BLOCK_BYTES)).saturating_mul(u64::from(BLOCK_BYTES) / BLOCK_UNIT_BYTES)
}

/// A device number in 32 bits: the low 8 of the minor number, 12 of the major, the other 12 of the minor.
fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_keep_their_parts() {
        assert_eq!(encode_device(8, 1), 0x801);
        assert_eq!(encode_device(0xfff, 0xf_ffff), u32::MAX);
        assert_eq!(encode_device(259, 300), (300 & 0xff) | (259 << 8) | (0x100 << 12));
    }

    #[test]
    fn an_inline_file_takes_a_sector() {
        assert_eq!(blocks(0), 0);
        assert_eq!(blocks(1), 8);
        assert_eq!(blocks(4096), 8);
        assert_eq!(blocks(4097), 16);
        assert!(blocks(u64::MAX) > 0);
    }
}
