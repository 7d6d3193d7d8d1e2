//! Writing: a logical range becomes pieces on devices, pieces that lie one behind the other become one write,
//! and devices work at the same time.
//!
//! With parity, a row that is written as a whole needs nothing read. Of a row written in part the rest is
//! read, and parity made anew from all of it, rather than from the old parity and the difference: parity of a
//! row that was never written, or was being written in a crash, means nothing, and would never come right.
//! What is read for it is held against its checksums, and taken from the parity if that is right instead.
//! Only the data of a device that is not there has to be taken from the old parity. Two writers of one row
//! take turns ([`Locks::row`](crate::locks::Locks::row)); writers of whole rows are alone in them.
//!
//! A write that fails is tolerated as long as the profile tolerates the loss of all that failed and all that
//! is missing. The device is tried again the next time; what becomes of what it lacks says the module `mend`.

mod discard;
mod durable;
mod guard;
mod known;
mod mend;
mod plan;
mod retire;
mod row;

pub use durable::SuperblockCopies;
pub use known::Witness;
pub use retire::wipe_superblocks;

use crate::chunk::Chunk;
use crate::layout::Way;
use crate::locks::RowKey;
use crate::pool::Pool;
use crate::{DeviceSet, Volume, WriteError};
use brindle_ondisk::{DevId, Logical, to_u64, to_usize};
use brindle_sync::parallel;
use plan::Plan;
use row::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Parity is computed and held for this many bytes of data at once.
const PARITY_BATCH_BYTES: u64 = 16 << 20;
/// No more rows than these wait for the rest of them to be read at one time.
const ROW_THREADS: usize = 8;

impl Volume {
    /// Writes one tree block to all its copies.
    pub fn write_block(&self, logical: Logical, bytes: &[u8]) -> Result<(), WriteError> {
        self.write_blocks(&[(logical, bytes)])
    }

    /// Writes many tree blocks to all their copies: those that follow each other as one piece, devices at the
    /// same time. In any order; nothing is durable before [`Volume::flush`].
    pub fn write_blocks(&self, blocks: &[(Logical, &[u8])]) -> Result<(), WriteError> {
        self.write(blocks, None, &[])
    }

    /// Writes tree blocks to the copies on some devices alone, as far as each of these has one, and all of these copies must
    /// be taken; blocks that are not on each of them to all copies. The other copies stay as they are: the caller
    /// answers for it that no reader takes them for good.
    pub fn write_blocks_on(&self, blocks: &[(Logical, &[u8])], devices: &[DevId]) -> Result<(), WriteError> {
        self.write(blocks, None, devices)
    }

    /// Writes ranges of data as [`Volume::write_blocks`] does. Where parity is made of what lies beside them, the
    /// witness is asked what that should be.
    pub fn write_data_pieces(
        &self,
        pieces: &[(Logical, &[u8])],
        witness: &dyn Witness,
    ) -> Result<(), WriteError> {
        self.write(pieces, Some(witness), &[])
    }

    fn write(
        &self,
        blocks: &[(Logical, &[u8])],
        witness: Option<&dyn Witness>,
        only: &[DevId],
    ) -> Result<(), WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        if let Some(lease) = self.lease() {
            lease.check()?;
        }
        loop {
            let pool = self.snapshot();
            if let Some(written) = self.write_to(&pool, blocks, witness, only) {
                return written;
            }
        }
    }

    /// The same, by this snapshot; `None`, and nothing is written, if a device has taken the place of another since.
    fn write_to(
        &self,
        pool: &Pool,
        blocks: &[(Logical, &[u8])],
        witness: Option<&dyn Witness>,
        only: &[DevId],
    ) -> Option<Result<(), WriteError>> {
        let planned = self.plan_write(pool, blocks, witness, only);
        let (plan, rows) = match planned {
            Ok(planned) => planned,
            Err(error) => return Some(Err(error)),
        };
        let _no_repairs = self.locks.writer();
        if self.snapshot().replacements != pool.replacements {
            return None;
        }
        // Twice: what was fetched before, and what was fetched while it was written.
        forget_prefetched(pool, blocks);
        let written = plan.run(pool).and_then(|()| self.write_rows(pool, rows));
        forget_prefetched(pool, blocks);
        Some(written)
    }

    /// Plan of a write, and the rows of chunks with parity that it belongs to. What these should hold now is learnt before
    /// any lock: the witness reads, and what is read may be repaired. Checksums that are outdated by the time they are used
    /// fit nothing, and then the row is taken as it is.
    fn plan_write<'b>(
        &self,
        pool: &Pool,
        blocks: &[(Logical, &'b [u8])],
        witness: Option<&dyn Witness>,
        only: &[DevId],
    ) -> Result<(Plan<'b>, BTreeMap<RowKey, Row<'b>>), WriteError> {
        let mut parts = Parts { only, plan: Plan::default(), rows: BTreeMap::new() };
        for (logical, bytes) in blocks {
            let (chunk, offset) = self.locate(pool, *logical, to_u64(bytes.len()))?;
            parts.split(pool, chunk, offset, bytes)?;
        }
        let Parts { plan, mut rows, .. } = parts;
        rows.values_mut().for_each(|row| row.learn(self.tree_context(), witness));
        Ok((plan, rows))
    }

    /// Writes data to all its copies: whole sectors, within one chunk.
    pub fn write_data(&self, logical: Logical, bytes: &[u8]) -> Result<(), WriteError> {
        self.write_blocks(&[(logical, bytes)])
    }

    /// A range of data that was written, of which a part failed, is given up: nothing refers to it, and its next flush makes nothing durable.
    pub fn has_given_up(&self, logical: Logical, length: u64) {
        let pool = self.snapshot();
        let Ok((chunk, mut at)) = self.locate(&pool, logical, length) else { return };
        if chunk.layout.has_parity() {
            return;
        }
        let end = at + length;
        while at < end {
            let run = chunk.layout.run_at(at);
            let part = run.length.min(end - at);
            for way in 0..chunk.layout.ways() {
                let Way::Direct(stripe) = chunk.layout.way(&run, way) else { continue };
                let place = &chunk.stripes[stripe];
                let physical = place.physical.get() + run.stripe_offset;
                pool.devices[place.device].unflushed.forget(physical, part);
            }
            at += part;
        }
    }

    /// The devices that writes of these ranges would touch: the present ones that hold a copy of them, or a part of their
    /// rows where there is parity. Refuses the ranges that a write refuses.
    pub fn devices_of(
        &self,
        ranges: impl IntoIterator<Item = (Logical, u64)>,
    ) -> Result<DeviceSet, WriteError> {
        let pool = self.snapshot();
        let mut devices = BTreeSet::new();
        for (logical, length) in ranges {
            let (chunk, offset) = self.locate(&pool, logical, length)?;
            let stripes = touched_stripes(chunk, offset, length);
            let there = stripes.into_iter().filter(|stripe| plan::is_there(&pool, chunk, *stripe));
            devices.extend(there.map(|stripe| chunk.stripes[stripe].devid));
        }
        Ok(devices.into_iter().collect())
    }

    /// The chunk that holds all of a range, and where in it the range begins.
    fn locate<'p>(
        &self,
        pool: &'p Pool,
        logical: Logical,
        length: u64,
    ) -> Result<(&'p Arc<Chunk>, u64), WriteError> {
        let refuse = |why| Err(WriteError::Request { logical, length, why });
        let sector_bytes = u64::from(self.tree_context().sectorsize);
        if !logical.is_aligned(sector_bytes) || length % sector_bytes != 0 {
            return refuse("not of whole sectors");
        }
        let chunk = pool.chunks.find(logical).ok_or(WriteError::Unmapped { logical })?;
        let offset = chunk.offset_of(logical).unwrap_or(0);
        if chunk.length - offset < length {
            return refuse("passes the end of its chunk");
        }
        if chunk.stripes.iter().any(|stripe| pool.devices[stripe.device].is_seed) {
            return refuse("its chunk belongs to a seed");
        }
        Ok((chunk, offset))
    }

    /// Writes what belongs to chunks with parity.
    fn write_rows(&self, pool: &Pool, rows: BTreeMap<RowKey, Row<'_>>) -> Result<(), WriteError> {
        let (whole, partial): (Vec<_>, Vec<_>) = rows.into_values().partition(Row::is_whole);
        let mut plan = Plan::default();
        let mut planned = 0;
        for row in &whole {
            row.plan(pool, &mut plan)?;
            planned += row.data_bytes();
            if planned >= PARITY_BATCH_BYTES {
                std::mem::take(&mut plan).run(pool)?;
                planned = 0;
            }
        }
        plan.run(pool)?;
        let write_one = |row: &Row<'_>| {
            let _only_one = self.locks.row(row.key());
            let mut plan = Plan::default();
            row.plan(pool, &mut plan)?;
            plan.run(pool)
        };
        let share = partial.len().div_ceil(ROW_THREADS).max(1);
        if partial.len() < 2 {
            return partial.iter().try_for_each(write_one);
        }
        let write_share = |rows: &[Row<'_>]| rows.iter().try_for_each(write_one);
        // All of them are waited for, whatever the first says.
        parallel::map_shares(&partial, share, write_share).into_iter().collect()
    }
}

/// The stripes of a chunk that a write of a range of it touches.
fn touched_stripes(chunk: &Chunk, offset: u64, length: u64) -> BTreeSet<usize> {
    let all = chunk.stripes.len();
    // New parity is written with any part of a row, and what was lost of its other columns.
    if chunk.layout.has_parity() && length > 0 {
        return (0..all).collect();
    }
    let mut stripes = BTreeSet::new();
    let mut at = offset;
    while at < offset + length && stripes.len() < all {
        let run = chunk.layout.run_at(at);
        let ways = (0..chunk.layout.ways()).map(|way| chunk.layout.way(&run, way));
        stripes.extend(ways.filter_map(|way| match way {
            Way::Direct(stripe) => Some(stripe),
            Way::Rebuild(_) => None,
        }));
        at = at.saturating_add(run.length);
    }
    stripes
}

/// Parts of a write.
struct Parts<'a, 'o> {
    /// Devices that are enough; all if there are none.
    only: &'o [DevId],
    plan: Plan<'a>,
    /// Parts with parity, by row.
    rows: BTreeMap<RowKey, Row<'a>>,
}

impl<'a> Parts<'a, '_> {
    /// Splits a range into pieces: those with parity are gathered by row, the others planned.
    fn split(
        &mut self,
        pool: &Pool,
        chunk: &Arc<Chunk>,
        offset: u64,
        bytes: &'a [u8],
    ) -> Result<(), WriteError> {
        let (mut offset, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let mut run = chunk.layout.run_at(offset);
            run.length = run.length.min(to_u64(rest.len()));
            let (now, later) = rest.split_at(to_usize(run.length));
            if chunk.layout.has_parity() {
                let key = RowKey { chunk: chunk.start, row: run.row };
                self.rows.entry(key).or_insert_with(|| Row::new(chunk, run.row)).push(&run, now);
            } else {
                self.plan.add_copies(pool, chunk, offset, &run, now, self.only)?;
            }
            offset += run.length;
            rest = later;
        }
        Ok(())
    }
}

/// Forgets bytes fetched in advance that are overwritten.
fn forget_prefetched(pool: &Pool, blocks: &[(Logical, &[u8])]) {
    let mut prefetched = pool.choosing.prefetched();
    blocks.iter().for_each(|(logical, bytes)| prefetched.forget(logical.get(), to_u64(bytes.len())));
}
