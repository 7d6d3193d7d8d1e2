//! Crashes at every write and flush of either device: nothing that was flushed is lost, nothing older is served.

use crate::world::{BLOCK, SMALL, Shape, TINY, contents, open};
use brindle_cache::{Cache, DISK_MAGIC, Mode, disk_mark};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_sim::{
    CrashDevice, CrashState, Image, ImageDevice, LossMode, Random, Recorder, Recording, Replay,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const SECTOR: usize = 512;

/// A change of contents that was asked for between two events.
struct Asked {
    begun: usize,
    sectors: Range<usize>,
    stamp: u64,
}

/// A program on a cache: everything that it asked for, and the events of the devices.
pub(crate) struct History {
    /// True if the disk bears the mark whenever it lacks something.
    pub(crate) is_veiled: bool,
    /// Contents of each sector at the begin.
    base: Vec<u64>,
    asked: Vec<Asked>,
    /// Flushes that returned: the event after it, and the number of changes before it.
    flushed: Vec<(usize, usize)>,
    pub(crate) recording: Recording,
}

/// The stamp that fills a sector; `None` if it is a mixture.
fn stamp(sector: &[u8]) -> Option<u64> {
    let (first, _) = sector.split_first_chunk().expect("a sector");
    sector.chunks(8).all(|part| part == first).then(|| u64::from_le_bytes(*first))
}

/// Stamps of all sectors; the number of the first one that is a mixture.
pub(crate) fn stamps(contents: &[u8]) -> Result<Vec<u64>, String> {
    let of = |(number, sector)| stamp(sector).ok_or_else(|| format!("sector {number} is a mixture"));
    contents.chunks(SECTOR).enumerate().map(of).collect()
}

/// Runs a program on a cache of recorded devices.
pub(crate) struct Program {
    pub(crate) cache: Cache,
    pub(crate) recorder: Recorder,
    asked: Vec<Asked>,
    flushed: Vec<(usize, usize)>,
    random: Random,
    next_stamp: u64,
    sectors: u64,
}

impl Program {
    pub(crate) fn new(cache: Cache, recorder: Recorder, seed: u64, sectors: usize) -> Self {
        let (asked, flushed, random) = (Vec::new(), Vec::new(), Random::new(seed));
        let next_stamp = (seed + 1) << 32;
        Self { cache, recorder, asked, flushed, random, next_stamp, sectors: sectors as u64 }
    }

    /// Ends the use of the cache, which flushes everything.
    pub(crate) fn close(&mut self) {
        let before = self.asked.len();
        self.cache.close().expect("it works");
        self.flushed.push((self.recorder.position(), before));
    }

    /// Everything that happened, to contents of before.
    pub(crate) fn into_history(self, base: Vec<u64>, is_veiled: bool) -> History {
        let Self { recorder, asked, flushed, .. } = self;
        History { is_veiled, base, asked, flushed, recording: recorder.recording() }
    }

    fn write(&mut self) {
        let hot = self.random.chance(2, 3);
        let first = self.random.below(if hot { 48 } else { self.sectors });
        let longest = *self.random.clone().pick(&[1, 2, 4, 30]);
        let count = (1 + self.random.below(longest)).min(self.sectors - first);
        let discards = self.random.chance(1, 20);
        self.next_stamp += 1;
        let stamp = if discards { 0 } else { self.next_stamp };
        let range = usize::try_from(first).expect("small")..usize::try_from(first + count).expect("small");
        self.asked.push(Asked { begun: self.recorder.position(), sectors: range, stamp });
        let offset = first * SECTOR as u64;
        if discards {
            assert!(self.cache.discard(offset, count * SECTOR as u64).expect("it works"));
        } else {
            let bytes =
                self.next_stamp.to_le_bytes().repeat(usize::try_from(count).expect("small") * SECTOR / 8);
            self.cache.write_at(offset, &bytes).expect("it works");
        }
    }

    fn flush(&mut self) {
        let before = self.asked.len();
        self.cache.flush().expect("it works");
        self.flushed.push((self.recorder.position(), before));
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(16) {
            0..9 => self.write(),
            9..12 => self.flush(),
            12 => _ = self.cache.upkeep().expect("it works"),
            13 if self.random.chance(1, 3) => _ = self.cache.clean_all().expect("it works"),
            14 => {
                let mut bytes = vec![0; 8 * SECTOR];
                let at = self.random.below(self.sectors - 8) * SECTOR as u64;
                self.cache.read_at(at, &mut bytes).expect("it works");
            }
            _ => {
                let (name, values) = *self
                    .random
                    .pick(&[("skip_seq_thresh_kb", ["0", "4"]), ("wear_bytes_per_day", ["0", "24"])]);
                self.cache.set(name, values[usize::from(self.random.chance(1, 2))]).expect("a setting");
            }
        }
    }
}

fn recorded(images: [Image; 2]) -> (Recorder, [Arc<CrashDevice>; 2]) {
    let recorder = Recorder::new();
    let [flash, disk] = images;
    let devices = [
        recorder.device("flash", flash, DeviceClass::Solid),
        recorder.device("disk", disk, DeviceClass::Rotating),
    ];
    (recorder, devices)
}

/// Loads the cache of two images, and goes through a program.
fn run(images: [Image; 2], seed: u64, steps: usize, ends: bool, veils: bool) -> History {
    let copies = images.clone().map(|image| Arc::new(ImageDevice::new("copy", image, DeviceClass::Unknown)));
    let base = stamps(&contents(&open(&copies, false).expect("it can be loaded"))).expect("stamps");
    let (recorder, devices) = recorded(images);
    let cache = open(&devices, false).expect("it can be loaded");
    let is_veiled = veils && cache.veil().expect("it works");
    let mut program = Program::new(cache, recorder, seed, base.len());
    (0..steps).for_each(|_| program.step());
    if ends {
        program.close();
    }
    program.into_history(base, is_veiled)
}

impl History {
    /// A cache that was loaded, and not used.
    pub(crate) fn unused(base: Vec<u64>, recording: Recording) -> Self {
        Self { is_veiled: true, base, asked: Vec::new(), flushed: Vec::new(), recording }
    }

    /// Checks contents after a crash at a point.
    pub(crate) fn judge(&self, point: usize, found: &[u64]) -> Result<(), String> {
        let durable = self
            .flushed
            .iter()
            .filter(|(end, _)| *end <= point)
            .map(|(_, before)| *before)
            .max()
            .unwrap_or(0);
        let mut allowed: Vec<BTreeSet<u64>> =
            self.base.iter().map(|stamp| BTreeSet::from([*stamp])).collect();
        for (number, asked) in self.asked.iter().enumerate().filter(|(_, asked)| asked.begun < point) {
            for sector in &mut allowed[asked.sectors.clone()] {
                if number < durable {
                    sector.clear();
                }
                sector.insert(asked.stamp);
            }
        }
        for (sector, (found, allowed)) in found.iter().zip(&allowed).enumerate() {
            if !allowed.contains(found) {
                return Err(format!("sector {sector} has {found:#x}, not one of {allowed:x?}"));
            }
        }
        Ok(())
    }

    /// Loads the cache after a crash, and checks it, and the disk after it was cleaned.
    fn try_state(&self, point: usize, state: &CrashState) -> Result<(), String> {
        let [flash, disk] = state.devices.as_slice() else { panic!("two devices") };
        let cache = open(&[Arc::clone(flash), Arc::clone(disk)], false).map_err(|error| error.to_string())?;
        cache.verify()?;
        let found = contents(&cache);
        self.judge(point, &stamps(&found)?)?;
        let bare = contents(&**disk);
        if self.is_veiled && bare != found && !bare.chunks(16).any(|bytes| bytes == DISK_MAGIC) {
            return Err("the disk alone looks whole, and is not".to_owned());
        }
        cache.clean_all().map_err(|error| error.to_string())?;
        if contents(&**disk) != found {
            return Err("cleaning changed contents".to_owned());
        }
        Ok(())
    }
}

fn new_images(shape: Shape) -> [Image; 2] {
    let devices = shape.devices();
    drop(shape.create(&devices));
    devices.map(|device| device.image())
}

/// Ways in which a crash takes what was not flushed: those of all devices together, and one more, of each device by itself.
pub(crate) const WAYS: usize = LossMode::ALL.len() + 1;

/// State after a crash, by the number of its way.
pub(crate) fn crash(replay: &Replay, way: usize, random: &mut Random) -> CrashState {
    if let Some(mode) = LossMode::ALL.get(way) {
        return replay.state(*mode, random);
    }
    let mut any = || replay.state(*random.pick(&LossMode::ALL), random);
    let mut crashed = any();
    for device in 1..crashed.devices.len() {
        let other = any();
        let name = other.devices[device].name().to_owned();
        crashed.losses.retain(|loss| loss.device != name);
        crashed.losses.extend(other.losses.into_iter().filter(|loss| loss.device == name));
        crashed.devices[device] = Arc::clone(&other.devices[device]);
    }
    crashed
}

/// Visits crash points of a program, each in all ways of loss; from one of them a second program starts.
fn explore(shape: Shape, seed: u64, steps: usize, rounds: usize, veils: bool, images: [Image; 2]) -> usize {
    let history = run(images, seed, steps, seed % 3 == 0, veils);
    let mut veiled = usize::from(history.is_veiled);
    let mut random = Random::new(seed ^ 0xc4a5);
    let mut replay = history.recording.replay();
    let points: Vec<usize> = history.recording.crash_points().collect();
    let second = (random.index(points.len()), random.index(WAYS));
    for point in points {
        replay.advance_to(point);
        for way in 0..WAYS {
            let state = crash(&replay, way, &mut random);
            let images = state.images();
            if let Err(why) = history.try_state(point, &state) {
                let losses: Vec<String> = state.losses.iter().map(ToString::to_string).collect();
                panic!("{:?}, seed {seed}, point {point}, way {way}: {why}\nlost: {losses:#?}", shape.mode);
            }
            if (point, way) == second && rounds > 1 {
                let images = images.try_into().expect("two devices");
                veiled += explore(shape, seed + 1000, steps, rounds - 1, veils, images);
            }
        }
    }
    veiled
}

/// Programs that are asked for: one by its seed, or a number of them.
pub(crate) fn seeds() -> Option<Range<u64>> {
    let asked = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let one = asked("BRINDLE_SEED").map(|seed| seed..seed + 1);
    one.or_else(|| Some(0..asked("BRINDLE_CRASH_SEEDS")?))
}

#[test]
fn crashes_lose_nothing_that_was_flushed_and_serve_nothing_stale() {
    for seed in seeds().unwrap_or(0..1) {
        for mode in Mode::ALL {
            explore(Shape { mode, ..TINY }, seed, 40, 3, false, new_images(Shape { mode, ..TINY }));
        }
        explore(SMALL, seed, 24, 3, false, new_images(SMALL));
    }
}

#[test]
fn a_disk_that_lacks_something_bears_the_mark_at_every_crash() {
    for seed in seeds().unwrap_or(0..1) {
        // The first one ends in order: the veil is lifted.
        let veiled = explore(SMALL, seed * 3, 16, 2, true, new_images(SMALL));
        assert!(veiled > 0, "no cache had room for the veil");
    }
}

#[test]
fn a_torn_write_of_the_marks_leaves_a_disk_that_is_whole_or_bears_one() {
    let shape = Shape { disk_bytes: 128 << 10, ..SMALL };
    let plain = shape.devices();
    plain[1].write_at(0, &[7; 128 << 10]).expect("memory");
    drop(shape.create(&plain));
    let whole = contents(&*plain[1]);
    let (recorder, devices) = recorded(plain.map(|device| device.image()));
    let cache = open(&devices, false).expect("it can be loaded");
    assert!(cache.veil().expect("it works"));
    cache.close().expect("it works");
    let mut random = Random::new(4);
    let mut replay = recorder.recording().replay();
    for point in recorder.recording().crash_points() {
        replay.advance_to(point);
        for way in (0..WAYS).cycle().take(3 * WAYS) {
            let state = crash(&replay, way, &mut random);
            let bare = contents(&*state.devices[1]);
            let is_marked = disk_mark(&*state.devices[1]).expect("memory").is_some();
            assert!(is_marked || bare == whole, "point {point}, way {way}");
        }
    }
}

#[test]
fn a_crash_while_a_cache_is_made_leaves_none_or_an_empty_one() {
    let devices = TINY.devices();
    let (recorder, recorded) = recorded(devices.map(|device| device.image()));
    drop(TINY.create(&recorded));
    let recording = recorder.recording();
    let mut random = Random::new(5);
    for point in recording.crash_points() {
        for mode in LossMode::ALL {
            let state = recording.state_at(point, mode, &mut random);
            let [flash, disk] = state.devices.as_slice() else { panic!("two devices") };
            let pair = [Arc::clone(flash), Arc::clone(disk)];
            match open(&pair, false) {
                Ok(cache) => assert!(contents(&cache).iter().all(|byte| *byte == 0)),
                Err(error) => assert!(error.to_string().contains("no cache"), "{error}"),
            }
        }
    }
}

#[test]
fn flushed_blocks_lie_on_the_flash_alone() {
    let (recorder, devices) = recorded(new_images(TINY));
    let cache = open(&devices, false).expect("it can be loaded");
    let flushes = recorder.position();
    cache.flush().expect("it works");
    let first: Vec<usize> =
        recorder.recording().events()[flushes..].iter().map(|event| event.device).collect();
    assert_eq!(first, [1], "an earlier process may have left unflushed writes on the disk");
    let before = recorder.position();
    cache.write_at(3 * BLOCK, &[5; 1024]).expect("it works");
    cache.flush().expect("it works");
    let recording = recorder.recording();
    let events = &recording.events()[before..];
    assert_eq!(events.len(), 3, "a slot, a block of the table, one flush: {events:?}");
    assert!(events.iter().all(|event| event.device == 0));
}
