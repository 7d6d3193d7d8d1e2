//! SSDs of a mirror that fail while the cache is in use: it goes on with the other one, as a plain disk does.

use super::NARROW;
use crate::world::{BLOCK, SMALL, contents, open_half, open_mirrored};
use brindle_cache::{Cache, CacheError, GivenUpSsd, MirrorState};
use brindle_device::{Device, WritableDevice};
use brindle_sim::{Fault, FaultyDevice, ImageDevice, Random};
use std::sync::Arc;

/// A cache over devices that can be made to fail, and the devices below them.
struct Weak {
    cache: Cache,
    devices: [Arc<FaultyDevice>; 3],
    plain: [Arc<ImageDevice>; 3],
}

fn weak(shape: crate::world::Shape) -> Weak {
    let plain = shape.mirrored_devices();
    let devices = plain.clone().map(|device| Arc::new(FaultyDevice::new(device)));
    let cache = shape.create_mirrored(&devices).expect("it can be made");
    assert!(cache.veil().expect("it works"));
    Weak { cache, devices, plain }
}

fn slots() -> std::ops::Range<u64> {
    (64 << 10)..u64::MAX
}

#[test]
fn a_block_that_is_wrong_on_one_ssd_is_read_from_the_other_and_written_right() {
    for half in [0, 1] {
        for fault in [Fault::ReadsWithin(slots()), Fault::WrongReadsWithin(slots())] {
            let Weak { cache, devices, .. } = weak(SMALL);
            let bytes = [5; 200 << 10];
            cache.write_at(100 * BLOCK, &bytes).expect("it works");
            devices[half].inject(fault);
            let mut found = [0; 200 << 10];
            cache.read_at(100 * BLOCK, &mut found).expect("the other one has all");
            assert_eq!(found, bytes);
            let repairs = cache.status().counters.mirror_repairs;
            assert!(repairs > 0, "a part is read from each");
            cache.write_at(100 * BLOCK + 5, &[6]).expect("the rest of it comes from the other one");
            assert_eq!(cache.clean_all().expect("it works"), 8, "all but the mark");
            assert!(cache.status().counters.mirror_repairs > repairs, "cleaned from the other one");
            let state = cache.status();
            assert_eq!((state.mirror, state.counters.mirror_losses), (Some(MirrorState::InSync), 0));
            cache.verify().expect("sums agree");
        }
    }
}

#[test]
fn a_rotten_slot_is_written_right_from_the_mirror() {
    let mut repairs = 0;
    for half in [0, 1] {
        let Weak { cache, plain, .. } = weak(SMALL);
        cache.write_at(100 * BLOCK, &[0x5a; 64 << 10]).expect("it works");
        let whole = contents(&*plain[half]);
        let place = whole.chunks(1024).position(|block| block == [0x5a; 1024]).expect("there") as u64 * 1024;
        plain[half].write_at(place + 100, &[1; 300]).expect("memory");
        let mut found = [0; 64 << 10];
        cache.read_at(100 * BLOCK, &mut found).expect("one copy is right");
        assert!(found.iter().all(|byte| *byte == 0x5a));
        let repaired = cache.status().counters.mirror_repairs;
        assert_eq!(contents(&*plain[half]) == whole, repaired == 1, "SSD {half}");
        repairs += repaired;
    }
    assert_eq!(repairs, 1, "of the copy that is read");
}

#[test]
fn an_ssd_that_fails_at_any_call_is_given_up_and_the_other_goes_on() {
    for half in [0, 1] {
        for calls in 0..15 {
            let Weak { cache, devices, plain } = weak(SMALL);
            devices[half].inject(Fault::VanishAfter { calls: total(&devices[half]) + calls });
            for round in 1..6_u8 {
                cache.write_at(u64::from(round) * 70 * BLOCK, &[round; 8192]).expect("it goes on");
                cache.flush().expect("it goes on");
            }
            let status = cache.status();
            let failed = plain[half].name().to_owned();
            assert_eq!(status.mirror, Some(MirrorState::Degraded { failed: Some(failed) }), "{calls} calls");
            assert_eq!((status.counters.mirror_losses, &status.stopped), (1, &None));
            drop(cache);
            let refused = open_half(&plain, half, false).expect_err("it is stale");
            assert!(matches!(refused, CacheError::StaleFlash { .. }), "{calls} calls: {refused}");
            let copies = [&plain[0], &plain[1], &plain[2]].map(Arc::clone);
            for both in [false, true] {
                let cache =
                    if both { open_mirrored(&copies, false) } else { open_half(&copies, 1 - half, false) };
                let found = contents(&cache.expect("the newest one is there"));
                (1..6_u8)
                    .for_each(|round| assert_eq!(found[usize::from(round) * 70 * 1024], round, "{calls}"));
            }
        }
    }
}

fn total(device: &FaultyDevice) -> u64 {
    let counts = device.counts();
    counts.reads + counts.writes + counts.flushes
}

#[test]
fn errors_of_each_ssd_are_counted_though_the_other_one_makes_them_good() {
    for half in [0, 1] {
        let Weak { cache, devices, plain } = weak(SMALL);
        cache.write_at(100 * BLOCK, &[5; 200 << 10]).expect("it works");
        devices[half].inject(Fault::ReadsWithin(slots()));
        cache.read_at(100 * BLOCK, &mut [0; 200 << 10]).expect("the other one has all");
        let status = cache.status();
        let mut reads = [status.counters.ssd_read_errors, status.counters.mirror_read_errors];
        reads.rotate_left(half);
        assert!(reads[0] > 0 && reads[1] == 0, "SSD {half}: {reads:?}");
        assert_eq!(status.given_up, None);
        devices[half].inject(Fault::FlushesFrom { number: devices[half].counts().flushes });
        cache.flush().expect("it goes on");
        let status = cache.status();
        let mut flushes = [status.counters.ssd_flush_errors, status.counters.mirror_flush_errors];
        flushes.rotate_left(half);
        assert_eq!(flushes, [1, 0], "SSD {half}");
        assert_eq!(status.given_up, Some(GivenUpSsd { ssd: plain[half].name().to_owned(), since: 0 }));
    }
}

#[test]
fn when_the_second_one_fails_too_nothing_is_acknowledged_in_vain() {
    let Weak { cache, devices, plain } = weak(SMALL);
    cache.write_at(100 * BLOCK, &[1; 1024]).expect("it works");
    cache.flush().expect("it works");
    devices[0].vanish();
    cache.write_at(100 * BLOCK, &[2; 1024]).expect("it goes on");
    cache.flush().expect("it goes on");
    devices[1].inject(Fault::FlushesFrom { number: devices[1].counts().flushes });
    cache.write_at(100 * BLOCK, &[3; 1024]).expect("it goes on");
    cache.flush().expect_err("none is left");
    cache.write_at(0, &[1]).expect_err("it is stopped");
    drop(cache);
    let found = contents(&open_mirrored(&plain, false).expect("as after a crash"));
    assert!([2, 3].contains(&found[100 << 10]));
}

/// A cache, and the contents that it should have.
struct Model {
    weak: Weak,
    contents: Vec<u8>,
    /// The SSD that fails, if one does.
    failing: Option<usize>,
}

impl Model {
    fn step(&mut self, random: &mut Random) {
        let size = self.contents.len() as u64;
        let unit = *random.pick(&[1, 512, BLOCK, BLOCK]);
        let offset =
            if random.chance(2, 3) { random.below(40 * BLOCK) } else { random.below(size) } / unit * unit;
        let length = ((1 + random.below(20)) * unit).min(size - offset);
        let (at, count) = (usize::try_from(offset).expect("small"), usize::try_from(length).expect("small"));
        let cache = &self.weak.cache;
        match random.below(20) {
            0..9 => {
                let mut bytes = vec![0; count];
                random.fill(&mut bytes);
                cache.write_at(offset, &bytes).expect("one SSD works");
                self.contents[at..at + count].copy_from_slice(&bytes);
            }
            9..13 => {
                let mut bytes = vec![0; count];
                cache.read_at(offset, &mut bytes).expect("one SSD works");
                assert!(bytes == self.contents[at..at + count], "{length} bytes at {offset}");
            }
            13..15 => cache.flush().expect("one SSD works"),
            15 => {
                assert!(cache.discard(offset, length).expect("one SSD works"));
                self.contents[at..at + count].fill(0);
            }
            16 => _ = cache.upkeep().expect("one SSD works"),
            17 if self.failing.is_none() => self.fail(random),
            18 if random.chance(1, 3) => self.load_again(random),
            _ => _ = cache.clean_all().expect("one SSD works"),
        }
        self.weak.cache.verify().expect("sums agree");
    }

    fn fail(&mut self, random: &mut Random) {
        let half = random.index(2);
        let device = &self.weak.devices[half];
        let counts = device.counts();
        device.inject(match random.below(6) {
            0 => Fault::VanishAfter { calls: total(device) + random.below(12) },
            1 => Fault::FlushesFrom { number: counts.flushes },
            2 => Fault::WritesFrom { number: counts.writes + random.below(5) },
            3 => Fault::WrongReadsWithin(slots()),
            4 => Fault::ReadsWithin(slots()),
            _ => Fault::FullFrom { number: counts.writes + random.below(5) },
        });
        self.failing = Some(half);
    }

    /// Ends the use in order or by a crash that loses nothing, and begins the next one with the SSDs that work, or both.
    fn load_again(&mut self, random: &mut Random) {
        let cache = &self.weak.cache;
        let is_veiled = cache.status().is_veiled;
        if random.chance(1, 2) {
            cache.set("fast_remove", if random.chance(1, 2) { "1" } else { "0" }).expect("a setting");
            cache.close().expect("one SSD works");
        } else {
            cache.flush().expect("one SSD works");
        }
        let is_degraded = cache.status().mirror != Some(MirrorState::InSync);
        self.weak.devices.iter().for_each(|device| device.heal());
        let survivor = match self.failing.take() {
            Some(half) if is_degraded => 1 - half,
            _ => random.index(2),
        };
        // One that is alone may stay so for a while. It has to be forced where a full set had no room for the mark.
        let is_half = random.chance(1, 3) && is_veiled;
        let loaded = match is_half {
            true => open_half(&self.weak.devices, survivor, false),
            false => open_mirrored(&self.weak.devices, false),
        };
        self.weak.cache = loaded.expect("the newest one is there");
        assert!(self.weak.cache.veil().expect("it works"));
        if is_half {
            // The other one comes back, stale, at the next time.
            self.weak.devices[1 - survivor].vanish();
            self.failing = Some(1 - survivor);
        }
    }
}

#[test]
fn a_cache_on_two_ssds_is_a_disk_whichever_of_them_fails() {
    for (shape, seeds) in [(NARROW, 0..8), (SMALL, 8..16)] {
        let mut losses = 0;
        for seed in seeds {
            let size = usize::try_from(shape.disk_bytes).expect("small");
            let mut model = Model { weak: weak(shape), contents: vec![0; size], failing: None };
            let mut random = Random::new(seed);
            for _ in 0..600 {
                model.step(&mut random);
                losses += model.weak.cache.status().counters.mirror_losses;
            }
            let Weak { cache, plain, .. } = &model.weak;
            assert!(contents(cache) == model.contents, "seed {seed}");
            cache.close().expect("one SSD works");
            assert!(contents(&*plain[2]) == model.contents, "seed {seed}: the disk");
        }
        assert!(losses > 0, "no SSD was given up");
    }
}
