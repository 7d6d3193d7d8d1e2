//! The format on flash: two superblocks, the table of slots in two copies, and the slots.
//!
//! | place | contents |
//! |---|---|
//! | 0, 4096 | [`Superblock`], two copies; one is durable before the other is written |
//! | 8192 | first copy of each [`TableBlock`] |
//! | behind it | second copy of each |
//! | [`Superblock::data_offset`] | slots, each as long as a block of the cache |
//!
//! All numbers are little-endian. A checksum is a CRC-32C that begins with the uuid of the cache, so that blocks of an
//! earlier cache on the same flash have no meaning.

#[cfg(test)]
mod tests;

use crate::Mode;
use std::mem::offset_of;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a superblock and of a block of the table, on flash.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Place of the first copy of the table.
pub(crate) const TABLE_OFFSET: u64 = 2 * PAGE_BYTES as u64;
/// Slots that a block of the table describes.
pub(crate) const ENTRIES: usize = 252;
/// The first bytes of a superblock.
const MAGIC: [u8; 8] = *b"BrndlFC\0";
/// Version of the format of a cache on one SSD.
pub(crate) const VERSION: u32 = 1;
/// Version of the format of a cache on two SSDs, which a program that knows of one must not take alone.
pub(crate) const VERSION_MIRRORED: u32 = 2;

/// Most superblocks and transactions that a cache can have had.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// A uuid.
pub(crate) type Uuid = [u8; 16];

/// The head of a cache. It fits into a sector, and so is never torn.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    magic: [u8; 8],
    checksum: U32,
    pub(crate) version: U32,
    /// Number of superblocks that were written before; of the two copies, the one with the higher number counts.
    pub(crate) sequence: U64,
    /// The cache, that is, this pair of devices.
    pub(crate) cache: Uuid,
    /// The flash device.
    pub(crate) flash: Uuid,
    /// The disk, which bears no mark: an identity that was made up for it when the pair was made.
    pub(crate) disk: Uuid,
    pub(crate) flash_bytes: U64,
    pub(crate) disk_bytes: U64,
    pub(crate) block_bytes: U32,
    pub(crate) associativity: U32,
    pub(crate) sets: U64,
    pub(crate) data_offset: U64,
    /// Number of the last transaction at the time of a clean end; 0 while the cache is open.
    pub(crate) closed_at: U64,
    /// Checksum of samples of the disk at the time of a clean end.
    pub(crate) disk_sample: U32,
    pub(crate) mode: u8,
    /// 1 if reads don't fill the cache.
    pub(crate) is_write_only: u8,
    /// 1 if the disk is veiled: it bears the mark of the cache where filesystems have theirs.
    pub(crate) is_veiled: u8,
    reserved: u8,
    /// Name of the cache, padded with zeros.
    pub(crate) name: [u8; 64],
    /// Name of the disk for messages, its last bytes, padded with zeros.
    pub(crate) disk_name: [u8; 128],
    /// Number of the veil, which its marks bear: an SSD of an earlier time has an earlier one.
    pub(crate) veil: U64,
    /// The other SSD of a cache on two; this and what follows, up to the role, are zeros for a cache on one.
    pub(crate) mirror: Uuid,
    /// Number of times that an SSD was left behind, or came back.
    pub(crate) epoch: U64,
    /// Number of the veil before this one, whose marks may still be there.
    pub(crate) earlier_veil: U64,
    /// Number of this SSD among the two, 0 or 1.
    pub(crate) member: u8,
    /// Number of its [`Role`].
    role: u8,
    reserved_of_mirror: [u8; 6],
    /// Bytes a day that may be written to the flash by choice; 0 for no limit.
    pub(crate) wear_bytes_per_day: U64,
    /// Rest of the budget of wear at the time of a clean end.
    pub(crate) wear_left: I64,
    /// Time of the clean end in seconds since 1970.
    pub(crate) wear_left_at: U64,
    /// Bytes that were written to the flash, as far as they are known from clean ends.
    pub(crate) written_bytes: U64,
    padding: [u8; 112],
}

/// State of one of the two SSDs of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// State of an SSD that has everything, as the other one of the same epoch has.
    InSync,
    /// State of an SSD that has everything, and left the other one behind.
    Alone,
    /// State of an SSD that is being brought up to date, and is no use without the other one.
    Behind,
}

impl Role {
    const ALL: [Self; 3] = [Self::InSync, Self::Alone, Self::Behind];

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InSync => "in sync",
            Self::Alone => "alone",
            Self::Behind => "behind",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::InSync => 0,
            Self::Alone => 1,
            Self::Behind => 2,
        }
    }
}

const _: () = assert!(offset_of!(Superblock, veil) == 320 && offset_of!(Superblock, member) == 360);
const _: () = assert!(offset_of!(Superblock, wear_bytes_per_day) == 368);
const _: () = assert!(size_of::<Superblock>() == 512 && offset_of!(Superblock, cache) == 24);
const _: () = assert!(offset_of!(Superblock, block_bytes) == 88 && offset_of!(Superblock, name) == 128);

/// Reasons for which bytes are no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSuperblock {
    /// Not one of ours.
    Foreign,
    /// Damaged.
    Damaged,
    /// Written by a version that this one does not know.
    Version(u32),
    /// A field that says what can't be.
    Nonsense(&'static str),
}

impl Superblock {
    /// A superblock of zeros but for the magic number and the version.
    pub(crate) fn new() -> Self {
        let mut new = Self::read_from_bytes(&[0; 512]).expect("512 bytes are a superblock");
        (new.magic, new.version) = (MAGIC, VERSION.into());
        new
    }

    /// The superblock in the first sector of some bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NoSuperblock> {
        let (found, _) = Self::read_from_prefix(bytes).map_err(|_| NoSuperblock::Foreign)?;
        if found.magic != MAGIC {
            return Err(NoSuperblock::Foreign);
        }
        if found.checksum.get() != found.right_checksum() {
            return Err(NoSuperblock::Damaged);
        }
        if !(VERSION..=VERSION_MIRRORED).contains(&found.version.get()) {
            return Err(NoSuperblock::Version(found.version.get()));
        }
        found.check().map_err(NoSuperblock::Nonsense)?;
        Ok(found)
    }

    fn check(&self) -> Result<(), &'static str> {
        Mode::from_number(self.mode).ok_or("mode")?;
        if self.sequence.get() > NUMBER_MAX || self.closed_at.get() > NUMBER_MAX {
            return Err("number of a superblock or transaction");
        }
        if self.is_mirrored() {
            self.check_mirror()?;
        }
        let geometry = Geometry::of(self);
        if !is_block_length(geometry.block_bytes) {
            return Err("length of a block");
        }
        if !is_associativity(geometry.associativity) {
            return Err("associativity");
        }
        let slots = geometry.sets.checked_mul(u64::from(geometry.associativity));
        let slots =
            slots.filter(|slots| *slots > 0 && *slots < u64::from(u32::MAX)).ok_or("number of sets")?;
        let end =
            slots.checked_mul(geometry.block_bytes).and_then(|data| data.checked_add(geometry.data_offset));
        if geometry.data_offset < TABLE_OFFSET + 2 * geometry.table_blocks() * PAGE_BYTES as u64 {
            return Err("place of the slots");
        }
        if end.is_none_or(|end| end > self.flash_bytes.get()) {
            return Err("size of the flash device");
        }
        Ok(())
    }

    fn check_mirror(&self) -> Result<(), &'static str> {
        if self.mode != Mode::Back.number() {
            return Err("mode");
        }
        if self.mirror == [0; 16] || self.mirror == self.flash || self.member > 1 {
            return Err("SSD of a mirror");
        }
        if self.epoch.get() > NUMBER_MAX || Role::ALL.iter().all(|role| role.number() != self.role) {
            return Err("state of a mirror");
        }
        Ok(())
    }

    /// Returns true for a cache on two SSDs.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.version.get() == VERSION_MIRRORED
    }

    /// State of the SSD, if the cache has two.
    pub(crate) fn role(&self) -> Option<Role> {
        let known = Role::ALL.into_iter().find(|role| role.number() == self.role);
        known.filter(|_| self.is_mirrored())
    }

    /// Has the cache be one on two SSDs, and this one in a state.
    pub(crate) fn set_role(&mut self, role: Role) {
        (self.version, self.role) = (VERSION_MIRRORED.into(), role.number());
    }

    /// Counts a change of the set of SSDs.
    pub(crate) fn next_epoch(&mut self) {
        self.epoch = self.epoch.get().saturating_add(1).min(NUMBER_MAX).into();
    }

    /// The superblock as another SSD of the cache has it; its mirror is known unless it was never in use.
    pub(crate) fn of_member(&self, number: u8, uuid: Uuid, mirror: Option<Uuid>) -> Self {
        if !self.is_mirrored() {
            return self.clone();
        }
        let other = if uuid == self.flash { self.mirror } else { self.flash };
        Self { member: number, flash: uuid, mirror: mirror.unwrap_or(other), ..self.clone() }
    }

    /// Number of the next veil. Those of SSDs that are used each without the other never meet.
    pub(crate) fn next_veil(&self) -> u64 {
        let next = self.sequence.get() + 1;
        match self.role() {
            None => next,
            Some(Role::Alone) => next.wrapping_mul(4).wrapping_add(1 + u64::from(self.member)),
            Some(Role::InSync | Role::Behind) => next.wrapping_mul(4),
        }
    }

    /// Gives the veil of a mirror another number.
    pub(crate) fn renumber_veil(&mut self) {
        (self.earlier_veil, self.veil) = (self.veil, self.next_veil().into());
    }

    /// Its page on flash.
    pub(crate) fn to_page(&self) -> Vec<u8> {
        let mut sealed = self.clone();
        sealed.checksum = sealed.right_checksum().into();
        let mut page = sealed.as_bytes().to_vec();
        page.resize(PAGE_BYTES, 0);
        page
    }

    fn right_checksum(&self) -> u32 {
        let mut bare = self.clone();
        bare.checksum = 0.into();
        crc32c::crc32c(bare.as_bytes())
    }
}

/// Returns true for a length that blocks of a cache may have: a power of two from a sector to 1 MiB.
pub(crate) fn is_block_length(bytes: u64) -> bool {
    bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes)
}

/// Returns true for a number of slots that a set may have: a power of two up to 2^15.
pub(crate) fn is_associativity(slots: u32) -> bool {
    slots.is_power_of_two() && slots <= u32::from(brindle_policy::cache::replacement::SLOTS_MAX)
}

/// Places of everything on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) block_bytes: u64,
    pub(crate) associativity: u32,
    pub(crate) sets: u64,
    pub(crate) data_offset: u64,
}

/// The slots begin at a multiple of this.
const DATA_ALIGNMENT: u64 = 1 << 16;

impl Geometry {
    /// Geometry that a superblock tells.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        Self {
            block_bytes: superblock.block_bytes.get().into(),
            associativity: superblock.associativity.get(),
            sets: superblock.sets.get(),
            data_offset: superblock.data_offset.get(),
        }
    }

    /// Most sets that fit into `bytes` of flash; `None` if that is none.
    pub(crate) fn fitting(bytes: u64, block_bytes: u64, associativity: u32) -> Option<Self> {
        let set_bytes = block_bytes * u64::from(associativity);
        let with = |sets: u64| {
            let mut geometry = Self { block_bytes, associativity, sets, data_offset: 0 };
            let table = TABLE_OFFSET + 2 * geometry.table_blocks() * PAGE_BYTES as u64;
            geometry.data_offset = table.next_multiple_of(DATA_ALIGNMENT);
            geometry
        };
        let slots_max = u64::from(u32::MAX - 1) / u64::from(associativity);
        let mut sets = (bytes / set_bytes).min(slots_max);
        while sets > 0 && with(sets).data_offset + sets * set_bytes > bytes {
            let missing = with(sets).data_offset + sets * set_bytes - bytes;
            sets -= missing.div_ceil(set_bytes + set_bytes / 16).clamp(1, sets);
        }
        (sets > 0).then(|| with(sets))
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> u32 {
        let slots = self.sets * u64::from(self.associativity);
        u32::try_from(slots).expect("a superblock with more is refused")
    }

    /// Number of blocks of the table.
    pub(crate) fn table_blocks(&self) -> u64 {
        (self.sets * u64::from(self.associativity)).div_ceil(ENTRIES as u64)
    }

    /// Place of a copy, 0 or 1, of a block of the table.
    pub(crate) fn table_place(&self, index: u32, copy: u8) -> u64 {
        let number = u64::from(copy) * self.table_blocks() + u64::from(index);
        TABLE_OFFSET + number * PAGE_BYTES as u64
    }

    /// Place of a slot.
    pub(crate) fn slot_place(&self, slot: u32) -> u64 {
        self.data_offset + u64::from(slot) * self.block_bytes
    }
}

/// Contents of a slot, as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Entry {
    /// Number of the block on the disk.
    pub(crate) block: U64,
    /// Checksum of the block ([`block_checksum`]).
    pub(crate) checksum: U32,
    /// 0: the slot is free; 1: the disk has the block too; 2: the block is dirty.
    pub(crate) state: u8,
    reserved: [u8; 3],
}

const _: () = assert!(size_of::<Entry>() == 16);

/// State of an entry of a free slot.
pub(crate) const FREE: u8 = 0;
/// State of an entry of a block that the disk has too.
pub(crate) const CLEAN: u8 = 1;
/// State of an entry of a dirty block.
pub(crate) const DIRTY: u8 = 2;

impl Entry {
    /// A slot without a block.
    pub(crate) const EMPTY: Self =
        Self { block: U64::ZERO, checksum: U32::ZERO, state: FREE, reserved: [0; 3] };

    /// A slot with a block.
    pub(crate) fn new(block: u64, checksum: u32, is_dirty: bool) -> Self {
        let state = if is_dirty { DIRTY } else { CLEAN };
        Self { block: block.into(), checksum: checksum.into(), state, reserved: [0; 3] }
    }
}

/// The head of a block of the table. It fits into a sector, and so is never torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TableHeader {
    checksum: U32,
    entries_checksum: U32,
    cache: Uuid,
    index: U32,
    /// Number of blocks of the table that the transaction writes.
    parts: U32,
    transaction: U64,
    padding: [u8; 24],
}

const _: () = assert!(size_of::<TableHeader>() == 64 && 64 + ENTRIES * size_of::<Entry>() == PAGE_BYTES);

/// A part of the table of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableBlock {
    /// Number of it within the table.
    pub(crate) index: u32,
    /// Number of the transaction that wrote it.
    pub(crate) transaction: u64,
    /// Number of blocks that the transaction wrote.
    pub(crate) parts: u32,
    /// Entries, as many as a block has.
    pub(crate) entries: Vec<Entry>,
}

/// A block of the table, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundBlock {
    /// Whole.
    Whole(TableBlock),
    /// Its head is whole, its entries are not: the write of this transaction was torn, or the one after it, or it was
    /// damaged.
    Torn {
        /// Transaction of the head.
        transaction: u64,
    },
    /// Nothing of it can be trusted.
    Damaged,
}

impl TableBlock {
    /// Its page on flash.
    pub(crate) fn to_page(&self, cache: &Uuid) -> Vec<u8> {
        debug_assert_eq!(self.entries.len(), ENTRIES, "a block of the table has all its entries");
        let entries = self.entries.as_bytes();
        let mut header = TableHeader {
            checksum: U32::ZERO,
            entries_checksum: crc32c::crc32c_append(seed(cache), entries).into(),
            cache: *cache,
            index: self.index.into(),
            parts: self.parts.into(),
            transaction: self.transaction.into(),
            padding: [0; 24],
        };
        header.checksum = crc32c::crc32c_append(seed(cache), header.as_bytes()).into();
        [header.as_bytes(), entries].concat()
    }

    /// The block that a page holds.
    pub(crate) fn parse(page: &[u8], cache: &Uuid, index: u32) -> FoundBlock {
        let Ok((mut header, entries)) = TableHeader::read_from_prefix(page) else {
            return FoundBlock::Damaged;
        };
        let checksum = std::mem::take(&mut header.checksum);
        let is_ours = header.cache == *cache && header.index.get() == index;
        if !is_ours || checksum.get() != crc32c::crc32c_append(seed(cache), header.as_bytes()) {
            return FoundBlock::Damaged;
        }
        let transaction = header.transaction.get();
        if transaction > NUMBER_MAX {
            return FoundBlock::Damaged;
        }
        let is_whole = header.entries_checksum.get() == crc32c::crc32c_append(seed(cache), entries);
        let entries =
            <[Entry]>::ref_from_bytes(entries).ok().filter(|found| is_whole && found.len() == ENTRIES);
        match entries {
            None => FoundBlock::Torn { transaction },
            Some(entries) => {
                let (parts, entries) = (header.parts.get(), entries.to_vec());
                FoundBlock::Whole(Self { index, transaction, parts, entries })
            }
        }
    }
}

fn seed(cache: &Uuid) -> u32 {
    crc32c::crc32c(cache)
}

/// Checksum of a cached block. It depends on the block's place on the disk, so a block in the wrong slot is noticed.
pub(crate) fn block_checksum(block: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block.to_le_bytes()), bytes)
}
