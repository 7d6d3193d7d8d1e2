//! Crashes at every write and flush of two SSDs and a disk, each of which loses unflushed writes on its own, and of which an SSD may
//! fail before: both SSDs together have everything that was flushed, and each alone has it too, or is refused.

use super::NARROW;
use crate::crash::{History, Program, seeds, stamps};
use crate::world::{SMALL, Shape, contents, open_half, open_mirrored};
use brindle_cache::{Cache, CacheError, DISK_MAGIC};
use brindle_device::DeviceClass;
use brindle_sim::{FaultyDevice, Image, ImageDevice, LossMode, Random, Recorder};
use std::sync::Arc;

/// An SSD that fails at a step of a program.
#[derive(Clone, Copy)]
struct Failure {
    half: usize,
    step: usize,
}

/// A program that was gone through.
struct Run {
    history: History,
    /// Contents that each SSD alone had before, if it could be loaded: it may lack what was never acknowledged.
    alone: [Option<Vec<u64>>; 2],
    /// The event after which both are in sync.
    begun: usize,
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
}

fn copies(images: &[Image]) -> [Arc<ImageDevice>; 3] {
    let device = |image: &Image| Arc::new(ImageDevice::new("copy", image.clone(), DeviceClass::Unknown));
    [device(&images[0]), device(&images[1]), device(&images[2])]
}

/// Loads the cache of three images, and goes through a program.
fn run(images: &[Image], seed: u64, steps: usize, ends: bool, failure: Option<Failure>) -> Run {
    let base = stamps(&contents(&open_mirrored(&copies(images), false).expect("it can be loaded")));
    let alone = [0, 1].map(|half| {
        let cache = open_half(&copies(images), half, true).ok()?;
        Some(stamps(&contents(&cache)))
    });
    let recorder = Recorder::new();
    let class = [DeviceClass::Solid, DeviceClass::Solid, DeviceClass::Rotating];
    let mut parts = ["flash", "mirror", "disk"].into_iter().zip(images).zip(class);
    let devices = std::array::from_fn(|_| {
        let ((name, image), class) = parts.next().expect("three");
        Arc::new(FaultyDevice::new(recorder.device(name, image.clone(), class)))
    });
    let cache = open_mirrored(&devices, false).expect("it can be loaded");
    assert!(cache.veil().expect("it works"), "a mirror has room for the mark");
    let begun = recorder.position();
    let mut program = Program::new(cache, recorder, seed, base.len());
    for step in 0..steps {
        if let Some(failure) = failure.filter(|failure| failure.step == step) {
            devices[failure.half].vanish();
        }
        program.step();
    }
    if ends {
        program.close();
    }
    Run { history: program.into_history(base, true), alone, begun }
}

/// Checks a cache that was loaded after a crash, from both SSDs or one, and the disk after it was cleaned.
fn judge(
    run: &Run,
    point: usize,
    half: Option<usize>,
    cache: &Cache,
    disk: &ImageDevice,
) -> Result<(), String> {
    cache.verify()?;
    let found = contents(cache);
    let alone = half.and_then(|half| run.alone[half].as_ref());
    if point >= run.begun || alone != Some(&stamps(&found)) {
        run.history.judge(point, &stamps(&found))?;
    }
    let bare = contents(disk);
    if bare != found && !bare.chunks(16).any(|bytes| bytes == DISK_MAGIC) {
        return Err("the disk alone looks whole, and is not".to_owned());
    }
    cache.clean_all().map_err(|error| error.to_string())?;
    if contents(disk) != found { Err("cleaning changed contents".to_owned()) } else { Ok(()) }
}

impl Seen {
    /// Loads the cache after a crash with one SSD; `may_be_stale` if it failed before.
    fn try_half(
        &mut self,
        run: &Run,
        point: usize,
        images: &[Image],
        half: usize,
        may_be_stale: bool,
    ) -> Result<(), String> {
        self.halves += 1;
        let devices = copies(images);
        match open_half(&devices, half, false) {
            Ok(cache) => judge(run, point, Some(half), &cache, &devices[2]),
            Err(CacheError::MaybeStale { .. }) if !may_be_stale => {
                self.forced += 1;
                let cache = open_half(&devices, half, true).map_err(|error| error.to_string())?;
                judge(run, point, Some(half), &cache, &devices[2])
            }
            Err(
                CacheError::MaybeStale { .. }
                | CacheError::StaleFlash { .. }
                | CacheError::DiskChanged { .. }
                | CacheError::Behind { .. },
            ) if may_be_stale => {
                self.stale += 1;
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
        .map_err(|why| format!("SSD {half} alone: {why}"))
    }

    fn try_state(
        &mut self,
        run: &Run,
        point: usize,
        images: &[Image],
        stale: [bool; 2],
    ) -> Result<(), String> {
        self.states += 1;
        let devices = copies(images);
        let cache = open_mirrored(&devices, false).map_err(|error| error.to_string())?;
        judge(run, point, None, &cache, &devices[2])?;
        for half in [0, 1] {
            self.try_half(run, point, images, half, stale[half])?;
        }
        Ok(())
    }

    /// Visits crash points of a program, each in some ways; from one of them a second program starts. `stale` tells SSDs that failed
    /// in an earlier one.
    fn explore(&mut self, images: &[Image], seed: u64, steps: usize, rounds: usize, stale: [bool; 2]) {
        let mut random = Random::new(seed ^ 0x3193);
        let fails = seed % 3 != 1;
        let half = usize::from(seed.is_multiple_of(2));
        let failure = fails.then(|| Failure { half, step: random.index(steps) });
        let run = run(images, seed, steps, seed.is_multiple_of(4), failure);
        let mut now_stale = stale;
        now_stale[half] |= fails;
        let mut replay = run.history.recording.replay();
        let points: Vec<usize> = run.history.recording.crash_points().collect();
        let second = random.index(points.len());
        for point in points {
            replay.advance_to(point);
            let modes = if seeds().is_some() { LossMode::ALL.len() } else { 2 };
            for (number, mode) in LossMode::ALL.into_iter().cycle().skip(point * 2).take(modes).enumerate() {
                let state = replay.state(mode, &mut random);
                let images = state.images();
                if let Err(why) = self.try_state(&run, point, &images, now_stale) {
                    let losses: Vec<String> = state.losses.iter().map(ToString::to_string).collect();
                    panic!("seed {seed}, point {point}, {mode:?}: {why}\nlost: {losses:#?}");
                }
                if number == 0 && point == second && rounds > 1 {
                    self.explore(&images, seed + 1001, steps, rounds - 1, now_stale);
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
    for shape in [NARROW, Shape { disk_bytes: 512 << 10, ..SMALL }] {
        let mut seen = Seen::default();
        for seed in 0..seeds().unwrap_or(2) {
            seen.explore(&new_images(shape), seed, 16, 3, [false; 2]);
        }
        println!("{seen:?}");
        assert!(seen.stale > 0 && seen.halves > seen.stale, "{seen:?}");
        assert!(seen.forced * 10 < seen.halves, "{seen:?}");
    }
}
