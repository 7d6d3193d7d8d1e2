//! Tests that need neither root nor tools.

mod apart;
mod balance;
mod crash;
mod device;
mod extract;
mod full;
mod lost;
mod order;
mod populate;
mod random;
mod receive;
mod receive_failing;
mod receive_joined;
mod replace;
mod replace_two;
mod resume;
mod scrub;
mod send;

use crate::support::{FSID, MIB, MadePool, assert_clean, devices, examine, given, options};
use brindle_care::mkfs::{Features, MkfsError, NewDevice, mkfs};
use brindle_device::{Device, DeviceClass, FileDevice, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions};
use brindle_ondisk::{ChecksumType, DevId, Profile, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use std::sync::Arc;

const NODESIZES: [u32; 5] = [4096, 8192, 16384, 32768, 65536];

/// Opens the pool as a filesystem and looks at its empty root directory.
fn assert_empty(what: &str, devices: Vec<Arc<dyn Device>>, degraded: bool) {
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = degraded;
    let filesystem = Filesystem::open(devices, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let root = filesystem.attributes(filesystem.root()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((root.nlink, root.size), (1, 0), "{what}");
    let names = filesystem.read_directory(filesystem.root(), 0, 10);
    let names = names.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(names.is_empty(), "{what}");
}

#[test]
fn every_profile_checksum_and_nodesize_is_sound() {
    for (number, row) in Profile::TABLE.iter().enumerate() {
        for (shift, checksum) in ChecksumType::ALL.into_iter().enumerate() {
            for (turn, nodesize) in NODESIZES.into_iter().enumerate() {
                let mut options = options();
                (options.data, options.metadata) = (Some(row.profile), Some(row.profile));
                (options.checksum, options.nodesize) = (checksum, Some(nodesize));
                // Each profile on as few devices as it needs, and on more, in turn.
                let count = usize::from(row.devs_min) + (number + shift + turn) % 3;
                let what = format!("{} {checksum} {nodesize} on {count} devices", row.name);
                let pool = MadePool::make(count, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_clean(&what, &pool.examine());
                assert_empty(&what, pool.readable(), false);
            }
        }
    }
}

#[test]
fn every_subset_of_features_is_sound() {
    for bits in 0..=Features::all().bits() {
        let features = Features::from_bits_retain(bits);
        let mut options = options();
        options.features = features;
        let what = format!("{features:?}");
        match MadePool::make(1 + bits as usize % 3, &options) {
            Ok(pool) => {
                assert_clean(&what, &pool.examine());
                assert_empty(&what, pool.readable(), false);
            }
            Err(error) => {
                let needed = Features::FREE_SPACE_TREE | Features::NO_HOLES;
                let is_refused = features.contains(Features::BLOCK_GROUP_TREE) && !features.contains(needed);
                assert!(is_refused, "{what}: {error}");
            }
        }
    }
}

#[test]
fn lost_devices_are_made_up_for() {
    for row in Profile::TABLE.iter().filter(|row| row.tolerated_failures > 0) {
        let mut options = options();
        (options.data, options.metadata) = (Some(row.profile), Some(row.profile));
        // Small nodes, so that there are many, over several rows of strips.
        options.nodesize = Some(65536);
        let count = usize::from(row.devs_min) + 1;
        let pool = MadePool::make(count, &options).expect("enough devices");
        for lost in 0..count {
            let mut left = pool.readable();
            left.remove(lost);
            if row.tolerated_failures > 1 {
                left.remove(lost % left.len());
            }
            assert_empty(&format!("{} without device {lost}", row.name), left, true);
        }
    }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let written = |seed: u8| {
        let mut options = options();
        options.seed = [seed; 16];
        options.label = "again".to_owned();
        let pool = MadePool::make(3, &options).expect("enough devices");
        pool.devices.iter().map(|device| device.written()).collect::<Vec<_>>()
    };
    assert!(written(1) == written(1), "the same seed");
    assert!(written(1) != written(2), "UUIDs follow the seed");
}

#[test]
fn old_contents_of_devices_do_not_shine_through() {
    let clean = MadePool::make(2, &options()).expect("enough devices");
    let used = devices(&[(256 * MIB, DeviceClass::Unknown); 2]);
    for device in &used {
        device.write_at(0, &vec![0xa5; 100 << 20]).expect("memory");
    }
    let mut options = options();
    options.force = true;
    mkfs(&given(&used), &options).expect("forced");
    for (used, clean) in used.iter().zip(&clean.devices) {
        assert!(used.written() == clean.written());
    }
    // Without discard unreferenced blocks are left as they were, and the pool is as sound.
    options.discard = false;
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid5));
    used[0].write_at(0, &vec![0xa5; 100 << 20]).expect("memory");
    mkfs(&given(&used), &options).expect("forced");
    let readable: Vec<Arc<dyn Device>> = used.iter().map(|device| Arc::clone(device) as _).collect();
    assert_clean("without discard", &examine(readable.clone()));
    assert_empty("without discard, degraded", readable[1..].to_vec(), true);
}

#[test]
fn fast_devices_have_the_lowest_devids_and_the_metadata() {
    let of = [
        (512 * MIB, DeviceClass::Rotating),
        (256 * MIB, DeviceClass::Solid),
        (512 * MIB, DeviceClass::Rotating),
        (256 * MIB, DeviceClass::Solid),
    ];
    let mut options = options();
    options.data = Some(Profile::Raid1);
    let pool = MadePool::make_of(&of, &options).expect("enough devices");
    let names: Vec<&str> = pool.report.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["memory1", "memory3", "memory0", "memory2"]);
    let ids = |content: &str| -> Vec<u64> {
        let group = pool.report.block_groups.iter().find(|group| group.kind.content_name() == content);
        group.expect("made").devices.iter().map(|devid| devid.get()).collect()
    };
    assert_eq!((ids("System"), ids("Metadata"), ids("Data")), (vec![1, 2], vec![1, 2], vec![3, 4]));
    assert!(pool.report.devices.iter().all(|device| device.hint == AllocationHint::DataPreferred));
    assert_clean("fast and bulk", &pool.examine());
}

#[test]
fn chunks_that_preferred_devices_cannot_hold_are_placed_on_others() {
    // System and metadata, twice each, would fill the fast device, and the mirrored data have no second one.
    let of = [(49 * MIB, DeviceClass::Solid), (41 * MIB, DeviceClass::Rotating)];
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Dup));
    let pool = MadePool::make_of(&of, &options).expect("there is a way");
    assert_clean("unequal", &pool.examine());
}

#[test]
fn a_class_that_was_said_is_stored_as_a_hint() {
    let devices = devices(&[(256 * MIB, DeviceClass::Unknown); 3]);
    let mut given = given(&devices);
    given[2].class = Some(PlacementClass::Fast);
    let mut options = options();
    options.metadata = Some(Profile::Single);
    let report = mkfs(&given, &options).expect("enough devices");
    assert_eq!((report.devices[0].name.as_str(), report.devices[0].devid), ("memory2", DevId::new(1)));
    let mut bytes = [0; SUPERBLOCK_SIZE];
    devices[2].read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("memory");
    let superblock = Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).expect("a superblock");
    assert_eq!(superblock.dev_item.device_type.get(), 1);
    devices[0].read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("memory");
    let superblock = Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).expect("a superblock");
    assert_eq!((superblock.dev_item.device_type.get(), superblock.dev_item.devid.get()), (0, 2));
}

#[test]
fn all_superblocks_that_fit_are_there() {
    for size in [100 * MIB, 64 * MIB + 4096, (256 << 30) + 4096, (256 << 30) + 4095] {
        let mut options = options();
        options.label = "ä label".to_owned();
        options.metadata = Some(Profile::Single);
        let pool = MadePool::make_of(&[(size, DeviceClass::Unknown)], &options).expect("large enough");
        for offset in SUPERBLOCK_OFFSETS.into_iter().filter(|offset| offset + 4096 <= size) {
            let mut bytes = [0; SUPERBLOCK_SIZE];
            pool.devices[0].read_at(offset, &mut bytes).expect("memory");
            let superblock = Superblock::parse(&bytes, offset).expect("a superblock");
            assert_eq!(superblock.fsid, FSID);
            assert_eq!(superblock.label(), "ä label".as_bytes());
            assert_eq!(superblock.total_bytes.get(), size / 4096 * 4096);
        }
        assert_clean(&format!("{size} bytes"), &pool.examine());
    }
}

#[test]
fn as_many_devices_as_there_are_do() {
    for (profile, nodesize) in [(Profile::Raid0, 4096), (Profile::Raid6, 16384), (Profile::Raid10, 65536)] {
        let mut options = options();
        (options.data, options.metadata, options.nodesize) = (Some(profile), Some(profile), Some(nodesize));
        let pool = MadePool::make(70, &options).expect("enough devices");
        assert_clean(&format!("{profile} on 70 devices"), &pool.examine());
    }
}

fn refused(count: usize, change: impl FnOnce(&mut brindle_care::mkfs::MkfsOptions)) -> String {
    let mut options = options();
    change(&mut options);
    match MadePool::make(count, &options) {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn impossible_options_are_refused_by_a_clear_error() {
    assert_eq!(refused(0, |_| ()), "no device is given");
    assert_eq!(
        refused(2, |options| options.data = Some(Profile::Raid1c3)),
        "profile raid1c3 for data needs at least 3 devices, and 2 are given"
    );
    assert_eq!(
        refused(1, |options| options.metadata = Some(Profile::Raid1)),
        "profile raid1 for metadata needs at least 2 devices, and 1 is given"
    );
    assert!(refused(1, |options| options.nodesize = Some(5000)).starts_with("nodesize 5000 is not one of"));
    assert!(refused(1, |options| options.nodesize = Some(131_072)).starts_with("nodesize 131072"));
    assert!(refused(1, |options| options.label = "x".repeat(256)).contains("at most 255 bytes"));
    assert!(refused(1, |options| options.label = "a\nb".to_owned()).contains("line break"));
    assert!(refused(1, |options| options.fsid = brindle_ondisk::Uuid::NIL).contains("zeros"));
    assert!(
        refused(1, |options| {
            options.features |= Features::MIXED_BG;
            options.nodesize = Some(16384);
        })
        .contains("nodesize must be the sector size")
    );
    assert!(
        refused(2, |options| {
            options.features |= Features::MIXED_BG;
            (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Raid1));
        })
        .contains("must be the same: data is single, metadata raid1")
    );
}

#[test]
fn the_minimum_that_an_error_states_is_enough() {
    for (profile, count) in [(Profile::Dup, 1), (Profile::Raid1, 2), (Profile::Raid6, 4)] {
        let mut options = options();
        (options.data, options.metadata) = (Some(profile), Some(profile));
        let made = MadePool::make_of(&vec![(3 * MIB, DeviceClass::Unknown); count], &options);
        let Err(MkfsError::TooSmall { minimum_bytes, size_bytes, .. }) = made else {
            panic!("3 MiB can't be enough")
        };
        assert_eq!(size_bytes, 3 * MIB);
        let of = |size| vec![(size, DeviceClass::Unknown); count];
        let pool = MadePool::make_of(&of(minimum_bytes), &options).expect("it said so");
        assert_clean(&format!("{profile} on {minimum_bytes} bytes"), &pool.examine());
        assert!(MadePool::make_of(&of(minimum_bytes - MIB), &options).is_err());
    }
}

#[test]
fn nothing_is_overwritten_without_force() {
    let pool = MadePool::make(2, &options()).expect("enough devices");
    let before: Vec<_> = pool.devices.iter().map(|device| device.written()).collect();
    let error = mkfs(&given(&pool.devices), &options()).expect_err("there is a pool");
    assert_eq!(error.to_string(), "memory0 holds a btrfs filesystem; use -f to overwrite it");
    let after: Vec<_> = pool.devices.iter().map(|device| device.written()).collect();
    assert!(before == after);
    let twice = [&pool.devices[0], &pool.devices[0]].map(Arc::clone);
    let error = mkfs(&given(&twice), &options()).expect_err("twice");
    assert_eq!(error.to_string(), "memory0 is given twice");
}

#[test]
fn an_image_file_is_made_and_read_back() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("pool.img");
    let image = FileDevice::create(&path, 300 * MIB).expect("room");
    let new = NewDevice::new(Arc::new(image));
    mkfs(&[new], &options()).expect("large enough");
    let image: Arc<dyn Device> = Arc::new(FileDevice::open(&path).expect("there it is"));
    assert_clean("image file", &examine(vec![image]));
}

#[test]
fn an_image_gets_its_size_when_nothing_is_in_the_way() {
    let pool = MadePool::make(1, &options()).expect("large enough");
    let resized = |size_bytes: u64| {
        let mut given = given(&pool.devices);
        given[0].resize_bytes = Some(size_bytes);
        given
    };
    assert!(matches!(mkfs(&resized(512 * MIB), &options()), Err(MkfsError::InUse { .. })));
    let mut options = options();
    options.force = true;
    assert!(matches!(mkfs(&resized(MIB), &options), Err(MkfsError::TooSmall { .. })));
    assert_eq!(pool.devices[0].size_bytes(), 256 * MIB);
    let report = mkfs(&resized(512 * MIB), &options).expect("forced");
    assert_eq!((report.total_bytes, pool.devices[0].size_bytes()), (512 * MIB, 512 * MIB));
    assert_clean("resized", &pool.examine());
}

#[test]
fn root_directory_has_the_given_owner() {
    let options = brindle_care::mkfs::MkfsOptions { root_owner: (1000, 100), ..options() };
    let pool = MadePool::make(1, &options).expect("large enough");
    assert_clean("owned", &pool.examine());
    let devices = pool.devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    let filesystem = Filesystem::open(devices, &OpenOptions::default()).expect("opens");
    let root = filesystem.attributes(filesystem.root()).expect("there");
    assert_eq!((root.uid, root.gid), (1000, 100));
}

#[test]
fn a_device_that_fails_is_named() {
    /// A device whose writes go nowhere.
    #[derive(Debug)]
    struct ReadOnly(SparseDevice);
    impl Device for ReadOnly {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), brindle_device::DeviceError> {
            self.0.read_at(offset, buffer)
        }
    }
    impl WritableDevice for ReadOnly {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), brindle_device::DeviceError> {
            let (device, length) = (self.0.name().to_owned(), bytes.len() as u64);
            let source = std::io::ErrorKind::ReadOnlyFilesystem.into();
            Err(brindle_device::DeviceError::Write { device, offset, length, source })
        }
        fn flush(&self) -> Result<(), brindle_device::DeviceError> {
            Ok(())
        }
        fn discard(&self, _: u64, _: u64) -> Result<bool, brindle_device::DeviceError> {
            Ok(false)
        }
        fn set_size(&self, _: u64) -> Result<(), brindle_device::DeviceError> {
            Ok(())
        }
    }
    let device = ReadOnly(SparseDevice::new("worn", 256 * MIB, DeviceClass::Solid));
    let new = NewDevice::new(Arc::new(device));
    let error = mkfs(&[new], &options()).expect_err("it can't be written");
    assert!(error.to_string().starts_with("worn: writing 65536 bytes at offset 0:"), "{error}");
}
