//! Attributes of an inode.

use brindle_ondisk::item::{FileType, InodeFlags, InodeItem, Timespec};
use brindle_ondisk::{Defect, Key, KeyType, ObjectId, RootId};
use std::fmt;

/// An inode: numbers are unique within a subvolume only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId {
    /// The subvolume.
    pub tree: RootId,
    /// The number in it.
    pub number: ObjectId,
}

impl InodeId {
    /// Its place among the inodes that an operation locks: by ascending id.
    pub(crate) fn lock_key(self) -> u128 {
        u128::from(self.tree.get()) << 64 | u128::from(self.number.get())
    }

    /// The root directory of a subvolume.
    pub const fn root_of(tree: RootId) -> Self {
        Self { tree, number: ObjectId::FIRST_FREE }
    }

    /// Returns true for a subvolume that a snapshot did not take along (the kernel's
    /// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`): an empty directory without an inode item.
    pub fn is_empty_subvolume(self) -> bool {
        self.number == EMPTY_SUBVOLUME
    }

    pub(crate) const fn empty_subvolume(tree: RootId) -> Self {
        Self { tree, number: EMPTY_SUBVOLUME }
    }

    pub(crate) const fn key(self, item_type: KeyType, offset: u64) -> Key {
        Key::new(self.number, item_type, offset)
    }
}

/// The inode number that the kernel shows for the place of a subvolume in a snapshot.
const EMPTY_SUBVOLUME: ObjectId = ObjectId::new(2);

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} of subvolume {}", self.number, self.tree)
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds on top of them.
    pub nanoseconds: u32,
}

impl From<&Timespec> for Timestamp {
    fn from(time: &Timespec) -> Self {
        Self { seconds: time.sec.get(), nanoseconds: time.nsec.get() }
    }
}

impl From<Timestamp> for Timespec {
    fn from(time: Timestamp) -> Self {
        let mut disk = Self::default();
        disk.sec.set(time.seconds);
        disk.nsec.set(time.nanoseconds);
        disk
    }
}

/// Attributes for `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub id: InodeId,
    /// Type.
    pub kind: FileType,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes on disk, and those that contents in memory will take there, uncompressed.
    pub disk_bytes: u64,
    /// Device number of a device node, as on disk: major from bit 20 on, minor in the low 20 bits.
    pub rdev: u64,
    /// Flags, unknown ones kept.
    pub flags: InodeFlags,
    /// The transaction that created the inode.
    pub generation: u64,
    /// The transaction that last changed it.
    pub transid: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Creation.
    pub created: Timestamp,
}

impl Attributes {
    pub(crate) fn from_item(id: InodeId, item: &InodeItem) -> Result<Self, Defect> {
        let mode = item.mode.get();
        let kind = FileType::from_mode(mode).ok_or(Defect::new("mode has no file type", mode.into()))?;
        Ok(Self {
            id,
            kind,
            mode,
            uid: item.uid.get(),
            gid: item.gid.get(),
            nlink: item.nlink.get(),
            size: item.size.get(),
            disk_bytes: item.nbytes.get(),
            rdev: item.rdev.get(),
            flags: item.inode_flags(),
            generation: item.generation.get(),
            transid: item.transid.get(),
            accessed: (&item.atime).into(),
            changed: (&item.ctime).into(),
            modified: (&item.mtime).into(),
            created: (&item.otime).into(),
        })
    }

    /// The directory that stands where a snapshot did not take a subvolume along.
    pub(crate) fn empty_subvolume(id: InodeId) -> Self {
        Self {
            id,
            kind: FileType::Directory,
            mode: 0o040_755,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            disk_bytes: 0,
            rdev: 0,
            flags: InodeFlags::empty(),
            generation: 0,
            transid: 0,
            accessed: Timestamp::default(),
            changed: Timestamp::default(),
            modified: Timestamp::default(),
            created: Timestamp::default(),
        }
    }

    /// Major and minor number of a device node.
    pub fn device_numbers(&self) -> (u32, u32) {
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX);
        (low(self.rdev >> 20), low(self.rdev & 0xf_ffff))
    }
}
