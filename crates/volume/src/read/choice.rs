//! Which way a run is read: the policy is asked, and what was announced is remembered.

use super::announced::Announced;
use super::load::Clock;
use super::reader;
use super::way::Piece;
use crate::chunk::Chunk;
use crate::device::PoolDevice;
use crate::layout::{Run, STRIP_BYTES, Way};
use crate::pool::Pool;
use brindle_policy::read::{
    COPIES_MAX, MirrorFacts, MirrorLoad, RUN_BYTES, ReadPolicy, ReadRequestFacts, ReadSettings,
    SEGMENT_BYTES, choose_mirror, cost, order_mirrors,
};
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A policy that looks at the devices is asked at least once in so many bytes.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// So far ahead of a stream `auto` looks at the least, in bytes: of mirrors that differ much, the fast one is to have
/// enough to do while the slow one does its part.
const AHEAD_BYTES_MIN: u64 = 32 << 20;
/// How much of a stream stays on one mirror under `auto` if none of them rotates, in bytes.
const SOLID_SEGMENT_BYTES: u64 = 1 << 20;

/// How mirrors are chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choosing {
    pub(crate) settings: ReadSettings,
    /// Somebody asked for statistics.
    pub(crate) is_counted: bool,
    /// What others want of the devices counts, as the host has it.
    pub(crate) asks_host: bool,
    pub(crate) clock: Clock,
    /// For `round-robin`.
    bytes_read: Arc<AtomicU64>,
    announced: Arc<Mutex<Announced>>,
}

impl Ranked for Announced {
    const RANK: Rank = Rank::Announced;
}

impl Choosing {
    pub(super) fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock()
    }
}

impl Pool {
    /// Whether somebody looks at what the devices do. A policy that does has nothing to choose in a pool of one.
    pub(super) fn keeps_count(&self) -> bool {
        let choosing = &self.choosing;
        choosing.is_counted || choosing.settings.active.needs_load() && self.devices.len() > 1
    }

    /// The piece of at most `length` bytes that begins at an offset of a chunk. Mirrors may take turns.
    pub(super) fn piece(&self, chunk: &Chunk, offset: u64, length: u64) -> Piece {
        let mut run = chunk.layout.run_at(offset);
        run.length = run.length.min(length).min(chunk.length - offset);
        if !chunk.has_mirrors() {
            return Piece { run, way: self.first_way(chunk, offset, run.length), announced: None };
        }
        let active = self.choosing.settings.active;
        if active.is_fickle() {
            let at = chunk.start.get() + offset;
            let found = {
                let mut announced = self.choosing.announced();
                announced.expire(&self.choosing.clock);
                announced.find(at)
            };
            let found = found.filter(|found| self.is_fit(chunk, &run, found.way));
            if let Some(found) = found {
                run.length = run.length.min(found.end - at);
                return Piece { run, way: found.way, announced: Some(found) };
            }
            run.length = run.length.min(self.piece_bytes(chunk, at));
        }
        let way = self.choose(chunk, offset, &run);
        if active == ReadPolicy::Runs {
            let mut end = RUN_BYTES - (chunk.start.get() + offset) % RUN_BYTES;
            while end < run.length && self.first_way(chunk, offset + end, 1) == way {
                end += RUN_BYTES;
            }
            run.length = run.length.min(end);
        }
        Piece { run, way, announced: None }
    }

    /// The way to try first.
    pub(super) fn first_way(&self, chunk: &Chunk, offset: u64, length: u64) -> usize {
        if chunk.layout.ways() == 1 {
            return 0;
        }
        let mut run = chunk.layout.run_at(offset);
        run.length = run.length.min(length);
        if chunk.has_mirrors() {
            return self.choose(chunk, offset, &run);
        }
        let direct = self.facts(chunk, &run, 0);
        let is_fine = direct.present && !direct.stale;
        if is_fine { 0 } else { self.ways_in_order(chunk, offset).first().copied().unwrap_or(0) }
    }

    /// Every way, the preferred ones first: those to go when one has failed.
    pub(super) fn ways_in_order(&self, chunk: &Chunk, offset: u64) -> Vec<usize> {
        let run = chunk.layout.run_at(offset);
        let facts: Vec<_> = (0..chunk.layout.ways()).map(|way| self.facts(chunk, &run, way)).collect();
        order_mirrors(&facts)
    }

    /// How much of a stream that will be read in order is best asked for in advance, in bytes, so that all mirrors have
    /// something to do; 0 if that is up to the reader.
    pub(super) fn readahead_bytes(&self, chunk: &Chunk) -> u64 {
        let is_auto = self.choosing.settings.active == ReadPolicy::Auto;
        if !is_auto || !chunk.has_mirrors() {
            return 0;
        }
        let copies = chunk.layout.ways() as u64;
        (self.segment_bytes(chunk) * (copies + 1)).max(AHEAD_BYTES_MIN)
    }

    /// Sees how far the devices of a chunk have come with what they were told to fetch.
    pub(super) fn look_after(&self, chunk: &Chunk) {
        if self.choosing.settings.active != ReadPolicy::Auto || !chunk.has_mirrors() {
            return;
        }
        let now = self.choosing.clock.now();
        for stripe in &chunk.stripes {
            let pool_device = &self.devices[stripe.device];
            if let Some(device) = pool_device.device.as_deref() {
                let unknown = MirrorFacts { rotating: pool_device.is_rotating(), ..MirrorFacts::default() };
                pool_device.load.look(device, cost(&unknown, 0).bytes_per_second, now);
            }
        }
    }

    /// After how many bytes from an address the policy is to be asked again.
    fn piece_bytes(&self, chunk: &Chunk, at: u64) -> u64 {
        let settings = &self.choosing.settings;
        match settings.active {
            ReadPolicy::RoundRobin => {
                let turn = settings.min_contig_bytes.max(1);
                turn - self.choosing.bytes_read.load(Relaxed) % turn
            }
            ReadPolicy::Auto => {
                let segment = self.segment_bytes(chunk);
                segment - at % segment
            }
            _ => REQUEST_BYTES_MAX,
        }
    }

    fn segment_bytes(&self, chunk: &Chunk) -> u64 {
        let rotates = chunk.stripes.iter().any(|stripe| self.devices[stripe.device].is_rotating());
        if rotates { SEGMENT_BYTES } else { SOLID_SEGMENT_BYTES }
    }

    /// Asks the policy.
    fn choose(&self, chunk: &Chunk, offset: u64, run: &Run) -> usize {
        let settings = &self.choosing.settings;
        let ways = chunk.layout.ways().min(COPIES_MAX);
        let now = if settings.active.needs_load() { self.choosing.clock.now() } else { 0 };
        let mut facts = [MirrorFacts::default(); COPIES_MAX];
        for (way, facts) in facts[..ways].iter_mut().enumerate() {
            *facts = self.facts(chunk, run, way);
            if settings.active.needs_load() {
                facts.load = self.load_of(chunk, run, way, now);
            }
        }
        let is_round_robin = settings.active == ReadPolicy::RoundRobin;
        let request = ReadRequestFacts {
            logical: chunk.start.get() + offset,
            length: run.length,
            pid: if settings.active == ReadPolicy::Pid { reader::pid() } else { 0 },
            last_mirror: reader::last_mirror(),
            bytes_read: if is_round_robin {
                self.choosing.bytes_read.fetch_add(run.length, Relaxed)
            } else {
                0
            },
            is_mixed: settings.active == ReadPolicy::LoadRoundRobin && self.is_mixed(),
        };
        let way = choose_mirror(settings, &facts[..ways], &request);
        if settings.active.needs_load() {
            reader::set_last_mirror(way);
        }
        way
    }

    fn load_of(&self, chunk: &Chunk, run: &Run, way: usize, now: u64) -> MirrorLoad {
        let Way::Direct(stripe) = chunk.layout.way(run, way) else { return MirrorLoad::default() };
        let place = &chunk.stripes[stripe];
        let device = &self.devices[place.device];
        let physical = place.physical.get().saturating_add(run.stripe_offset);
        let mut load = device.load.facts(device.device.as_deref(), physical, now);
        if self.choosing.asks_host
            && let Some(there) = device.device.as_deref()
        {
            load.in_flight = load.in_flight.saturating_add(device.load.foreign(there, now));
        }
        load
    }

    /// Devices that rotate, and others.
    fn is_mixed(&self) -> bool {
        let mut present = self.devices.iter().filter(|device| device.device.is_some());
        let first = present.next().map(PoolDevice::is_rotating);
        present.any(|device| Some(device.is_rotating()) != first)
    }

    /// Whether nothing speaks against a way that was chosen a while ago.
    fn is_fit(&self, chunk: &Chunk, run: &Run, way: usize) -> bool {
        let facts = self.facts(chunk, run, way);
        facts.present && !facts.stale && facts.errors == 0
    }

    /// Remembers, where that matters, that the device of a piece is about to be told of it. Returns the way, which is that
    /// of what was announced before it in the same segment.
    pub(super) fn announce(&self, chunk: &Chunk, offset: u64, piece: &Piece) -> Option<usize> {
        let active = self.choosing.settings.active;
        if !active.is_fickle() || !chunk.has_mirrors() {
            return Some(piece.way);
        }
        if piece.announced.is_some_and(|found| found.is_awaited) {
            return None;
        }
        let (at, run) = (chunk.start.get() + offset, &piece.run);
        let mut way = piece.way;
        if active == ReadPolicy::Auto
            && piece.announced.is_none()
            && let Some(before) = self.announced_before(chunk, offset)
            && self.is_fit(chunk, run, before)
        {
            way = before;
        }
        let Way::Direct(stripe) = chunk.layout.way(run, way) else { return Some(way) };
        let place = &chunk.stripes[stripe];
        let load = &self.devices[place.device].load;
        let now = self.choosing.clock.now();
        let facts = MirrorFacts { load: self.load_of(chunk, run, way, now), ..self.facts(chunk, run, way) };
        let cost = cost(&facts, run.length);
        let physical = place.physical.get().saturating_add(run.stripe_offset);
        load.request(physical, run.length);
        load.expect(physical, run.length, cost.ns, now);
        self.choosing.announced().add(at, run.length, way, load, now);
        Some(way)
    }

    /// The way of what was announced just before, on the same devices and in the same segment.
    fn announced_before(&self, chunk: &Chunk, offset: u64) -> Option<usize> {
        let at = chunk.start.get() + offset;
        let segment = self.segment_bytes(chunk);
        // Of striped profiles, the devices of a column have had the strip of the row before.
        let back = if chunk.layout.columns() == 1 { 1 } else { chunk.layout.columns() * STRIP_BYTES };
        let before = at.checked_sub(back).filter(|before| *before >= chunk.start.get())?;
        let is_same = before / segment == at / segment;
        let found = is_same.then(|| self.choosing.announced().find(before))?;
        found.map(|found| found.way)
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
}
