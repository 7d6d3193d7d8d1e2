//! A cache is loaded: its SSDs are chosen among (`ssds.rs`), its table is read and judged (`table.rs`), its disk is compared with
//! what the superblock tells, and then it is written that the cache is in use.
//!
//! After a clean end the disk may have been used by itself, and samples tell only some of it. So a clean block counts again when it was
//! compared with the disk, at its first read; at once if the disk still bears the mark.
//!
//! After a crash only dirty blocks are taken over: the disk may have newer contents of a clean one. The same holds for one SSD
//! of two, and for one that was alone: the other one may have changed the disk in between.

#[cfg(test)]
mod tests;

use crate::commits::Commits;
use crate::device_errors::DeviceErrors;
use crate::engine::{Cache, State};
use crate::flash::{Flash, Member};
use crate::format::{DIRTY, ENTRIES, Entry, FoundBlock, Geometry, PAGE_BYTES, Role, Superblock, TableBlock};
use crate::latency::Latencies;
use crate::mirror::Follower;
use crate::requests::Requests;
use crate::settings::{Mode, Settings};
use crate::slots::SlotTable;
use crate::ssds::{Ssds, choose};
use crate::superblock::{check_size, read_superblock, sample, text};
use crate::table::{LoadedTable, damaged};
use crate::{CacheClock, CacheCounters, CacheError};
use brindle_device::{Device, WritableDevice};
use brindle_policy::cache::sequential::StreamDetector;
use brindle_policy::cache::wear::WearBudget;
use brindle_sync::{Condvar, Mutex, Rank};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Facts of a cache that is on a flash device.
#[derive(Clone, Debug)]
pub struct CacheFacts {
    /// Its name.
    pub name: String,
    /// Name of the disk that it was made for.
    pub disk: String,
    /// Its mode.
    pub mode: Mode,
    /// Length of a block in bytes.
    pub block_bytes: u64,
    /// Slots of a set.
    pub associativity: u32,
    /// Number of slots.
    pub slots: u64,
    /// Size of the disk in bytes.
    pub disk_bytes: u64,
    /// Uuid of the cache.
    pub uuid: [u8; 16],
    /// True if its disk bears its mark: it has dirty blocks, or is in use.
    pub is_veiled: bool,
    /// State of this SSD, if the cache has two: in sync, alone or behind.
    pub mirror: Option<&'static str>,
    /// Bytes a day that may be written to the flash by choice; 0 for no limit.
    pub wear_bytes_per_day: u64,
    /// Bytes that were written to the flash since the cache was made, but for those before a crash.
    pub written_bytes: u64,
    /// True if it was closed; false while it is in use, and after a crash.
    pub is_closed: bool,
}

/// Tells facts of a cache without opening it.
///
/// # Errors
/// [`CacheError::NoCache`] and its like, those of the device.
pub fn inspect(flash: &dyn Device) -> Result<CacheFacts, CacheError> {
    let found = read_superblock(flash)?;
    let geometry = Geometry::of(&found);
    Ok(CacheFacts {
        name: text(&found.name),
        disk: text(&found.disk_name),
        mode: Mode::from_number(found.mode).expect("checked when it was parsed"),
        block_bytes: geometry.block_bytes,
        associativity: geometry.associativity,
        slots: geometry.slots().into(),
        disk_bytes: found.disk_bytes.get(),
        uuid: found.cache,
        is_veiled: found.is_veiled != 0,
        mirror: found.role().map(Role::name),
        wear_bytes_per_day: found.wear_bytes_per_day.get(),
        written_bytes: found.written_bytes.get(),
        is_closed: found.closed_at.get() != 0,
    })
}

/// Opens the cache on a flash device. Forced, it does without what is damaged, and without the dirty blocks of a disk that was
/// changed: they are lost. One SSD of two is alone from then on: the other one is behind.
///
/// # Errors
/// [`CacheError`]; nothing was written then.
pub fn load(
    flash: &Arc<dyn WritableDevice>,
    disk: &Arc<dyn WritableDevice>,
    is_forced: bool,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    begin(take(&[flash], disk, is_forced, clock)?)
}

/// Opens the cache on two SSDs that mirror each other. One that is behind is brought up to date before; one that can't be read or
/// written is left out.
///
/// # Errors
/// Errors are those of [`load`], [`CacheError::NoMirror`] and [`CacheError::Diverged`].
pub fn load_mirrored(
    flash: [&Arc<dyn WritableDevice>; 2],
    disk: &Arc<dyn WritableDevice>,
    is_forced: bool,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    match begin(take(&flash, disk, is_forced, Arc::clone(&clock))?) {
        // An SSD that failed since it was looked at is left out now.
        Err(CacheError::Device(error)) => {
            tracing::warn!("{error}: the SSDs are looked at once more");
            begin(take(&flash, disk, is_forced, clock)?)
        }
        loaded => loaded,
    }
}

/// Opens the cache on a flash device to read it, and writes neither device.
///
/// # Errors
/// Errors are those of [`load`].
pub fn load_to_read(
    flash: &Arc<dyn WritableDevice>,
    disk: &Arc<dyn WritableDevice>,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    Ok(to_read(take(&[flash], disk, false, clock)?))
}

/// Opens the cache on two SSDs to read it, and writes no device. One that is behind is left out.
///
/// # Errors
/// Errors are those of [`load_mirrored`].
pub fn load_mirrored_to_read(
    flash: [&Arc<dyn WritableDevice>; 2],
    disk: &Arc<dyn WritableDevice>,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    Ok(to_read(take(&flash, disk, false, clock)?))
}

/// A cache in memory, before anything was written.
struct TakenCache {
    cache: Cache,
    table: LoadedTable,
    /// The other SSD of a mirror.
    follower: Option<Follower>,
}

/// Begins the use of a cache.
fn begin(taken: TakenCache) -> Result<Cache, CacheError> {
    let TakenCache { mut cache, table, follower } = taken;
    if let Some(kept) = &table.kept_of_changed {
        // Before the cache counts as open: from then on nothing tells that the blocks are stale.
        cache.state.get_mut().slots.forget_all_but(kept);
        cache.commit()?;
    }
    cache.begin_use(&table, follower)?;
    if table.is_damaged {
        cache.lock().slots.write_all();
        cache.commit()?;
    }
    Ok(cache)
}

fn to_read(taken: TakenCache) -> Cache {
    let TakenCache { mut cache, follower, .. } = taken;
    cache.state.get_mut().stopped = Some("it is open to be read only".to_owned());
    if let Some(follower) = follower.filter(|follower| follower.table.is_some()) {
        cache.flash.join(follower.member);
    }
    cache
}

/// Takes a cache into memory. Blocks of a disk that was changed are still in it.
fn take(
    flash: &[&Arc<dyn WritableDevice>],
    disk: &Arc<dyn WritableDevice>,
    is_forced: bool,
    clock: Arc<dyn CacheClock>,
) -> Result<TakenCache, CacheError> {
    let Ssds { superblock, leader, follower, mut table, keeps_clean } = choose(flash, is_forced)?;
    let is_half = superblock.is_mirrored() && follower.is_none();
    check_size(
        disk.as_device(),
        disk.size_bytes() >= superblock.disk_bytes.get(),
        superblock.disk_bytes.get(),
    )?;
    let closed_at = superblock.closed_at.get();
    let is_same =
        closed_at != 0 && sample(&**disk, superblock.disk_bytes.get())? == superblock.disk_sample.get();
    if closed_at != 0 && !is_same {
        tracing::warn!(
            "{}: it was written without the cache {}, or is another disk: what was cached is forgotten",
            disk.name(),
            text(&superblock.name)
        );
    }
    // Without dirty blocks there is nothing to lose.
    let has_no_dirty = superblock.mode != Mode::Back.number();
    let mut cache = Cache::assemble(leader, Arc::clone(disk), &superblock, clock);
    let dirty_blocks = cache.take_over(&table, is_same && keeps_clean, is_forced || has_no_dirty)?;
    let veil = cache.judge_veil(is_forced, is_half)?;
    if superblock.is_veiled == 0 || !veil.is_newest || veil.is_torn {
        // Nothing kept others from writing the disk where no sample is.
        cache.state.get_mut().slots.doubt_clean();
    }
    let names = || (disk.name().to_owned(), cache.flash.name().to_owned());
    let is_changed = closed_at != 0 && !is_same || veil.is_torn;
    if is_changed && dirty_blocks > 0 {
        if !is_forced {
            let (disk, flash) = names();
            return Err(CacheError::DiskChanged { disk, flash, dirty_blocks });
        }
        // Under the mark the disk has nothing.
        table.kept_of_changed = Some(veil.marked);
    } else if is_half && dirty_blocks > 0 && !veil.is_newest && !is_forced {
        let (disk, flash) = names();
        return Err(CacheError::MaybeStale { flash, disk, dirty_blocks });
    }
    Ok(TakenCache { cache, table, follower })
}

/// The budget of wear that was stored at a clean end. After a crash the rest is not known: it is taken for spent.
fn stored_wear(superblock: &Superblock, clock: &dyn CacheClock) -> WearBudget {
    let (limit, now) = (superblock.wear_bytes_per_day.get(), clock.now());
    if superblock.closed_at.get() == 0 {
        return WearBudget::restored(limit, 0, Duration::ZERO, now);
    }
    let passed = clock.calendar_seconds().saturating_sub(superblock.wear_left_at.get());
    WearBudget::restored(limit, superblock.wear_left.get(), Duration::from_secs(passed), now)
}

impl Cache {
    /// A cache in memory, empty.
    pub(crate) fn assemble(
        first: Member,
        disk: Arc<dyn WritableDevice>,
        superblock: &Superblock,
        clock: Arc<dyn CacheClock>,
    ) -> Self {
        let geometry = Geometry::of(superblock);
        let table_blocks = usize::try_from(geometry.table_blocks()).expect("fewer than slots");
        let now = clock.now();
        let state = State {
            slots: SlotTable::new(geometry),
            requests: Requests::default(),
            commits: Commits::new(1, vec![0; table_blocks]),
            waiters: 0,
            settings: Settings {
                wear_bytes_per_day: superblock.wear_bytes_per_day.get(),
                ..Settings::default()
            },
            counters: CacheCounters::default(),
            latencies: Latencies::default(),
            read_streams: StreamDetector::default(),
            write_streams: StreamDetector::default(),
            wear: stored_wear(superblock, &*clock),
            written_bytes: superblock.written_bytes.get(),
            sync_stops: 0,
            fallow_rests_until: Duration::ZERO,
            superblock: superblock.clone(),
            // A process before this one may have left writes that the host did not make durable yet.
            disk_unflushed: true,
            is_cleaning: false,
            is_flushing_disk: false,
            is_telling: false,
            fallow_hand: (0, now),
            flash_failures: 0,
            flash_off_since: None,
            disk_failure: None,
            stopped: None,
            guard: None,
        };
        Self {
            name: text(&superblock.name),
            flash: Flash::new(first, Arc::clone(&clock)),
            geometry,
            mode: Mode::from_number(superblock.mode).expect("checked when it was parsed"),
            size_bytes: AtomicU64::new(superblock.disk_bytes.get()),
            disk,
            disk_errors: DeviceErrors::default(),
            clock,
            state: Mutex::new(Rank::FlashCache, state),
            changed: Condvar::new(),
        }
    }

    /// Trusts clean blocks without comparing them: no program can write this disk by itself without changing a sample.
    pub(crate) fn trust_samples(&mut self) {
        self.state.get_mut().slots.trust_all();
    }

    /// Takes over the blocks of a table; number of dirty ones. Clean ones are left out, unless the disk is known to be as
    /// the cache left it.
    fn take_over(
        &mut self,
        table: &LoadedTable,
        keeps_clean: bool,
        is_forced: bool,
    ) -> Result<u64, CacheError> {
        let disk_blocks = self.whole_blocks();
        let state = self.state.get_mut();
        let rule = state.settings.reclaim_policy;
        let mut first = 0;
        for (index, entries) in (0..).zip(&table.blocks) {
            let mut differs = false;
            for (slot, entry) in (first..state.slots.slots()).zip(entries) {
                if entry.state != DIRTY && !keeps_clean {
                    differs |= *entry != Entry::EMPTY;
                } else if !state.slots.load(rule, slot, entry, disk_blocks) {
                    if !is_forced {
                        return Err(damaged(self.flash.name(), self.geometry.table_place(index, 0)));
                    }
                    differs = true;
                }
            }
            if differs || table.is_damaged {
                state.slots.note_difference(index);
            }
            first += u32::try_from(ENTRIES).expect("small");
        }
        state.commits = Commits::new(table.transaction, table.copies.clone());
        Ok(state.slots.dirty())
    }

    /// Writes to the flash that the cache is in use, after the remains of a lost transaction are gone, and the second SSD is up to
    /// date.
    fn begin_use(&mut self, table: &LoadedTable, follower: Option<Follower>) -> Result<(), CacheError> {
        let first = Arc::clone(&self.flash.first().device);
        let cache = self.lock().superblock.cache;
        for (index, copy) in &table.lost {
            let mut page = vec![0; PAGE_BYTES];
            let place = self.geometry.table_place(*index, copy ^ 1);
            first.read_at(place, &mut page)?;
            let found = TableBlock::parse(&page, &cache, *index);
            if !table.is_damaged && !matches!(found, FoundBlock::Whole(_)) {
                return Err(damaged(first.name(), place));
            }
            first.write_at(self.geometry.table_place(*index, *copy), &page)?;
        }
        if !table.lost.is_empty() {
            tracing::info!("{}: changes that were never acknowledged are left out", self.name);
            first.flush()?;
        }
        if let Some(follower) = follower {
            self.catch_up(follower, table.is_damaged)?;
        }
        let in_use = self.flash.in_use();
        let superblock = &mut self.state.get_mut().superblock;
        superblock.closed_at = 0.into();
        superblock.disk_sample = 0.into();
        superblock.is_veiled = 0;
        superblock.sequence = (superblock.sequence.get() + 1).into();
        if let Some(role) = superblock.role() {
            let now = if in_use == 2 { Role::InSync } else { Role::Alone };
            if now != role {
                superblock.next_epoch();
            }
            superblock.set_role(now);
            if now == Role::Alone {
                tracing::warn!("{}: the cache goes on with one SSD", self.name);
            }
        }
        let superblock = superblock.clone();
        Ok(self.flash.write_superblock(&superblock)?)
    }
}
