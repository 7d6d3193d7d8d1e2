//! The life of a cache on flash: made, closed, destroyed.

use crate::engine::{Cache, State};
use crate::format::{
    ENTRIES, Entry, Geometry, PAGE_BYTES, Role, Superblock, TableBlock, Uuid, is_associativity,
    is_block_length,
};
use crate::mirror::member;
use crate::settings::Mode;
use crate::superblock::{read_superblock, sample, text, write_superblock};
use crate::table::dirty_on_flash;
use crate::{CacheClock, CacheError};
use brindle_device::{DeviceError, WritableDevice};
use std::sync::Arc;

/// A cache to be made.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its name, 64 bytes at most.
    pub name: String,
    /// Its mode.
    pub mode: Mode,
    /// Length of a block in bytes: a power of two from 512 to 1 MiB.
    pub block_bytes: u64,
    /// Slots of a set: a power of two up to 32768.
    pub associativity: u32,
    /// Bytes of the flash device that it may use; all if none.
    pub size_bytes: Option<u64>,
    /// True if only writes are taken in.
    pub is_write_only: bool,
    /// True if it may take the place of a cache that is there, with its dirty blocks.
    pub is_forced: bool,
    /// Random bytes for the uuids of the cache, the flash and the disk.
    pub uuids: [[u8; 16]; 3],
}

/// Length of a block unless told otherwise, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Slots of a set unless told otherwise.
pub const ASSOCIATIVITY: u32 = 512;
/// Memory that a slot takes, in bytes: 24 of the table, and what the allocator keeps of the load.
pub const MEMORY_PER_SLOT: u64 = 49;

/// Least number of slots of a set of a cache on two SSDs: there is room for the blocks of the veil, twice.
const MIRRORED_ASSOCIATIVITY_MIN: u32 = 32;
/// Pages of the table that are written at once.
const PAGES_AT_ONCE: usize = 256;

/// Makes a cache on a flash device and opens it. Everything on the flash is lost; the disk is not written.
///
/// # Errors
/// [`CacheError::Exists`] unless forced, [`CacheError::OtherCache`] for a disk that bears the mark of any,
/// [`CacheError::Refused`], those of the devices.
pub fn create(
    flash: Arc<dyn WritableDevice>,
    disk: Arc<dyn WritableDevice>,
    options: &CreateOptions,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    let superblock = plan(&*flash, &*disk, options)?;
    check_free(&*flash, &*disk, options)?;
    make(&*flash, &superblock)?;
    Ok(Cache::assemble(member(flash, &superblock), disk, &superblock, clock))
}

/// Makes a write-back cache on two SSDs that mirror each other, as large as the smaller one, and opens it.
///
/// # Errors
/// Errors are those of [`create`]; other modes are refused.
pub fn create_mirrored(
    flash: [Arc<dyn WritableDevice>; 2],
    disk: Arc<dyn WritableDevice>,
    options: &CreateOptions,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    let superblock = plan_mirrored([&*flash[0], &*flash[1]], &*disk, options)?;
    let [_, uuid, _] = options.uuids;
    // As random as the one of the first.
    let mirror = superblock.of_member(1, uuid.map(|byte| !byte), Some(uuid));
    let first = superblock.of_member(0, uuid, Some(mirror.flash));
    for flash in &flash {
        check_free(&**flash, &*disk, options)?;
    }
    for (flash, superblock) in flash.iter().zip([&first, &mirror]) {
        make(&**flash, superblock)?;
    }
    let [one, two] = flash;
    let mut cache = Cache::assemble(member(one, &first), disk, &first, clock);
    cache.flash.join(member(two, &mirror));
    Ok(cache)
}

fn check_free(
    flash: &dyn WritableDevice,
    disk: &dyn WritableDevice,
    options: &CreateOptions,
) -> Result<(), CacheError> {
    Cache::refuse_marked(disk.as_device(), flash.as_device())?;
    if options.is_forced {
        return Ok(());
    }
    match read_superblock(flash.as_device()) {
        Ok(found) => {
            let cache = text(&found.name);
            Err(CacheError::Exists { flash: flash.name().to_owned(), cache })
        }
        Err(CacheError::NoCache { .. } | CacheError::Corrupt { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes an empty cache.
fn make(flash: &dyn WritableDevice, superblock: &Superblock) -> Result<(), DeviceError> {
    wipe(flash)?;
    write_empty_table(flash, &Geometry::of(superblock), &superblock.cache)?;
    write_superblock(flash, superblock)
}

/// Number of slots that a cache would have; its memory is [`MEMORY_PER_SLOT`] times that.
///
/// # Errors
/// Errors are those of [`create`].
pub fn planned_slots(
    flash: &dyn WritableDevice,
    disk: &dyn WritableDevice,
    options: &CreateOptions,
) -> Result<u64, CacheError> {
    Ok(Geometry::of(&plan(flash, disk, options)?).slots().into())
}

/// Number of slots that a cache on two SSDs would have.
///
/// # Errors
/// Errors are those of [`create_mirrored`].
pub fn planned_slots_mirrored(
    flash: [&dyn WritableDevice; 2],
    disk: &dyn WritableDevice,
    options: &CreateOptions,
) -> Result<u64, CacheError> {
    Ok(Geometry::of(&plan_mirrored(flash, disk, options)?).slots().into())
}

/// Takes a cache off its flash device.
///
/// # Errors
/// [`CacheError::Dirty`] unless forced, those of the device.
pub fn destroy(flash: &dyn WritableDevice, is_forced: bool) -> Result<DestroyedCache, CacheError> {
    let mut destroyed = DestroyedCache::default();
    match read_superblock(flash.as_device()) {
        Ok(superblock) => {
            destroyed.disk = Some(text(&superblock.disk_name));
            destroyed.is_veiled = superblock.is_veiled != 0;
            destroyed.lost_bytes = match dirty_on_flash(flash, &superblock) {
                Ok(dirty_blocks) if dirty_blocks > 0 && !is_forced => {
                    return Err(CacheError::Dirty { flash: flash.name().to_owned(), dirty_blocks });
                }
                Ok(dirty_blocks) => Some(dirty_blocks * u64::from(superblock.block_bytes.get())),
                Err(_) if is_forced => None,
                Err(error) => return Err(error),
            };
        }
        Err(CacheError::Corrupt { .. } | CacheError::Version { .. }) if is_forced => {}
        Err(error) => return Err(error),
    }
    wipe(flash)?;
    Ok(destroyed)
}

/// Facts of a cache that was destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestroyedCache {
    /// Name of the disk that it was made for, unless its superblock was damaged.
    pub disk: Option<String>,
    /// Bytes of dirty blocks, which are lost; `None` if the cache was damaged.
    pub lost_bytes: Option<u64>,
    /// True if the disk bears its mark.
    pub is_veiled: bool,
}

/// The superblock of a new cache.
fn plan(
    flash: &dyn WritableDevice,
    disk: &dyn WritableDevice,
    options: &CreateOptions,
) -> Result<Superblock, CacheError> {
    options.check()?;
    let refused = |what, found, why| Err(CacheError::Refused { what, found, why });
    let CreateOptions { block_bytes, associativity, .. } = *options;
    let flash_bytes = flash.size_bytes().min(options.size_bytes.unwrap_or(u64::MAX));
    if let Some(asked) = options.size_bytes.filter(|asked| *asked > flash.size_bytes()) {
        return refused("a cache size", asked, "is more than the flash device has");
    }
    let Some(geometry) = Geometry::fitting(flash_bytes, block_bytes, associativity) else {
        return refused("a flash device", flash_bytes, "has no room for one set of blocks");
    };
    if disk.size_bytes() < block_bytes {
        return refused("a disk", disk.size_bytes(), "is shorter than a block");
    }
    let mut superblock = Superblock::new();
    [superblock.cache, superblock.flash, superblock.disk] = options.uuids;
    superblock.flash_bytes = flash_bytes.into();
    superblock.disk_bytes = disk.size_bytes().into();
    superblock.block_bytes = u32::try_from(block_bytes).expect("1 MiB at most").into();
    superblock.associativity = associativity.into();
    superblock.sets = geometry.sets.into();
    superblock.data_offset = geometry.data_offset.into();
    superblock.mode = options.mode.number();
    superblock.is_write_only = options.is_write_only.into();
    superblock.name[..options.name.len()].copy_from_slice(options.name.as_bytes());
    let disk_name = disk.name().as_bytes();
    let kept = &disk_name[disk_name.len().saturating_sub(superblock.disk_name.len())..];
    superblock.disk_name[..kept.len()].copy_from_slice(kept);
    Ok(superblock)
}

/// The superblock of the first SSD of a new cache on two.
fn plan_mirrored(
    flash: [&dyn WritableDevice; 2],
    disk: &dyn WritableDevice,
    options: &CreateOptions,
) -> Result<Superblock, CacheError> {
    options.check_mirrored()?;
    let [one, two] = flash.map(|flash| plan(flash, disk, options));
    let (one, two) = (one?, two?);
    let mut superblock = if two.flash_bytes.get() < one.flash_bytes.get() { two } else { one };
    superblock.set_role(Role::InSync);
    superblock.epoch = 1.into();
    Ok(superblock)
}

fn wipe(flash: &dyn WritableDevice) -> Result<(), DeviceError> {
    let length = (2 * PAGE_BYTES as u64).min(flash.size_bytes());
    flash.write_at(0, &vec![0; usize::try_from(length).expect("two pages")])?;
    flash.flush()
}

fn write_empty_table(
    flash: &dyn WritableDevice,
    geometry: &Geometry,
    cache: &Uuid,
) -> Result<(), DeviceError> {
    let blocks = u32::try_from(geometry.table_blocks()).expect("fewer than slots");
    for copy in [0, 1] {
        for first in (0..blocks).step_by(PAGES_AT_ONCE) {
            let end = blocks.min(first + u32::try_from(PAGES_AT_ONCE).expect("small"));
            let page = |index| {
                let entries = vec![Entry::EMPTY; ENTRIES];
                TableBlock { index, transaction: 1, parts: blocks, entries }.to_page(cache)
            };
            let pages: Vec<u8> = (first..end).flat_map(page).collect();
            flash.write_at(geometry.table_place(first, copy), &pages)?;
        }
    }
    flash.flush()
}

impl CreateOptions {
    /// Refuses numbers and words that no cache can have, on whatever devices.
    ///
    /// # Errors
    /// [`CacheError::Refused`].
    pub fn check(&self) -> Result<(), CacheError> {
        let refused = |what, found, why| Err(CacheError::Refused { what, found, why });
        let Self { block_bytes, associativity, .. } = *self;
        if !is_block_length(block_bytes) {
            return refused(
                "a block length",
                block_bytes,
                "must be a power of two from 512 to 1048576 bytes",
            );
        }
        if !is_associativity(associativity) {
            return refused("an associativity", associativity.into(), "must be a power of two up to 32768");
        }
        if self.name.len() > 64 || self.name.is_empty() {
            return refused("a name", self.name.len() as u64, "must have 1 to 64 bytes");
        }
        if self.is_write_only && self.mode != Mode::Back {
            return refused("a write-only cache", 1, "must be a write-back cache");
        }
        Ok(())
    }

    /// The same for a cache on two SSDs.
    ///
    /// # Errors
    /// [`CacheError::Refused`].
    pub fn check_mirrored(&self) -> Result<(), CacheError> {
        self.check()?;
        let refused = |found, why| Err(CacheError::Refused { what: "a cache on two SSDs", found, why });
        if self.mode != Mode::Back {
            return refused(self.mode.number().into(), "must be a write-back cache");
        }
        if self.associativity < MIRRORED_ASSOCIATIVITY_MIN {
            return refused(self.associativity.into(), "must have 32 blocks in a set at least");
        }
        Ok(())
    }
}

impl Cache {
    /// Ends the use of the cache. Unless `fast_remove` is set, or the veil is torn, dirty blocks are written to the disk first; those that stay are
    /// durable on the flash. Clean blocks are found again when it is loaded, if the disk was not changed. Refuses all
    /// writes from then on.
    ///
    /// # Errors
    /// Those of the devices. The cache is then as after a crash: nothing that was flushed is lost.
    pub fn close(&self) -> Result<(), CacheError> {
        let is_fast = {
            let state = self.lock();
            // The rest of a torn veil would be taken for that of a later time.
            let is_torn = state.superblock.is_veiled == 0 && !state.slots.pinned().is_empty();
            state.settings.fast_remove && !is_torn
        };
        if self.mode == Mode::Back && !is_fast {
            self.clean_and_unveil()?;
        }
        self.commit()?;
        let superblock = {
            let mut state = self.lock();
            if state.superblock.is_veiled != 0 {
                // Under the mark all blocks of the table are trusted.
                state.slots.forget_doubted();
            }
            state.slots.write_all();
            drop(state);
            self.commit()?;
            let mut state = self.lock();
            while state.commits.is_running || state.is_telling {
                state = self.wait(state);
            }
            let unsettled = state.slots.pending() > 0 || state.disk_unflushed;
            state.stopped = Some("it is closed".to_owned());
            if unsettled {
                return Err(CacheError::InUse { cache: self.name.clone() });
            }
            let State { superblock, commits, wear, written_bytes, .. } = &mut *state;
            superblock.wear_left = wear.left(self.clock.now()).unwrap_or_default().into();
            superblock.wear_left_at = self.clock.calendar_seconds().into();
            superblock.written_bytes = (*written_bytes).into();
            superblock.closed_at = commits.transaction.into();
            superblock.sequence = (superblock.sequence.get() + 1).into();
            superblock.clone()
        };
        let mut superblock = superblock;
        superblock.disk_sample = self.on_disk(sample(&*self.disk, superblock.disk_bytes.get()))?.into();
        Ok(self.flash.write_superblock(&superblock)?)
    }

    /// Writes all dirty blocks to the disk, those of the veil last. A disk that would lack some keeps the mark.
    fn clean_and_unveil(&self) -> Result<(), CacheError> {
        let check = |dirty_blocks: u64| {
            let (flash, disk) = (self.flash.name().to_owned(), self.disk.name().to_owned());
            if dirty_blocks == 0 { Ok(()) } else { Err(CacheError::NotCleaned { flash, disk, dirty_blocks }) }
        };
        let dirty = self.clean_all()?;
        check(dirty - self.lock().slots.pinned_dirty().min(dirty))?;
        check(self.unreadable_of_veil())?;
        self.lift_veil()?;
        check(self.clean_all()?)
    }
}
