//! Crashes at every write and flush while devices join, leave and change their size.

use crate::support::files::{assert_filled, fill};
use crate::support::{MIB, examine, options};
use brindle_care::balance;
use brindle_care::device::{
    AddOptions, Leaving, NewSize, Newcomer, ReplaceOptions, add, rejoin, remove, replace, resize,
};
use brindle_care::job::{Control, Progress};
use brindle_care::mkfs::{NewDevice, mkfs};
use brindle_care::scrub::{Plan, Scrub};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, FsError, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{DevId, Profile, Uuid};
use brindle_policy::balance::Balance;
use brindle_sim::{Image, ImageDevice, LossMode, Random, Recorder, Recording};
use brindle_tree::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FILES: usize = 6;
const FILE_BYTES: usize = 150_000;
/// Approximate number of states of each story.
const STATES: usize = 120;

type Devices = Vec<Arc<dyn WritableDevice>>;

fn open(devices: &Devices) -> Result<Filesystem, FsError> {
    Filesystem::open_writable(devices.clone(), &OpenOptions::default(), &WriteOptions::default())
}

fn open_degraded(devices: &[Arc<dyn WritableDevice>]) -> Result<Filesystem, FsError> {
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    Filesystem::open_writable(devices.to_vec(), &options, &WriteOptions::default())
}

fn on_and_on(_: &Progress) -> Control {
    Control::Continue
}

/// A device of the same story has the same UUID, told again or not.
fn newcomer(device: &Arc<dyn WritableDevice>, number: u8) -> Newcomer {
    Newcomer { device: Arc::clone(device), uuid: Uuid([number; 16]), class: None }
}

fn take_in(pool: &Pool, device: &Arc<dyn WritableDevice>, number: u8) {
    let options = AddOptions { force: true, discard: false };
    add(pool, &[newcomer(device, number)], &options).expect("it is empty");
}

/// Records what is done to a pool of some of the devices that has files in it.
fn record(profile: Profile, members: usize, all: usize, act: impl FnOnce(&Pool, &Devices)) -> Recording {
    record_of(profile, members, all, |filesystem, devices| act(filesystem.pool(), devices))
}

/// Records what is done to the filesystem of such a pool.
fn record_of(
    profile: Profile,
    members: usize,
    all: usize,
    act: impl FnOnce(&Filesystem, &Devices),
) -> Recording {
    record_on(filled(profile, members, all), |devices| {
        let filesystem = open(&devices[..members].to_vec()).expect("opens");
        act(&filesystem, devices);
    })
}

/// A pool of some of the devices that has files in it.
fn filled(profile: Profile, members: usize, all: usize) -> Vec<Image> {
    changed(vec![Image::new(512 * MIB); all], |writable| {
        let mut options = options();
        (options.data, options.metadata, options.nodesize) = (Some(profile), Some(profile), Some(4096));
        let given: Vec<_> =
            writable[..members].iter().map(|device| NewDevice::new(Arc::clone(device))).collect();
        mkfs(&given, &options).expect("made");
        let filesystem = open(&writable[..members].to_vec()).expect("opens");
        fill(&filesystem, FILES, FILE_BYTES);
        // What lay at the beginning of the devices lies behind it then.
        balance::start(&filesystem, &Balance::full(), false, &mut on_and_on).expect("there is room");
        filesystem.shutdown().expect("works");
    })
}

/// Devices with these contents, changed.
fn changed(images: Vec<Image>, act: impl FnOnce(&Devices)) -> Vec<Image> {
    let device = |(number, image)| Arc::new(ImageDevice::new(name(number), image, CLASS));
    let devices: Vec<_> = images.into_iter().enumerate().map(device).collect();
    act(&devices.iter().map(|device| Arc::clone(device) as _).collect());
    devices.iter().map(|device| device.image()).collect()
}

/// Records what is done to devices with these contents.
fn record_on(images: Vec<Image>, act: impl FnOnce(&Devices)) -> Recording {
    let recorder = Recorder::new();
    let recorded = |(number, image)| recorder.device(&name(number), image, CLASS) as Arc<dyn WritableDevice>;
    act(&images.into_iter().enumerate().map(recorded).collect());
    recorder.recording()
}

const CLASS: DeviceClass = DeviceClass::Unknown;

fn name(number: usize) -> String {
    format!("memory{number}")
}

/// Spoils blocks and data all over the second device.
fn spoil(pool: &Pool, devices: &Devices) {
    let stripes = pool.volume().chunks().into_iter().flat_map(|chunk| chunk.stripes);
    for stripe in stripes.filter(|stripe| stripe.devid == DevId::new(2)) {
        for at in (0..stripe.length.min(2 * MIB)).step_by(12 << 10) {
            devices[1].write_at(stripe.physical.get() + at + 50, &[0x5a; 300]).expect("memory");
        }
    }
    devices[1].flush().expect("memory");
}

#[test]
fn a_scrub_corrects_rot() {
    for profile in [Profile::Raid1, Profile::Raid5] {
        let members = if profile == Profile::Raid1 { 2 } else { 3 };
        let story = |filesystem: &Filesystem, devices: &Devices| {
            spoil(filesystem.pool(), devices);
            scrub_all(filesystem)
        };
        let corrected = AtomicU64::new(0);
        let recording = record_of(profile, members, members, |filesystem, devices| {
            corrected.store(story(filesystem, devices), Relaxed);
        });
        assert!(corrected.load(Relaxed) > 20, "{profile}: rot was found");
        let points: Vec<usize> = recording.crash_points().collect();
        let step = (points.len() / STATES).max(1);
        let mut replay = recording.replay();
        for (number, point) in points.iter().enumerate().filter(|(number, _)| number % step == 0) {
            replay.advance_to(*point);
            let mut random = Random::new(4).fork(*point as u64);
            let mode = LossMode::ALL[number / step % LossMode::ALL.len()];
            let devices = replay.state(mode, &mut random).writable();
            let what = format!("{profile}, point {point}, {mode:?}");
            let filesystem = open(&devices).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_filled(&filesystem, FILES, FILE_BYTES);
            scrub_all(&filesystem);
            assert_eq!(scrub_all(&filesystem), 0, "{what}");
            drop(filesystem);
            let readable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
            let report = examine(readable);
            let findings: Vec<String> = report.findings().map(|(pass, it)| format!("{pass}: {it}")).collect();
            assert!(findings.is_empty(), "{what}: {findings:#?}");
        }
    }
}

/// Scrubs all devices; returns the number of errors, all of which were corrected.
fn scrub_all(filesystem: &Filesystem) -> u64 {
    let scrub = Scrub::new(filesystem, &Plan::default()).expect("a plan");
    scrub.run(filesystem).expect("it runs");
    let counts = scrub.report().counts();
    assert_eq!((counts.uncorrectable_errors, counts.corrected_errors), (0, counts.errors()), "{counts:?}");
    counts.errors()
}

/// Crashes at points all over a story: there is a whole pool with everything in it, and `again` tells the story to its
/// end.
fn crash_all_over(recording: &Recording, seed: u64, again: impl Fn(&Pool, &Devices)) {
    crash_all_over_of(recording, seed, |filesystem, devices| again(filesystem.pool(), devices));
}

/// The same, with a story of the filesystem.
fn crash_all_over_of(recording: &Recording, seed: u64, again: impl Fn(&Filesystem, &Devices)) {
    let points: Vec<usize> = recording.crash_points().collect();
    let step = (points.len() / STATES).max(1);
    let mut replay = recording.replay();
    for (number, point) in points.iter().enumerate().filter(|(number, _)| number % step == 0) {
        replay.advance_to(*point);
        let mut random = Random::new(seed).fork(*point as u64);
        let mode = LossMode::ALL[number / step % LossMode::ALL.len()];
        let state = replay.state(mode, &mut random);
        let what = format!("seed {seed}, point {point}, {mode:?}");
        let devices = state.writable();
        let filesystem = open(&devices).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_filled(&filesystem, FILES, FILE_BYTES);
        if (number / step) % 6 == 0 {
            again(&filesystem, &devices);
        }
        filesystem.shutdown().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_filled(&filesystem, FILES, FILE_BYTES);
        let members = filesystem.pool().volume().devices();
        drop(filesystem);
        let is_member =
            |device: &&Arc<dyn WritableDevice>| members.iter().any(|member| member.name == device.name());
        let readable: Vec<Arc<dyn Device>> =
            devices.iter().filter(is_member).map(|device| Arc::clone(device) as _).collect();
        // One superblock is enough to open it; the next commit writes all.
        let report = examine(readable);
        let findings = report.findings().filter(|(pass, _)| *pass != "superblocks");
        let findings: Vec<String> = findings.map(|(pass, finding)| format!("{pass}: {finding}")).collect();
        assert!(findings.is_empty(), "{what}: {findings:#?}");
    }
}

/// Number of members.
fn count(pool: &Pool) -> usize {
    pool.volume().devices().len()
}

#[test]
fn a_device_joins() {
    for profile in [Profile::Raid1, Profile::Single] {
        let story = |pool: &Pool, devices: &Devices| take_in(pool, &devices[2], 7);
        let recording = record(profile, 2, 3, story);
        crash_all_over(&recording, 1, |pool, devices| {
            if count(pool) == 2 {
                story(pool, devices);
            }
            assert_eq!(count(pool), 3);
        });
    }
}

#[test]
fn a_device_leaves() {
    for profile in [Profile::Raid1, Profile::Raid0] {
        let story = |pool: &Pool, _: &Devices| {
            let which = Leaving::Id(DevId::new(2));
            remove(pool, which, &mut on_and_on).expect("there is room");
        };
        let recording = record(profile, 3, 3, story);
        crash_all_over(&recording, 2, |pool, devices| {
            if count(pool) == 3 {
                story(pool, devices);
            }
            assert_eq!(count(pool), 2);
        });
    }
}

/// Writes a file that was not there before.
fn write_after(filesystem: &Filesystem) {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(filesystem.root(), b"after", &new).expect("room");
    let file = filesystem.open_file(made.id).expect("there");
    filesystem.write(&file, 0, &[5; 100_000]).expect("room");
    filesystem.sync().expect("works");
}

/// Replaces the first device by the last one, unless that is done.
fn replace_first(filesystem: &Filesystem, devices: &Devices) {
    let target = devices.last().expect("there are some");
    if filesystem.pool().volume().devices().iter().any(|device| device.name == target.name()) {
        return;
    }
    let (which, options) = (Leaving::Id(DevId::new(1)), ReplaceOptions::default());
    let (_, ended) = replace(filesystem, which, target, &options, &mut on_and_on).expect("it is as large");
    assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0));
}

#[test]
fn a_device_is_replaced() {
    for (profile, members) in [(Profile::Raid1, 2), (Profile::Single, 2), (Profile::Raid5, 3)] {
        let recording = record_of(profile, members, members + 1, |filesystem, devices| {
            replace_first(filesystem, devices);
            // A crash between the writes of a row leaves its parity wrong, with a replacement or without.
            if profile == Profile::Raid5 {
                return;
            }
            write_after(filesystem);
        });
        let is_replaced = |filesystem: &Filesystem| {
            let found = filesystem.pool().volume().devices();
            let names: Vec<&str> = found.iter().map(|device| device.name.as_str()).collect();
            names[0] == name(members)
        };
        let (before, after) = (AtomicU64::new(0), AtomicU64::new(0));
        crash_all_over_of(&recording, 5, |filesystem, devices| {
            if is_replaced(filesystem) { &after } else { &before }.fetch_add(1, Relaxed);
            replace_first(filesystem, devices);
            assert!(is_replaced(filesystem));
        });
        assert!(before.load(Relaxed) > 2 && after.load(Relaxed) > 1, "{before:?} {after:?}");
    }
}

/// The first device has missed something, and comes back.
fn rejoin_first(filesystem: &Filesystem, devices: &Devices) {
    let (devid, ended) = rejoin(filesystem, &devices[0], &mut on_and_on).expect("it was away");
    assert_eq!((devid.get(), ended.control, ended.progress.left), (1, Control::Continue, 0));
}

#[test]
fn a_device_rejoins() {
    for (profile, members) in [(Profile::Raid1, 2), (Profile::Raid5, 3)] {
        let images = filled(profile, members, members);
        let images = changed(images, |devices| {
            let filesystem = open_degraded(&devices[1..]).expect("opens");
            write_after(&filesystem);
            filesystem.shutdown().expect("works");
        });
        let recording = record_on(images, |devices| {
            rejoin_first(&open_degraded(&devices[1..]).expect("opens"), devices);
        });
        let points: Vec<usize> = recording.crash_points().collect();
        let step = (points.len() / STATES).max(1);
        let mut replay = recording.replay();
        let (mut before, mut after) = (0, 0);
        for (number, point) in points.iter().enumerate().filter(|(number, _)| number % step == 0) {
            replay.advance_to(*point);
            let mut random = Random::new(6).fork(*point as u64);
            let mode = LossMode::ALL[number / step % LossMode::ALL.len()];
            let devices = replay.state(mode, &mut random).writable();
            let what = format!("{profile}, point {point}, {mode:?}");
            if profile == Profile::Raid1 {
                // It is what it was, or nothing, or all that it is to be.
                let mut options = OpenOptions::default();
                options.pool.volume.degraded = true;
                if let Ok(alone) = Filesystem::open(vec![Arc::clone(&devices[0]) as _], &options) {
                    assert_filled(&alone, FILES, FILE_BYTES);
                }
            }
            let filesystem = if let Ok(whole) = open(&devices) {
                after += 1;
                whole
            } else {
                before += 1;
                let filesystem = open_degraded(&devices).unwrap_or_else(|error| panic!("{what}: {error}"));
                rejoin_first(&filesystem, &devices);
                filesystem
            };
            assert_filled(&filesystem, FILES, FILE_BYTES);
            let written = filesystem.lookup(filesystem.root(), b"after").expect("readable");
            assert!(written.is_some(), "{what}: it was written without the device");
            filesystem.shutdown().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(filesystem);
            let report = examine(devices.iter().map(|device| Arc::clone(device) as _).collect());
            // One superblock is enough to open it; the next commit writes all.
            let findings = report.findings().filter(|(pass, _)| *pass != "superblocks");
            let findings: Vec<String> =
                findings.map(|(pass, finding)| format!("{pass}: {finding}")).collect();
            assert!(findings.is_empty(), "{what}: {findings:#?}");
        }
        assert!(before > 10 && after > 0, "{profile}: {before} {after}");
    }
}

#[test]
fn a_device_gets_smaller_and_larger() {
    let moved = AtomicU64::new(0);
    let story = |pool: &Pool, _: &Devices| {
        for (devid, size) in [(1, "256M"), (2, "256M"), (1, "max")] {
            let size: NewSize = size.parse().expect("a size");
            let ended = resize(pool, DevId::new(devid), size, &mut on_and_on).expect("there is room");
            moved.fetch_add(ended.progress.moved_bytes, Relaxed);
        }
    };

    let recording = record(Profile::Raid1, 2, 2, story);
    assert!(moved.load(Relaxed) > 0, "something lay at the end");
    crash_all_over(&recording, 3, |pool, devices| {
        story(pool, devices);
        let sizes: Vec<u64> = pool.volume().devices().iter().map(|device| device.total_bytes).collect();
        assert_eq!(sizes, [512 * MIB, 256 * MIB]);
    });
}
