//! Ways to obtain a run: which come first, and going one of them.

use crate::chunk::Chunk;
use crate::device::count;
use crate::layout::{Run, Way};
use crate::parity::{Recovery, add_multiple};
use crate::pool::Pool;
use crate::{Attempt, AttemptFailure};
use brindle_ondisk::{to_u64, to_usize};
use brindle_policy::read::{
    COPIES_MAX, MirrorFacts, MirrorLoad, RUN_BYTES, ReadRequestFacts, ReadSettings, choose_mirror,
    order_mirrors,
};

/// Part of a chunk that is read at once, in one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) run: Run,
    pub(super) way: usize,
}

impl Pool {
    /// The piece of at most `length` bytes that begins at an offset of a chunk. Mirrors may take turns.
    pub(super) fn piece(&self, chunk: &Chunk, offset: u64, length: u64) -> Piece {
        let mut run = chunk.layout.run_at(offset);
        run.length = run.length.min(length).min(chunk.length - offset);
        let way = self.first_way(chunk, offset);
        if chunk.layout.is_mirrored() {
            let mut end = RUN_BYTES - (chunk.start.get() + offset) % RUN_BYTES;
            while end < run.length && self.first_way(chunk, offset + end) == way {
                end += RUN_BYTES;
            }
            run.length = run.length.min(end);
        }
        Piece { run, way }
    }

    /// The way to try first.
    pub(super) fn first_way(&self, chunk: &Chunk, offset: u64) -> usize {
        let ways = chunk.layout.ways();
        if ways == 1 {
            return 0;
        }
        let run = chunk.layout.run_at(offset);
        if !chunk.layout.is_mirrored() {
            let direct = self.facts(chunk, &run, 0);
            let is_fine = direct.present && !direct.stale;
            return if is_fine { 0 } else { self.ways_in_order(chunk, offset).first().copied().unwrap_or(0) };
        }
        let mut facts = [MirrorFacts::default(); COPIES_MAX];
        let ways = ways.min(COPIES_MAX);
        for (way, facts) in facts[..ways].iter_mut().enumerate() {
            *facts = self.facts(chunk, &run, way);
        }
        choose_mirror(&ReadSettings::default(), &facts[..ways], &request(chunk, offset, &run))
    }

    /// Every way, the preferred ones first.
    pub(super) fn ways_in_order(&self, chunk: &Chunk, offset: u64) -> Vec<usize> {
        let run = chunk.layout.run_at(offset);
        let facts: Vec<_> = (0..chunk.layout.ways()).map(|way| self.facts(chunk, &run, way)).collect();
        order_mirrors(&facts)
    }

    fn facts(&self, chunk: &Chunk, run: &Run, way: usize) -> MirrorFacts {
        match chunk.layout.way(run, way) {
            Way::Direct(stripe) => self.device_facts(chunk, stripe),
            Way::Rebuild(recovery) => {
                let all = MirrorFacts { present: true, rebuilt: true, ..MirrorFacts::default() };
                let sources = chunk.layout.sources(run, recovery);
                sources.map(|(stripe, _)| self.device_facts(chunk, stripe)).fold(all, |all, one| {
                    MirrorFacts {
                        present: all.present && one.present,
                        stale: all.stale || one.stale,
                        rebuilt: true,
                        errors: all.errors.saturating_add(one.errors),
                        rotating: all.rotating || one.rotating,
                        ..all
                    }
                })
            }
        }
    }

    fn device_facts(&self, chunk: &Chunk, stripe: usize) -> MirrorFacts {
        let device = &self.devices[chunk.stripes[stripe].device];
        MirrorFacts {
            present: device.device.is_some(),
            stale: device.is_stale,
            rebuilt: false,
            errors: device.counters.errors(),
            rotating: device.is_rotating(),
            devid: device.devid.get(),
            load: MirrorLoad::default(),
        }
    }

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
        match chunk.layout.way(run, way) {
            Way::Direct(stripe) => self.read_stripe(chunk, stripe, run.stripe_offset, buffer),
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
    ) -> Result<(), Box<Attempt>> {
        let place = &chunk.stripes[stripe];
        let pool_device = &self.devices[place.device];
        let physical = place.physical.get().saturating_add(stripe_offset);
        let result = match &pool_device.device {
            None => Err(AttemptFailure::Missing),
            Some(_) if pool_device.lost_writes.affect(physical, to_u64(buffer.len())) => {
                Err(AttemptFailure::LostWrite)
            }
            Some(device) => device.read_at(physical, buffer).map_err(|error| {
                count(&pool_device.counters.read_errors);
                AttemptFailure::Io(error)
            }),
        };
        result.map_err(|failure| Box::new(self.attempt_at(chunk, stripe, stripe_offset, failure)))
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
            self.read_stripe(chunk, stripe, run.stripe_offset, &mut source)?;
            add_multiple(buffer, &source, factor);
        }
        Ok(())
    }

    /// Tells the devices what a range will need of them.
    pub(super) fn hint_piece(&self, chunk: &Chunk, piece: &Piece) {
        let run = &piece.run;
        match chunk.layout.way(run, piece.way) {
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
            offset: brindle_ondisk::Physical::new(place.physical.get().saturating_add(stripe_offset)),
            rebuilt_without: Vec::new(),
            failure,
        }
    }
}

fn request(chunk: &Chunk, offset: u64, run: &Run) -> ReadRequestFacts {
    let logical = chunk.start.get() + offset;
    ReadRequestFacts { logical, length: run.length, ..ReadRequestFacts::default() }
}
