//! Reads of damaged pools.

use super::support::*;
use crate::{AttemptFailure, DataChecksums, DeviceCounters, ReadError, Volume};
use brindle_ondisk::{
    Checksum, ChecksumType, CorruptNode, Defect, DevId, Logical, NodeProblem, Physical, Profile,
};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use proptest::prelude::*;
use std::sync::Arc;

const CRC: ChecksumType = ChecksumType::Crc32c;

fn read_all(pool: &TestPool, volume: &Volume) -> Result<Vec<u8>, ReadError> {
    let mut buffer = vec![0; pool.contents.len()];
    volume.read_data(START, &mut buffer, &DataChecksums::all(&pool.checksums))?;
    Ok(buffer)
}

fn total(volume: &Volume, count: impl Fn(&DeviceCounters) -> u64) -> u64 {
    volume.devices().iter().map(|device| count(&device.counters)).sum()
}

fn subsets(count: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..1u32 << count).map(move |set| (0..count).filter(|bit| set >> bit & 1 != 0).collect())
}

#[test]
fn every_tolerated_loss_is_made_good_and_no_other() {
    for (profile, stripes) in SHAPES {
        let pool = TestPool::new(profile, stripes, stripes.min(4) + 1, &mut rng(1));
        for missing in subsets(pool.images.len()).filter(|missing| missing.len() < pool.images.len()) {
            let volume = pool.open(&missing);
            let chunk = volume.chunks().into_iter().find(|chunk| chunk.start == START).expect("chunk");
            let layout = crate::layout::Layout::new(&pool.chunk.view()).expect("layout");
            let readable = layout.survives(|stripe| !chunk.stripes[stripe].present);
            match read_all(&pool, &volume) {
                Ok(found) => {
                    assert!(readable, "{profile} without {missing:?}");
                    assert!(found == pool.contents, "{profile} without {missing:?}");
                    assert_eq!(total(&volume, |counters| counters.checksum_errors), 0);
                }
                Err(ReadError::Failed { attempts, .. }) => {
                    assert!(!readable, "{profile} without {missing:?}");
                    let is_missing = |failure: &AttemptFailure| matches!(failure, AttemptFailure::Missing);
                    assert!(attempts.iter().all(|attempt| is_missing(&attempt.failure)));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn too_many_losses_say_which_devices() {
    let pool = TestPool::new(Profile::Raid5, 3, 2, &mut rng(2));
    let error = read_all(&pool, &pool.open(&[1, 2])).expect_err("two of three are gone");
    assert_eq!(
        error.to_string(),
        "logical 1073807360 (chunk 1073741824), 4096 bytes: devid 2 (missing) offset 1114112: device is missing, \
         devid 3 (missing) offset 1179648 rebuilt without devid 2: device is missing"
    );
}

/// Flips a bit of a sector of the chunk in one of its copies; answers with the device.
fn damage(pool: &mut TestPool, offset: usize, copy: usize) -> usize {
    let (stripe, stripe_offset) = pool.copies_of(offset)[copy];
    let (device, at) = pool.place(stripe, stripe_offset);
    pool.images[device][at] ^= 0x10;
    device
}

#[test]
fn a_flipped_bit_in_any_copy_is_read_from_elsewhere_and_counted() {
    for (profile, stripes) in SHAPES.into_iter().filter(|shape| shape.0.attributes().ncopies > 1) {
        let clean = TestPool::new(profile, stripes, 3, &mut rng(3));
        let offset = clean.contents.len() / 2 + 3 * SECTOR + 17;
        for copy in 0..clean.copies_of(offset).len() {
            let mut pool =
                TestPool { images: clean.images.clone(), ..TestPool::new(profile, stripes, 3, &mut rng(3)) };
            let device = damage(&mut pool, offset, copy);
            let volume = pool.open(&[]);
            assert!(read_all(&pool, &volume).expect("another copy") == pool.contents);
            let counters = volume.devices()[device].counters;
            let errors = total(&volume, |counters| counters.checksum_errors);
            assert!(errors <= 1 && errors == counters.checksum_errors && errors == counters.recovered);
            let sector = offset - offset % SECTOR;
            let mut bad = 0;
            for mirror in 0..volume.copies(START + sector as u64).expect("mapped") {
                let mut data = vec![0; SECTOR];
                volume.read_mirror(START + sector as u64, mirror, &mut data).expect("no device fails");
                if data != pool.contents[sector..][..SECTOR] {
                    bad += 1;
                    let (stripe, stripe_offset) = pool.copies_of(offset)[copy];
                    let byte = Physical::new(pool.place(stripe, stripe_offset).1 as u64);
                    let expected = (volume.devices()[device].name.clone(), byte);
                    assert_eq!(volume.mirror_place(START + offset as u64, mirror), Some(expected));
                }
            }
            assert_eq!(bad, 1, "{profile}: each mirror is read by its number");
        }
    }
}

#[test]
fn a_silently_corrupt_strip_is_rebuilt_wherever_it_lies() {
    for (profile, stripes) in SHAPES.into_iter().filter(|shape| shape.0.has_parity()) {
        for stripe in 0..stripes {
            let mut pool = TestPool::new(profile, stripes, stripes, &mut rng(4));
            let (device, start) = pool.place(stripe, 0);
            for sector in (0..stripes * STRIP).step_by(5 * SECTOR) {
                pool.images[device][start + sector + 100] ^= 1;
            }
            let volume = pool.open(&[]);
            assert!(read_all(&pool, &volume).expect("rebuilt") == pool.contents, "{profile} stripe {stripe}");
            let counters = volume.devices()[device].counters;
            assert!(counters.checksum_errors > 0 && counters.recovered == counters.checksum_errors);
            assert_eq!(total(&volume, |counters| counters.checksum_errors), counters.checksum_errors);
        }
    }
}

#[test]
fn raid6_bears_any_two_of_missing_and_corrupt() {
    for stripes in [4, 5, 6] {
        for (first, second) in (0..stripes).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let mut pool = TestPool::new(Profile::Raid6, stripes, 3, &mut rng(5));
            for stripe in [first, second] {
                let (device, start) = pool.place(stripe, 0);
                for sector in 0..3 * STRIP / SECTOR {
                    pool.images[device][start + sector * SECTOR] ^= 0xff;
                }
            }
            for missing in [vec![], vec![first], vec![second]] {
                let found = read_all(&pool, &pool.open(&missing)).expect("two losses are tolerated");
                assert!(
                    found == pool.contents,
                    "{stripes} stripes, {first} and {second}, missing {missing:?}"
                );
            }
            let third = (0..stripes).find(|stripe| *stripe != first && *stripe != second).expect("third");
            read_all(&pool, &pool.open(&[third])).expect_err("three losses are not");
        }
    }
}

#[test]
fn copies_that_fail_in_different_sectors_complete_each_other() {
    for profile in [Profile::Raid1, Profile::Dup, Profile::Raid5] {
        let stripes = if profile == Profile::Raid5 { 3 } else { 2 };
        let mut pool = TestPool::new(profile, stripes, 4, &mut rng(6));
        for stripe in 0..2 {
            let (device, at) = pool.place(stripe, stripe * 7 * SECTOR);
            pool.bad.push((device, at as u64..at as u64 + 1));
        }
        let volume = pool.open(&[]);
        assert!(read_all(&pool, &volume).expect("complete") == pool.contents, "{profile}");
        assert!(total(&volume, |counters| counters.read_errors) >= 1);
    }
}

#[test]
fn a_device_that_fails_all_the_time_is_avoided() {
    let mut pool = TestPool::new(Profile::Raid1, 2, 4, &mut rng(7));
    pool.bad.push((0, 1 << 20..u64::MAX));
    let devices = pool.devices(&[]);
    let volume = pool.open_devices(devices.clone());
    for _ in 0..10 {
        assert!(read_all(&pool, &volume).expect("mirror") == pool.contents);
    }
    let counters = volume.devices()[0].counters;
    assert!(counters.read_errors <= 1 && counters.recovered == counters.read_errors, "{counters:?}");
}

#[test]
fn sectors_without_checksum_are_taken_as_they_are() {
    let mut pool = TestPool::new(Profile::Single, 1, 1, &mut rng(8));
    damage(&mut pool, 0, 0);
    damage(&mut pool, 9 * SECTOR, 0);
    let volume = pool.open(&[]);
    let mut buffer = vec![0; STRIP];
    volume.read_data(START, &mut buffer, &DataChecksums::none()).expect("nothing to verify");
    let partly = DataChecksums::partly(&pool.checksums, &[0b1111_1110, 0b1111_1101]);
    volume.read_data(START, &mut buffer, &partly).expect("the bad ones have none");
    let partly = DataChecksums::partly(&pool.checksums, &[0, 0b10]);
    let error = volume.read_data(START, &mut buffer, &partly).expect_err("sector 9 is bad").to_string();
    let (found, expected) = (CRC.compute(&buffer[9 * SECTOR..][..SECTOR]), &pool.checksums[36..40]);
    let expected = Checksum::from_slice(expected);
    let wanted = format!(
        "logical 1073778688 (chunk 1073741824), 4096 bytes: disk0 offset 1085440: checksum {found} expected {expected}"
    );
    assert_eq!(error, wanted);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let pool = TestPool::new(Profile::Raid0, 3, 1, &mut rng(9));
    let volume = pool.open(&[]);
    let read = |at, length, sums: &DataChecksums<'_>| volume.read_data(at, &mut vec![0; length], sums);
    let none = DataChecksums::none();
    assert!(matches!(read(START + 1, SECTOR, &none), Err(ReadError::Request { .. })));
    assert!(matches!(read(START, 100, &none), Err(ReadError::Request { .. })));
    assert!(matches!(read(START, 2 * SECTOR, &DataChecksums::all(&[0; 7])), Err(ReadError::Request { .. })));
    let top = Logical::new(u64::MAX - 4095);
    assert!(matches!(read(top, SECTOR, &none), Err(ReadError::Request { .. } | ReadError::Unmapped { .. })));
    assert!(matches!(read(Logical::new(0), SECTOR, &none), Err(ReadError::Unmapped { .. })));
    let end = START + pool.contents.len() as u64;
    match volume.read_data(START, &mut vec![0; pool.contents.len() + SECTOR], &none) {
        Err(ReadError::Unmapped { logical }) => assert_eq!(logical, end),
        other => panic!("{other:?}"),
    }
    volume.prefetch(START, u64::MAX);
    volume.prefetch(Logical::new(u64::MAX), 10);
    assert!(volume.read_mirror(START, 1, &mut [0; 8]).is_err(), "raid0 has one way only");
    assert!(volume.copies(end).is_err());
    assert!(volume.read_block(START, 0, Ok).is_err() && volume.read_block(START, 1 << 20, Ok).is_err());
}

fn refuse(problem: NodeProblem) -> CorruptNode {
    CorruptNode { at: START, owner: None, problem }
}

/// A defect whose words are not to decide anything.
fn defect() -> Defect {
    Defect::new("generation of a header is no reason", 1)
}

#[test]
fn a_block_is_read_until_a_copy_is_accepted() {
    for (profile, stripes) in SHAPES {
        let mut pool = TestPool::new(profile, stripes, 2, &mut rng(10));
        let offset = 5 * 16384;
        damage(&mut pool, offset, 0);
        let volume = pool.open(&[]);
        let wanted = &pool.contents[offset..][..16384];
        let check = |bytes: Box<[u8]>| {
            if *bytes == *wanted { Ok(bytes) } else { Err(refuse(NodeProblem::Header(defect()))) }
        };
        let result = volume.read_block(START + offset as u64, 16384, check);
        if volume.copies(START).expect("mapped") == 1 {
            assert!(matches!(result, Err(ReadError::Failed { attempts, .. }) if attempts.len() == 1));
        } else {
            assert!(*result.expect("another copy") == *wanted, "{profile}");
        }
    }
}

#[test]
fn a_refused_block_lists_every_attempt_and_counts_lost_writes() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(11));
    let volume = pool.open(&[]);
    let refuse = |_: Box<[u8]>| Err::<(), _>(refuse(NodeProblem::Generation(defect())));
    let error = volume.read_block(START, 4096, refuse).expect_err("refused").to_string();
    assert!(error.contains("disk0 offset 1048576: corrupt tree block") && error.contains("disk1 offset"));
    assert_eq!(volume.devices().iter().map(|d| d.counters.generation_errors).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(total(&volume, |counters| counters.recovered), 0);
}

#[test]
fn a_block_that_is_not_the_right_one_counts_as_no_lost_write() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(11));
    let volume = pool.open(&[]);
    let refuse = |_: Box<[u8]>| Err::<(), _>(refuse(NodeProblem::Header(defect())));
    volume.read_block(START, 4096, refuse).expect_err("refused");
    assert_eq!(total(&volume, |counters| counters.generation_errors), 0);
    assert_eq!(total(&volume, |counters| counters.checksum_errors), 2);
}

#[test]
fn a_block_that_straddles_strips_is_put_together() {
    let pool = TestPool::new(Profile::Raid6, 5, 2, &mut rng(12));
    let offset = STRIP - 8192;
    for missing in [vec![], vec![0, 1], vec![1, 2], vec![0, 4]] {
        let block = pool.open(&missing).read_block(START + offset as u64, 16384, Ok).expect("block");
        assert!(*block == pool.contents[offset..][..16384], "without {missing:?}");
    }
}

fn reads_of(devices: &[Arc<Faulty>]) -> Vec<usize> {
    devices.iter().map(|device| device.reads.lock().expect("no panic").len()).collect()
}

#[test]
fn adjacent_pieces_of_a_device_are_one_request() {
    for (profile, stripes, expected) in
        [(Profile::Single, 1, &[1][..]), (Profile::Raid1, 2, &[1, 0]), (Profile::Raid0, 2, &[1, 1])]
    {
        let pool = TestPool::new(profile, stripes, 8 / columns(profile, stripes), &mut rng(13));
        let devices = pool.devices(&[]);
        let volume = pool.open_devices(devices.clone());
        devices.iter().for_each(|device| device.reads.lock().expect("no panic").clear());
        read_all(&pool, &volume).expect("clean");
        assert_eq!(reads_of(&devices), expected, "{profile}");
    }
}

#[test]
fn long_reads_of_mirrors_use_both() {
    let pool = TestPool::new(Profile::Raid1, 2, 64, &mut rng(14));
    let devices = pool.devices(&[]);
    let volume = pool.open_devices(devices.clone());
    devices.iter().for_each(|device| device.reads.lock().expect("no panic").clear());
    assert!(read_all(&pool, &volume).expect("clean") == pool.contents);
    assert_eq!(reads_of(&devices), [2, 2]);
}

/// Reads of each of two mirrors, of which the host says nothing, after `tell` has said which one is fast.
fn reads_when(tell: impl Fn(&Volume)) -> Vec<usize> {
    let pool = TestPool::new(Profile::Raid1, 2, 64, &mut rng(15));
    let devices = pool.devices(&[]);
    let volume = pool.open_devices(devices.clone());
    volume.choose_read_policy("auto").expect("it is one");
    tell(&volume);
    devices.iter().for_each(|device| device.reads.lock().expect("no panic").clear());
    for block in 0..32 {
        volume.read_block(START + block * 7 * 16384, 16384, Ok).expect("clean");
    }
    reads_of(&devices)
}

#[test]
fn a_class_that_was_told_or_is_stored_decides_where_the_host_says_nothing() {
    for fast in [0, 1] {
        let expected: Vec<usize> = (0..2).map(|index| if index == fast { 32 } else { 0 }).collect();
        let told = |index| if index == fast { PlacementClass::Fast } else { PlacementClass::Bulk };
        let sides = [0, 1].map(|index| (format!("disk{index}"), told(index))).into();
        assert_eq!(reads_when(|volume| volume.tell_sides(&sides)), expected, "told");
        let stored = AllocationHint::MetadataPreferred.number().into();
        let devid = DevId::new(fast as u64 + 1);
        assert_eq!(reads_when(|volume| assert!(volume.set_device_type(devid, stored))), expected, "stored");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_range_of_any_pool_reads_back(
        shape in 0..SHAPES.len(),
        seed: u8,
        start: prop::sample::Index,
        length: prop::sample::Index,
        flips in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        missing: prop::sample::Index,
    ) {
        let (profile, stripes) = SHAPES[shape];
        let mut pool = TestPool::new(profile, stripes, 3, &mut rng(seed));
        let redundant = profile.attributes().ncopies > 1 || profile.has_parity();
        // Either a device is missing or one stripe of it is damaged: each profile with redundancy bears one.
        let stripe = missing.index(stripes);
        let absent = if redundant && seed % 2 == 0 && profile != Profile::Dup { vec![stripe] } else { vec![] };
        if redundant && absent.is_empty() {
            for flip in flips {
                let (device, at) = pool.place(stripe, flip.index(3 * STRIP));
                pool.images[device][at] ^= 0x80;
            }
        }
        let volume = pool.open(&absent);
        let sectors = pool.contents.len() / SECTOR;
        let start = start.index(sectors);
        let count = 1 + length.index(sectors - start);
        let sums = &pool.checksums[start * 4..(start + count) * 4];
        let mut buffer = vec![0; count * SECTOR];
        let at = START + (start * SECTOR) as u64;
        volume.read_data(at, &mut buffer, &DataChecksums::all(sums)).expect("readable");
        prop_assert!(buffer == pool.contents[start * SECTOR..][..count * SECTOR]);
    }
}
