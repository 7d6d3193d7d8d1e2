//! Ways to obtain a run: going one of them.

use super::announced::Found;
use super::load::Answered;
use crate::chunk::Chunk;
use crate::device::{PoolDevice, count};
use crate::layout::{Run, Way};
use crate::parity::{Recovery, add_multiple};
use crate::pool::Pool;
use crate::{Attempt, AttemptFailure};
use brindle_device::{Device, DeviceError};
use brindle_ondisk::{Physical, to_u64, to_usize};

/// Part of a chunk that is read at once, in one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) run: Run,
    pub(super) way: usize,
    /// It was announced, and that is why it is read this way.
    pub(super) announced: Option<Found>,
}

impl Pool {
    /// Reads a range of a chunk, which may be several runs, in one way.
    pub(super) fn read_range(
        &self,
        chunk: &Chunk,
        offset: u64,
        way: usize,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        let (mut offset, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let mut run = chunk.layout.run_at(offset);
            run.length = run.length.min(to_u64(rest.len()));
            let (now, later) = rest.split_at_mut(to_usize(run.length));
            self.read_run(chunk, &run, way, now)?;
            offset += run.length;
            rest = later;
        }
        Ok(())
    }

    /// Reads a run, or part of it, in one way.
    pub(crate) fn read_run(
        &self,
        chunk: &Chunk,
        run: &Run,
        way: usize,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        self.read_run_as(chunk, run, way, buffer, false)
    }

    /// Reads a piece; what was announced is waited for no more.
    pub(super) fn read_piece(
        &self,
        chunk: &Chunk,
        offset: u64,
        piece: &Piece,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        if piece.announced.is_none() {
            return self.read_run(chunk, &piece.run, piece.way, buffer);
        }
        let read = self.read_run_as(chunk, &piece.run, piece.way, buffer, true);
        self.choosing.announced().take(chunk.start.get() + offset, to_u64(buffer.len()));
        read
    }

    fn read_run_as(
        &self,
        chunk: &Chunk,
        run: &Run,
        way: usize,
        buffer: &mut [u8],
        is_announced: bool,
    ) -> Result<(), Box<Attempt>> {
        match chunk.layout.way(run, way) {
            Way::Direct(stripe) => self.read_stripe(chunk, stripe, run.stripe_offset, buffer, is_announced),
            Way::Rebuild(recovery) => self.rebuild(chunk, run, recovery, buffer).map_err(|mut attempt| {
                let lost = chunk.layout.lost_stripes(run, recovery);
                attempt.rebuilt_without = lost.map(|stripe| chunk.stripes[stripe].devid).collect();
                attempt
            }),
        }
    }

    fn read_stripe(
        &self,
        chunk: &Chunk,
        stripe: usize,
        stripe_offset: u64,
        buffer: &mut [u8],
        is_announced: bool,
    ) -> Result<(), Box<Attempt>> {
        let place = &chunk.stripes[stripe];
        let pool_device = &self.devices[place.device];
        let physical = place.physical.get().saturating_add(stripe_offset);
        let result = match &pool_device.device {
            None => Err(AttemptFailure::Missing),
            Some(_) if pool_device.lost_writes.affect(physical, to_u64(buffer.len())) => {
                Err(AttemptFailure::LostWrite)
            }
            Some(device) => {
                let read = self.read_device(pool_device, &**device, physical, buffer, is_announced);
                read.map_err(|error| {
                    count(&pool_device.counters.read_errors);
                    AttemptFailure::Io(error)
                })
            }
        };
        result.map_err(|failure| Box::new(self.attempt_at(chunk, stripe, stripe_offset, failure)))
    }

    /// Reads, and keeps count of it where somebody looks at that.
    fn read_device(
        &self,
        pool_device: &PoolDevice,
        device: &dyn Device,
        physical: u64,
        buffer: &mut [u8],
        is_announced: bool,
    ) -> Result<(), DeviceError> {
        if !self.keeps_count() {
            return device.read_at(physical, buffer);
        }
        let (load, bytes) = (&pool_device.load, to_u64(buffer.len()));
        let has_moved = !is_announced && !load.request(physical, bytes);
        let (start_ns, among) = (self.choosing.clock.now(), load.begin());
        let read = device.read_at(physical, buffer);
        let end_ns = self.choosing.clock.now();
        let is_rotating = pool_device.is_rotating();
        load.end(&Answered { start_ns, end_ns, bytes, among, is_rotating, has_moved });
        read
    }

    /// Adds up the other stripes of the row. A run with parity is no longer than a strip.
    fn rebuild(
        &self,
        chunk: &Chunk,
        run: &Run,
        recovery: Recovery,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        let length = to_u64(buffer.len());
        for (stripe, _) in chunk.layout.sources(run, recovery) {
            self.hint_stripe(chunk, stripe, run.stripe_offset, length);
        }
        let mut source = vec![0; buffer.len()];
        buffer.fill(0);
        for (stripe, factor) in chunk.layout.sources(run, recovery) {
            self.read_stripe(chunk, stripe, run.stripe_offset, &mut source, false)?;
            add_multiple(buffer, &source, factor);
        }
        Ok(())
    }

    /// Tells the devices what a range will need of them.
    pub(super) fn hint_piece(&self, chunk: &Chunk, run: &Run, way: usize) {
        match chunk.layout.way(run, way) {
            Way::Direct(stripe) => self.hint_stripe(chunk, stripe, run.stripe_offset, run.length),
            Way::Rebuild(recovery) => {
                for (stripe, _) in chunk.layout.sources(run, recovery) {
                    self.hint_stripe(chunk, stripe, run.stripe_offset, run.length);
                }
            }
        }
    }

    fn hint_stripe(&self, chunk: &Chunk, stripe: usize, stripe_offset: u64, length: u64) {
        let place = &chunk.stripes[stripe];
        if let Some(device) = &self.devices[place.device].device {
            device.prefetch(place.physical.get().saturating_add(stripe_offset), length);
        }
    }

    /// The stripe that holds, or should hold, what a way obtains.
    pub(super) fn home(&self, chunk: &Chunk, offset: u64, way: usize) -> usize {
        let run = chunk.layout.run_at(offset);
        let own = |way| match chunk.layout.way(&run, way) {
            Way::Direct(stripe) => Some(stripe),
            Way::Rebuild(_) => None,
        };
        own(way).or_else(|| own(0)).unwrap_or(0)
    }

    /// The device of that stripe, and the byte on it.
    pub(super) fn place(&self, chunk: &Chunk, offset: u64, way: usize) -> (String, Physical) {
        let stripe = &chunk.stripes[self.home(chunk, offset, way)];
        let stripe_offset = chunk.layout.run_at(offset).stripe_offset;
        let physical = Physical::new(stripe.physical.get().saturating_add(stripe_offset));
        (self.devices[stripe.device].name(), physical)
    }

    /// A failure of a way as a whole.
    pub(super) fn attempt(&self, chunk: &Chunk, offset: u64, way: usize, failure: AttemptFailure) -> Attempt {
        let run = chunk.layout.run_at(offset);
        let home = self.home(chunk, offset, way);
        let mut attempt = self.attempt_at(chunk, home, run.stripe_offset, failure);
        if let Way::Rebuild(recovery) = chunk.layout.way(&run, way) {
            let lost = chunk.layout.lost_stripes(&run, recovery);
            attempt.rebuilt_without = lost.map(|stripe| chunk.stripes[stripe].devid).collect();
        }
        attempt
    }

    fn attempt_at(
        &self,
        chunk: &Chunk,
        stripe: usize,
        stripe_offset: u64,
        failure: AttemptFailure,
    ) -> Attempt {
        let place = &chunk.stripes[stripe];
        Attempt {
            device: self.devices[place.device].name(),
            devid: place.devid,
            offset: Physical::new(place.physical.get().saturating_add(stripe_offset)),
            rebuilt_without: Vec::new(),
            failure,
        }
    }
}
