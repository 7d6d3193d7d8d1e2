//! Tree roots, and how subvolumes hang together.

use super::{InodeItem, Timespec, prefix};
use crate::{Defect, Generation, Key, Logical, ObjectId, Uuid, to_u64};
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The root of a tree (`btrfs_root_item`). Before 2012 it ended at `generation_v2`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RootItem {
    /// Unused, but for a flag and the size.
    pub inode: InodeItem,
    /// The transaction that wrote the root.
    pub generation: Generation,
    /// The root directory (256); 0 for trees without files.
    pub root_dirid: ObjectId,
    /// Address of the root node.
    pub bytenr: Logical,
    /// Unused.
    pub byte_limit: U64,
    /// Bytes of tree blocks.
    pub bytes_used: U64,
    /// The transaction of the last snapshot of this tree.
    pub last_snapshot: Generation,
    /// [`RootFlags`].
    pub flags: U64,
    /// 0 once the tree is to be dropped.
    pub refs: U32,
    /// Key up to which dropping the tree has come.
    pub drop_progress: Key,
    /// The level at which it has come so far.
    pub drop_level: u8,
    /// Level of the root node.
    pub level: u8,
    /// Equal to `generation` if the fields from here on are valid.
    pub generation_v2: Generation,
    /// UUID of the subvolume.
    pub uuid: Uuid,
    /// UUID of what this is a snapshot of.
    pub parent_uuid: Uuid,
    /// UUID that the sender of this subvolume had for it.
    pub received_uuid: Uuid,
    /// The transaction of the last change of an inode.
    pub ctransid: Generation,
    /// The transaction that created the subvolume.
    pub otransid: Generation,
    /// The transaction of the sender.
    pub stransid: Generation,
    /// The transaction in which it was received.
    pub rtransid: Generation,
    /// Last change.
    pub ctime: Timespec,
    /// Creation.
    pub otime: Timespec,
    /// When it was sent.
    pub stime: Timespec,
    /// When it was received.
    pub rtime: Timespec,
    /// Unused.
    pub reserved: [U64; 8],
}
const _: () = assert!(size_of::<RootItem>() == 439);
const _: () = assert!(std::mem::offset_of!(RootItem, generation_v2) == RootItem::OLD_SIZE);

bitflags! {
    /// Flags of a root (`BTRFS_ROOT_SUBVOL_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RootFlags: u64 {
        /// Read-only subvolume.
        const RDONLY = 1 << 0;
        /// Deleted; what is left of it must not be used.
        const DEAD = 1 << 48;
    }
}

impl RootItem {
    /// The size before UUIDs and times were added.
    const OLD_SIZE: usize = 239;

    pub(super) fn parse(data: &[u8]) -> Result<Box<Self>, Defect> {
        if data.len() != Self::OLD_SIZE && data.len() != size_of::<Self>() {
            let expected = to_u64(size_of::<Self>());
            return Err(Defect::expected("root item size", expected, to_u64(data.len())));
        }
        let mut item = Box::new(Self::new_zeroed());
        for (target, source) in item.as_mut_bytes().iter_mut().zip(data) {
            *target = *source;
        }
        // A kernel from before 2012 wrote the old part only; what follows it is then stale.
        let is_stale = item.generation_v2 != item.generation;
        if let Some(stale) = item.as_mut_bytes().get_mut(Self::OLD_SIZE..).filter(|_| is_stale) {
            stale.fill(0);
        }
        Ok(item)
    }

    /// Notes in the bytes of a root item of either size how far dropping the tree has come: the children of the
    /// node at `level` on the way to `key` are gone up to there, `key` not included.
    pub fn write_drop_progress(data: &mut [u8], key: &Key, level: u8) -> Result<(), Defect> {
        const PROGRESS: usize = std::mem::offset_of!(RootItem, drop_progress);
        const { assert!(std::mem::offset_of!(RootItem, drop_level) == PROGRESS + size_of::<Key>()) };
        let short = Defect::new("root item is cut off", to_u64(data.len()));
        let (at_key, rest) = data
            .get_mut(PROGRESS..)
            .and_then(|tail| tail.split_at_mut_checked(size_of::<Key>()))
            .ok_or(short)?;
        at_key.copy_from_slice(key.as_bytes());
        *rest.first_mut().ok_or(short)? = level;
        Ok(())
    }

    /// Marks in the bytes of a root item of either size that the tree is to be dropped from its beginning on.
    pub fn write_doomed(data: &mut [u8]) -> Result<(), Defect> {
        const REFS: std::ops::Range<usize> = {
            let start = std::mem::offset_of!(RootItem, refs);
            start..start + size_of::<U32>()
        };
        let short = Defect::new("root item is cut off", to_u64(data.len()));
        data.get_mut(REFS).ok_or(short)?.fill(0);
        Self::write_drop_progress(data, &Key::MIN, 0)
    }

    /// The flags, unknown ones kept.
    pub fn root_flags(&self) -> RootFlags {
        RootFlags::from_bits_retain(self.flags.get())
    }
}

/// A link between a subvolume and its parent (`btrfs_root_ref`).
#[derive(Clone, Copy, Debug)]
pub struct RootRef<'a> {
    /// The directory in the parent.
    pub dirid: ObjectId,
    /// The index in that directory.
    pub sequence: u64,
    /// The name in that directory.
    pub name: &'a [u8],
}

/// The fixed part of a link between a subvolume and its parent (`btrfs_root_ref`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RootRefHeader {
    /// The directory in the parent.
    pub dirid: ObjectId,
    /// The index in that directory.
    pub sequence: U64,
    /// Length of the name, in bytes.
    pub name_len: U16,
}
const _: () = assert!(size_of::<RootRefHeader>() == 18);

impl<'a> RootRef<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, Defect> {
        let (header, name) = prefix::<RootRefHeader>(data, "root ref is cut off")?;
        if name.len() != usize::from(header.name_len.get()) {
            let expected = header.name_len.get().into();
            return Err(Defect::expected("length of root ref name", expected, to_u64(name.len())));
        }
        Ok(Self { dirid: header.dirid, sequence: header.sequence.get(), name })
    }
}
