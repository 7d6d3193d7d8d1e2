//! Crashes at every write and flush of two SSDs and a disk, each of which loses unflushed writes on its own. Programs run on both
//! SSDs, on two of which one fails, and on one while the other one is away; each begins where a crash of the one before left the
//! devices. Both SSDs together have everything that was flushed, and each alone has it too, or is refused. An SSD that is there
//! again after the other one was in use is brought up to date, or refused.

use super::NARROW;
use crate::crash::{History, Program, WAYS, crash, seeds, stamps};
use crate::world::{BLOCK, SMALL, Shape, contents, open_half, open_mirrored};
use brindle_cache::{Cache, CacheError, DISK_MAGIC};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_sim::{CrashDevice, Fault, FaultyDevice, Image, ImageDevice, Random, Recorder};
use std::sync::Arc;

/// Programs, unless more are asked for; then all ways of a crash are tried at each point, instead of one that is drawn.
const SEEDS_IN_CI: u64 = 2;
/// Of that many loads from one SSD, after one the other SSD comes back; after each, if more programs are asked for.
const RETURNS_IN_CI: usize = 5;
/// Difference of the seeds of a program and the next one.
const NEXT_SEED: u64 = 1001;
/// Length of the disk: four regions of blocks.
const DISK_BYTES: u64 = 256 << 10;

/// SSDs that a program has.
#[derive(Clone, Debug)]
enum Course {
    /// Both, and they work.
    Both,
    /// Both, until one fails.
    Failing { half: usize, fault: Fault },
    /// One; the other one is away.
    Alone { half: usize },
}

impl Course {
    /// Any course for SSDs of which some may be stale.
    fn any(random: &mut Random, stale: [bool; 2]) -> Self {
        let half = random.index(2);
        match random.below(6) {
            0 => Self::Both,
            1 | 2 if !stale[half] => Self::Alone { half },
            // The newest one can't be missed before the other one is up to date.
            3 if stale == [false; 2] => {
                let fault = Fault::any_of_reading(random, 40, SMALL.flash_bytes);
                Self::Failing { half, fault }
            }
            _ => Self::Failing { half, fault: Fault::any(random, 60, 40) },
        }
    }
}

/// A program that was gone through.
struct Run {
    course: Course,
    history: History,
    /// Contents before, by a load of both SSDs, and of each alone: one may have what was never acknowledged.
    before: Vec<Vec<u64>>,
    /// The event after which the SSDs of the program are in use.
    begun: usize,
    /// The last event before which no request had failed.
    failed: usize,
    stale_before: [bool; 2],
}

impl Run {
    /// Returns true if an SSD may lack something that was flushed.
    fn may_be_stale(&self, half: usize, point: usize) -> bool {
        let is_left = match self.course {
            Course::Both => false,
            Course::Failing { half: failing, .. } => failing == half && point > self.failed,
            Course::Alone { half: used } => used != half,
        };
        is_left || point < self.begun && self.stale_before[half]
    }

    /// Checks contents after a crash at a point.
    fn judge(&self, point: usize, found: &[u64]) -> Result<(), String> {
        let is_as_before = point < self.begun && self.before.iter().any(|before| before == found);
        if is_as_before { Ok(()) } else { self.history.judge(point, found) }
    }
}

/// Numbers of loads, by their outcome.
#[derive(Debug, Default)]
struct Seen {
    states: usize,
    /// Loads from one SSD.
    halves: usize,
    /// Of them, the ones that were refused as the SSD is behind.
    stale: usize,
    /// The ones that had to be forced: no mark told which SSD is the newest.
    forced: usize,
    /// SSDs that were there again after the other one was in use.
    returned: usize,
}

fn copies(images: &[Image]) -> [Arc<ImageDevice>; 3] {
    let device = |image: &Image| Arc::new(ImageDevice::new("copy", image.clone(), DeviceClass::Unknown));
    [device(&images[0]), device(&images[1]), device(&images[2])]
}

/// Loads the cache from one SSD; by force, if no mark tells that it is the newest.
fn open_alone<D: WritableDevice + 'static>(devices: &[Arc<D>; 3], half: usize) -> Result<Cache, CacheError> {
    match open_half(devices, half, false) {
        Err(CacheError::MaybeStale { .. }) => open_half(devices, half, true),
        loaded => loaded,
    }
}

/// Contents by a load of both SSDs, and of each that is not refused alone.
fn contents_before(images: &[Image]) -> Vec<Vec<u64>> {
    let both = open_mirrored(&copies(images), false).expect("it can be loaded");
    let alone = [0, 1].into_iter().filter_map(|half| open_alone(&copies(images), half).ok());
    [both].into_iter().chain(alone).map(|cache| stamps(&contents(&cache)).expect("stamps")).collect()
}

/// Contents that a cache in use has now.
fn contents_now(recorded: &[Arc<CrashDevice>; 3]) -> Vec<u64> {
    let images = recorded.each_ref().map(|device| device.image());
    stamps(&contents(&open_mirrored(&copies(&images), false).expect("it can be loaded"))).expect("stamps")
}

/// Loads the cache of three images, and goes through a program.
fn run(images: &[Image], seed: u64, steps: usize, course: Course, stale_before: [bool; 2]) -> Run {
    let recorder = Recorder::new();
    let recorded = [
        recorder.device("flash", images[0].clone(), DeviceClass::Solid),
        recorder.device("mirror", images[1].clone(), DeviceClass::Solid),
        recorder.device("disk", images[2].clone(), DeviceClass::Rotating),
    ];
    let devices = recorded.each_ref().map(|device| Arc::new(FaultyDevice::new(Arc::clone(device) as _)));
    let loaded = match &course {
        Course::Both => open_mirrored(&devices, false),
        Course::Alone { half } => open_alone(&devices, *half),
        Course::Failing { half, fault } => {
            devices[*half].inject(fault.clone());
            open_mirrored(&devices, false)
        }
    };
    let has_failed = || devices.iter().any(|device| device.counts().faults > 0);
    let before = contents_before(images);
    let begin = loaded.and_then(|cache| cache.veil().map(|is_veiled| (cache, is_veiled)));
    let (cache, is_veiled) = match begin {
        Ok(begun) => begun,
        Err(error) => {
            assert!(has_failed(), "seed {seed}, {course:?}: {error}");
            let history = History::unused(before[0].clone(), recorder.recording());
            return Run { course, history, before, begun: usize::MAX, failed: 0, stale_before };
        }
    };
    assert!(is_veiled, "a mirror has room for the mark");
    let (base, begun) = (contents_now(&recorded), recorder.position());
    let mut failed = 0;
    let mut program = Program::new(cache, recorder, seed, base.len());
    for step in 0..=steps {
        if !has_failed() {
            failed = program.recorder.position();
        }
        if step < steps {
            program.step();
        } else if seed % 3 == 0 {
            let is_fast = ["0", "1"][usize::from(seed % 2 == 0)];
            program.cache.set("fast_remove", is_fast).expect("a setting");
            program.close();
        }
    }
    if !has_failed() {
        failed = usize::MAX;
    }
    Run { course, history: program.into_history(base, true), before, begun, failed, stale_before }
}

/// Checks a cache that was loaded after a crash, and the disk after it was cleaned. The contents of both.
fn judge(run: &Run, point: usize, cache: &Cache, disk: &ImageDevice) -> Result<Vec<u8>, String> {
    cache.verify()?;
    let found = contents(cache);
    run.judge(point, &stamps(&found)?)?;
    let bare = contents(disk);
    if bare != found && !bare.chunks(16).any(|bytes| bytes == DISK_MAGIC) {
        return Err("the disk alone looks whole, and is not".to_owned());
    }
    cache.clean_all().map_err(|error| error.to_string())?;
    if contents(disk) != found {
        return Err("cleaning changed contents".to_owned());
    }
    Ok(found)
}

/// Writes a block to a cache, so that its disk lacks it.
fn write_more(cache: &Cache, contents: &mut [u8]) -> Result<(), CacheError> {
    assert!(cache.veil()?, "a mirror has room for the mark");
    let (start, length) = (7 * BLOCK, 1024);
    let bytes = &mut contents[7 * length..][..length];
    bytes.fill(0x77);
    cache.write_at(start, bytes)?;
    Ok(cache.flush()?)
}

/// Returns true for the refusal of an SSD that is not the newest.
fn is_stale(error: &CacheError) -> bool {
    matches!(
        error,
        CacheError::MaybeStale { .. }
            | CacheError::StaleFlash { .. }
            | CacheError::DiskChanged { .. }
            | CacheError::Behind { .. }
    )
}

/// Loads the cache with the SSD that was away, and with both, after the other one was used alone.
fn try_return(
    devices: &[Arc<ImageDevice>; 3],
    used: usize,
    may_be_stale: bool,
    expected: &[u8],
) -> Result<(), String> {
    let images = devices.each_ref().map(|device| device.image());
    match open_half(&copies(&images), 1 - used, false) {
        Ok(_) => return Err("the one that was away is taken for the newest".to_owned()),
        Err(error) if is_stale(&error) => {}
        Err(error) => return Err(format!("the one that was away: {error}")),
    }
    match open_mirrored(devices, false) {
        Ok(cache) if contents(&cache) == expected => Ok(()),
        Ok(_) => Err("both have not what was written to one".to_owned()),
        Err(CacheError::Diverged { .. }) if may_be_stale => Ok(()),
        Err(error) => Err(format!("both: {error}")),
    }
}

impl Seen {
    /// Loads the cache after a crash with one SSD, writes to it, and brings the other one back.
    fn try_half(&mut self, run: &Run, point: usize, images: &[Image], half: usize) -> Result<(), String> {
        self.halves += 1;
        let may_be_stale = run.may_be_stale(half, point);
        let devices = copies(images);
        let loaded = match open_half(&devices, half, false) {
            Err(error) if is_stale(&error) && may_be_stale => {
                self.stale += 1;
                return Ok(());
            }
            Err(CacheError::MaybeStale { .. }) => {
                self.forced += 1;
                open_half(&devices, half, true)
            }
            loaded => loaded,
        };
        let cache = loaded.map_err(|error| error.to_string())?;
        let mut found = judge(run, point, &cache, &devices[2])?;
        if seeds().is_none() && self.halves % RETURNS_IN_CI != 0 {
            return Ok(());
        }
        write_more(&cache, &mut found).map_err(|error| error.to_string())?;
        drop(cache);
        self.returned += 1;
        try_return(&devices, half, may_be_stale, &found)
    }

    fn try_state(&mut self, run: &Run, point: usize, images: &[Image]) -> Result<(), String> {
        self.states += 1;
        let devices = copies(images);
        let cache = open_mirrored(&devices, false).map_err(|error| error.to_string())?;
        judge(run, point, &cache, &devices[2])?;
        for half in [0, 1] {
            self.try_half(run, point, images, half).map_err(|why| format!("SSD {half} alone: {why}"))?;
        }
        Ok(())
    }

    /// Visits crash points of a program, each in some ways or in all; from one of them a second program starts. `stale` tells SSDs
    /// that may lack something before.
    fn explore(&mut self, images: &[Image], seed: u64, steps: usize, rounds: usize, stale: [bool; 2]) {
        let mut random = Random::new(seed ^ 0x3193);
        let course = Course::any(&mut random, stale);
        println!("BRINDLE_SEED={}: seed {seed}, {course:?}", seed % NEXT_SEED);
        let run = run(images, seed, steps, course, stale);
        let mut replay = run.history.recording.replay();
        let points: Vec<usize> = run.history.recording.crash_points().collect();
        let second = random.index(points.len());
        let ways = if seeds().is_some() { WAYS } else { 1 };
        for point in points {
            replay.advance_to(point);
            let first = random.index(WAYS);
            for number in 0..ways {
                let way = (first + number) % WAYS;
                let state = crash(&replay, way, &mut random);
                let images = state.images();
                if let Err(why) = self.try_state(&run, point, &images) {
                    let losses: Vec<String> = state.losses.iter().map(ToString::to_string).collect();
                    let course = &run.course;
                    panic!("seed {seed}, {course:?}, point {point}, way {way}: {why}\nlost: {losses:#?}");
                }
                if number == 0 && point == second && rounds > 1 {
                    let stale = [0, 1].map(|half| run.may_be_stale(half, point));
                    self.explore(&images, seed + NEXT_SEED, steps, rounds - 1, stale);
                }
            }
        }
    }
}

fn new_images(shape: Shape) -> [Image; 3] {
    let devices = shape.mirrored_devices();
    drop(shape.create_mirrored(&devices).expect("it can be made"));
    devices.map(|device| device.image())
}

#[test]
fn crashes_of_two_ssds_lose_nothing_that_was_flushed_and_a_stale_one_is_never_served() {
    for shape in [NARROW, SMALL].map(|shape| Shape { disk_bytes: DISK_BYTES, ..shape }) {
        let mut seen = Seen::default();
        for seed in seeds().unwrap_or(0..SEEDS_IN_CI) {
            seen.explore(&new_images(shape), seed, 16, 3, [false; 2]);
        }
        println!("{seen:?}");
        assert!(seen.stale > 0 && seen.returned > 0, "{seen:?}");
        assert!(seen.forced * 10 < seen.halves, "{seen:?}");
    }
}
