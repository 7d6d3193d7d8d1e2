//! Written data is read back, in every way and without any device that may be lost.

use super::support::*;
use crate::{DataChecksums, DeviceSet, Volume, WriteError};
use brindle_ondisk::{Logical, Profile};
use brindle_policy::read::{ReadPolicy, ReadSettings};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use std::sync::Arc;

fn at(offset: usize) -> Logical {
    START + offset as u64
}

fn random(length: usize, rng: &mut TestRng) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A random range of whole units.
fn range(unit: usize, size: usize, longest: usize, rng: &mut TestRng) -> std::ops::Range<usize> {
    let units = size / unit;
    let start = rng.random_range(0..units);
    let length = rng.random_range(1..=longest.min(units - start));
    start * unit..(start + length) * unit
}

fn read_all(pool: &TestPool, volume: &Volume) -> Vec<u8> {
    let mut buffer = vec![0; pool.contents.len()];
    volume.read_data(START, &mut buffer, &DataChecksums::all(&pool.checksums)).expect("readable");
    buffer
}

/// Every way to obtain every sector gives what it should: parity is right too.
fn every_way_is_right(pool: &TestPool, volume: &Volume) {
    for way in 0..volume.copies(START).expect("mapped") {
        let mut buffer = vec![0; pool.contents.len()];
        volume.read_mirror(START, way, &mut buffer).expect("no device fails");
        assert!(buffer == pool.contents, "way {way}");
    }
}

/// Checks every loss that is tolerated on top of the missing devices.
fn every_loss_is_made_good(pool: &TestPool, missing: &[usize]) {
    for lost in pool.tolerated_losses() {
        if missing.iter().all(|device| lost.contains(device)) {
            assert!(read_all(pool, &pool.open(&lost)) == pool.contents, "without {lost:?}");
        }
    }
}

#[test]
fn a_range_that_was_prefetched_is_read_as_it_was_written_since() {
    for (profile, stripes) in SHAPES {
        for policy in ReadPolicy::NAMED {
            let mut rng = rng(29);
            let pool = TestPool::new(profile, stripes, 8, &mut rng);
            let (volume, _) = pool.open_writable(&[]);
            volume.set_read_settings(ReadSettings::of(policy));
            let length = pool.contents.len();
            assert_eq!(volume.prefetch(START, length as u64), length as u64);
            let new = random(3 * SECTOR, &mut rng);
            let offset = 5 * SECTOR;
            volume.write_data(at(offset), &new).expect("writable");
            let mut expected = pool.contents.clone();
            expected[offset..offset + new.len()].copy_from_slice(&new);
            let mut found = vec![0; length];
            volume.read_data(START, &mut found, &DataChecksums::none()).expect("readable");
            assert!(found == expected, "{profile:?}, {policy:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_writes_are_those_of_a_plain_vector(
        shape in 0..SHAPES.len(),
        seed: u8,
        rows in 1..5usize,
        missing: prop::sample::Index,
        writes in 1..8usize,
    ) {
        let (profile, stripes) = SHAPES[shape];
        let mut rng = rng(seed);
        let mut pool = TestPool::new(profile, stripes, rows, &mut rng);
        let losses = pool.tolerated_losses();
        let missing = losses[missing.index(losses.len())].clone();
        let (volume, devices) = pool.open_writable(&missing);
        let mut model = pool.contents.clone();
        for _ in 0..writes {
            let range = range(SECTOR, model.len(), 1 << rng.random_range(0..8), &mut rng);
            let bytes = random(range.len(), &mut rng);
            volume.write_data(at(range.start), &bytes).expect("tolerable");
            model[range.clone()].copy_from_slice(&bytes);
            pool.set_contents(model.clone());
            prop_assert!(read_all(&pool, &volume) == model);
        }
        pool.take(&devices);
        if missing.is_empty() {
            every_way_is_right(&pool, &volume);
        }
        every_loss_is_made_good(&pool, &missing);
    }

    #[test]
    fn batches_of_blocks_are_those_of_a_plain_vector(
        shape in 0..SHAPES.len(),
        seed: u8,
        missing: prop::sample::Index,
    ) {
        const BLOCK: usize = 16384;
        let (profile, stripes) = SHAPES[shape];
        let mut rng = rng(seed);
        let mut pool = TestPool::new(profile, stripes, 6, &mut rng);
        let losses = pool.tolerated_losses();
        let missing = losses[missing.index(losses.len())].clone();
        let (volume, devices) = pool.open_writable(&missing);
        let mut model = pool.contents.clone();
        for density in [2, 5, 100] {
            let offsets = (0..model.len()).step_by(BLOCK).filter(|_| rng.random_range(0..100) % density != 0);
            let offsets: Vec<usize> = offsets.collect();
            let blocks: Vec<(usize, Vec<u8>)> =
                offsets.into_iter().map(|offset| (offset, random(BLOCK, &mut rng))).collect();
            let given: Vec<(Logical, &[u8])> =
                blocks.iter().map(|(offset, bytes)| (at(*offset), bytes.as_slice())).collect();
            volume.write_blocks(&given).expect("tolerable");
            for (offset, bytes) in &blocks {
                model[*offset..offset + BLOCK].copy_from_slice(bytes);
            }
            pool.set_contents(model.clone());
            prop_assert!(read_all(&pool, &volume) == model);
        }
        pool.take(&devices);
        if missing.is_empty() {
            every_way_is_right(&pool, &volume);
        }
        every_loss_is_made_good(&pool, &missing);
    }
}

#[test]
fn writers_of_one_row_do_not_spoil_its_parity() {
    for (profile, stripes) in [(Profile::Raid5, 5), (Profile::Raid6, 6)] {
        let mut pool = TestPool::new(profile, stripes, 2, &mut rng(30));
        let (volume, devices) = pool.open_writable(&[]);
        let byte = |strip: usize| u8::try_from(1 << strip).expect("8 strips");
        let together = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            // Each has a column of its own, and all of them the same parity.
            for column in 0..4 {
                let (volume, together) = (&volume, &together);
                scope.spawn(move || {
                    for strip in [column, 4 + column] {
                        let bytes = vec![byte(strip); SECTOR];
                        for sector in 0..STRIP / SECTOR {
                            together.wait();
                            volume.write_data(at(strip * STRIP + sector * SECTOR), &bytes).expect("write");
                        }
                    }
                });
            }
        });
        pool.set_contents((0..8).flat_map(|strip| vec![byte(strip); STRIP]).collect());
        pool.take(&devices);
        every_way_is_right(&pool, &volume);
        every_loss_is_made_good(&pool, &[]);
    }
}

#[test]
fn parity_that_meant_nothing_is_right_after_a_write() {
    for (profile, stripes) in SHAPES.into_iter().filter(|shape| shape.0.has_parity()) {
        let mut pool = TestPool::new(profile, stripes, 2, &mut rng(31));
        // As on devices that held something else before: parity is whatever it was.
        for (stripe, cells) in pool.table.clone().into_iter().enumerate() {
            for (row, _) in cells.iter().enumerate().filter(|(_, cell)| as_data(**cell).is_none()) {
                let (device, start) = pool.place(stripe, row * STRIP);
                pool.images[device][start..start + STRIP].fill(0xa5);
            }
        }
        let (volume, devices) = pool.open_writable(&[]);
        let mut model = pool.contents.clone();
        for sector in (0..model.len()).step_by(SECTOR) {
            let first_of_row = sector % (columns(profile, stripes) * STRIP) < STRIP;
            if first_of_row {
                model[sector..sector + SECTOR].fill(9);
                volume.write_data(at(sector), &[9; SECTOR]).expect("write");
            }
        }
        pool.set_contents(model);
        pool.take(&devices);
        every_way_is_right(&pool, &volume);
        every_loss_is_made_good(&pool, &[]);
    }
}

#[test]
fn adjacent_runs_are_one_write_per_device() {
    for (profile, stripes, expected) in [
        (Profile::Single, 1, &[1][..]),
        (Profile::Dup, 2, &[2]),
        (Profile::Raid0, 3, &[1, 1, 1]),
        (Profile::Raid1, 2, &[1, 1]),
        (Profile::Raid10, 4, &[1, 1, 1, 1]),
        (Profile::Raid5, 3, &[1, 1, 1]),
        (Profile::Raid6, 5, &[1, 1, 1, 1, 1]),
    ] {
        let pool = TestPool::new(profile, stripes, 6, &mut rng(32));
        let (volume, devices) = pool.open_writable(&[]);
        let blocks: Vec<(Logical, &[u8])> =
            pool.contents.chunks(16384).enumerate().map(|(n, bytes)| (at(n * 16384), bytes)).collect();
        devices
            .iter()
            .for_each(|device| device.fails_reads.store(true, std::sync::atomic::Ordering::Relaxed));
        volume.write_blocks(&blocks).expect("whole rows need nothing read");
        let writes: Vec<usize> =
            devices.iter().map(|device| device.writes.lock().expect("no panic").len()).collect();
        assert_eq!(writes, expected, "{profile}");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let pool = TestPool::new(Profile::Raid1, 2, 2, &mut rng(33));
    let (volume, devices) = pool.open_writable(&[]);
    let refused =
        |logical, bytes: &[u8]| matches!(volume.write_data(logical, bytes), Err(WriteError::Request { .. }));
    assert!(refused(START + 1, &[0; SECTOR]) && refused(START, &[0; 100]));
    assert!(refused(at(pool.contents.len() - SECTOR), &[0; 2 * SECTOR]));
    let unmapped = volume.write_data(Logical::new(1 << 40), &[0; SECTOR]);
    assert!(matches!(unmapped, Err(WriteError::Unmapped { .. })));
    let read_only = pool.open(&[]);
    assert!(!read_only.is_writable() && volume.is_writable());
    assert!(matches!(read_only.write_data(START, &[0; SECTOR]), Err(WriteError::ReadOnly)));
    assert!(matches!(read_only.flush(&DeviceSet::ALL), Err(WriteError::ReadOnly)));
    assert_eq!(read_only.discard(START, 1 << 20), 0);
    assert!(volume.remove_chunk(START) && !volume.remove_chunk(START));
    assert!(matches!(volume.write_data(START, &[0; SECTOR]), Err(WriteError::Unmapped { .. })));
    assert!(devices.iter().all(|device| device.writes.lock().expect("no panic").is_empty()));
}

#[test]
fn a_discard_takes_what_it_is_told_and_no_more() {
    for (profile, stripes) in SHAPES {
        let mut pool = TestPool::new(profile, stripes, 4, &mut rng(34));
        let row = columns(profile, stripes) * STRIP;
        let whole = if profile.has_parity() { row } else { SECTOR };
        let (volume, devices) = pool.open_writable(&[]);
        let range = SECTOR..3 * row + 5 * SECTOR;
        assert!(volume.discard(at(range.start), range.len() as u64) > 0);
        let mut model = pool.contents.clone();
        model[range.start.next_multiple_of(whole)..range.end / whole * whole].fill(0);
        pool.set_contents(model);
        pool.take(&devices);
        every_way_is_right(&pool, &volume);
        every_loss_is_made_good(&pool, &[]);
    }
}

#[test]
fn a_seed_is_not_written() {
    let pool = TestPool::new(Profile::Single, 1, 1, &mut rng(35));
    let mut seed = superblock(brindle_ondisk::Uuid([5; 16]), 9, 1, 3);
    seed.flags.set(1 << 32);
    let mut image = vec![0; 1 << 20];
    put_superblock(&mut image, &seed, STRIP);
    let seed = Arc::new(super::flaky::Flaky::new("seed", &image));
    let sprout = Arc::new(super::flaky::Flaky::new("sprout", &pool.images[0]));
    let devices: Vec<Arc<dyn brindle_device::WritableDevice>> = vec![Arc::clone(&seed) as _, sprout];
    let volume = Volume::open_writable(devices, &crate::OpenOptions::default()).expect("open");
    volume.add_device(&dev_item(9, brindle_ondisk::Uuid([5; 16]), 1 << 20)).expect("device");
    volume.add_device(&dev_item(1, FSID, pool.images[0].len() as u64)).expect("device");
    let chunk = OwnedChunk::new(brindle_ondisk::BlockGroupType::DATA, STRIP as u64, vec![stripe(9, 1 << 19)]);
    volume.add_chunk(START, &chunk.view()).expect("chunk");
    volume.check_complete().expect("complete");
    let error = volume.write_data(START, &[0; SECTOR]).expect_err("of the seed").to_string();
    assert_eq!(error, "writing logical 1073741824, 4096 bytes: its chunk belongs to a seed");
    let writable: Vec<bool> = volume.chunks().iter().map(|chunk| chunk.writable).collect();
    assert_eq!(writable, [true, false]);
    assert_eq!(volume.writable_devices().len(), 1);
    let superblock = volume.superblock();
    volume
        .write_superblocks(&superblock, &[], crate::SuperblockCopies::All, &DeviceSet::ALL)
        .expect("the sprout's");
    volume.flush(&DeviceSet::ALL).expect("flush");
    assert!(seed.writes.lock().expect("no panic").is_empty());
    assert!(seed.bytes() == image);
}
