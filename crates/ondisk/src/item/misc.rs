//! Quota, free space, balance and verity items.

use super::prefix;
use crate::{Defect, Generation, Key, to_u64};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// State of the quota tree as on disk, up to where simple quotas have more (`btrfs_qgroup_status_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QgroupStatusHeader {
    /// Format version.
    pub version: U64,
    /// The transaction in which the counts were right.
    pub generation: U64,
    /// [`QgroupStatusFlags`](super::QgroupStatusFlags).
    pub flags: U64,
    /// Objectid up to which a rescan has come.
    pub rescan: U64,
}
const _: () = assert!(size_of::<QgroupStatusHeader>() == 32 && offset_of!(QgroupStatusHeader, flags) == 16);

impl QgroupStatusHeader {
    /// The format version that there is (`BTRFS_QGROUP_STATUS_VERSION`).
    pub const VERSION: u64 = 1;
}

/// State of the tree of simple quotas as on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SimpleQgroupStatus {
    /// Fields that all quotas have.
    pub header: QgroupStatusHeader,
    /// The first transaction whose extents count.
    pub enable_gen: U64,
}
const _: () = assert!(size_of::<SimpleQgroupStatus>() == 40);

/// State of the quota tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QgroupStatus {
    /// Format version.
    pub version: u64,
    /// The transaction in which the counts were right.
    pub generation: u64,
    /// [`QgroupStatusFlags`](super::QgroupStatusFlags).
    pub flags: u64,
    /// Objectid up to which a rescan has come.
    pub rescan: u64,
    /// With simple quotas: the first transaction whose extents count.
    pub enable_gen: Option<u64>,
}

impl QgroupStatus {
    pub(super) fn parse(data: &[u8]) -> Result<Self, Defect> {
        let (header, rest) = prefix::<QgroupStatusHeader>(data, "qgroup status is cut off")?;
        let enable_gen = match U64::ref_from_bytes(rest) {
            Ok(generation) => Some(generation.get()),
            Err(_) if rest.is_empty() => None,
            Err(_) => return Err(Defect::expected("qgroup status size", 40, to_u64(data.len()))),
        };
        Ok(Self {
            version: header.version.get(),
            generation: header.generation.get(),
            flags: header.flags.get(),
            rescan: header.rescan.get(),
            enable_gen,
        })
    }
}

/// Usage of a quota group, in bytes (`btrfs_qgroup_info_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QgroupInfo {
    /// The transaction of the last update.
    pub generation: Generation,
    /// Referenced.
    pub rfer: U64,
    /// Referenced, compressed.
    pub rfer_cmpr: U64,
    /// Exclusive.
    pub excl: U64,
    /// Exclusive, compressed.
    pub excl_cmpr: U64,
}
const _: () = assert!(size_of::<QgroupInfo>() == 40);

/// Limits of a quota group, in bytes (`btrfs_qgroup_limit_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QgroupLimit {
    /// Limits that are set: [`QgroupLimitFlags`](super::QgroupLimitFlags).
    pub flags: U64,
    /// Most referenced.
    pub max_rfer: U64,
    /// Most exclusive.
    pub max_excl: U64,
    /// Reserved, referenced.
    pub rsv_rfer: U64,
    /// Reserved, exclusive.
    pub rsv_excl: U64,
}
const _: () = assert!(size_of::<QgroupLimit>() == 40);

/// Free space tree: state of a block group (`btrfs_free_space_info`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FreeSpaceInfo {
    /// Number of free ranges.
    pub extent_count: U32,
    /// 1: kept as bitmaps.
    pub flags: U32,
}
const _: () = assert!(size_of::<FreeSpaceInfo>() == 8);

/// Free space cache of version 1 (`btrfs_free_space_header`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FreeSpaceHeader {
    /// The inode that holds the cache.
    pub location: Key,
    /// The transaction that wrote it.
    pub generation: Generation,
    /// Number of ranges.
    pub num_entries: U64,
    /// Number of bitmaps.
    pub num_bitmaps: U64,
}
const _: () = assert!(size_of::<FreeSpaceHeader>() == 41);

/// Filters of a balance for one kind of chunk (`btrfs_disk_balance_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BalanceArgs {
    /// Profiles to convert from.
    pub profiles: U64,
    /// Usage bound in percent (or a range of two 32-bit numbers).
    pub usage: U64,
    /// Device.
    pub devid: U64,
    /// Physical range on it.
    pub pstart: U64,
    /// End of the physical range.
    pub pend: U64,
    /// Logical range.
    pub vstart: U64,
    /// End of the logical range.
    pub vend: U64,
    /// Profile to convert to.
    pub target: U64,
    /// Filters that are set.
    pub flags: U64,
    /// Number of chunks (or a range of two 32-bit numbers).
    pub limit: U64,
    /// Least number of stripes.
    pub stripes_min: U32,
    /// Greatest number of stripes.
    pub stripes_max: U32,
    /// Unused.
    pub unused: [U64; 6],
}
const _: () = assert!(size_of::<BalanceArgs>() == 136);

/// A balance that is under way (`btrfs_balance_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BalanceItem {
    /// Kinds of chunks to balance.
    pub flags: U64,
    /// Data chunks.
    pub data: BalanceArgs,
    /// Metadata chunks.
    pub meta: BalanceArgs,
    /// System chunks.
    pub sys: BalanceArgs,
    /// Unused.
    pub unused: [U64; 4],
}
const _: () = assert!(size_of::<BalanceItem>() == 448);

/// The size of an fs-verity descriptor (`btrfs_verity_descriptor_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VerityDescItem {
    /// Size of the descriptor in bytes.
    pub size: U64,
    /// Unused.
    pub reserved: [U64; 2],
    /// Always 0.
    pub encryption: u8,
}
const _: () = assert!(size_of::<VerityDescItem>() == 25);
