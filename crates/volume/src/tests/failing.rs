//! Devices that fail while they are written, and copies that are repaired.

use super::support::*;
use crate::{DataChecksums, DeviceSet, SuperblockCopies, Volume, Witness, WriteError};
use brindle_device::Device;
use brindle_ondisk::{
    CorruptNode, Defect, DevId, Generation, Logical, NodeProblem, Profile, SUPERBLOCK_OFFSETS,
    SUPERBLOCK_SIZE, Superblock, to_usize,
};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

fn read_all(pool: &TestPool, volume: &Volume) -> Vec<u8> {
    let mut buffer = vec![0; pool.contents.len()];
    volume.read_data(START, &mut buffer, &DataChecksums::none()).expect("readable");
    buffer
}

#[test]
fn failing_devices_are_tolerated_as_far_as_the_profile_goes() {
    for (profile, stripes) in SHAPES.into_iter().filter(|shape| shape.1 <= 5) {
        let pool = TestPool::new(profile, stripes, 2, &mut rng(40));
        let tolerated = pool.tolerated_losses();
        for failing in 0..1usize << pool.images.len() {
            let failing: Vec<usize> = (0..pool.images.len()).filter(|bit| failing >> bit & 1 != 0).collect();
            let (volume, devices) = pool.open_writable(&[]);
            failing.iter().for_each(|device| devices[*device].fail_writes(true));
            let contents: Vec<u8> = pool.contents.iter().map(|byte| !byte).collect();
            let result = volume.write_data(START, &contents);
            assert_eq!(result.is_ok(), tolerated.contains(&failing), "{profile}, failing {failing:?}");
            if result.is_err() {
                continue;
            }
            let errors = volume.devices();
            let failed = |device: &usize| errors[*device].counters.write_errors > 0;
            assert!((0..devices.len()).all(|device| failed(&device) == failing.contains(&device)));
            assert!(read_all(&pool, &volume) == contents, "what failed to be written is not read");
            // They are tried again, and what they take is read from them again.
            failing.iter().for_each(|device| devices[*device].fail_writes(false));
            volume.write_data(START, &contents).expect("nothing fails any more");
            let mut healed = pool.clone();
            healed.take(&devices);
            healed.set_contents(contents);
            let others = tolerated.iter().filter(|lost| failing.iter().all(|device| !lost.contains(device)));
            for lost in others {
                assert!(read_all(&healed, &healed.open(lost)) == healed.contents);
            }
        }
    }
}

#[test]
fn missing_devices_count_when_a_device_fails() {
    for (profile, stripes) in SHAPES.into_iter().filter(|shape| shape.1 <= 5) {
        let pool = TestPool::new(profile, stripes, 2, &mut rng(49));
        let tolerated = pool.tolerated_losses();
        for missing in tolerated.iter().filter(|missing| !missing.is_empty()) {
            for failing in (0..pool.images.len()).filter(|device| !missing.contains(device)) {
                let (volume, devices) = pool.open_writable(missing);
                let name = format!("disk{failing}");
                let device = devices.iter().find(|device| device.name() == name).expect("it is there");
                device.fail_writes(true);
                let mut lost = missing.clone();
                lost.push(failing);
                lost.sort_unstable();
                // In the last of the columns: parity and one device are written, the others are not.
                let row = columns(profile, stripes) * STRIP;
                let result = volume.write_data(START + (row - SECTOR) as u64, &[3; SECTOR]);
                let is_touched = device.writes.lock().expect("no panic").is_empty()
                    && volume.devices()[failing].counters.write_errors > 0;
                assert_eq!(result.is_ok(), !is_touched || tolerated.contains(&lost), "{profile} {lost:?}");
            }
        }
    }
}

#[test]
fn an_old_strip_is_not_taken_for_new_when_its_row_is_written_again() {
    let mut pool = TestPool::new(Profile::Raid5, 3, 1, &mut rng(41));
    let (volume, devices) = pool.open_writable(&[]);
    devices[0].fail_writes(true);
    volume.write_data(START, &[1; SECTOR]).expect("parity has it");
    devices[0].fail_writes(false);
    volume.write_data(START + STRIP as u64, &[2; SECTOR]).expect("the other column");
    let mut model = pool.contents.clone();
    model[..SECTOR].fill(1);
    model[STRIP..STRIP + SECTOR].fill(2);
    assert!(read_all(&pool, &volume) == model);
    pool.take(&devices);
    assert!(read_all(&pool, &pool.open(&[0])) == model, "parity still knows what the first device does not");
}

#[test]
fn a_failure_names_device_offset_and_address() {
    let pool = TestPool::new(Profile::Raid0, 3, 2, &mut rng(42));
    let (volume, devices) = pool.open_writable(&[]);
    let bad = pool.place(1, STRIP).1 as u64;
    devices[1].bad.lock().expect("no panic").push(bad..bad + 1);
    let error = volume.write_data(START, &pool.contents).expect_err("one strip is lost").to_string();
    let address = START + 4 * STRIP as u64;
    assert_eq!(
        error,
        format!(
            "writing logical {address}, 65536 bytes: disk1 offset {bad}: disk1: writing 65536 bytes at offset \
             {bad}: test failure"
        )
    );
    assert_eq!(volume.devices()[1].counters.write_errors, 1);
}

#[test]
fn bad_places_of_different_devices_do_not_add_up() {
    let pool = TestPool::new(Profile::Raid1, 2, 4, &mut rng(43));
    let (volume, devices) = pool.open_writable(&[]);
    for (device, sector) in [(0, 3), (1, 40)] {
        let bad = pool.place(device, sector * SECTOR).1 as u64;
        devices[device].bad.lock().expect("no panic").push(bad..bad + 1);
    }
    let contents: Vec<u8> = pool.contents.iter().map(|byte| byte ^ 0x55).collect();
    let blocks: Vec<_> =
        contents.chunks(16384).enumerate().map(|(n, b)| (START + n as u64 * 16384, b)).collect();
    volume.write_blocks(&blocks).expect("each block has a copy");
    assert!(read_all(&pool, &volume) == contents);
}

#[test]
fn rows_whose_rest_cannot_be_read_are_not_written() {
    let pool = TestPool::new(Profile::Raid5, 4, 1, &mut rng(44));
    let (volume, devices) = pool.open_writable(&[]);
    devices[1].fails_reads.store(true, Relaxed);
    volume.write_data(START, &[7; SECTOR]).expect("the rest is rebuilt");
    devices[2].fails_reads.store(true, Relaxed);
    let before: Vec<_> = devices.iter().map(|device| device.bytes()).collect();
    let error = volume.write_data(START, &[8; SECTOR]).expect_err("too much is lost").to_string();
    assert!(error.contains("disk1") && error.contains("rebuilt without devid 2: disk2"), "{error}");
    assert!(devices.iter().zip(before).all(|(device, before)| device.bytes() == before));
}

#[test]
fn flushes_reach_every_device_and_fail_when_a_chunk_would_be_lost() {
    for (profile, stripes, failing, is_fine) in [
        (Profile::Raid1, 2, &[1][..], true),
        (Profile::Raid1, 2, &[0, 1], false),
        (Profile::Raid0, 3, &[2], false),
        (Profile::Raid5, 3, &[2], true),
        (Profile::Raid6, 4, &[2, 3], true),
        (Profile::Raid6, 4, &[1, 2, 3], false),
        (Profile::Raid10, 4, &[1, 2], true),
        (Profile::Raid10, 4, &[2, 3], false),
    ] {
        let pool = TestPool::new(profile, stripes, 1, &mut rng(45));
        let (volume, devices) = pool.open_writable(&[]);
        volume.flush(&DeviceSet::ALL).expect("nothing fails");
        assert!(devices.iter().all(|device| device.flushes.load(Relaxed) == 1));
        failing.iter().for_each(|device| devices[*device].fails_flushes.store(true, Relaxed));
        let result = volume.flush(&DeviceSet::ALL);
        // The system chunk lies on the first device alone.
        assert_eq!(result.is_ok(), is_fine, "{profile}: {result:?}");
        assert!(result.err().is_none_or(|error| matches!(error, WriteError::Flush { .. })));
        let counts: Vec<u64> = volume.devices().iter().map(|device| device.counters.flush_errors).collect();
        assert!((0..stripes).all(|device| (counts[device] == 1) == failing.contains(&device)), "{counts:?}");
    }
}

#[test]
fn superblocks_go_to_each_place_with_the_device_they_lie_on() {
    let mut pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(46));
    pool.images[1].resize((64 << 20) + SUPERBLOCK_SIZE, 0);
    let (volume, devices) = pool.open_writable(&[]);
    let read = |device: usize, copy: usize| {
        let (bytes, at) = (devices[device].bytes(), SUPERBLOCK_OFFSETS[copy]);
        let start = usize::try_from(at).expect("small");
        let bytes = bytes.get(start..start + SUPERBLOCK_SIZE)?.try_into().expect("the size of one");
        Superblock::parse(&bytes, at).ok()
    };
    let mut superblock = Superblock::clone(&volume.superblock());
    superblock.generation = Generation::new(11);
    let mut item = dev_item(2, FSID, pool.images[1].len() as u64);
    item.bytes_used.set(12345);
    volume.write_superblocks(&superblock, &[item], SuperblockCopies::First, &DeviceSet::ALL).expect("both");
    assert_eq!(read(1, 0).expect("valid").generation, Generation::new(11));
    assert!(read(1, 1).is_none(), "a log's superblock is in the first place only");
    superblock.generation = Generation::new(12);
    volume.write_superblocks(&superblock, &[item], SuperblockCopies::Others, &DeviceSet::ALL).expect("both");
    assert_eq!(read(1, 0).expect("valid").generation, Generation::new(11), "the first is left alone");
    assert_eq!(read(1, 1).expect("valid").generation, Generation::new(12));
    volume.write_superblocks(&superblock, &[item], SuperblockCopies::All, &DeviceSet::ALL).expect("both");
    for (device, copy) in [(0, 0), (1, 0), (1, 1)] {
        let found = read(device, copy).expect("valid");
        assert_eq!(found.generation, Generation::new(12));
        assert_eq!(found.dev_item.devid, DevId::new(device as u64 + 1));
        let used = if device == 1 { 12345 } else { 0 };
        assert_eq!(
            (found.dev_item.uuid, found.dev_item.bytes_used.get()),
            (device_uuid(device as u64 + 1), used)
        );
    }
    assert_eq!(volume.superblock().generation, Generation::new(12));
    assert_eq!(volume.tree_context().max_generation.get(), 13);
    devices[1].fail_writes(true);
    volume
        .write_superblocks(&superblock, &[item], SuperblockCopies::All, &DeviceSet::ALL)
        .expect("one is enough of a raid1");
    devices[0].fail_writes(true);
    let error = volume
        .write_superblocks(&superblock, &[item], SuperblockCopies::All, &DeviceSet::ALL)
        .expect_err("none");
    assert!(matches!(error, WriteError::Superblocks { failures } if failures.len() == 2));
}

#[test]
fn a_bad_copy_is_repaired_from_a_good_one() {
    for (profile, stripes) in SHAPES {
        let clean = TestPool::new(profile, stripes, 3, &mut rng(47));
        let redundant = profile.attributes().ncopies > 1 || profile.has_parity();
        if !redundant {
            continue;
        }
        let offset = clean.contents.len() / 2 + 3 * SECTOR + 17;
        for copy in 0..clean.copies_of(offset).len() {
            let mut pool = clean.clone();
            let (stripe, stripe_offset) = pool.copies_of(offset)[copy];
            let (device, at) = pool.place(stripe, stripe_offset);
            pool.images[device][at] ^= 0x10;
            let (volume, devices) = pool.open_writable(&[]);
            let read = |sums: &DataChecksums<'_>| {
                let mut buffer = vec![0; pool.contents.len()];
                volume.read_data(START, &mut buffer, sums).expect("one copy is good");
            };
            read(&DataChecksums::none());
            assert!(devices.iter().all(|device| device.writes.lock().expect("no panic").is_empty()));
            let first = read_first(&pool, &volume, offset);
            read(&DataChecksums::all(&pool.checksums));
            let repaired = volume.devices()[device].counters.repaired;
            assert_eq!(repaired, u64::from(first), "{profile}: what is read and bad is repaired");
            let is_clean = devices.iter().zip(&clean.images).all(|(device, image)| device.bytes() == *image);
            assert_eq!(is_clean, first, "{profile}");
        }
    }
}

/// Returns true if the mirror that is tried first gives wrong data.
fn read_first(pool: &TestPool, volume: &Volume, offset: usize) -> bool {
    let sector = offset - offset % SECTOR;
    let mut data = vec![0; SECTOR];
    volume.read_data(START + sector as u64, &mut data, &DataChecksums::none()).expect("readable");
    data != pool.contents[sector..][..SECTOR]
}

#[test]
fn a_bad_block_is_repaired_and_one_without_a_good_copy_is_left() {
    for profile in [Profile::Raid1, Profile::Dup, Profile::Raid6] {
        let stripes = if profile == Profile::Raid6 { 4 } else { 2 };
        let clean = TestPool::new(profile, stripes, 2, &mut rng(48));
        let mut pool = clean.clone();
        let (device, at) = pool.place(0, 5);
        pool.images[device][at] ^= 1;
        let (volume, devices) = pool.open_writable(&[]);
        let wanted = &pool.contents[..16384];
        let refuse = || CorruptNode {
            at: START,
            owner: None,
            problem: NodeProblem::Header(Defect::new("checksum", 1)),
        };
        volume.read_block(START, 16384, |_| Err::<(), _>(refuse())).expect_err("nothing is accepted");
        assert!(devices.iter().all(|device| device.writes.lock().expect("no panic").is_empty()));
        let check = |bytes: Box<[u8]>| if *bytes == *wanted { Ok(()) } else { Err(refuse()) };
        // The failed attempts before may have changed the order: each way is bad or good for itself.
        for _ in 0..2 {
            volume.read_block(START, 16384, check).expect("one is good");
        }
        let repaired: u64 = volume.devices().iter().map(|device| device.counters.repaired).sum();
        let is_clean = devices.iter().zip(&clean.images).all(|(device, image)| device.bytes() == *image);
        assert_eq!(is_clean, repaired == 1, "{profile}");
        assert!(repaired <= 1);
    }
}

/// Witness that knows the expected contents of a pool.
struct Sums<'p>(&'p TestPool);

impl Witness for Sums<'_> {
    fn checksums(&self, start: Logical, length: u64) -> Option<Vec<u8>> {
        let size = self.0.checksums.len() / (self.0.contents.len() / SECTOR);
        let sector = to_usize(start.distance_from(START)?) / SECTOR;
        let sectors = to_usize(length) / SECTOR;
        Some(self.0.checksums[sector * size..(sector + sectors) * size].to_vec())
    }
}

#[test]
fn parity_is_not_made_of_what_is_known_to_be_wrong() {
    for (profile, stripes) in [(Profile::Raid5, 3), (Profile::Raid5, 4), (Profile::Raid6, 4)] {
        for has_witness in [true, false] {
            let mut pool = TestPool::new(profile, stripes, 1, &mut rng(50));
            let (stripe, offset) = pool.copies_of(STRIP + 3 * SECTOR + 7)[0];
            let (device, at) = pool.place(stripe, offset);
            pool.images[device][at] ^= 0x10;
            let (volume, devices) = pool.open_writable(&[]);
            let new = [9; STRIP];
            if has_witness {
                volume.write_data_pieces(&[(START, &new)], &Sums(&pool)).expect("nothing fails");
                let counters = volume.devices()[device].counters;
                assert_eq!((counters.checksum_errors, counters.recovered), (1, 1));
            } else {
                volume.write_data(START, &new).expect("nothing fails");
            }
            pool.take(&devices);
            let mut contents = pool.contents.clone();
            contents[..STRIP].fill(9);
            pool.set_contents(contents);
            let mut found = vec![0; pool.contents.len()];
            let read = volume.read_data(START, &mut found, &DataChecksums::all(&pool.checksums));
            assert_eq!(read.is_ok(), has_witness, "{profile}: the parity would have told");
            assert!(!has_witness || found == pool.contents);
            // The parity fits what is on the devices, whichever of them is lost next.
            for missing in pool.tolerated_losses() {
                let (volume, _) = pool.open_writable(&missing);
                let read = volume.read_data(START, &mut found, &DataChecksums::all(&pool.checksums));
                assert!(
                    !has_witness || (read.is_ok() && found == pool.contents),
                    "{profile} without {missing:?}"
                );
            }
        }
    }
}

#[test]
fn a_part_that_a_failed_flush_has_lost_is_not_taken_for_written_when_the_other_parts_are() {
    for (profile, stripes) in [(Profile::Raid1, 2), (Profile::Raid1c3, 3), (Profile::Raid5, 3)] {
        let pool = TestPool::new(profile, stripes, 1, &mut rng(51));
        let (volume, devices) = pool.open_writable(&[]);
        let new: Vec<u8> = pool.contents.iter().map(|byte| !byte).collect();
        volume.flush(&DeviceSet::ALL).expect("nothing fails");
        let loser = &devices[1];
        loser.forgets_what_is_not_flushed();
        let ((has_taken, takes), (go_on, goes_on)) = (channel(), channel());
        *loser.holds_answer.lock().expect("no panic") = Some((has_taken, goes_on));
        std::thread::scope(|scope| {
            let write = scope.spawn(|| volume.write_data(START, &new));
            takes.recv().expect("it is written");
            loser.fails_flushes.store(true, Relaxed);
            let flushed = volume.flush(&DeviceSet::ALL);
            loser.fails_flushes.store(false, Relaxed);
            drop(go_on);
            flushed.expect("the others hold everything");
            write.join().expect("no panic").expect("the others have it");
        });
        assert!(read_all(&pool, &volume) == new, "{profile}: what may be lost is not read");
        volume.make_whole(&DeviceSet::ALL).expect("it is written again");
        let mut healed = pool.clone();
        healed.take(&devices);
        healed.set_contents(new);
        for missing in healed.tolerated_losses() {
            let (volume, _) = healed.open_writable(&missing);
            assert!(read_all(&healed, &volume) == healed.contents, "{profile} without {missing:?}");
        }
    }
}
