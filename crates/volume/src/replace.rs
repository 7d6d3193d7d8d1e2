//! A device that takes the place of another, which may be missing: what it is to hold is copied while the pool is read and
//! written, and then it has the id, the UUID and the device extents of the other one, each at the same address.
//!
//! 1. [`Volume::begin_replacement`]: from here on it is known where the device is written, or should be if it is missing.
//!    What was written before is to be committed before the next step: the caller sees to it.
//! 2. The caller walks through the device extents, as a scrub does, and has each window [copied](Replacement::begin_copy):
//!    verified, from the device itself, from other copies, or rebuilt.
//! 3. [`Replacement::copy_written`]: places that were written since are copied as they are, as often as the caller likes.
//! 4. [`Replacement::settle`]: all writers of the volume are locked out, the last of these places are copied, the target is
//!    flushed, and from then on it is the device. The commit that follows writes its superblocks.
//!
//! Writers write to the old device alone, and don't wait for the target: a target that fails ends the replacement and
//! nothing else. A writer that has planned a write by the state of before a step plans it again (`replacements` in
//! [`Pool`](crate::pool::Pool)).
//!
//! A place counts as written once the write has ended, whether it has succeeded or not. So a copy that was read before
//! that is copied again. Of a device that is missing, what the others hold counts.
//!
//! Data that was written before step 1 and is in no commit of before step 2 would be missed: contents that are written by themselves, and
//! enter the trees later. So the place of each extent of data counts as written once more when the extent
//! [enters](Volume::has_entered) the trees.

use crate::chunk::Chunk;
use crate::layout::Way;
use crate::lost_writes::LostWrites;
use crate::pool::Pool;
use crate::{Attempt, Volume};
use brindle_device::{DeviceError, WritableDevice};
use brindle_ondisk::{DevId, Logical, to_usize};
use std::sync::Arc;
use thiserror::Error;

/// Error of replacing a device. The pool has lost nothing.
#[derive(Debug, Error)]
pub enum ReplaceError {
    /// The device that is to take the place failed.
    #[error("the target failed: {0}")]
    Target(#[from] DeviceError),
    /// A place that was just written can be read from nowhere.
    #[error("{attempt}; no copy of these {length} bytes can be read")]
    Lost {
        /// Attempt on the device itself.
        attempt: Box<Attempt>,
        /// Length in bytes.
        length: u64,
    },
    /// More places were written meanwhile than are kept account of.
    #[error("more places were written meanwhile than are kept account of: try again when less is written")]
    Overrun,
}

/// A replacement under way. Dropped before [`settle`](Self::settle), nothing has come of it.
#[derive(Debug)]
pub struct Replacement<'v> {
    pub(crate) volume: &'v Volume,
    /// Index of the device in the pool's table.
    pub(crate) index: usize,
    pub(crate) target: Arc<dyn WritableDevice>,
    devid: DevId,
    written: Arc<LostWrites>,
}

impl Volume {
    /// Begins to replace a device; `None` if there is none of this id. What is written from here on is kept account of.
    pub fn begin_replacement(
        &self,
        devid: DevId,
        target: &Arc<dyn WritableDevice>,
    ) -> Option<Replacement<'_>> {
        let written = Arc::<LostWrites>::default();
        let index = self.change(|pool| {
            let mut devices = pool.devices.iter();
            let index =
                devices.position(|device| device.devid == devid && !device.is_intruder && !device.is_seed)?;
            pool.devices[index].written_since = Some(Arc::clone(&written));
            pool.replacements += 1;
            Some(index)
        })?;
        Some(Replacement { volume: self, index, target: Arc::clone(target), devid, written })
    }

    /// A range of data that was written before is referred to from the running transaction on, in which this is to be called: a
    /// replacement that has begun since the range was written copies it.
    pub fn has_entered(&self, start: Logical, length: u64) {
        let pool = self.snapshot();
        if pool.devices.iter().all(|device| device.written_since.is_none()) {
            return;
        }
        let mut done = 0;
        while done < length {
            let Some(at) = start.checked_add(done) else { return };
            let Some((chunk, offset)) = pool.chunks.find(at).and_then(|it| Some((it, it.offset_of(at)?)))
            else {
                return;
            };
            done += pool.run_has_changed(chunk, offset, length - done);
        }
    }
}

impl Pool {
    /// The contents of a run, and the parity that goes with it, are other ones now; returns the length of the run, at most
    /// `most`.
    fn run_has_changed(&self, chunk: &Chunk, offset: u64, most: u64) -> u64 {
        let layout = &chunk.layout;
        let run = layout.run_at(offset);
        let length = run.length.min(chunk.length - offset).min(most);
        let copies = (0..layout.ways()).filter_map(|way| match layout.way(&run, way) {
            Way::Direct(stripe) => Some(stripe),
            Way::Rebuild(_) => None,
        });
        let all = layout.columns()..layout.columns() + layout.parities();
        let parity = all.map(|column| layout.stripe_in_row(run.row, column));
        for stripe in copies.chain(parity) {
            let place = &chunk.stripes[stripe];
            self.devices[place.device].has_changed(place.physical.get() + run.stripe_offset, length);
        }
        length
    }
}

impl Replacement<'_> {
    /// The device that is to be replaced.
    pub fn devid(&self) -> DevId {
        self.devid
    }

    /// Copies the places that were written since they were copied last; returns their bytes.
    pub fn copy_written(&self) -> Result<u64, ReplaceError> {
        let places = self.written.take();
        let ranges = places.ranges().ok_or(ReplaceError::Overrun)?;
        let mut bytes = 0;
        for range in ranges {
            self.copy_range(range.start, range.end)?;
            bytes += range.end - range.start;
        }
        Ok(bytes)
    }

    /// Copies a range of the device as it is, as far as it belongs to chunks.
    fn copy_range(&self, start: u64, end: u64) -> Result<(), ReplaceError> {
        let pool = self.volume.snapshot();
        for piece in pool.pieces_on(self.index, start, end) {
            let physical = piece.physical();
            let mut bytes = vec![0; to_usize(piece.length)];
            let read = pool.read_stripe(piece.chunk, piece.stripe, piece.stripe_offset, &mut bytes);
            if let Err(attempt) = read {
                let length = piece.length;
                bytes = pool.rebuilt(&piece).ok_or(ReplaceError::Lost { attempt, length })?;
            }
            self.target.write_at(physical, &bytes)?;
        }
        Ok(())
    }

    /// Ends it: the target is the device from now on, and the other one is not used any more. The next commit must be one of
    /// all devices. After an error nothing has changed.
    pub fn settle(&self) -> Result<(), ReplaceError> {
        let _no_writers = self.volume.locks.repair();
        while self.copy_written()? > 0 {}
        self.target.flush()?;
        self.volume.change(|pool| pool.take_over(self.index, &self.target));
        Ok(())
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        self.volume.change(|pool| pool.devices[self.index].written_since = None);
    }
}
