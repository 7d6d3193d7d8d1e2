//! The superblock: where everything begins.

use crate::item::DevItem;
use crate::{
    ChecksumType, CompatRo, Defect, Generation, Incompat, Item, Key, KeyType, Logical, Uuid, to_usize,
};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Offsets of the copies on each device, in bytes (`btrfs_sb_offset`).
pub const SUPERBLOCK_OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// The size of a superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 4096;
/// Room for system chunks in the superblock, in bytes.
pub const SYS_CHUNK_ARRAY_SIZE: usize = 2048;

const MAGIC: [u8; 8] = *b"_BHRfS_M";
const LABEL_SIZE: usize = 256;
/// Greatest generation accepted: no pool reaches it, and counting transactions on from here does not wrap.
const GENERATION_MAX: u64 = 1 << 62;

/// The superblock (`btrfs_super_block`).
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// Checksum of all that follows it.
    pub csum: [u8; 32],
    /// UUID of the pool, as users see it.
    pub fsid: Uuid,
    /// Physical address of this copy.
    pub bytenr: U64,
    /// Flags (`BTRFS_SUPER_FLAG_*`).
    pub flags: U64,
    /// `_BHRfS_M`.
    pub magic: [u8; 8],
    /// The last committed transaction.
    pub generation: Generation,
    /// Root of the tree of tree roots.
    pub root: Logical,
    /// Root of the chunk tree.
    pub chunk_root: Logical,
    /// Root of the tree of log trees; 0 for none.
    pub log_root: Logical,
    /// Never used (`__unused_log_root_transid`).
    pub log_root_transid: U64,
    /// Size of all devices, in bytes.
    pub total_bytes: U64,
    /// Bytes in use.
    pub bytes_used: U64,
    /// Object id of the directory in the root tree (6).
    pub root_dir_objectid: U64,
    /// Number of devices.
    pub num_devices: U64,
    /// The least unit of data, in bytes.
    pub sectorsize: U32,
    /// The size of a tree block, in bytes.
    pub nodesize: U32,
    /// Equal to `nodesize` (`__unused_leafsize`).
    pub leafsize: U32,
    /// Equal to `sectorsize`; unused.
    pub stripesize: U32,
    /// Bytes used in `sys_chunk_array`.
    pub sys_chunk_array_size: U32,
    /// The transaction that wrote the chunk tree's root.
    pub chunk_root_generation: Generation,
    /// Features that need not be known.
    pub compat_flags: U64,
    /// Features that must be known to write.
    pub compat_ro_flags: U64,
    /// Features that must be known to read.
    pub incompat_flags: U64,
    /// Checksum algorithm.
    pub csum_type: U16,
    /// Level of the root tree's root.
    pub root_level: u8,
    /// Level of the chunk tree's root.
    pub chunk_root_level: u8,
    /// Level of the log root tree's root.
    pub log_root_level: u8,
    /// The device that this copy lies on.
    pub dev_item: DevItem,
    /// Label, ended by a zero byte.
    pub label: [u8; LABEL_SIZE],
    /// Generation of the version 1 free space cache.
    pub cache_generation: U64,
    /// Generation of the UUID tree.
    pub uuid_tree_generation: U64,
    /// UUID in every tree block, where it differs from `fsid`.
    pub metadata_uuid: Uuid,
    /// Number of global roots (extent tree version 2).
    pub nr_global_roots: U64,
    /// Unused.
    pub reserved: [U64; 27],
    /// The system chunks: pairs of key and chunk item.
    pub sys_chunk_array: [u8; SYS_CHUNK_ARRAY_SIZE],
    /// Roots of the last four commits.
    pub super_roots: [RootBackup; 4],
    /// Unused.
    pub padding: [u8; 565],
}
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Superblock>() == SUPERBLOCK_SIZE);
    assert!(offset_of!(Superblock, sectorsize) == 0x90);
    assert!(offset_of!(Superblock, csum_type) == 0xc4);
    assert!(offset_of!(Superblock, dev_item) == 0xc9);
    assert!(offset_of!(Superblock, label) == 0x12b);
    assert!(offset_of!(Superblock, metadata_uuid) == 0x23b);
    assert!(offset_of!(Superblock, sys_chunk_array) == 0x32b);
    assert!(offset_of!(Superblock, super_roots) == 0xb2b);
};

/// The roots of one of the last four commits (`btrfs_root_backup`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RootBackup {
    /// Root tree.
    pub tree_root: Logical,
    /// The transaction that wrote it.
    pub tree_root_gen: Generation,
    /// Chunk tree.
    pub chunk_root: Logical,
    /// The transaction that wrote it.
    pub chunk_root_gen: Generation,
    /// Extent tree.
    pub extent_root: Logical,
    /// The transaction that wrote it.
    pub extent_root_gen: Generation,
    /// Top-level subvolume.
    pub fs_root: Logical,
    /// The transaction that wrote it.
    pub fs_root_gen: Generation,
    /// Device tree.
    pub dev_root: Logical,
    /// The transaction that wrote it.
    pub dev_root_gen: Generation,
    /// Checksum tree.
    pub csum_root: Logical,
    /// The transaction that wrote it.
    pub csum_root_gen: Generation,
    /// Size of all devices, in bytes.
    pub total_bytes: U64,
    /// Bytes in use.
    pub bytes_used: U64,
    /// Number of devices.
    pub num_devices: U64,
    /// Unused.
    pub unused_64: [U64; 4],
    /// Level of the root tree.
    pub tree_root_level: u8,
    /// Level of the chunk tree.
    pub chunk_root_level: u8,
    /// Level of the extent tree.
    pub extent_root_level: u8,
    /// Level of the top-level subvolume.
    pub fs_root_level: u8,
    /// Level of the device tree.
    pub dev_root_level: u8,
    /// Level of the checksum tree.
    pub csum_root_level: u8,
    /// Unused.
    pub unused_8: [u8; 10],
}
const _: () = assert!(size_of::<RootBackup>() == 168);

/// Reason for refusing a superblock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockDefect {
    /// Something else, or nothing, lies there.
    #[error("no btrfs superblock: the magic number is {found:02x?}, expected \"_BHRfS_M\"")]
    NoMagic {
        /// The bytes at its place.
        found: [u8; 8],
    },
    /// The checksum does not match.
    #[error("superblock checksum is {stored}, computed {computed} ({algorithm})")]
    Checksum {
        /// The stored checksum, in hex.
        stored: String,
        /// The computed checksum, in hex.
        computed: String,
        /// The algorithm.
        algorithm: ChecksumType,
    },
    /// A field is out of range.
    #[error("corrupt superblock: {0}")]
    Field(Defect),
    /// The pool needs features that brindle does not have.
    #[error("unsupported feature{}: {}", if .0.len() == 1 { "" } else { "s" }, .0.join(", "))]
    Features(Vec<String>),
    /// A sector size that the format allows and brindle does not.
    #[error("unsupported sectorsize {0}, brindle reads pools of sectorsize 4096")]
    SectorSize(u32),
}

impl From<Defect> for SuperblockDefect {
    fn from(defect: Defect) -> Self {
        Self::Field(defect)
    }
}

impl Superblock {
    /// Takes one copy as read from `offset` of a device, and checks every field of it.
    pub fn parse(bytes: &[u8; SUPERBLOCK_SIZE], offset: u64) -> Result<Box<Self>, SuperblockDefect> {
        let superblock = Self::parse_but_system_chunks(bytes, offset)?;
        superblock.check_system_chunks()?;
        Ok(superblock)
    }

    /// Takes one copy as [`parse`](Self::parse) does, whatever its system chunks are: for a recovery that has others.
    pub fn parse_but_system_chunks(
        bytes: &[u8; SUPERBLOCK_SIZE],
        offset: u64,
    ) -> Result<Box<Self>, SuperblockDefect> {
        let superblock = Self::from_bytes(bytes);
        if superblock.magic != MAGIC {
            return Err(SuperblockDefect::NoMagic { found: superblock.magic });
        }
        let Some(algorithm) = ChecksumType::from_disk(superblock.csum_type.get()) else {
            return Err(Defect::new("unknown csum_type", superblock.csum_type.get().into()).into());
        };
        let computed = superblock.compute_checksum(algorithm);
        let stored = crate::Checksum::from_slice(superblock.csum.get(..algorithm.size()).unwrap_or(&[]));
        if computed != stored {
            return Err(SuperblockDefect::Checksum {
                stored: stored.to_string(),
                computed: computed.to_string(),
                algorithm,
            });
        }
        if superblock.bytenr.get() != offset {
            return Err(Defect::expected("bytenr is not its place", offset, superblock.bytenr.get()).into());
        }
        superblock.check()?;
        Ok(superblock)
    }

    /// Takes the bytes as they are, good or bad: for `inspect` and for tests.
    pub fn from_bytes(bytes: &[u8; SUPERBLOCK_SIZE]) -> Box<Self> {
        let mut superblock = Box::new(Self::new_zeroed());
        superblock.as_mut_bytes().copy_from_slice(bytes);
        superblock
    }

    /// The checksum that the bytes should carry.
    pub fn compute_checksum(&self, algorithm: ChecksumType) -> crate::Checksum {
        let covered = self.as_bytes().get(self.csum.len()..).unwrap_or(&[]);
        algorithm.compute(covered)
    }

    /// Returns true if the magic number is there.
    pub fn has_magic(&self) -> bool {
        self.magic == MAGIC
    }

    /// The checksum algorithm; CRC-32C where the number is unknown, which `parse` has refused.
    pub fn checksum_type(&self) -> ChecksumType {
        ChecksumType::from_disk(self.csum_type.get()).unwrap_or(ChecksumType::Crc32c)
    }

    /// Features that must be known to read.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.incompat_flags.get())
    }

    /// Features that must be known to write.
    pub fn compat_ro(&self) -> CompatRo {
        CompatRo::from_bits_retain(self.compat_ro_flags.get())
    }

    /// The UUID that every tree block carries.
    pub fn tree_uuid(&self) -> Uuid {
        if self.incompat().contains(Incompat::METADATA_UUID) { self.metadata_uuid } else { self.fsid }
    }

    /// The label, without the zero byte that ends it.
    pub fn label(&self) -> &[u8] {
        self.label.split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    /// Returns true for a seed: never written, grown by sprouting.
    pub fn is_seeding(&self) -> bool {
        self.flags.get() & 1 << 32 != 0
    }

    /// The system chunks, each as its key and chunk item.
    pub fn system_chunks(&self) -> impl Iterator<Item = Result<(Key, crate::item::Chunk<'_>), Defect>> {
        let used = to_usize(self.sys_chunk_array_size.get().into());
        let mut rest = self.sys_chunk_array.get(..used).unwrap_or(&self.sys_chunk_array);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let next = split_system_chunk(rest);
            rest = next.as_ref().map_or(&[], |(_, _, rest)| *rest);
            Some(next.map(|(key, chunk, _)| (key, chunk)))
        })
    }

    /// Every field against its range, system chunks left out; the order puts what explains most first.
    fn check(&self) -> Result<(), SuperblockDefect> {
        let refused = self.incompat().refused();
        if !refused.is_empty() {
            return Err(SuperblockDefect::Features(refused));
        }
        let sectorsize = self.sectorsize.get();
        if !sectorsize.is_power_of_two() || !(512..=65536).contains(&sectorsize) {
            return Err(Defect::new("invalid sectorsize", sectorsize.into()).into());
        }
        if sectorsize != 4096 {
            return Err(SuperblockDefect::SectorSize(sectorsize));
        }
        let nodesize = self.nodesize.get();
        if !nodesize.is_power_of_two() || !(4096..=65536).contains(&nodesize) {
            return Err(Defect::new("invalid nodesize", nodesize.into()).into());
        }
        self.check_roots(nodesize)?;
        let expected = self.tree_uuid();
        let found = self.dev_item.fsid;
        if found != expected {
            return Err(Defect::new("dev_item fsid differs from the pool's", low_half(found)).into());
        }
        let generation = self.generation.get();
        if generation > GENERATION_MAX {
            return Err(Defect::expected("generation", GENERATION_MAX, generation).into());
        }
        // The six trees that every pool has.
        let (least, used) = (6 * u64::from(nodesize), self.bytes_used.get());
        if used < least {
            return Err(Defect::expected("bytes_used too small", least, used).into());
        }
        if self.num_devices.get() == 0 {
            return Err(Defect::new("num_devices is zero", 0).into());
        }
        Ok(())
    }

    fn check_roots(&self, nodesize: u32) -> Result<(), Defect> {
        let sectorsize = self.sectorsize.get().into();
        let max_level = crate::MAX_LEVEL.into();
        for (why, level) in [
            ("root_level too high", self.root_level),
            ("chunk_root_level too high", self.chunk_root_level),
            ("log_root_level too high", self.log_root_level),
        ] {
            if level > crate::MAX_LEVEL {
                return Err(Defect::expected(why, max_level, level.into()));
            }
        }
        for (why, root) in [
            ("root is not aligned", self.root),
            ("chunk_root is not aligned", self.chunk_root),
            ("log_root is not aligned", self.log_root),
        ] {
            if !root.is_aligned(sectorsize) {
                return Err(Defect::new(why, root.get()));
            }
        }
        if self.leafsize.get() != nodesize {
            return Err(Defect::expected(
                "leafsize is not nodesize",
                nodesize.into(),
                self.leafsize.get().into(),
            ));
        }
        Ok(())
    }

    fn check_system_chunks(&self) -> Result<(), Defect> {
        let size = self.sys_chunk_array_size.get();
        if to_usize(size.into()) > SYS_CHUNK_ARRAY_SIZE {
            let bound = crate::to_u64(SYS_CHUNK_ARRAY_SIZE);
            return Err(Defect::expected("sys_chunk_array_size too large", bound, size.into()));
        }
        if size == 0 {
            return Err(Defect::new("sys_chunk_array is empty", 0));
        }
        for chunk in self.system_chunks() {
            let (key, chunk) = chunk?;
            crate::tree_checker::check_chunk(&key, &chunk, self.sectorsize.get(), true)?;
        }
        Ok(())
    }
}

/// The first pair of key and chunk item, and what follows it.
fn split_system_chunk(bytes: &[u8]) -> Result<(Key, crate::item::Chunk<'_>, &[u8]), Defect> {
    let truncated = || Defect::new("sys_chunk_array ends inside an entry", crate::to_u64(bytes.len()));
    let (key, after_key) = Key::read_from_prefix(bytes).map_err(|_| truncated())?;
    let length = crate::item::Chunk::length_of(after_key).ok_or_else(truncated)?;
    let (chunk, rest) = after_key.split_at_checked(length).ok_or_else(truncated)?;
    if key.item_type != KeyType::CHUNK_ITEM {
        return Err(Defect::new("system chunk key has another type", key.item_type.0.into()));
    }
    match Item::parse(&key, chunk)? {
        Item::Chunk(chunk) => Ok((key, chunk, rest)),
        _ => Err(truncated()),
    }
}

/// Half of a UUID, to be shown in a message.
fn low_half(uuid: Uuid) -> u64 {
    u64::from_be_bytes(uuid.0.first_chunk().copied().unwrap_or_default())
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("fsid", &self.fsid)
            .field("devid", &self.dev_item.devid)
            .field("generation", &self.generation)
            .field("root", &self.root)
            .field("chunk_root", &self.chunk_root)
            .field("log_root", &self.log_root)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
