//! Disks that sleep: commits ask nothing of a disk that they have nothing for, and every mount tells one that slept
//! from one that was away.

use super::tiers::{Attached, ONE_OF_EACH, TWO_OF_EACH, recorded};
use crate::contents::patterns::Program;
use crate::golden::read_whole;
use crate::kernel::pool::{run, try_run};
use crate::kernel::{can_make, patiently};
use crate::simulated::{Layout, Pool};
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, FsError};
use brindle_ondisk::item::{SuperblockAge, SuperblockAgesHeader};
use brindle_ondisk::{Item, Profile, RootId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_sim::{Fault, FaultyDevice, Image, ImageDevice, LossMode, Random, Recorder};
use brindle_testing::referee::btrfs_check;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Large enough for bulk data.
static LARGE: [u8; 64 << 10] = [9; 64 << 10];

fn small(layout: Layout) -> Layout {
    Layout { device_mib: 256, ..layout }
}

/// A superblock of an image; the first one is number 0.
fn superblock(image: &Image, copy: usize) -> Box<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    image.read(SUPERBLOCK_OFFSETS[copy], &mut bytes);
    Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[copy]).expect("whole")
}

fn generations(images: &[Image], copy: usize) -> Vec<u64> {
    images.iter().map(|image| superblock(image, copy).generation.get()).collect()
}

/// A new file, on disk with the next commit.
fn write(program: &Program<'_>, name: &str) {
    let file = program.create(name);
    program.write(&file, 0, &LARGE);
    program.close(file);
}

/// A few commits, with something for the disks in the first one alone.
fn use_it(filesystem: &Filesystem, rounds: u32) {
    let program = Program::new(filesystem);
    write(&program, "large");
    filesystem.sync().expect("commits");
    for round in 0..rounds {
        program.put(&format!("small {round}"), b"little");
        filesystem.sync().expect("commits");
    }
}

/// The devices as they are now, whatever was flushed or not.
fn images_now(recorder: &Recorder) -> Vec<Image> {
    let recording = recorder.recording();
    let end = recording.crash_points().len() - 1;
    recording.state_at(end, LossMode::Nothing, &mut Random::new(1)).images()
}

/// The devices after a crash.
fn images_after_crash(recorder: &Recorder) -> Vec<Image> {
    let recording = recorder.recording();
    let end = recording.crash_points().len() - 1;
    recording.state_at(end, LossMode::Everything, &mut Random::new(1)).images()
}

#[test]
fn commits_ask_nothing_of_a_disk_that_they_have_nothing_for() {
    for (layout, bulk) in [(ONE_OF_EACH, 1..2), (TWO_OF_EACH, 2..4)] {
        let (recorder, filesystem) = recorded(&layout, 0x7a);
        let program = Program::new(&filesystem);
        // After the second one without data all copies of the superblocks are durable.
        use_it(&filesystem, 2);
        for round in 0..3 {
            let start = recorder.position();
            for number in 0..40 {
                program.put(&format!("file {round} {number}"), b"small");
                program.rename(&format!("file {round} {number}"), &format!("other {round} {number}"));
                filesystem.sync().expect("commits");
            }
            let recording = recorder.recording();
            let of_bulk = recording.events()[start..].iter().filter(|event| bulk.contains(&event.device));
            assert_eq!(of_bulk.count(), 0, "requests on disks");
            // An fsync makes data durable, which needs no superblock there.
            program.put(&format!("synced {round}"), &LARGE);
            filesystem.sync().expect("commits");
            let now = generations(&images_now(&recorder), 0);
            assert!(now[layout.devices - 1] < now[0], "it sleeps: {now:?}");
            write(&program, &format!("large {round}"));
            filesystem.sync().expect("commits");
            let now = generations(&images_now(&recorder), 0);
            assert!(now.iter().all(|generation| *generation == now[0]), "what was written has it: {now:?}");
            program.put(&format!("after {round}"), b"small");
            filesystem.sync().expect("commits");
        }
        let now = generations(&images_now(&recorder), 0);
        assert!(now[layout.devices - 1] + 1 == now[0], "it sleeps: {now:?}");
        filesystem.shutdown().expect("closes");
        drop(filesystem);
        let images = images_now(&recorder);
        let newest = generations(&images, 0)[0];
        for copy in 0..2 {
            assert_eq!(generations(&images, copy), vec![newest; layout.devices], "copy {copy}");
        }
        let series: Vec<_> = images.iter().map(|image| superblock(image, 0).series()).collect();
        assert!(series[0].is_some() && series.iter().all(|other| *other == series[0]), "{series:?}");
    }
}

#[test]
fn a_pool_of_one_class_writes_every_superblock_and_no_series() {
    let layout = Layout { fast: 0, ..small(TWO_OF_EACH) };
    let (recorder, filesystem) = recorded(&layout, 0x7b);
    use_it(&filesystem, 3);
    let images = images_now(&recorder);
    let newest = filesystem.pool().superblock().generation.get();
    assert_eq!(generations(&images, 0), [newest; 4]);
    assert!(images.iter().all(|image| superblock(image, 0).dev_item.generation.get() == 0));
}

#[test]
fn a_label_is_written_to_every_device() {
    let (recorder, filesystem) = recorded(&small(TWO_OF_EACH), 0x7c);
    use_it(&filesystem, 2);
    let mut label = [0; 256];
    label[..5].copy_from_slice(b"other");
    filesystem.pool().set_label(&label).expect("writable");
    filesystem.sync().expect("commits");
    let labels: Vec<_> = images_now(&recorder).iter().map(|image| superblock(image, 0).label).collect();
    assert!(labels.iter().all(|found| *found == label));
}

/// A pool in which one device fails for good, after bulk devices have slept; its images after some commits more.
fn with_a_failure_of(number: usize, act: impl Fn(&Program<'_>, u32)) -> Vec<Image> {
    let layout = small(TWO_OF_EACH);
    let (recorder, filesystem) = recorded(&layout, 0x7d);
    use_it(&filesystem, 3);
    filesystem.shutdown().expect("closes");
    drop(filesystem);
    let devices: Vec<Arc<ImageDevice>> = (0..)
        .zip(images_now(&recorder))
        .map(|(number, image)| {
            Arc::new(ImageDevice::new(format!("memory{number}"), image, layout.class(number)))
        })
        .collect();
    let faulty: Vec<Arc<FaultyDevice>> = devices
        .iter()
        .map(|device| Arc::new(FaultyDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>)))
        .collect();
    let writable = faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    let filesystem = Pool::on(writable.collect(), &layout).open().expect("opens");
    use_it_again(&filesystem, 4);
    faulty[number].inject(Fault::WritesFrom { number: faulty[number].counts().writes });
    let program = Program::new(&filesystem);
    for round in 0..6 {
        act(&program, round);
        filesystem.sync().expect("the others are enough");
    }
    drop(filesystem);
    devices.iter().map(|device| device.image()).collect()
}

fn use_it_again(filesystem: &Filesystem, rounds: u32) {
    let program = Program::new(filesystem);
    for round in 0..rounds {
        program.put(&format!("again {round}"), b"little");
        filesystem.sync().expect("commits");
    }
}

/// The devices that lack something, those that slept, by their ids.
fn states(images: &[Image], layout: &Layout) -> (Vec<u64>, Vec<u64>) {
    let devices = images.iter().enumerate().map(|(number, image)| {
        Arc::new(ImageDevice::new(format!("memory{number}"), image.clone(), layout.class(number)))
            as Arc<dyn Device>
    });
    let filesystem = Filesystem::open(devices.collect(), &crate::golden::top_level()).expect("opens");
    let devices = filesystem.pool().volume().devices();
    let ids = |is_meant: fn(&brindle_volume::DeviceStatus) -> bool| {
        devices.iter().filter(|device| is_meant(device)).map(|device| device.devid.get()).collect()
    };
    (ids(|device| device.is_incomplete), ids(|device| device.is_asleep))
}

/// Of a fast device only metadata is lost, which tells so itself and is not marked.
#[test]
fn a_device_that_fails_keeps_the_series_of_before() {
    let layout = small(TWO_OF_EACH);
    let names = |program: &Program<'_>, round: u32| program.put(&format!("name {round}"), b"");
    assert_eq!(states(&with_a_failure_of(1, names), &layout), (vec![2], vec![]));
    // While a device lacks something the others are awake.
    let data = |program: &Program<'_>, round: u32| program.put(&format!("data {round}"), &LARGE);
    assert_eq!(states(&with_a_failure_of(3, data), &layout), (vec![4], vec![]));
    // A disk that nothing is asked of is not missed.
    assert_eq!(states(&with_a_failure_of(3, names), &layout), (vec![], vec![3, 4]));
}

/// Fails to take its first superblock, also when it is written again and when those that sleep get theirs.
#[test]
fn a_superblock_that_a_fast_device_fails_to_take_goes_to_those_that_sleep() {
    let layout = small(TWO_OF_EACH);
    let (recorder, filesystem) = recorded(&layout, 0x7e);
    use_it(&filesystem, 3);
    drop(filesystem);
    let devices: Vec<Arc<ImageDevice>> = (0..)
        .zip(images_now(&recorder))
        .map(|(number, image)| {
            Arc::new(ImageDevice::new(format!("memory{number}"), image, layout.class(number)))
        })
        .collect();
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]) as Arc<dyn WritableDevice>));
    let mut writable: Vec<_> =
        devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    writable[1] = Arc::clone(&faulty) as Arc<dyn WritableDevice>;
    let filesystem = Pool::on(writable, &layout).open().expect("opens");
    use_it_again(&filesystem, 2);
    use_it_again_once(&filesystem, "before");
    let asleep = generations(&devices.iter().map(|device| device.image()).collect::<Vec<_>>(), 0);
    assert!(asleep[2] < asleep[0] && asleep[3] < asleep[0], "{asleep:?}");
    let first = SUPERBLOCK_OFFSETS[0];
    faulty.inject(Fault::WritesWithin(first..first + 4096));
    use_it_again_once(&filesystem, "other");
    assert_eq!(faulty.counts().faults, 3);
    let newest = filesystem.pool().superblock().generation.get();
    let found = generations(&devices.iter().map(|device| device.image()).collect::<Vec<_>>(), 0);
    assert_eq!((found[0], found[2], found[3]), (newest, newest, newest), "{found:?}");
}

fn use_it_again_once(filesystem: &Filesystem, name: &str) {
    Program::new(filesystem).put(name, b"");
    filesystem.sync().expect("commits");
}

#[test]
fn an_examination_notes_devices_that_sleep_and_finds_nothing() {
    let layout = small(TWO_OF_EACH);
    let (recorder, filesystem) = recorded(&layout, 0x7f);
    use_it(&filesystem, 5);
    drop(filesystem);
    let devices = images_after_crash(&recorder)
        .into_iter()
        .map(|image| Arc::new(ImageDevice::new("one", image, DeviceClass::Solid)) as Arc<dyn Device>);
    let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
    let report = brindle_check::check(devices.collect(), &options, &NoProgress).expect("a pool");
    let findings: Vec<String> = report.findings().map(|(_, finding)| finding.to_string()).collect();
    assert!(findings.is_empty(), "{findings:#?}");
    let notes = &report.pass("superblocks").expect("a pass").notes;
    let asleep = notes.iter().filter(|note| note.contains("commits since had nothing for the device"));
    assert_eq!(asleep.count(), 4, "two copies of two devices: {notes:#?}");
}

/// A crashed pool in which the last two devices sleep.
fn asleep(layout: &Layout, uuid: u8) -> (Vec<Image>, Vec<String>) {
    let (recorder, filesystem) = recorded(layout, uuid);
    let program = Program::new(&filesystem);
    program.make_directory("names");
    use_it(&filesystem, 1);
    for round in 0..12 {
        program.put(&format!("names/{round}"), b"small");
        program.rename(&format!("names/{round}"), &format!("names/other {round}"));
        filesystem.sync().expect("commits");
    }
    let images = images_after_crash(&recorder);
    let found = generations(&images, 0);
    assert!(found[layout.devices - 1] + 10 < found[0], "{found:?}");
    let mut names = program.names("names");
    names.sort();
    (images, names)
}

pub(super) fn writable(images: &[Image], layout: &Layout) -> Vec<Arc<dyn WritableDevice>> {
    let device = |(number, image): (usize, &Image)| {
        Arc::new(ImageDevice::new(format!("memory{number}"), image.clone(), layout.class(number)))
            as Arc<dyn WritableDevice>
    };
    images.iter().enumerate().map(device).collect()
}

/// Recorded ages of superblocks.
fn ages(filesystem: &Filesystem) -> Vec<SuperblockAge> {
    let pool = filesystem.pool();
    let (tree, key) = (pool.tree(RootId::DEV_TREE).expect("a tree"), SuperblockAgesHeader::KEY);
    let ages = pool.with_item(&tree, &key, |data| match Item::parse(&key, data) {
        Ok(Item::SuperblockAges(item)) => item.devices.to_vec(),
        other => panic!("{other:?}"),
    });
    ages.expect("reads").expect("a record")
}

/// First superblocks of attached devices.
fn superblocks_of(attached: &Attached) -> Vec<Box<Superblock>> {
    let read = |path: &PathBuf| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let device = FileDevice::open(path).expect("opens");
        device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("reads");
        Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).expect("whole")
    };
    attached.loops.iter().map(read).collect()
}

fn open_written(attached: &Attached, layout: &Layout) -> Result<Filesystem, FsError> {
    let open =
        |path: &PathBuf| Arc::new(FileDevice::open_writable(path).expect("opens")) as Arc<dyn WritableDevice>;
    Pool::on(attached.loops.iter().map(open).collect(), layout).open()
}

#[test]
fn the_kernel_mounts_a_pool_in_which_disks_slept_by_whatever_device_in_whatever_order() {
    if !can_make() {
        return;
    }
    for (layout, uuid) in [(ONE_OF_EACH, 0x80), (TWO_OF_EACH, 0x81)] {
        let layout = small(layout);
        let (images, expected) = asleep(&layout, uuid);
        let expected_ages = ages(&Pool::on(writable(&images, &layout), &layout).open().expect("opens"));
        assert!(!expected_ages.is_empty(), "disks slept");
        let forward: Vec<usize> = (0..layout.devices).collect();
        let backward: Vec<usize> = forward.iter().rev().copied().collect();
        for order in [forward, backward] {
            for by in [0, layout.devices - 1] {
                let attached = Attached::new(&images);
                run("btrfs", ["device", "scan"], &attached.loops);
                let what = format!("told {order:?}, mounted by {by}");
                btrfs_check(&attached.loops[by])
                    .expect("btrfs-progs")
                    .unwrap_or_else(|said| panic!("{what}, before that: {said}"));
                assert_eq!(attached.names(&order, by, "names"), expected, "{what}");
                let after = superblocks_of(&attached);
                assert!(
                    after.iter().all(|one| one.generation == after[0].generation),
                    "{what}: the kernel writes all"
                );
                assert!(after.iter().all(|one| one.dev_item.generation.get() == 0), "{what}: and no series");
                for device in &attached.loops {
                    btrfs_check(device).expect("btrfs-progs").unwrap_or_else(|said| panic!("{what}: {said}"));
                }
                scrub(&attached);
                let filesystem = open_written(&attached, &layout).expect("opens");
                assert_eq!(filesystem.warnings(), [""; 0]);
                assert_eq!(ages(&filesystem), expected_ages, "{what}: the kernel leaves the record alone");
                filesystem.shutdown().expect("closes");
            }
        }
    }
}

fn scrub(attached: &Attached) {
    run("mount", ["-t", "btrfs"], [&attached.loops[0], &attached.mount_point]);
    let said = run("btrfs", ["scrub", "start", "-B"], [&attached.mount_point]);
    unmount(&attached.mount_point);
    assert!(said.contains("no errors found"), "{said}");
}

fn unmount(mount_point: &Path) {
    patiently(|| try_run("umount", [""; 0], [mount_point])).expect("unmounts");
}

/// A disk that slept, and was away then while the kernel wrote the pool without it.
#[test]
fn a_disk_that_the_kernel_did_without_is_found_out() {
    if !can_make() {
        return;
    }
    let layout = Layout { data: Profile::Raid1, ..small(TWO_OF_EACH) };
    let (images, _) = asleep(&layout, 0x82);
    let attached = Attached::new(&images);
    let (last, others) = attached.loops.split_last().expect("four devices");
    run("btrfs", ["device", "scan"], others);
    run("btrfs", ["device", "scan", "--forget"], [last]);
    run("mount", ["-t", "btrfs", "-o", "degraded"], [&others[0], &attached.mount_point]);
    std::fs::write(attached.mount_point.join("kernel"), LARGE).expect("room");
    for round in 0..3 {
        std::fs::write(attached.mount_point.join(format!("kernel {round}")), b"x").expect("room");
        run("sync", ["-f"], [&attached.mount_point]);
    }
    unmount(&attached.mount_point);
    let found = superblocks_of(&attached);
    assert!(found[3].series().is_some() && found[0].series().is_none());
    let refused = open_written(&attached, &layout).expect_err("it lacks what the kernel wrote").to_string();
    assert!(refused.contains("stale"), "{refused}");
    // Reading goes on without its copies.
    let devices =
        attached.loops.iter().map(|path| Arc::new(FileDevice::open(path).expect("opens")) as Arc<dyn Device>);
    let reader = Filesystem::open(devices.collect(), &crate::golden::top_level()).expect("opens");
    assert!(reader.warnings().iter().any(|warning| warning.contains("stale")), "{:?}", reader.warnings());
    let whole = read_whole(&reader, "read");
    assert!(whole.entries().any(|entry| entry.path == b"kernel"));
}
