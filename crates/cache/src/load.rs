//! A cache is loaded: its table is read, and the last transaction is judged.
//!
//! Of each block of the table the copy with the later transaction counts. All transactions but the last were flushed before the
//! next one began. The last one counts if all its blocks are there, and all slots that it names anew have the contents
//! that it tells; else it was never acknowledged, and of its blocks the older copies count. These are written over the
//! others before anything else is, so that a part of a lost transaction is never taken for one that happened.
//!
//! A copy that is not whole and belongs to no lost transaction was damaged later: the cache is refused, unless forced.
//! After a crash only dirty blocks are taken over: the disk may have newer contents of a clean one.

#[cfg(test)]
mod tests;

use crate::commits::Commits;
use crate::engine::{Cache, State};
use crate::format::{DIRTY, Entry, FoundBlock, Geometry, PAGE_BYTES, Superblock, TableBlock, block_checksum};
use crate::latency::Latencies;
use crate::requests::Requests;
use crate::settings::{Mode, Settings};
use crate::slots::SlotTable;
use crate::superblock::{read_superblock, sample, text, write_superblock};
use crate::{CacheClock, CacheCounters, CacheError};
use brindle_device::{Device, WritableDevice};
use brindle_policy::cache::sequential::StreamDetector;
use brindle_policy::cache::wear::WearBudget;
use brindle_sync::{Condvar, Mutex, Rank};
use std::sync::Arc;

/// Pages of the table that are read at once.
const PAGES_AT_ONCE: u32 = 256;

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
    /// True if it was closed; false while it is in use, and after a crash.
    pub is_closed: bool,
}

/// The table, as it counts.
pub(crate) struct LoadedTable {
    /// Entries of each block.
    pub(crate) blocks: Vec<Vec<Entry>>,
    copies: Vec<u8>,
    transaction: u64,
    /// Copies of a lost transaction, by the number of their block.
    lost: Vec<(u32, u8)>,
    is_damaged: bool,
    /// Of a disk that was changed, the blocks that are kept all the same.
    kept_of_changed: Option<Vec<u64>>,
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
        is_closed: found.closed_at.get() != 0,
    })
}

/// Opens the cache on a flash device. Forced, it does without what is damaged, and without the dirty blocks of a disk that was
/// changed: they are lost.
///
/// # Errors
/// [`CacheError`]; nothing was written then.
pub fn load(
    flash: &Arc<dyn WritableDevice>,
    disk: &Arc<dyn WritableDevice>,
    is_forced: bool,
    clock: Arc<dyn CacheClock>,
) -> Result<Cache, CacheError> {
    let (mut cache, table) = take(flash, disk, is_forced, clock)?;
    if let Some(kept) = &table.kept_of_changed {
        // Before the cache counts as open: from then on nothing tells that the blocks are stale.
        cache.state.get_mut().slots.forget_all_but(kept);
        cache.commit()?;
    }
    cache.begin_use(&table)?;
    if table.is_damaged {
        cache.lock().slots.write_all();
        cache.commit()?;
    }
    Ok(cache)
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
    let (mut cache, _) = take(flash, disk, false, clock)?;
    cache.state.get_mut().stopped = Some("it is open to be read only".to_owned());
    Ok(cache)
}

/// Takes a cache into memory. Blocks of a disk that was changed are still in it.
fn take(
    flash: &Arc<dyn WritableDevice>,
    disk: &Arc<dyn WritableDevice>,
    is_forced: bool,
    clock: Arc<dyn CacheClock>,
) -> Result<(Cache, LoadedTable), CacheError> {
    let superblock = read_superblock(&**flash)?;
    check_sizes(&**flash, &**disk, &superblock)?;
    let closed_at = superblock.closed_at.get();
    let is_same = closed_at != 0 && sample(&**disk)? == superblock.disk_sample.get();
    // Without dirty blocks there is nothing to lose.
    let has_no_dirty = superblock.mode != Mode::Back.number();
    let mut table = read_table(&**flash, &superblock, is_forced || has_no_dirty)?;
    let mut cache = Cache::assemble(Arc::clone(flash), Arc::clone(disk), &superblock, clock);
    let dirty_blocks = cache.take_over(&table, is_same, is_forced || has_no_dirty)?;
    let veil = cache.judge_veil(is_forced)?;
    let is_changed = closed_at != 0 && !is_same || veil.is_torn;
    if is_changed && dirty_blocks > 0 {
        if !is_forced {
            let (disk, flash) = (disk.name().to_owned(), flash.name().to_owned());
            return Err(CacheError::DiskChanged { disk, flash, dirty_blocks });
        }
        // Under the mark the disk has nothing.
        table.kept_of_changed = Some(veil.marked);
    }
    Ok((cache, table))
}

/// Number of dirty blocks of a cache that is not open.
pub(crate) fn dirty_on_flash(flash: &dyn WritableDevice, superblock: &Superblock) -> Result<u64, CacheError> {
    let table = read_table(flash, superblock, false)?;
    Ok(table.blocks.iter().flatten().filter(|entry| entry.state == DIRTY).count() as u64)
}

fn check_sizes(
    flash: &dyn WritableDevice,
    disk: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<(), CacheError> {
    let (flash_bytes, disk_bytes) = (superblock.flash_bytes.get(), superblock.disk_bytes.get());
    let size = |device: &dyn WritableDevice, expected| CacheError::Size {
        device: device.name().to_owned(),
        found: device.size_bytes(),
        expected,
    };
    if flash.size_bytes() < flash_bytes {
        return Err(size(flash, flash_bytes));
    }
    if disk.size_bytes() != disk_bytes {
        return Err(size(disk, disk_bytes));
    }
    Ok(())
}

fn damaged(flash: &dyn WritableDevice, offset: u64) -> CacheError {
    CacheError::Corrupt { flash: flash.name().to_owned(), what: "table of slots", offset }
}

/// Reads the table, and judges the last transaction. Forced, a damaged block counts as its other copy, or as empty.
fn read_table(
    flash: &dyn WritableDevice,
    superblock: &Superblock,
    is_forced: bool,
) -> Result<LoadedTable, CacheError> {
    let geometry = Geometry::of(superblock);
    let count = u32::try_from(geometry.table_blocks()).expect("fewer than slots");
    let mut pairs = Vec::new();
    for first in (0..count).step_by(PAGES_AT_ONCE as usize) {
        let end = count.min(first + PAGES_AT_ONCE);
        let [one, other] = [0, 1].map(|copy| read_copy(flash, superblock, first, end, copy));
        pairs.extend(one.into_iter().zip(other));
    }
    let last =
        pairs.iter().flat_map(|(a, b)| [transaction_of(a), transaction_of(b)]).flatten().max().unwrap_or(0);
    let is_lost = superblock.closed_at.get() == 0 && !is_complete(flash, &geometry, &pairs, last)?;
    let mut table = LoadedTable {
        blocks: Vec::with_capacity(pairs.len()),
        copies: Vec::with_capacity(pairs.len()),
        transaction: last,
        lost: Vec::new(),
        is_damaged: false,
        kept_of_changed: None,
    };
    for (index, (a, b)) in (0..count).zip(pairs) {
        let found = [a, b];
        match judge(&found, if is_lost { last } else { u64::MAX }) {
            Verdict::Counts(copy) => table.push(index, copy, &found, is_lost.then_some(last)),
            Verdict::Damaged(_) if !is_forced => return Err(damaged(flash, geometry.table_place(index, 0))),
            Verdict::Damaged(copy) => {
                table.is_damaged = true;
                table.push(index, copy, &found, is_lost.then_some(last));
            }
        }
    }
    Ok(table)
}

/// Judgement of two copies.
enum Verdict {
    /// This copy counts.
    Counts(u8),
    /// There is damage; this copy may be whole.
    Damaged(u8),
}

/// The copy that counts, if the transaction `lost` and later ones do not.
fn judge(found: &[FoundBlock; 2], lost: u64) -> Verdict {
    let whole = |copy: usize| match &found[copy] {
        FoundBlock::Whole(block) if block.transaction < lost => Some(block.transaction),
        _ => None,
    };
    let counts = match (whole(0), whole(1)) {
        (Some(a), Some(b)) => u8::from(b > a),
        (None, Some(_)) => 1,
        (_, None) => 0,
    };
    let best = whole(counts.into());
    // Each other copy is older, or of the lost transaction, or its head is that of an older copy, or of this one: the
    // remains of a lost transaction are written over with it.
    let is_explained = |copy: &FoundBlock| match copy {
        FoundBlock::Whole(_) => true,
        FoundBlock::Torn { transaction } => {
            *transaction >= lost || best.is_some_and(|best| *transaction <= best)
        }
        FoundBlock::Damaged => false,
    };
    if best.is_some() && found.iter().all(is_explained) {
        Verdict::Counts(counts)
    } else {
        Verdict::Damaged(counts)
    }
}

fn transaction_of(found: &FoundBlock) -> Option<u64> {
    match found {
        FoundBlock::Whole(block) => Some(block.transaction),
        FoundBlock::Torn { transaction } => Some(*transaction),
        FoundBlock::Damaged => None,
    }
}

/// Returns true if the last transaction is there as a whole, with its slots.
fn is_complete(
    flash: &dyn WritableDevice,
    geometry: &Geometry,
    pairs: &[(FoundBlock, FoundBlock)],
    last: u64,
) -> Result<bool, CacheError> {
    let mut count = 0;
    let mut parts = None;
    for (a, b) in pairs {
        let (new, old) = match (a, b) {
            (FoundBlock::Whole(a), b) if a.transaction == last => (a, b),
            (a, FoundBlock::Whole(b)) if b.transaction == last => (b, a),
            (FoundBlock::Torn { transaction }, _) | (_, FoundBlock::Torn { transaction })
                if *transaction == last =>
            {
                return Ok(false);
            }
            _ => continue,
        };
        count += 1;
        parts = Some(new.parts);
        let old = if let FoundBlock::Whole(old) = old { Some(old) } else { None };
        if !slots_are_right(flash, geometry, new, old)? {
            return Ok(false);
        }
    }
    Ok(parts.is_none_or(|parts| parts == count))
}

/// Returns true if the slots that a block of the table names anew have their contents.
fn slots_are_right(
    flash: &dyn WritableDevice,
    geometry: &Geometry,
    new: &TableBlock,
    old: Option<&TableBlock>,
) -> Result<bool, CacheError> {
    let mut contents = vec![0; usize::try_from(geometry.block_bytes).expect("1 MiB at most")];
    let first = new.index * u32::try_from(crate::format::ENTRIES).expect("small");
    for (number, entry) in (0..).zip(&new.entries) {
        let was_there = old.is_some_and(|old| old.entries[number as usize] == *entry);
        if entry.state != DIRTY || was_there || first + number >= geometry.slots() {
            continue;
        }
        flash.read_at(geometry.slot_place(first + number), &mut contents)?;
        if block_checksum(entry.block.get(), &contents) != entry.checksum.get() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads one copy of a part of the table. What the device cannot read is damaged.
fn read_copy(
    flash: &dyn WritableDevice,
    superblock: &Superblock,
    first: u32,
    end: u32,
    copy: u8,
) -> Vec<FoundBlock> {
    let place = Geometry::of(superblock).table_place(first, copy);
    let mut pages = vec![0; (end - first) as usize * PAGE_BYTES];
    if flash.read_at(place, &mut pages).is_err() {
        // Page by page: those that can't be read stay zeros.
        for (page, at) in pages.chunks_mut(PAGE_BYTES).zip((place..).step_by(PAGE_BYTES)) {
            if let Err(error) = flash.read_at(at, page) {
                tracing::warn!("{error}");
                page.fill(0);
            }
        }
    }
    let parse = |(page, index)| TableBlock::parse(page, &superblock.cache, index);
    pages.chunks(PAGE_BYTES).zip(first..end).map(parse).collect()
}

impl LoadedTable {
    fn push(&mut self, index: u32, copy: u8, found: &[FoundBlock; 2], lost: Option<u64>) {
        let entries = match &found[usize::from(copy)] {
            FoundBlock::Whole(block) => block.entries.clone(),
            FoundBlock::Torn { .. } | FoundBlock::Damaged => vec![Entry::EMPTY; crate::format::ENTRIES],
        };
        self.blocks.push(entries);
        self.copies.push(copy);
        let other = &found[usize::from(copy ^ 1)];
        // A torn copy may bear the head of the lost transaction, or of the one before.
        if lost.is_some() && !matches!(other, FoundBlock::Whole(block) if Some(block.transaction) != lost) {
            self.lost.push((index, copy ^ 1));
        }
    }
}

impl Cache {
    /// A cache in memory, empty.
    pub(crate) fn assemble(
        flash: Arc<dyn WritableDevice>,
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
            settings: Settings::default(),
            counters: CacheCounters::default(),
            latencies: Latencies::default(),
            read_streams: StreamDetector::default(),
            write_streams: StreamDetector::default(),
            wear: WearBudget::new(0, now),
            superblock: superblock.clone(),
            // A process before this one may have left writes that the host did not make durable yet.
            disk_unflushed: true,
            is_cleaning: false,
            is_telling: false,
            fallow_hand: (0, now),
            flash_failures: 0,
            stopped: None,
            guard: None,
        };
        Self {
            name: text(&superblock.name),
            flash,
            geometry,
            mode: Mode::from_number(superblock.mode).expect("checked when it was parsed"),
            size_bytes: disk.size_bytes(),
            disk,
            clock,
            state: Mutex::new(Rank::FlashCache, state),
            changed: Condvar::new(),
        }
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
                        return Err(damaged(&*self.flash, self.geometry.table_place(index, 0)));
                    }
                    differs = true;
                }
            }
            if differs || table.is_damaged {
                state.slots.note_difference(index);
            }
            first += u32::try_from(crate::format::ENTRIES).expect("small");
        }
        state.commits = Commits::new(table.transaction, table.copies.clone());
        Ok(state.slots.dirty())
    }

    /// Writes to the flash that the cache is in use, after the remains of a lost transaction are gone.
    fn begin_use(&mut self, table: &LoadedTable) -> Result<(), CacheError> {
        for (index, copy) in &table.lost {
            let mut page = vec![0; PAGE_BYTES];
            self.flash.read_at(self.geometry.table_place(*index, copy ^ 1), &mut page)?;
            self.flash.write_at(self.geometry.table_place(*index, *copy), &page)?;
        }
        if !table.lost.is_empty() {
            tracing::info!("{}: changes that were never acknowledged are left out", self.name);
            self.flash.flush()?;
        }
        let state = self.state.get_mut();
        state.superblock.closed_at = 0.into();
        state.superblock.disk_sample = 0.into();
        state.superblock.is_veiled = 0;
        state.superblock.sequence = (state.superblock.sequence.get() + 1).into();
        Ok(write_superblock(&*self.flash, &state.superblock)?)
    }
}
