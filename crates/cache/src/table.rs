//! The table of a cache on flash: its blocks are read, and the last transaction is judged.
//!
//! Of each block of the table the copy with the later transaction counts. All transactions but the last were flushed before the
//! next one began. The last one counts if all its blocks are there, and all slots that it names anew have the contents
//! that it tells; else it was never acknowledged, and of its blocks the older copies count. These are written over the
//! others before anything else is, so that a part of a lost transaction is never taken for one that happened.
//!
//! A copy that is not whole and belongs to no lost transaction was damaged later: the cache is refused, unless forced.

use crate::CacheError;
use crate::format::{
    DIRTY, ENTRIES, Entry, FoundBlock, Geometry, PAGE_BYTES, Superblock, TableBlock, block_checksum,
};
use brindle_device::WritableDevice;

/// Pages of the table that are read at once.
const PAGES_AT_ONCE: u32 = 256;

/// The table, as it counts.
pub(crate) struct LoadedTable {
    /// Entries of each block.
    pub(crate) blocks: Vec<Vec<Entry>>,
    pub(crate) copies: Vec<u8>,
    pub(crate) transaction: u64,
    /// Number of the last transaction that counts.
    pub(crate) committed: u64,
    /// Copies of a lost transaction, by the number of their block.
    pub(crate) lost: Vec<(u32, u8)>,
    pub(crate) is_damaged: bool,
    /// Of a disk that was changed, the blocks that are kept all the same.
    pub(crate) kept_of_changed: Option<Vec<u64>>,
}

/// Number of dirty blocks of a cache that is not open.
pub(crate) fn dirty_on_flash(flash: &dyn WritableDevice, superblock: &Superblock) -> Result<u64, CacheError> {
    let table = read_table(flash, superblock, false)?;
    Ok(table.blocks.iter().flatten().filter(|entry| entry.state == DIRTY).count() as u64)
}

pub(crate) fn damaged(flash: &str, offset: u64) -> CacheError {
    CacheError::Corrupt { flash: flash.to_owned(), what: "table of slots", offset }
}

/// Reads the table, and judges the last transaction. Forced, a damaged block counts as its other copy, or as empty.
pub(crate) fn read_table(
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
        committed: 0,
        lost: Vec::new(),
        is_damaged: false,
        kept_of_changed: None,
    };
    for (index, (a, b)) in (0..count).zip(pairs) {
        let found = [a, b];
        match judge(&found, if is_lost { last } else { u64::MAX }) {
            Verdict::Counts(copy) => table.push(index, copy, &found, is_lost.then_some(last)),
            Verdict::Damaged(_) if !is_forced => {
                return Err(damaged(flash.name(), geometry.table_place(index, 0)));
            }
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
    let first = new.index * u32::try_from(ENTRIES).expect("small");
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
            FoundBlock::Torn { .. } | FoundBlock::Damaged => vec![Entry::EMPTY; ENTRIES],
        };
        self.committed = self.committed.max(transaction_of(&found[usize::from(copy)]).unwrap_or(0));
        self.blocks.push(entries);
        self.copies.push(copy);
        let other = &found[usize::from(copy ^ 1)];
        // A torn copy may bear the head of the lost transaction, or of the one before.
        if lost.is_some() && !matches!(other, FoundBlock::Whole(block) if Some(block.transaction) != lost) {
            self.lost.push((index, copy ^ 1));
        }
    }
}
