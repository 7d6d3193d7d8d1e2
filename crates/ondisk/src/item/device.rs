//! Devices, chunks and block groups.

use super::prefix;
use crate::{
    BlockGroupType, Defect, DevId, Generation, Logical, ObjectId, Physical, RootId, Uuid, to_u64, to_usize,
};
use std::num::NonZeroU64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A device (`btrfs_dev_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DevItem {
    /// Its id in the pool.
    pub devid: DevId,
    /// Size in bytes.
    pub total_bytes: U64,
    /// Bytes that belong to chunks.
    pub bytes_used: U64,
    /// Optimal alignment, in bytes.
    pub io_align: U32,
    /// Optimal width, in bytes.
    pub io_width: U32,
    /// Least unit, in bytes.
    pub sector_size: U32,
    /// 0 on stock pools; allocation hints are kept here (`type`).
    pub device_type: U64,
    /// Expected generation; unused.
    pub generation: Generation,
    /// Start of allocation; 0 on stock pools. With a mark of absence, the fingerprint of a log is kept here.
    pub start_offset: U64,
    /// Grouping; 0 on stock pools. The generation in which a device last took the place of this one is kept here.
    pub dev_group: U32,
    /// 0 to 100, 100 the fastest; unused.
    pub seek_speed: u8,
    /// 0 to 100, 100 the fastest; unused.
    pub bandwidth: u8,
    /// UUID of the device.
    pub uuid: Uuid,
    /// UUID of the pool that the device belongs to.
    pub fsid: Uuid,
}
const _: () = assert!(size_of::<DevItem>() == 98 && std::mem::offset_of!(DevItem, device_type) == 36);

impl DevItem {
    /// Fingerprint of the log that the pool had when it was first written without the device.
    pub fn log_fingerprint(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.start_offset.get())
    }

    /// Stores a fingerprint, or that there is none.
    pub fn set_log_fingerprint(&mut self, fingerprint: Option<NonZeroU64>) {
        self.start_offset.set(fingerprint.map_or(0, NonZeroU64::get));
    }

    /// Generation in which the device took the place of another one with its id and UUID, or its own after an absence; 0 for never. A
    /// device with an older superblock is not this one.
    pub fn placed_in(&self) -> Generation {
        Generation::new(self.dev_group.get().into())
    }

    /// Stores that generation, as far as there is room for it.
    pub fn set_placed_in(&mut self, generation: Generation) {
        self.dev_group.set(u32::try_from(generation.get()).unwrap_or(u32::MAX));
    }
}

/// The fixed part of a chunk (`btrfs_chunk` up to `stripe`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChunkHeader {
    /// Length of the logical range, in bytes.
    pub length: U64,
    /// The tree that owns the chunk: always the extent tree.
    pub owner: RootId,
    /// Bytes on one stripe before the next one's turn: always 64 KiB.
    pub stripe_len: U64,
    /// [`BlockGroupType`].
    pub chunk_type: U64,
    /// Optimal alignment, in bytes.
    pub io_align: U32,
    /// Optimal width, in bytes.
    pub io_width: U32,
    /// Least unit, in bytes.
    pub sector_size: U32,
    /// Number of stripes.
    pub num_stripes: U16,
    /// Stripes of RAID10 that mirror each other.
    pub sub_stripes: U16,
}
const _: () = assert!(size_of::<ChunkHeader>() == 48);

/// A chunk's piece of one device (`btrfs_stripe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Stripe {
    /// The device.
    pub devid: DevId,
    /// Start of the device extent, in bytes.
    pub offset: Physical,
    /// UUID of the device.
    pub dev_uuid: Uuid,
}
const _: () = assert!(size_of::<Stripe>() == 32);

/// A chunk: a logical range (it begins at the key's offset) and its stripes.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The fixed part.
    pub header: &'a ChunkHeader,
    /// The stripes, in order.
    pub stripes: &'a [Stripe],
}

impl<'a> Chunk<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, Defect> {
        let (header, rest) = prefix::<ChunkHeader>(data, "chunk item is cut off")?;
        let expected = to_usize(header.num_stripes.get().into()) * size_of::<Stripe>();
        if rest.len() != expected {
            let found = to_u64(rest.len());
            return Err(Defect::expected("size of a chunk's stripes", to_u64(expected), found));
        }
        let stripes = <[Stripe]>::ref_from_bytes(rest).unwrap_or_default();
        Ok(Self { header, stripes })
    }

    /// Length in bytes of the chunk item that begins at `data`, if its fixed part is there.
    pub fn length_of(data: &[u8]) -> Option<usize> {
        let (header, _) = ChunkHeader::ref_from_prefix(data).ok()?;
        Some(size_of::<ChunkHeader>() + usize::from(header.num_stripes.get()) * size_of::<Stripe>())
    }

    /// Content and profile of the chunk.
    pub fn block_group_type(&self) -> BlockGroupType {
        BlockGroupType::from_bits_retain(self.header.chunk_type.get())
    }
}

/// A piece of a device that belongs to a chunk (`btrfs_dev_extent`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DevExtent {
    /// Always the chunk tree.
    pub chunk_tree: RootId,
    /// Always `FIRST_CHUNK_TREE`.
    pub chunk_objectid: ObjectId,
    /// The chunk's logical address.
    pub chunk_offset: Logical,
    /// Length in bytes.
    pub length: U64,
    /// UUID of the chunk tree.
    pub chunk_tree_uuid: Uuid,
}
const _: () = assert!(size_of::<DevExtent>() == 48);

/// Space accounting of a chunk's range (`btrfs_block_group_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockGroupItem {
    /// Bytes in use.
    pub used: U64,
    /// Always `FIRST_CHUNK_TREE` (or a global root id, extent tree version 2).
    pub chunk_objectid: ObjectId,
    /// [`BlockGroupType`].
    pub flags: U64,
}
const _: () = assert!(size_of::<BlockGroupItem>() == 24);

impl BlockGroupItem {
    /// Content and profile of the block group.
    pub fn block_group_type(&self) -> BlockGroupType {
        BlockGroupType::from_bits_retain(self.flags.get())
    }
}

/// Error counters of a device (`btrfs_dev_stats_item`); older pools keep fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevStats {
    /// Failed writes.
    pub write_errs: u64,
    /// Failed reads.
    pub read_errs: u64,
    /// Failed flushes.
    pub flush_errs: u64,
    /// Wrong checksums or contents.
    pub corruption_errs: u64,
    /// Blocks of the wrong generation.
    pub generation_errs: u64,
}

impl DevStats {
    pub(super) fn parse(data: &[u8]) -> Result<Self, Defect> {
        let Ok(values) = <[U64]>::ref_from_bytes(data) else {
            return Err(Defect::new(
                "size of device statistics is not of whole counters",
                to_u64(data.len()),
            ));
        };
        let mut values = values.iter().map(|value| value.get());
        let mut next = || values.next().unwrap_or(0);
        Ok(Self {
            write_errs: next(),
            read_errs: next(),
            flush_errs: next(),
            corruption_errs: next(),
            generation_errs: next(),
        })
    }

    /// The counters in the order of the item.
    pub fn values(&self) -> [u64; 5] {
        [self.write_errs, self.read_errs, self.flush_errs, self.corruption_errs, self.generation_errs]
    }

    /// The item.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.values().iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Difference of each counter, at least zero.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// Returns true if no error was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            write_errs: combine(self.write_errs, other.write_errs),
            read_errs: combine(self.read_errs, other.read_errs),
            flush_errs: combine(self.flush_errs, other.flush_errs),
            corruption_errs: combine(self.corruption_errs, other.corruption_errs),
            generation_errs: combine(self.generation_errs, other.generation_errs),
        }
    }
}

/// State of a device replacement (`btrfs_dev_replace_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DevReplaceItem {
    /// The device to be replaced.
    pub src_devid: DevId,
    /// Copied up to here.
    pub cursor_left: U64,
    /// Being copied up to here.
    pub cursor_right: U64,
    /// True if the source is read only when no other mirror can be.
    pub cont_reading_from_srcdev_mode: U64,
    /// 0 never started, 1 started, 2 finished, 3 canceled, 4 suspended.
    pub replace_state: U64,
    /// Seconds since 1970.
    pub time_started: U64,
    /// Seconds since 1970.
    pub time_stopped: U64,
    /// Failed writes.
    pub num_write_errors: U64,
    /// Reads that no copy could serve.
    pub num_uncorrectable_read_errors: U64,
}
const _: () = assert!(size_of::<DevReplaceItem>() == 72);
