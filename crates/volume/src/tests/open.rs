//! Choice of the devices that form the pool, and faults that opening it survives.

use super::support::*;
use crate::{DataChecksums, MissingDevice, OpenOptions, UnusedReason, Volume, VolumeError, Warning};
use brindle_device::{Device, MemoryDevice};
use brindle_ondisk::{
    BlockGroupType, DevId, Generation, Incompat, Logical, Profile, Superblock, SuperblockDefect, Uuid,
};
use std::sync::Arc;

const FIRST: usize = 64 << 10;
const SECOND: usize = 64 << 20;
const SMALL: usize = 256 << 10;
const LARGE: usize = SECOND + (1 << 20);

fn image(superblock: &Superblock, size: usize) -> Vec<u8> {
    let mut image = vec![0; size];
    put_superblock(&mut image, superblock, FIRST);
    if size > SECOND {
        put_superblock(&mut image, superblock, SECOND);
    }
    image
}

fn device(name: &str, image: Vec<u8>) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, image))
}

fn member(devid: u64, devices: u64, generation: u64) -> Arc<dyn Device> {
    let superblock = superblock(FSID, devid, devices, generation);
    device(&format!("member{devid}"), image(&superblock, SMALL))
}

fn open(devices: Vec<Arc<dyn Device>>) -> Result<Volume, VolumeError> {
    Volume::open(devices, &OpenOptions::default())
}

fn names(volume: &Volume) -> Vec<String> {
    volume.devices().into_iter().map(|device| device.name).collect()
}

#[test]
fn devices_come_in_any_order() {
    let volume = open(vec![member(3, 3, 5), member(1, 3, 5), member(2, 3, 5)]).expect("open");
    assert_eq!(names(&volume), ["member1", "member2", "member3"]);
    assert_eq!(volume.superblock().dev_item.devid, DevId::new(1), "among equals the lowest devid");
    assert!(volume.warnings().is_empty() && volume.unused_devices().is_empty());
    assert_eq!(volume.chunks().len(), 1, "the system chunk");
    volume.check_complete().expect("complete");
}

#[test]
fn no_device_and_no_pool_are_errors() {
    assert!(matches!(open(vec![]), Err(VolumeError::NoDevices)));
    let error =
        open(vec![device("empty", vec![0; SMALL]), device("tiny", vec![0; 10])]).expect_err("no pool");
    let text = error.to_string();
    assert!(
        text.starts_with("no btrfs pool found: empty: not a btrfs device (no superblock magic"),
        "{text}"
    );
    assert!(text.ends_with("tiny: the device ends before it"), "{text}");
}

#[test]
fn a_damaged_first_copy_is_survived_and_told() {
    let mut damaged = image(&superblock(FSID, 1, 1, 5), LARGE);
    damaged[FIRST + 100] ^= 1;
    let volume = open(vec![device("damaged", damaged.clone())]).expect("the second copy is good");
    let warnings: Vec<String> = volume.warnings().iter().map(Warning::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("damaged: superblock at offset 65536 can't be used"), "{warnings:?}");
    let first_only = OpenOptions { superblock_mirror: Some(0), ..OpenOptions::default() };
    assert!(Volume::open(vec![device("damaged", damaged)], &first_only).is_err());
}

#[test]
fn the_newest_copy_counts_unless_one_is_asked_for() {
    let mut torn = image(&superblock(FSID, 1, 1, 5), LARGE);
    put_superblock(&mut torn, &superblock(FSID, 1, 1, 6), SECOND);
    let generation = |mirror| {
        let options = OpenOptions { superblock_mirror: mirror, ..OpenOptions::default() };
        Volume::open(vec![device("torn", torn.clone())], &options).map(|v| v.superblock().generation)
    };
    assert_eq!(generation(None).expect("open"), Generation::new(6));
    assert_eq!(generation(Some(0)).expect("open"), Generation::new(5));
    assert_eq!(generation(Some(1)).expect("open"), Generation::new(6));
    assert!(generation(Some(2)).is_err() && generation(Some(9)).is_err());
}

/// The log's root is written to the first copy alone, in the same generation.
#[test]
fn among_equal_copies_the_first_counts() {
    let mut logged = superblock(FSID, 1, 1, 5);
    logged.log_root = Logical::new(1 << 20);
    let mut bytes = image(&superblock(FSID, 1, 1, 5), LARGE);
    put_superblock(&mut bytes, &logged, FIRST);
    let volume = open(vec![device("logged", bytes)]).expect("open");
    assert_eq!(volume.superblock().log_root, Logical::new(1 << 20));
}

#[test]
fn a_stale_device_is_kept_and_told() {
    let volume = open(vec![member(1, 2, 4), member(2, 2, 9)]).expect("open");
    assert_eq!(volume.superblock().dev_item.devid, DevId::new(2));
    assert!(volume.devices()[0].is_stale && !volume.devices()[1].is_stale);
    let text = volume.warnings()[0].to_string();
    assert_eq!(text, "member1 (devid 1) is stale: its generation is 4, the pool's 9");
}

/// A nodatasum sector of a stale mirror is not told from a good one, so the other one must be preferred.
#[test]
fn a_stale_mirror_is_the_last_to_be_asked() {
    for profile in [Profile::Raid1, Profile::Raid5] {
        let mut pool = TestPool::new(profile, 2, 64, &mut rng(20));
        put_superblock(&mut pool.images[0], &superblock(FSID, 1, 2, 3), STRIP);
        pool.images[0][1 << 20..].fill(0xee);
        let volume = pool.open(&[]);
        let mut buffer = vec![0; pool.contents.len()];
        volume.read_data(START, &mut buffer, &DataChecksums::none()).expect("read");
        assert!(buffer == pool.contents, "{profile}");
    }
}

#[test]
fn other_pools_and_duplicates_are_left_alone() {
    let other = Uuid([9; 16]);
    let stranger = || device("stranger", image(&superblock(other, 1, 1, 99), SMALL));
    let old = device("old", image(&superblock(FSID, 1, 1, 2), SMALL));
    let volume = open(vec![old, member(1, 1, 5), stranger()]).expect("open");
    assert_eq!(names(&volume), ["member1"]);
    let unused = volume.unused_devices();
    assert!(matches!(unused[0].reason, UnusedReason::Duplicate(devid) if devid == DevId::new(1)));
    assert!(matches!(unused[1].reason, UnusedReason::OtherPool(fsid) if fsid == other));
    let asked = OpenOptions { fsid: Some(other), ..OpenOptions::default() };
    let volume = Volume::open(vec![member(1, 1, 5), stranger()], &asked).expect("open");
    assert_eq!(names(&volume), ["stranger"]);
    let nobody = OpenOptions { fsid: Some(Uuid([1; 16])), ..OpenOptions::default() };
    let error = Volume::open(vec![stranger()], &nobody).expect_err("no such pool").to_string();
    assert!(error.contains("with fsid 01010101-") && error.contains("stranger belongs to"), "{error}");
}

#[test]
fn unsupported_features_are_refused_by_name() {
    let mut zoned = superblock(FSID, 2, 2, 7);
    zoned.incompat_flags.set((Incompat::MIXED_BACKREF | Incompat::ZONED).bits() | 1 << 50);
    let zoned = || device("zoned", image(&zoned, SMALL));
    let error = open(vec![member(1, 2, 6), zoned()]).expect_err("one device of the pool has it");
    assert_eq!(
        error.to_string(),
        "zoned: superblock at offset 65536: unsupported features: ZONED, unknown flag: 0x4000000000000"
    );
    assert!(matches!(
        open(vec![zoned()]),
        Err(VolumeError::Superblock { defect: SuperblockDefect::Features(_), .. })
    ));
    let other = device("other", image(&superblock(Uuid([9; 16]), 1, 1, 1), SMALL));
    let volume = open(vec![zoned(), other]).expect("the refused one is of another pool");
    assert!(matches!(volume.unused_devices()[0].reason, UnusedReason::NoSuperblock(_)));
}

fn mirrored(devids: &[u64]) -> OwnedChunk {
    let stripes = devids.iter().map(|devid| stripe(*devid, 0)).collect();
    OwnedChunk::new(BlockGroupType::DATA | BlockGroupType::RAID1, 64 << 10, stripes)
}

#[test]
fn missing_devices_are_named_and_degraded_is_offered_where_it_helps() {
    for degraded in [false, true] {
        let options = OpenOptions { degraded, ..OpenOptions::default() };
        let volume = Volume::open(vec![member(1, 3, 5)], &options).expect("open");
        for devid in 1..=3 {
            volume.add_device(&dev_item(devid, FSID, 1 << 20)).expect("device");
        }
        volume.add_chunk(START, &mirrored(&[1, 2]).view()).expect("chunk");
        assert_eq!(volume.check_complete().is_ok(), degraded);
        if let Err(error) = volume.check_complete() {
            assert_eq!(
                error.to_string(),
                "missing devid 2 (uuid 02020202-0202-0202-0202-020202020202), \
                 devid 3 (uuid 03030303-0303-0303-0303-030303030303): name the other devices of the pool, or go \
                 without: everything can be read with -o degraded"
            );
        }
        let after = START + (1 << 20);
        let mut metadata = mirrored(&[2, 3]);
        metadata.header.chunk_type.set((BlockGroupType::METADATA | BlockGroupType::RAID1).bits());
        volume.add_chunk(after, &metadata.view()).expect("chunk");
        match volume.check_complete() {
            Err(VolumeError::MissingDevices { missing, unreadable, degraded_helps: false, .. })
                if !degraded =>
            {
                assert_eq!(
                    missing[0],
                    MissingDevice { devid: DevId::new(2), uuid: device_uuid(2), seed: None }
                );
                assert_eq!((unreadable.len(), unreadable[0].start), (1, after));
                let error = volume.check_complete().expect_err("lost").to_string();
                assert!(
                    error.contains("1 chunk can't be read") && error.contains("-o degraded,ro"),
                    "{error}"
                );
            }
            Ok(()) if degraded => {
                let told = volume.warnings().iter().map(Warning::to_string).collect::<String>();
                assert!(told.contains("1 chunk of data and metadata"), "{told}");
                let lost = volume.lost_metadata().expect("it lies on missing devices").to_string();
                assert!(
                    lost.contains("1 chunk can't be read without") && lost.contains("name all devices"),
                    "{lost}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(names(&volume), ["member1", "devid 2 (missing)", "devid 3 (missing)"]);
    }
}

#[test]
fn data_may_be_lost_where_a_pool_is_only_read() {
    let open = |degraded| {
        let options = OpenOptions { degraded, ..OpenOptions::default() };
        let volume = Volume::open(vec![member(1, 2, 5)], &options).expect("open");
        for devid in 1..=2 {
            volume.add_device(&dev_item(devid, FSID, SMALL as u64)).expect("device");
        }
        for (number, devid) in [1, 2].into_iter().enumerate() {
            let kind = BlockGroupType::DATA;
            let chunk = OwnedChunk::new(kind, 64 << 10, vec![stripe(devid, 0)]);
            volume.add_chunk(START + (number as u64 * (1 << 20)), &chunk.view()).expect("chunk");
        }
        volume
    };
    let refusal = open(false).check_complete().expect_err("not asked for").to_string();
    assert_eq!(
        refusal,
        "missing devid 2 (uuid 02020202-0202-0202-0202-020202020202): 1 chunk can't be read without, the first at \
         logical 1074790400 (DATA|single); name the other devices of the pool, or go without: everything else can be read with \
         -o degraded (as a mount: -o degraded,ro)"
    );
    let volume = open(true);
    volume.check_complete().expect("metadata is whole");
    assert!(volume.lost_metadata().is_none());
    let warnings = volume.warnings();
    let [warning @ Warning::LostChunks { unreadable, .. }] = warnings.as_slice() else {
        panic!("{warnings:?}")
    };
    assert_eq!((unreadable[0].start.get(), unreadable[0].length), (1_074_790_400, 64 << 10));
    assert!(warning.to_string().contains("1 chunk of data, 65536 bytes, can't be read whole"), "{warning}");
    let read = |at: Logical| volume.read_data(at, &mut [0; 4096], &DataChecksums::none());
    read(START).expect("it is there");
    let error = read(Logical::new(1_074_790_400)).expect_err("it is lost");
    assert!(error.lacks_devices());
    assert_eq!(
        error.to_string(),
        "logical 1074790400 (chunk 1074790400), 4096 bytes: devid 2 (missing) offset 0: device is missing"
    );
}

#[test]
fn chunks_are_taken_once_and_never_overlap() {
    let volume = open(vec![member(1, 2, 5), member(2, 2, 5)]).expect("open");
    let system = OwnedChunk::new(BlockGroupType::SYSTEM, 64 << 10, vec![stripe(1, 128 << 10)]);
    volume.add_chunk(Logical::new(1 << 20), &system.view()).expect("the superblock's own, again");
    let chunk = mirrored(&[1, 2]);
    volume.add_chunk(START, &chunk.view()).expect("chunk");
    volume.add_chunk(START, &chunk.view()).expect("again");
    volume.add_chunk(START + (64 << 10), &chunk.view()).expect("neighbour behind");
    assert_eq!(volume.chunks().len(), 3);
    for at in [START + 4096, Logical::new(START.get() - 4096)] {
        assert!(matches!(volume.add_chunk(at, &chunk.view()), Err(VolumeError::ChunkOverlap { .. })));
    }
    let error =
        volume.add_chunk(START, &mirrored(&[2, 1]).view()).expect_err("the same place, other stripes");
    assert!(error.to_string().contains("overlaps the chunk at 1073741824"), "{error}");
}

#[test]
fn a_stripe_beyond_the_end_is_refused_where_it_is_needed() {
    let volume = open(vec![member(1, 2, 5), member(2, 2, 5)]).expect("open");
    let at = |offset, flag| {
        let stripes = vec![stripe(1, offset), stripe(2, 0)];
        OwnedChunk::new(BlockGroupType::DATA | flag, 128 << 10, stripes)
    };
    let error = volume.add_chunk(START, &at(SMALL as u64, BlockGroupType::RAID0).view()).expect_err("raid0");
    assert!(error.to_string().contains("lies beyond the end of member1 at 262144"), "{error}");
    let raid1 = at(SMALL as u64 - 4096, BlockGroupType::RAID1);
    volume.add_chunk(START, &raid1.view()).expect("the other copy is there");
    assert!(matches!(volume.warnings()[0], Warning::BeyondEnd { .. }));
    let mut buffer = vec![0; 64 << 10];
    volume.read_data(START, &mut buffer, &DataChecksums::none()).expect("from the other copy");
}

#[test]
fn a_device_shorter_than_its_item_is_warned_of() {
    let volume = open(vec![member(1, 2, 5), member(2, 2, 5)]).expect("open");
    volume.add_device(&dev_item(1, FSID, SMALL as u64)).expect("device");
    assert!(volume.warnings().is_empty());
    volume.add_device(&dev_item(2, FSID, SMALL as u64 + 4096)).expect("device");
    let warning = volume.warnings()[0].to_string();
    assert_eq!(warning, "member2 (devid 2) ends at 262144, the pool has it as 266240 bytes long");
}

#[test]
fn a_seed_is_found_among_the_strangers() {
    let seed = Uuid([5; 16]);
    let mut superblock_of_seed = superblock(seed, 1, 1, 3);
    superblock_of_seed.flags.set(1 << 32);
    let sprout = superblock(FSID, 2, 2, 8);
    let devices = || {
        let seed = device("seed", image(&superblock_of_seed, SMALL));
        vec![seed, device("sprout", image(&sprout, SMALL))]
    };
    let volume = open(devices()).expect("open");
    assert_eq!(volume.superblock().fsid, FSID, "the pool that is no seed");
    volume.add_device(&dev_item(1, seed, 1 << 20)).expect("device");
    volume.add_device(&dev_item(2, FSID, 1 << 20)).expect("device");
    volume.check_complete().expect("complete");
    assert_eq!(names(&volume), ["seed", "sprout"]);
    assert!(volume.devices()[0].is_seed && !volume.devices()[0].is_stale && !volume.devices()[1].is_seed);
    assert!(volume.unused_devices().is_empty());
    let without = open(devices().drain(1..).collect()).expect("open");
    without.add_device(&dev_item(1, seed, 1 << 20)).expect("device");
    without.add_device(&dev_item(2, FSID, 1 << 20)).expect("device");
    let error = without.check_complete().expect_err("the seed is missing").to_string();
    assert!(error.contains(&format!("of the seed {seed} that the pool has grown from")), "{error}");
    let alone = open(devices().drain(..1).collect()).expect("a seed is a pool of its own");
    assert_eq!(alone.superblock().fsid, seed);
}

#[test]
fn a_device_removed_while_it_was_away_does_not_come_back() {
    let volume = open(vec![member(1, 2, 5), member(2, 2, 5), member(3, 3, 4)]).expect("open");
    for devid in 1..=2 {
        volume.add_device(&dev_item(devid, FSID, 1 << 20)).expect("device");
    }
    volume.check_complete().expect("complete");
    assert_eq!(names(&volume), ["member1", "member2"]);
    assert!(matches!(volume.unused_devices()[0].reason, UnusedReason::NotInPool(_)));
}

#[test]
fn another_device_in_the_place_of_one_is_not_taken_for_it() {
    let volume = open(vec![member(1, 2, 5), member(2, 2, 5)]).expect("open");
    let mut item = dev_item(2, FSID, 1 << 20);
    item.uuid = Uuid([0xaa; 16]);
    volume.add_device(&dev_item(1, FSID, 1 << 20)).expect("device");
    volume.add_device(&item).expect("device");
    let error = volume.check_complete().expect_err("the real devid 2 is missing").to_string();
    assert!(error.starts_with("missing devid 2 (uuid aaaaaaaa-"), "{error}");
}

#[test]
fn readers_keep_their_snapshot_while_chunks_are_added() {
    let pool = TestPool::new(Profile::Raid1, 2, 2, &mut rng(21));
    let volume = pool.open(&[]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut buffer = vec![0; pool.contents.len()];
                    let sums = DataChecksums::all(&pool.checksums);
                    volume.read_data(START, &mut buffer, &sums).expect("read");
                    assert!(buffer == pool.contents);
                }
            });
        }
        for index in 1..200 {
            let at = START + index * (1 << 20);
            volume.add_chunk(at, &mirrored(&[1, 2]).view()).expect("chunk");
        }
    });
    assert_eq!(volume.chunks().len(), 201);
}
