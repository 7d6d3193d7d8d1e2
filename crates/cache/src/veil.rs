//! The veil: while a write-back cache is in use as the device of a pool, or served, its disk bears the mark of the cache in the
//! places where filesystems have theirs. So nothing takes the disk alone for one with a filesystem while blocks of it are
//! on the flash only: neither the kernel nor a scan for devices. The blocks of these places are dirty, and stay so
//! until the veil is lifted, as the very last ones.
//!
//! | step | a crash before the next one |
//! |---|---|
//! | the contents of these blocks are dirty on the flash, durably | they are cleaned like others |
//! | the mark is written to the disk, durably | the flash has the contents |
//! | the superblock says that there is a veil | a disk without it was written alone, and is refused |
//! | lifted: all other blocks are clean | |
//! | the superblock says that there is none | the flash has the contents |
//! | what the marks hide is written to the disk, durably | the marks are there still |
//! | the blocks are cleaned | the disk has everything |
//!
//! A block of these that the flash fails to take goes to the disk like any other, after the superblock was told.

use crate::CacheError;
use crate::engine::Cache;
use crate::format::{Superblock, Uuid};
use crate::settings::Mode;
use crate::superblock::text;
use brindle_device::{Device, DeviceError, WritableDevice};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a mark.
pub const DISK_MAGIC: [u8; 16] = *b"BrndlFC cached\0\0";
/// Places of the marks: partition tables and most filesystems begin at 0, btrfs at 64 KiB.
const PLACES: [u64; 2] = [0, 64 << 10];
/// Bytes of each place that are veiled.
const PLACE_BYTES: u64 = PLACE_LENGTH as u64;
const PLACE_LENGTH: usize = 4096;
/// Number in marks of a disk whose veil is being lifted: that of no SSD.
const NO_VEIL: u64 = u64::MAX;
/// Words for a person that looks at the disk.
const EXPLANATION: [u8; 240] = padded(
    b"\nThis disk is one half of a flash cache of brindle. Its contents are complete only together with its SSD. \
      Use both, as cache:SSD:DISK or by `brindle cache load`; after a clean stop the disk can be used alone.\n",
);

/// The mark of a cache on its disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Mark {
    magic: [u8; 16],
    checksum: U32,
    reserved: [u8; 4],
    /// Number of the veil.
    veil: U64,
    cache: Uuid,
    /// Name of the cache, padded with zeros.
    name: [u8; 64],
    /// Name of the flash device for messages, its last bytes, padded with zeros.
    flash_name: [u8; 128],
    explanation: [u8; 240],
    padding: [u8; 32],
}

const _: () = assert!(size_of::<Mark>() == 512 && offset_of!(Mark, cache) == 32);

/// The cache that a disk is a half of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskMark {
    /// Uuid of the cache.
    pub uuid: [u8; 16],
    /// Name of the cache.
    pub name: String,
    /// The flash device, by the name that it had.
    pub flash: String,
}

const fn padded(words: &[u8]) -> [u8; 240] {
    let mut padded = [0; 240];
    let mut at = 0;
    while at < words.len() {
        padded[at] = words[at];
        at += 1;
    }
    padded
}

impl Mark {
    fn of(superblock: &Superblock, flash_name: &str) -> Self {
        let mut mark = Self::read_from_bytes(&[0; 512]).expect("512 bytes are a mark");
        (mark.magic, mark.cache, mark.name) = (DISK_MAGIC, superblock.cache, superblock.name);
        mark.veil = superblock.veil;
        mark.explanation = EXPLANATION;
        let bytes = flash_name.as_bytes();
        let kept = &bytes[bytes.len().saturating_sub(mark.flash_name.len())..];
        mark.flash_name[..kept.len()].copy_from_slice(kept);
        mark.checksum = mark.right_checksum().into();
        mark
    }

    fn right_checksum(&self) -> u32 {
        let mut bare = self.clone();
        bare.checksum = U32::ZERO;
        crc32c::crc32c(bare.as_bytes())
    }

    /// Returns true for the mark of a cache in the state that a superblock tells.
    fn is_of(&self, superblock: &Superblock) -> bool {
        let is_earlier = superblock.is_mirrored() && self.veil == superblock.earlier_veil;
        self.cache == superblock.cache && (self.veil == superblock.veil || is_earlier)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (mark, _) = Self::read_from_prefix(bytes).ok()?;
        (mark.magic == DISK_MAGIC && mark.checksum.get() == mark.right_checksum()).then_some(mark)
    }
}

/// Judgement of a veil when a cache is loaded.
pub(crate) struct Veil {
    /// True if the disk should have the mark at a place where it has something else.
    pub(crate) is_torn: bool,
    /// Dirty blocks whose place on the disk bears the mark.
    pub(crate) marked: Vec<u64>,
    /// True if a mark on the disk says that no other SSD is newer.
    pub(crate) is_newest: bool,
}

/// Marks of any cache at the places of a disk.
fn marks(disk: &(impl Device + ?Sized)) -> Result<Vec<Mark>, DeviceError> {
    let mut marks = Vec::new();
    for place in PLACES.into_iter().filter(|place| place + size_of::<Mark>() as u64 <= disk.size_bytes()) {
        let mut bytes = [0; size_of::<Mark>()];
        disk.read_at(place, &mut bytes)?;
        marks.extend(Mark::parse(&bytes));
    }
    Ok(marks)
}

/// The mark of a disk that is in use by a cache, or waits for its dirty blocks.
///
/// # Errors
/// Those of the device.
pub fn disk_mark(disk: &(impl Device + ?Sized)) -> Result<Option<DiskMark>, DeviceError> {
    let found = marks(disk)?.into_iter().next();
    Ok(found.map(|mark| DiskMark { uuid: mark.cache, name: text(&mark.name), flash: text(&mark.flash_name) }))
}

/// Takes the mark off a disk whose cache is lost. What the cache had of the disk is lost with it, the first bytes of a
/// filesystem among it.
///
/// # Errors
/// Those of the device.
pub fn remove_mark(disk: &dyn WritableDevice) -> Result<(), DeviceError> {
    for place in PLACES.into_iter().filter(|place| place + PLACE_BYTES <= disk.size_bytes()) {
        let mut bytes = [0; PLACE_LENGTH];
        disk.read_at(place, &mut bytes)?;
        if bytes.chunks(size_of::<Mark>()).any(|sector| Mark::parse(sector).is_some()) {
            disk.write_at(place, &[0; PLACE_LENGTH])?;
        }
    }
    disk.flush()
}

impl Cache {
    /// Refuses a disk that bears the mark of any cache, for a flash device that is to have a new one.
    pub(crate) fn refuse_marked(disk: &dyn Device, flash: &dyn Device) -> Result<(), CacheError> {
        let Some(DiskMark { name, flash: owner, .. }) = disk_mark(disk)? else { return Ok(()) };
        let (flash, disk) = (flash.name().to_owned(), disk.name().to_owned());
        Err(CacheError::OtherCache { disk, cache: name, owner, flash })
    }

    /// Veils the disk, before the cache has its first user. Returns false if there is none: for modes other than write-back
    /// the disk is complete at any time, and a cache of a few slots can't keep the blocks.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn veil(&self) -> Result<bool, CacheError> {
        let blocks = self.veil_blocks();
        if self.mode != Mode::Back || blocks.is_empty() {
            return Ok(false);
        }
        if self.lock().superblock.is_veiled != 0 {
            return Ok(true);
        }
        self.lock().slots.pin(blocks.clone());
        self.take_into_flash(&blocks)?;
        if self.lock().slots.pinned_dirty() < blocks.len() as u64 {
            // Their sets are full of dirty blocks.
            self.clean_all()?;
            self.take_into_flash(&blocks)?;
        }
        if self.lock().slots.pinned_dirty() < blocks.len() as u64 {
            if self.lock().superblock.is_mirrored() {
                let (what, why) =
                    ("a cache on two SSDs", "must have room for the mark of its disk in one set");
                return Err(CacheError::Refused { what, found: self.geometry.associativity.into(), why });
            }
            tracing::warn!("{}: the cache has no room for the mark of its disk", self.name);
            self.lock().slots.pin(Vec::new());
            return Ok(false);
        }
        self.commit()?;
        self.number_veil()?;
        let superblock = self.lock().superblock.clone();
        self.mark_disk(&superblock)?;
        self.tell_of_veil(true)?;
        Ok(true)
    }

    /// Has the present contents of blocks be dirty.
    fn take_into_flash(&self, blocks: &[u64]) -> Result<(), DeviceError> {
        let mut contents = vec![0; self.block_length()];
        for block in blocks {
            let offset = block * self.geometry.block_bytes;
            self.read_range(offset, &mut contents)?;
            self.write_range(offset, &contents)?;
        }
        Ok(())
    }

    /// Gives the veil that is made now its number. The SSDs of a mirror are told before the disk has it, so that each of them
    /// is known as the one that the mark means.
    fn number_veil(&self) -> Result<(), DeviceError> {
        let superblock = {
            let superblock = &mut self.lock().superblock;
            if !superblock.is_mirrored() {
                superblock.veil = superblock.next_veil().into();
                return Ok(());
            }
            superblock.clone()
        };
        // Numbered before, and never marked: the superblock knows one number before its own, not two.
        let is_behind = |mark: &Mark| mark.is_of(&superblock) && mark.veil != superblock.veil;
        if self.on_disk(marks(&*self.disk))?.iter().any(is_behind) {
            self.mark_disk(&superblock)?;
        }
        let renumber = |superblock: &mut Superblock| {
            superblock.renumber_veil();
            true
        };
        self.change_superblock(renumber, |_| Ok(()))
    }

    /// Writes the mark of the veil to the disk, durably. The rest of its blocks is hidden when all marks are there: a torn write
    /// leaves no disk that lacks something and bears none.
    pub(crate) fn mark_disk(&self, superblock: &Superblock) -> Result<(), DeviceError> {
        let blocks = self.lock().slots.pinned().to_vec();
        let mark = Mark::of(superblock, self.flash.name());
        for hides in [false, true] {
            // Those where a load looks come first.
            let is_due = |place: &u64| hides || PLACES.contains(place);
            for place in blocks.iter().map(|block| block * self.geometry.block_bytes).filter(is_due) {
                let mut bytes = vec![0; self.block_length()];
                if !hides {
                    self.on_disk(self.disk.read_at(place, &mut bytes))?;
                }
                bytes[..size_of::<Mark>()].copy_from_slice(mark.as_bytes());
                self.on_disk(self.disk.write_at(place, &bytes))?;
            }
            self.flush_disk()?;
        }
        Ok(())
    }

    /// Writes to the disk what its marks hide, durably, and leaves the marks where a load looks, so that these go last.
    fn show_hidden(&self) -> Result<(), DeviceError> {
        let blocks = self.lock().slots.pinned().to_vec();
        for place in blocks.into_iter().map(|block| block * self.geometry.block_bytes) {
            let (mut contents, mut mark) = (vec![0; self.block_length()], [0; size_of::<Mark>()]);
            self.read_range(place, &mut contents)?;
            if PLACES.contains(&place) {
                self.on_disk(self.disk.read_at(place, &mut mark))?;
                contents[..size_of::<Mark>()].copy_from_slice(&mark);
            }
            self.on_disk(self.disk.write_at(place, &contents))?;
        }
        self.flush_disk()
    }

    /// Number of blocks of the veil that the flash can't give back.
    pub(crate) fn unreadable_of_veil(&self) -> u64 {
        let pinned = self.lock().slots.pinned().to_vec();
        let mut contents = vec![0; self.block_length()];
        let mut is_unreadable = |block: &u64| {
            let read = self.read_range(block * self.geometry.block_bytes, &mut contents);
            read.inspect_err(|error| tracing::error!("{}: {error}", self.name)).is_err()
        };
        pinned.iter().filter(|block| is_unreadable(block)).count() as u64
    }

    /// Lets the blocks of the veil be cleaned; the disk has all others.
    pub(crate) fn lift_veil(&self) -> Result<(), DeviceError> {
        self.tell_of_veil(false)?;
        self.show_hidden()?;
        self.lock().slots.pin(Vec::new());
        Ok(())
    }

    /// Takes note, before blocks are written to the disk, that the veil may be gone then.
    pub(crate) fn note_tear(&self, mut blocks: impl Iterator<Item = u64>) -> Result<(), DeviceError> {
        let is_torn = {
            let state = self.lock();
            let pinned = state.slots.pinned();
            !pinned.is_empty() && blocks.any(|block| pinned.binary_search(&block).is_ok())
        };
        if is_torn { self.tell_of_veil(false) } else { Ok(()) }
    }

    /// Says in the superblock whether there is a veil. One that is lifted from the disk of a mirror gets marks that stand by
    /// neither SSD: one that fails from then on must not be taken for the newest.
    fn tell_of_veil(&self, is_veiled: bool) -> Result<(), DeviceError> {
        let change = |superblock: &mut Superblock| {
            let differs = (superblock.is_veiled != 0) != is_veiled;
            superblock.is_veiled = is_veiled.into();
            differs
        };
        self.change_superblock(change, |superblock| {
            if is_veiled || !superblock.is_mirrored() {
                return Ok(());
            }
            let mut lifted = superblock.clone();
            lifted.veil = NO_VEIL.into();
            self.mark_disk(&lifted)
        })
    }

    /// Compares the veil that the superblock tells of with the marks on the disk; `is_half` for one SSD of two.
    ///
    /// # Errors
    /// [`CacheError::OtherCache`] and [`CacheError::StaleFlash`] unless forced, those of the disk.
    pub(crate) fn judge_veil(&self, is_forced: bool, is_half: bool) -> Result<Veil, CacheError> {
        let superblock = self.lock().superblock.clone();
        let marks = self.on_disk(marks(&*self.disk))?;
        let (flash, disk) = (|| self.flash.name().to_owned(), || self.disk.name().to_owned());
        if let Some(other) = marks.iter().find(|mark| mark.cache != superblock.cache && !is_forced) {
            let (cache, owner) = (text(&other.name), text(&other.flash_name));
            return Err(CacheError::OtherCache { disk: disk(), cache, owner, flash: flash() });
        }
        let is_lifted = superblock.closed_at.get() != 0 && superblock.is_veiled == 0;
        let is_later = |mark: &Mark| {
            let is_judged = superblock.is_veiled != 0 || is_half && mark.veil != NO_VEIL;
            mark.cache == superblock.cache && (is_lifted || is_judged && !mark.is_of(&superblock))
        };
        if marks.iter().any(is_later) && !is_forced {
            return Err(CacheError::StaleFlash { flash: flash(), cache: self.name.clone(), disk: disk() });
        }
        let (dirty, marked) =
            if superblock.is_veiled != 0 { self.veiled_blocks()? } else { (Vec::new(), Vec::new()) };
        let is_newest = marks.iter().any(|mark| mark.is_of(&superblock));
        Ok(Veil { is_torn: marked.len() < dirty.len(), marked, is_newest })
    }

    /// A block of the veil whose place on the disk, as it is reached now, lacks the mark of this use of the cache.
    pub(crate) fn unmarked_block(&self, disk: &dyn Device) -> Result<Option<u64>, DeviceError> {
        let (superblock, pinned) = {
            let state = self.lock();
            (state.superblock.clone(), state.slots.pinned().to_vec())
        };
        for block in pinned.into_iter().filter(|_| superblock.is_veiled != 0) {
            let mut bytes = [0; size_of::<Mark>()];
            disk.read_at(block * self.geometry.block_bytes, &mut bytes)?;
            if !Mark::parse(&bytes).is_some_and(|mark| mark.is_of(&superblock)) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Dirty blocks of the veil, and of these the ones whose place on the disk bears the mark.
    fn veiled_blocks(&self) -> Result<(Vec<u64>, Vec<u64>), DeviceError> {
        let mut dirty = self.veil_blocks();
        dirty.retain(|block| {
            let slots = &self.lock().slots;
            slots.find(*block).is_some_and(|slot| slots.is_dirty(slot))
        });
        let cache = self.lock().superblock.cache;
        let mut veiled = Vec::new();
        for block in &dirty {
            let mut bytes = [0; size_of::<Mark>()];
            self.on_disk(self.disk.read_at(block * self.geometry.block_bytes, &mut bytes))?;
            if Mark::parse(&bytes).is_some_and(|mark| mark.cache == cache) {
                veiled.push(*block);
            }
        }
        Ok((dirty, veiled))
    }

    fn veil_blocks(&self) -> Vec<u64> {
        let length = self.geometry.block_bytes;
        let of = |place: u64| place / length..(place + PLACE_BYTES).div_ceil(length);
        let mut blocks: Vec<u64> = PLACES.into_iter().flat_map(of).collect();
        blocks.retain(|block| *block < self.whole_blocks());
        blocks.dedup();
        blocks
    }
}
