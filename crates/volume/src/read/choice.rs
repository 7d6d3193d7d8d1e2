//! The way in which a run is read: the policy is asked once, and fetches in advance are remembered.

use super::reader;
use super::way::Piece;
use crate::chunk::Chunk;
use crate::device::PoolDevice;
use crate::layout::{Run, STRIP_BYTES, Way};
use crate::pool::Pool;
use crate::read_state::{FetchPlan, NewRange, Slice, slices};
use brindle_ondisk::BlockGroupType;
use brindle_policy::read::{
    COPIES_MAX, MirrorFacts, MirrorLoad, RUN_BYTES, ReadPolicy, ReadRequestFacts, SEGMENT_BYTES,
    choose_mirror, cost, order_mirrors,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Longest piece for which a policy that looks at the devices is asked once, in bytes.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// Minimum readahead of a stream under `auto`, in bytes: of mirrors that differ much, the fast one has enough to do while
/// the slow one does its part.
const AHEAD_BYTES_MIN: u64 = 24 << 20;
/// Bytes of a stream that stay on one mirror under `auto` if none of them rotates.
const SOLID_SEGMENT_BYTES: u64 = 1 << 20;

/// Greatest part of a range, as its divisor, that the host may have in its cache where the range is fetched past it all the same.
const CACHED_SHARE_MAX: u64 = 8;
/// Shortest range whose fetches tell how fast a device is, in bytes.
const WATCHED_BYTES_MIN: u64 = 1 << 20;

/// The run of at most `length` bytes that begins at an offset of a chunk.
fn run_within(chunk: &Chunk, offset: u64, length: u64) -> Run {
    let mut run = chunk.layout.run_at(offset);
    run.length = run.length.min(length).min(chunk.length - offset);
    run
}

impl Pool {
    /// Returns true if reads of devices are counted. A policy that looks at them has nothing to choose in a pool of one.
    pub(super) fn keeps_count(&self) -> bool {
        let choosing = &self.choosing;
        choosing.is_counted || choosing.settings.active.needs_load() && self.devices.len() > 1
    }

    /// The piece of at most `length` bytes that begins at an offset of a chunk. Mirrors may take turns.
    pub(super) fn piece(&self, chunk: &Chunk, offset: u64, length: u64) -> Piece {
        let mut run = run_within(chunk, offset, length);
        let at = chunk.start.get() + offset;
        let found = {
            let mut prefetched = self.choosing.prefetched();
            prefetched.expire(&self.choosing.clock);
            let found = prefetched.find(at);
            if found.is_none() {
                run.length = prefetched.next(at).map_or(run.length, |next| run.length.min(next - at));
            }
            found
        };
        // An answer is as good as the device was when it came; a mere choice is as good as the device is now.
        let found = found.filter(|found| found.part.is_some() || self.is_fit(chunk, &run, found.way));
        if let Some(found) = found {
            run.length = run.length.min(found.end - at);
            return Piece { run, way: found.way, prefetched: Some(found) };
        }
        if !chunk.has_mirrors() {
            return Piece { run, way: self.first_way(chunk, offset, run.length), prefetched: None };
        }
        let active = self.choosing.settings.active;
        if active.is_fickle() {
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
        Piece { run, way, prefetched: None }
    }

    /// The same, if it was fetched in advance. No policy is asked.
    pub(super) fn fetched_piece(&self, chunk: &Chunk, offset: u64, length: u64) -> Option<Piece> {
        let at = chunk.start.get() + offset;
        let found = self.choosing.prefetched().find(at).filter(|found| found.part.is_some())?;
        let run = run_within(chunk, offset, length.min(found.end - at));
        Some(Piece { run, way: found.way, prefetched: Some(found) })
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

    /// Bytes of a stream that are best fetched in advance, in bytes, so that all mirrors have
    /// something to do; 0 if that is up to the reader.
    pub(super) fn readahead_bytes(&self, chunk: &Chunk) -> u64 {
        let is_auto = self.choosing.settings.active == ReadPolicy::Auto;
        if !is_auto || !chunk.has_mirrors() {
            return 0;
        }
        let copies = chunk.layout.ways() as u64;
        (self.segment_bytes(chunk) * (copies + 1)).max(AHEAD_BYTES_MIN)
    }

    /// Sees how far the devices of a chunk have come with what is fetched from them.
    pub(super) fn look_after(&self, chunk: &Chunk) {
        if self.choosing.settings.active != ReadPolicy::Auto || !chunk.has_mirrors() {
            return;
        }
        let now = self.choosing.clock.now();
        for stripe in &chunk.stripes {
            let pool_device = &self.devices[stripe.device];
            let unknown = MirrorFacts { rotating: pool_device.is_rotating(), ..MirrorFacts::default() };
            pool_device.load.look(cost(&unknown, 0).bytes_per_second, now);
        }
    }

    /// After how many bytes from an address the policy is to be asked again.
    fn piece_bytes(&self, chunk: &Chunk, at: u64) -> u64 {
        let settings = &self.choosing.settings;
        match settings.active {
            ReadPolicy::RoundRobin => {
                let turn = settings.min_contig_bytes.max(1);
                turn - self.choosing.bytes_read() % turn
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
            bytes_read: if is_round_robin { self.choosing.count_bytes_read(run.length) } else { 0 },
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
        if self.choosing.asks_host {
            if let Some(there) = device.device.as_deref() {
                load.in_flight = load.in_flight.saturating_add(device.load.foreign(there, now));
            }
        }
        load
    }

    /// Devices that rotate, and others.
    fn is_mixed(&self) -> bool {
        let mut present = self.devices.iter().filter(|device| device.device.is_some());
        let first = present.next().map(PoolDevice::is_rotating);
        present.any(|device| Some(device.is_rotating()) != first)
    }

    /// Returns true if nothing speaks against a way that was chosen a while ago.
    fn is_fit(&self, chunk: &Chunk, run: &Run, way: usize) -> bool {
        let facts = self.facts(chunk, run, way);
        facts.present && !facts.stale && facts.errors == 0
    }

    /// Plans the fetch of a piece that is to be read later, and remembers it. Nothing is planned of a piece that is
    /// fetched already, that must be rebuilt, or whose device has lost it. A piece of a long range is fetched past the host's
    /// memory, unless most of it is there.
    pub(super) fn prefetch_piece(
        &self,
        chunk: &Chunk,
        offset: u64,
        piece: &Piece,
        is_long: bool,
        plan: &mut FetchPlan,
    ) {
        if piece.prefetched.as_ref().is_some_and(|found| found.is_awaited) {
            return;
        }
        let active = self.choosing.settings.active;
        let is_fickle = active.is_fickle() && chunk.has_mirrors();
        let (at, run) = (chunk.start.get() + offset, &piece.run);
        let mut way = piece.way;
        if is_fickle && active == ReadPolicy::Auto && piece.prefetched.is_none() {
            if let Some(before) = self.prefetched_before(chunk, offset) {
                if self.is_fit(chunk, run, before) {
                    way = before;
                }
            }
        }
        let Some((device, physical)) = self.direct_place(chunk, run, way) else { return };
        let there = self.devices[device].device.as_ref().filter(|_| is_long);
        let cached = there.and_then(|device| device.cached_bytes(physical, run.length));
        let bypasses_cache = cached.is_some_and(|bytes| bytes <= run.length / CACHED_SHARE_MAX);
        // Where no policy looks at the devices, the host's memory is as good as ours, and spares a copy.
        if !is_fickle && !bypasses_cache && self.prefetch_by_host(device, physical, run.length) {
            return;
        }
        let now = self.choosing.clock.now();
        if cached.is_some_and(|bytes| bytes >= run.length) {
            // Nothing is to be fetched; the mirror whose cache has it is remembered.
            let choice = NewRange { start: at, length: run.length, way, load: None, slices: Vec::new() };
            return self.choosing.prefetched().add(choice, now);
        }
        let load = is_fickle.then(|| Arc::clone(&self.devices[device].load));
        if let Some(load) = &load {
            let facts =
                MirrorFacts { load: self.load_of(chunk, run, way, now), ..self.facts(chunk, run, way) };
            load.request(physical, run.length);
            load.expect(run.length, cost(&facts, run.length).ns, now);
        }
        let fetch = |(start, length)| {
            let at = physical + start;
            let part = match bypasses_cache {
                true => plan.add_bypassing(device, at, length),
                false => plan.add(device, at, length),
            };
            Slice { end: start + length, left: length, part: Some(part) }
        };
        let slices: Vec<Slice> = slices(run.length).map(fetch).collect();
        if let Some(load) = load.as_ref().filter(|_| run.length >= WATCHED_BYTES_MIN) {
            let mut start = 0;
            for slice in &slices {
                let part = slice.part.as_ref().expect("it was just made");
                load.watch(&part.fetch, slice.end - start, now);
                start = slice.end;
            }
        }
        self.choosing.prefetched().add(NewRange { start: at, length: run.length, way, load, slices }, now);
    }

    /// Has the host fetch a range of a device; false if no host caches the device.
    pub(super) fn prefetch_by_host(&self, device: usize, physical: u64, length: u64) -> bool {
        self.devices[device].device.as_ref().is_some_and(|device| device.prefetch(physical, length))
    }

    /// The device that a way reads a run from, and the byte there; `None` if it must be rebuilt, the device is missing,
    /// or it has lost part of the run.
    pub(super) fn direct_place(&self, chunk: &Chunk, run: &Run, way: usize) -> Option<(usize, u64)> {
        let Way::Direct(stripe) = chunk.layout.way(run, way) else { return None };
        let place = &chunk.stripes[stripe];
        let device = &self.devices[place.device];
        let physical = place.physical.get().saturating_add(run.stripe_offset);
        let is_there = device.device.is_some() && !device.lost_writes.affect(physical, run.length);
        is_there.then_some((place.device, physical))
    }

    /// The way of what is fetched just before, on the same devices and in the same segment.
    fn prefetched_before(&self, chunk: &Chunk, offset: u64) -> Option<usize> {
        let at = chunk.start.get() + offset;
        let segment = self.segment_bytes(chunk);
        // Of striped profiles, the devices of a column have had the strip of the row before.
        let back = if chunk.layout.columns() == 1 { 1 } else { chunk.layout.columns() * STRIP_BYTES };
        let before = at.checked_sub(back).filter(|before| *before >= chunk.start.get())?;
        let is_same = before / segment == at / segment;
        let found = is_same.then(|| self.choosing.prefetched().find(before))?;
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
        // A block of the log may be missing there.
        let may_lack_block = !chunk.kind.contains(BlockGroupType::DATA) && device.lacks_log.load(Relaxed);
        MirrorFacts {
            present: device.device.is_some(),
            stale: device.is_read_last() || may_lack_block,
            rebuilt: false,
            errors: device.counters.errors(),
            rotating: device.is_rotating(),
            devid: device.devid.get(),
            load: MirrorLoad::default(),
        }
    }
}
