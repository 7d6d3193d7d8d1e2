//! Ways to obtain a run: going one of them.

use crate::chunk::{Chunk, ChunkStripe};
use crate::device::{PoolDevice, count};
use crate::layout::{Run, Way};
use crate::parity::{Recovery, add_multiple};
use crate::pool::Pool;
use crate::read_state::{Answered, FetchPlan, Found, Load};
use crate::{Attempt, AttemptFailure};
use brindle_device::{Device, DeviceError};
use brindle_ondisk::{Physical, to_u64, to_usize};

/// Part of a chunk that is read at once, in one way.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) run: Run,
    pub(super) way: usize,
    /// The fetch in advance that is the reason for this way.
    pub(super) prefetched: Option<Found>,
}

/// A counted read of a device that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    start_ns: u64,
    among: u32,
    has_moved: bool,
}

impl Pool {
    /// Reads a range of a chunk, which may be several runs, in one way.
    pub(crate) fn read_range(
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
        match chunk.layout.way(run, way) {
            Way::Direct(stripe) => self.read_stripe(chunk, stripe, run.stripe_offset, buffer),
            Way::Rebuild(recovery) => self.rebuild(chunk, run, recovery, buffer).map_err(|mut attempt| {
                let lost = chunk.layout.lost_stripes(run, recovery);
                attempt.rebuilt_without = lost.map(|stripe| chunk.stripes[stripe].devid).collect();
                attempt
            }),
        }
    }

    /// Reads a piece: from memory if it was fetched, otherwise in its way.
    pub(super) fn read_piece(
        &self,
        chunk: &Chunk,
        offset: u64,
        piece: &Piece,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        let Some(found) = &piece.prefetched else {
            return self.read_run(chunk, &piece.run, piece.way, buffer);
        };
        let read = match &found.part {
            Some(part) => {
                let length = to_u64(buffer.len());
                let copied = self.counted(chunk, piece, length, || part.copy_to(buffer));
                // What has failed is read anew, by itself: seldom is all of a fetch bad.
                copied.or_else(|_| self.read_run(chunk, &piece.run, piece.way, buffer))
            }
            None => self.read_run(chunk, &piece.run, piece.way, buffer),
        };
        self.choosing.prefetched().take(chunk.start.get() + offset, to_u64(buffer.len()));
        read
    }

    /// Waits for a piece that was fetched, and keeps count of it where a policy looks at that.
    pub(super) fn counted<T>(&self, chunk: &Chunk, piece: &Piece, bytes: u64, wait: impl FnOnce() -> T) -> T {
        let load = self.counted_load(chunk, piece);
        let begun = load.map(|load| self.begin(load, None));
        let answer = wait();
        if let Some((begun, load)) = begun.zip(load) {
            self.end(load, &begun, bytes, self.is_rotating_in(chunk, piece));
            self.look_after(chunk);
        }
        answer
    }

    /// The load of the device that a piece is read from, if it is counted.
    fn counted_load(&self, chunk: &Chunk, piece: &Piece) -> Option<&Load> {
        if !self.keeps_count() {
            return None;
        }
        let Way::Direct(stripe) = chunk.layout.way(&piece.run, piece.way) else { return None };
        Some(&self.devices[chunk.stripes[stripe].device].load)
    }

    fn is_rotating_in(&self, chunk: &Chunk, piece: &Piece) -> bool {
        match chunk.layout.way(&piece.run, piece.way) {
            Way::Direct(stripe) => self.devices[chunk.stripes[stripe].device].is_rotating(),
            Way::Rebuild(_) => false,
        }
    }

    /// Reads a part of a stripe.
    pub(crate) fn read_stripe(
        &self,
        chunk: &Chunk,
        stripe: usize,
        stripe_offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        let place = &chunk.stripes[stripe];
        let pool_device = &self.devices[place.device];
        let physical = place.physical.get().saturating_add(stripe_offset);
        let result = match &pool_device.device {
            None => Err(AttemptFailure::Missing),
            Some(_) if pool_device.lost_writes.affect(physical, to_u64(buffer.len())) => {
                Err(AttemptFailure::LostWrite)
            }
            Some(device) => self.read_device(pool_device, &**device, physical, buffer).map_err(|error| {
                count(&pool_device.counters.read_errors);
                AttemptFailure::Io(error)
            }),
        };
        result.map_err(|failure| Box::new(self.attempt_at(chunk, stripe, stripe_offset, failure)))
    }

    /// Reads, and keeps count of it where a policy looks at that.
    fn read_device(
        &self,
        pool_device: &PoolDevice,
        device: &dyn Device,
        physical: u64,
        buffer: &mut [u8],
    ) -> Result<(), DeviceError> {
        if !self.keeps_count() {
            return device.read_at(physical, buffer);
        }
        let bytes = to_u64(buffer.len());
        let begun = self.begin(&pool_device.load, Some((physical, bytes)));
        let read = device.read_at(physical, buffer);
        self.end(&pool_device.load, &begun, bytes, pool_device.is_rotating());
        read
    }

    /// Counts the begin of a read; of a request of its own, unless it was fetched in advance.
    pub(super) fn begin(&self, load: &Load, request: Option<(u64, u64)>) -> Begun {
        let has_moved = request.is_some_and(|(physical, bytes)| !load.request(physical, bytes));
        Begun { start_ns: self.choosing.clock.now(), among: load.begin(), has_moved }
    }

    /// Counts the end of a read.
    pub(super) fn end(&self, load: &Load, begun: &Begun, bytes: u64, is_rotating: bool) {
        let (start_ns, end_ns) = (begun.start_ns, self.choosing.clock.now());
        let (among, has_moved) = (begun.among, begun.has_moved);
        load.end(&Answered { start_ns, end_ns, bytes, among, is_rotating, has_moved });
    }

    /// Adds up the other stripes of the row, which are read side by side. A run with parity is no longer than a strip.
    fn rebuild(
        &self,
        chunk: &Chunk,
        run: &Run,
        recovery: Recovery,
        buffer: &mut [u8],
    ) -> Result<(), Box<Attempt>> {
        let (mut plan, length) = (FetchPlan::default(), to_u64(buffer.len()));
        let part = |(stripe, _)| {
            let place: &ChunkStripe = &chunk.stripes[stripe];
            let device = &self.devices[place.device];
            let physical = place.physical.get().saturating_add(run.stripe_offset);
            let is_there = device.device.is_some() && !device.lost_writes.affect(physical, length);
            is_there.then(|| plan.add(place.device, physical, length))
        };
        let parts: Vec<_> = chunk.layout.sources(run, recovery).map(part).collect();
        self.submit(plan);
        let mut source = vec![0; buffer.len()];
        buffer.fill(0);
        for ((stripe, factor), part) in chunk.layout.sources(run, recovery).zip(parts) {
            // What has failed is read anew, which says why.
            if part.is_none_or(|part| part.copy_to(&mut source).is_err()) {
                self.read_stripe(chunk, stripe, run.stripe_offset, &mut source)?;
            }
            add_multiple(buffer, &source, factor);
        }
        Ok(())
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
