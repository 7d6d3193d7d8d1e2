//! Plan of a write: its parts by device, and the judgement of its failures.

use crate::chunk::Chunk;
use crate::device::{PoolDevice, WriteUnderWay, count};
use crate::layout::{Run, Way};
use crate::pool::Pool;
use crate::{Attempt, AttemptFailure, WriteError};
use brindle_device::{Batch, DeviceError, WritableDevice, WriteRequest};
use brindle_ondisk::{BlockGroupType, DevId, Logical, Physical, to_u64};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

/// Writes to be made, by device.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    units: Vec<Unit>,
    devices: BTreeMap<usize, Vec<Piece<'a>>>,
    /// Places that another device is to get, besides those that are written: index of the device, address on it, length.
    touched: Vec<(usize, u64, u64)>,
}

/// Bytes that are lost together, when more than `spare` stripes fail: the copies of a run, or a row.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) logical: Logical,
    pub(super) length: u64,
    /// Number of stripes that may still fail.
    pub(super) spare: usize,
    /// True if something that was lost before is written with it.
    pub(super) is_mending: bool,
}

/// Bytes for one place.
#[derive(Debug)]
struct Piece<'a> {
    physical: u64,
    bytes: Cow<'a, [u8]>,
    unit: usize,
    stripe: usize,
    is_parity: bool,
}

impl Piece<'_> {
    /// The device has failed to take it.
    fn failure(&self, device: usize, error: DeviceError) -> Failure {
        let (unit, stripe, is_parity) = (self.unit, self.stripe, self.is_parity);
        let (physical, length) = (self.physical, to_u64(self.bytes.len()));
        Failure { device, physical, length, is_parity, unit, stripe, error }
    }
}

/// A write that failed.
struct Failure {
    device: usize,
    physical: u64,
    length: u64,
    is_parity: bool,
    unit: usize,
    stripe: usize,
    error: DeviceError,
}

impl<'a> Plan<'a> {
    /// Adds the copies of a run: those on some devices alone, of which none may fail, if each of these devices has one; or
    /// else all.
    pub(super) fn add_copies(
        &mut self,
        pool: &Pool,
        chunk: &Chunk,
        offset: u64,
        run: &Run,
        bytes: &'a [u8],
        only: &[DevId],
    ) -> Result<(), WriteError> {
        let stripes = (0..chunk.layout.ways()).filter_map(|way| match chunk.layout.way(run, way) {
            Way::Direct(stripe) => Some(stripe),
            Way::Rebuild(_) => None,
        });
        let (there, missing): (Vec<_>, Vec<_>) = stripes.partition(|stripe| is_there(pool, chunk, *stripe));
        let (logical, length) = (chunk.start + offset, run.length);
        let is_on = |devid: &DevId| there.iter().any(|stripe| chunk.stripes[*stripe].devid == *devid);
        if !only.is_empty() && only.iter().all(is_on) {
            let unit = self.add_unit(Unit { logical, length, spare: 0, is_mending: false });
            for stripe in there.into_iter().filter(|stripe| only.contains(&chunk.stripes[*stripe].devid)) {
                self.add_piece(chunk, stripe, run.stripe_offset, Cow::Borrowed(bytes), unit);
            }
            return Ok(());
        }
        let Some(spare) = spare_copies(pool, chunk, &there) else {
            let attempts =
                missing.iter().map(|stripe| missing_attempt(pool, chunk, *stripe, run.stripe_offset));
            return Err(WriteError::Failed { logical, length, attempts: attempts.collect() });
        };
        let unit = self.add_unit(Unit { logical, length, spare, is_mending: false });
        missing.into_iter().for_each(|stripe| self.touch(pool, chunk, stripe, run.stripe_offset, length));
        for stripe in there {
            self.add_piece(chunk, stripe, run.stripe_offset, Cow::Borrowed(bytes), unit);
        }
        Ok(())
    }

    /// A part of a stripe counts as changed, if another device is to take the place of its device.
    pub(super) fn touch(
        &mut self,
        pool: &Pool,
        chunk: &Chunk,
        stripe: usize,
        stripe_offset: u64,
        length: u64,
    ) {
        let place = &chunk.stripes[stripe];
        if pool.devices[place.device].written_since.is_some() {
            self.touched.push((place.device, place.physical.get().saturating_add(stripe_offset), length));
        }
    }

    /// Something that was lost before is written with a unit.
    pub(super) fn is_mending(&mut self, unit: usize) {
        self.units[unit].is_mending = true;
    }

    pub(super) fn add_unit(&mut self, unit: Unit) -> usize {
        self.units.push(unit);
        self.units.len() - 1
    }

    /// Adds bytes for one stripe, whose device is there.
    pub(super) fn add_piece(
        &mut self,
        chunk: &Chunk,
        stripe: usize,
        stripe_offset: u64,
        bytes: Cow<'a, [u8]>,
        unit: usize,
    ) {
        let place = &chunk.stripes[stripe];
        let physical = place.physical.get() + stripe_offset;
        let run = chunk.layout.run_on(stripe, stripe_offset, to_u64(bytes.len()));
        let is_parity = run.column >= chunk.layout.columns();
        self.devices.entry(place.device).or_default().push(Piece {
            physical,
            bytes,
            unit,
            stripe,
            is_parity,
        });
    }

    /// Writes everything in one batch: pieces that lie one behind the other at once, devices at the same time. Everything
    /// is tried, whatever fails.
    pub(super) fn run(mut self, pool: &Pool) -> Result<(), WriteError> {
        for pieces in self.devices.values_mut() {
            pieces.sort_by_key(|piece| piece.physical);
        }
        let follows = |a: &Piece<'_>, b: &Piece<'_>| a.physical + to_u64(a.bytes.len()) == b.physical;
        let by_device = self.devices.iter();
        let runs: Vec<(usize, &[Piece<'_>])> = by_device
            .flat_map(|(index, pieces)| pieces.chunk_by(follows).map(|together| (*index, together)))
            .collect();
        let mut batch = Batch::default();
        let mut begun = Vec::with_capacity(runs.len());
        for (index, together) in &runs {
            begun.push(pool.devices[*index].begin_write());
            let pieces = together.iter().map(|piece| piece.bytes.as_ref()).collect();
            let request = WriteRequest { offset: together[0].physical, pieces, is_durable: false };
            writable(pool, *index).submit_write(request, &mut batch);
        }
        let answers = runs.iter().zip(begun).zip(batch.run());
        let failures = answers
            .flat_map(|(((index, together), begun), answer)| settle(pool, *index, together, begun, answer));
        let failures = failures.collect();
        // Not before: what is copied to a device that takes the place of a missing one is read from the others.
        self.touched.iter().for_each(|(index, at, length)| pool.devices[*index].has_changed(*at, *length));
        self.judge(pool, failures)
    }

    /// Returns an error if the failures can't be tolerated.
    fn judge(&self, pool: &Pool, failures: Vec<Failure>) -> Result<(), WriteError> {
        let mut lost: BTreeMap<usize, Vec<Failure>> = BTreeMap::new();
        for failure in failures {
            match lost.entry(failure.unit) {
                Entry::Occupied(entry) => entry.into_mut().push(failure),
                Entry::Vacant(entry) => drop(entry.insert(vec![failure])),
            }
        }
        let mut verdict = Ok(());
        for (unit, failures) in lost {
            let unit = &self.units[unit];
            let mut stripes: Vec<usize> = failures.iter().map(|failure| failure.stripe).collect();
            stripes.sort_unstable();
            stripes.dedup();
            if stripes.len() > unit.spare {
                forget(pool, unit, &failures);
                let attempts = failures.into_iter().map(|failure| Attempt {
                    device: pool.devices[failure.device].name(),
                    devid: pool.devices[failure.device].devid,
                    offset: Physical::new(failure.physical),
                    rebuilt_without: Vec::new(),
                    failure: AttemptFailure::Io(failure.error),
                });
                let attempts = attempts.collect();
                let failed = WriteError::Failed { logical: unit.logical, length: unit.length, attempts };
                verdict = verdict.and(Err(failed));
            }
        }
        verdict
    }
}

/// Number of copies that may fail of those that are there; `None` if there are none. An old copy of a block shows
/// that it is old, and its device may be used on. Data do not, so that their device is left out with everything it
/// holds: several copies of data on it count as one.
fn spare_copies(pool: &Pool, chunk: &Chunk, there: &[usize]) -> Option<usize> {
    let mut devices: Vec<usize> = there.iter().map(|stripe| chunk.stripes[*stripe].device).collect();
    if chunk.kind.contains(BlockGroupType::DATA) {
        devices.sort_unstable();
        devices.dedup();
    }
    debug_assert!(devices.iter().all(|device| pool.devices[*device].writable.is_some()));
    devices.len().checked_sub(1)
}

/// Forgets losses of a write that has failed as a whole, with an error: no contents are promised there, and the
/// present ones are as good as any. Parity that does not fit them is not, and neither are earlier losses.
fn forget(pool: &Pool, unit: &Unit, failures: &[Failure]) {
    if unit.is_mending {
        return;
    }
    for failure in failures.iter().filter(|failure| !failure.is_parity) {
        pool.devices[failure.device].lost_writes.forget(failure.physical, failure.length);
    }
}

/// Returns true if a stripe can be written.
pub(super) fn is_there(pool: &Pool, chunk: &Chunk, stripe: usize) -> bool {
    pool.devices[chunk.stripes[stripe].device].writable.is_some()
}

/// Attempt on a stripe whose device is not there.
pub(super) fn missing_attempt(pool: &Pool, chunk: &Chunk, stripe: usize, stripe_offset: u64) -> Attempt {
    let place = &chunk.stripes[stripe];
    Attempt {
        device: pool.devices[place.device].name(),
        devid: place.devid,
        offset: Physical::new(place.physical.get().saturating_add(stripe_offset)),
        rebuilt_without: Vec::new(),
        failure: AttemptFailure::Missing,
    }
}

/// A device that is planned for.
fn writable(pool: &Pool, index: usize) -> &dyn WritableDevice {
    pool.devices[index].writable.as_deref().expect("only devices that are there are planned for")
}

/// Takes note of the answer to a write of pieces that lie one behind the other.
fn settle(
    pool: &Pool,
    index: usize,
    together: &[Piece<'_>],
    begun: WriteUnderWay,
    answer: Result<(), DeviceError>,
) -> Vec<Failure> {
    let member = &pool.devices[index];
    let length = together.iter().map(|piece| to_u64(piece.bytes.len())).sum();
    match answer {
        Ok(()) if member.has_taken(begun, together[0].physical, length) => Vec::new(),
        Ok(()) => together.iter().map(|piece| piece.failure(index, lost_by_a_flush(member))).collect(),
        Err(error) => {
            tracing::warn!("{error}");
            count(&member.counters.write_errors);
            write_apart(member, writable(pool, index), index, together, error)
        }
    }
}

/// Of pieces whose write has failed, writes each by itself: what is bad is seldom all of it.
fn write_apart(
    member: &PoolDevice,
    device: &dyn WritableDevice,
    index: usize,
    pieces: &[Piece<'_>],
    error: DeviceError,
) -> Vec<Failure> {
    let failed = |piece: &Piece<'_>, error| {
        member.has_lost(piece.physical, to_u64(piece.bytes.len()));
        piece.failure(index, error)
    };
    if let [only] = pieces {
        return vec![failed(only, error)];
    }
    let apart = pieces.iter().filter_map(|piece| {
        let begun = member.begin_write();
        match device.write_at(piece.physical, &piece.bytes) {
            Ok(()) if member.has_taken(begun, piece.physical, to_u64(piece.bytes.len())) => None,
            Ok(()) => Some(piece.failure(index, lost_by_a_flush(member))),
            Err(error) => Some(failed(piece, error)),
        }
    });
    apart.collect()
}

/// Error of a write that the device has taken, and may have lost again.
fn lost_by_a_flush(member: &PoolDevice) -> DeviceError {
    let source = io::Error::other("a flush has failed since it was asked for this write");
    DeviceError::Flush { device: member.name(), source }
}
