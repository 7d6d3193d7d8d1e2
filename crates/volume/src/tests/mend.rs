//! Writes that a device fails to take are repeated, or the device is seen to lack them.

use super::flaky::Flaky;
use super::support::*;
use crate::{DataChecksums, DeviceSet, SuperblockCopies, UnusedReason, Volume, Warning, WriteError};
use brindle_ondisk::{DevId, Generation, Profile, SUPERBLOCK_SIZE, Superblock, to_usize};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A pool in which one device fails now and then, and what it is to hold.
struct Game {
    pool: TestPool,
    volume: Volume,
    devices: Vec<Arc<Flaky>>,
    generation: u64,
    /// The commit before.
    published: u64,
    /// Generations expected of devices.
    marks: BTreeMap<usize, u64>,
    /// Contents of the devices before the last superblocks.
    before: Vec<Vec<u8>>,
}

impl Game {
    fn new(profile: Profile, stripes: usize, seed: u8) -> Self {
        let pool = TestPool::new(profile, stripes, 3, &mut rng(seed));
        let (volume, devices) = pool.open_writable(&[]);
        devices.iter().for_each(|device| device.forgets_what_is_not_flushed());
        let before = Vec::new();
        Self { pool, volume, devices, generation: 10, published: 10, marks: BTreeMap::new(), before }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.volume.write_data(START + offset as u64, bytes).expect("one device may fail");
        let mut contents = self.pool.contents.clone();
        contents[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.pool.set_contents(contents);
    }

    /// Commits, as the tree layer does; how many generations were passed over.
    fn commit(&mut self) -> u64 {
        self.published = self.generation;
        loop {
            self.generation += 1;
            for devid in self.volume.devices_to_mark() {
                self.volume.mark_device(devid, Generation::new(self.generation));
                self.marks.insert(to_usize(devid.get()) - 1, self.generation);
            }
            self.volume.make_whole(&DeviceSet::ALL).expect("the others are whole");
            if self.volume.devices_to_mark().is_empty() {
                break;
            }
        }
        self.before = self.devices.iter().map(|device| device.bytes()).collect();
        let mut superblock = Superblock::clone(&self.volume.superblock());
        superblock.generation = Generation::new(self.generation);
        self.volume
            .write_superblocks(&superblock, &[], SuperblockCopies::First, &DeviceSet::ALL)
            .expect("one may fail");
        self.volume.flush(&DeviceSet::ALL).expect("one may fail");
        self.generation - self.published - 1
    }

    /// The devices that a mount would leave out.
    fn left_out(&self, images: &[Vec<u8>]) -> Vec<usize> {
        let is_old = |device: &usize| {
            let bytes = images[*device][STRIP..][..SUPERBLOCK_SIZE].try_into().expect("the size of one");
            let found = Superblock::parse(bytes, STRIP as u64).expect("whole").generation.get();
            found < self.marks.get(device).copied().unwrap_or(0) || found < self.published
        };
        (0..self.devices.len()).filter(is_old).collect()
    }

    fn left_out_now(&self) -> Vec<usize> {
        self.left_out(&self.devices.iter().map(|device| device.bytes()).collect::<Vec<_>>())
    }

    /// Everything can be read without those that are left out, and without any others that may be lost too: now, and
    /// if a crash had kept the last superblock from any device.
    fn examine(&self) {
        let now: Vec<Vec<u8>> = self.devices.iter().map(|device| device.bytes()).collect();
        let mut states = vec![now.clone()];
        for device in 1..now.len() {
            let mut state = now.clone();
            state[device].clone_from(&self.before[device]);
            states.push(state);
        }
        for images in states {
            let left_out = self.left_out(&images);
            let pool = TestPool { images, ..self.pool.clone() };
            let losses = pool.tolerated_losses();
            assert!(losses.contains(&left_out), "{left_out:?}");
            for lost in losses.iter().filter(|lost| left_out.iter().all(|device| lost.contains(device))) {
                let (volume, mut found) = (pool.open(lost), vec![0; pool.contents.len()]);
                volume.read_data(START, &mut found, &DataChecksums::none()).expect("readable");
                assert!(found == pool.contents, "without {lost:?}, of which {left_out:?} are left out");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_device_that_lacks_something_is_left_out(
        shape in 0..SHAPES.len(),
        seed: u8,
        steps in prop::collection::vec((0..12u8, any::<prop::sample::Index>(), 1..40usize, any::<u8>()), 1..40),
    ) {
        let (profile, stripes) = SHAPES[shape];
        let is_redundant = profile.attributes().ncopies > 1 || profile.has_parity();
        prop_assume!(is_redundant && profile != Profile::Dup);
        let mut game = Game::new(profile, stripes, seed);
        // The first device alone holds the system chunk.
        let victim = Arc::clone(&game.devices[1 + usize::from(seed) % (game.devices.len() - 1)]);
        for (what, place, length, byte) in steps {
            match what {
                0 => victim.fail_writes(byte % 2 == 0),
                1 => victim.fails_flushes.store(byte % 2 == 0, Relaxed),
                2..=4 => {
                    game.commit();
                    game.examine();
                }
                _ => {
                    let sectors = game.pool.contents.len() / SECTOR;
                    let start = place.index(sectors);
                    let length = length.min(sectors - start);
                    game.write(start * SECTOR, &vec![byte; length * SECTOR]);
                }
            }
        }
        victim.fail_writes(false);
        victim.fails_flushes.store(false, Relaxed);
        game.commit();
        game.examine();
        prop_assert_eq!(game.left_out_now(), [], "who has everything takes part again");
    }
}

#[test]
fn lost_writes_are_repeated_before_the_superblock() {
    let mut game = Game::new(Profile::Raid1, 2, 60);
    game.devices[1].fail_writes(true);
    game.write(SECTOR, &[1; SECTOR]);
    game.devices[1].fail_writes(false);
    assert_eq!(game.commit(), 0, "nothing is lacking");
    assert_eq!(game.volume.devices()[1].counters.repaired, 1);
    assert_eq!(game.left_out_now(), []);
    game.examine();
}

#[test]
fn a_device_that_falls_behind_is_marked_and_comes_back_when_it_has_everything() {
    let mut game = Game::new(Profile::Raid5, 3, 61);
    assert_eq!(game.commit(), 0);
    game.devices[2].fail_writes(true);
    game.write(0, &[1; SECTOR]);
    game.write(STRIP, &[2; SECTOR]);
    assert_eq!(game.commit(), 0, "it was known in time");
    assert_eq!((game.marks[&2], game.generation), (12, 12));
    game.write(0, &[3; STRIP]);
    assert_eq!(game.commit(), 0, "it is behind already");
    assert_eq!(game.marks[&2], 12);
    game.examine();
    game.devices[2].fail_writes(false);
    assert_eq!(game.commit(), 0);
    assert_eq!(game.left_out_now(), []);
    game.examine();
    game.devices[2].fail_writes(true);
    game.write(0, &[4; STRIP]);
    assert_eq!(game.commit(), 0);
    assert_eq!((game.marks[&2], game.generation), (15, 15), "the old mark says nothing any more");
    game.examine();
}

#[test]
fn a_flush_that_fails_makes_what_was_written_before_doubtful() {
    let mut game = Game::new(Profile::Raid1, 2, 62);
    game.write(0, &[1; SECTOR]);
    game.devices[1].fails_flushes.store(true, Relaxed);
    assert_eq!(game.commit(), 1);
    assert_eq!(game.left_out_now(), [1]);
    game.examine();
    game.devices[1].fails_flushes.store(false, Relaxed);
    game.write(5 * SECTOR, &[2; SECTOR]);
    assert_eq!(game.commit(), 0);
    assert_eq!(game.left_out_now(), []);
    game.examine();
}

#[test]
fn a_missing_device_is_marked_and_left_out_when_it_is_back() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(63));
    let (volume, _) = pool.open_writable(&[1]);
    assert_eq!(volume.devices_to_mark(), [DevId::new(2)]);
    volume.mark_device(DevId::new(2), Generation::new(11));
    assert_eq!(volume.devices_to_mark(), []);
    let mut item = dev_item(2, FSID, pool.images[1].len() as u64);
    item.generation = Generation::new(11);
    let (volume, _) = pool.open_writable(&[]);
    volume.add_device(&item).expect("put aside");
    assert!(volume.devices()[1].missing);
    let unused = volume.unused_devices();
    assert!(unused.iter().any(|unused| matches!(unused.reason, UnusedReason::Stale(_))), "{unused:?}");
    let reader = pool.open(&[]);
    assert!(!reader.devices()[1].is_stale);
    reader.add_device(&item).expect("read last");
    assert!(reader.devices()[1].is_stale && !reader.devices()[1].missing);
    let warnings = reader.warnings();
    assert!(matches!(warnings[..], [Warning::Stale { .. }]), "{warnings:?}");
}

#[test]
fn too_many_devices_that_lack_something_are_an_error() {
    let pool = TestPool::new(Profile::Raid1, 2, 4, &mut rng(64));
    let (volume, devices) = pool.open_writable(&[]);
    for (device, sector) in [(0, 3), (1, 40)] {
        let bad = pool.place(device, sector * SECTOR).1 as u64;
        devices[device].bad.lock().expect("no panic").push(bad..bad + 1);
    }
    let blocks: Vec<_> =
        pool.contents.chunks(SECTOR).enumerate().map(|(n, b)| (START + (n * SECTOR) as u64, b)).collect();
    volume.write_blocks(&blocks).expect("each sector has a copy");
    let error = volume.make_whole(&DeviceSet::ALL).expect_err("neither device holds everything");
    assert!(matches!(&error, WriteError::Behind { devices } if devices.len() == 2), "{error}");
    assert!(error.to_string().ends_with("to them: disk0, disk1"), "{error}");
}

#[test]
fn data_of_which_a_device_holds_both_copies_are_not_written_if_one_fails() {
    let pool = TestPool::new(Profile::Dup, 2, 2, &mut rng(65));
    let (volume, devices) = pool.open_writable(&[]);
    let bad = pool.place(1, 0).1 as u64;
    devices[0].bad.lock().expect("no panic").push(bad..bad + 1);
    volume.write_data(START, &[1; SECTOR]).expect_err("there is no device to be left out");
    volume.make_whole(&DeviceSet::ALL).expect("who was told that it failed does not rely on it");
    assert_eq!(volume.devices_to_mark(), []);
}
