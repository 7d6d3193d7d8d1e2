//! Devices of pools in memory that are replaced.

use super::device::{
    FILE_BYTES, FILES, Members, on_and_on, open, plain, superblock, write_more, write_plain,
};
use crate::support::files::{assert_filled, fill};
use crate::support::{MIB, MadePool, devices, options};
use brindle_care::device::{DeviceCareError, Leaving, ReplaceOptions, rejoin, replace};
use brindle_care::job::{Control, Ended, Observer, Progress};
use brindle_care::scrub::{Plan, Scrub};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_ondisk::{DevId, Profile};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use brindle_sim::{Fault, FaultyDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn target(name: &str, size_bytes: u64) -> Arc<SparseDevice> {
    Arc::new(SparseDevice::new(name, size_bytes, DeviceClass::Unknown))
}

fn replace_by(
    filesystem: &Filesystem,
    which: Leaving,
    target: &Arc<SparseDevice>,
    options: &ReplaceOptions,
    observer: Observer<'_>,
) -> Result<Ended, DeviceCareError> {
    let target = Arc::clone(target) as Arc<dyn WritableDevice>;
    replace(filesystem, which, &target, options, observer).map(|(_, ended)| ended)
}

fn first() -> Leaving {
    Leaving::Id(DevId::new(1))
}

/// Replaces the first device by one that is larger.
fn replace_first(pool: &mut Members, options: &ReplaceOptions) -> Progress {
    let new = target("new", 450 * MIB);
    let ended = replace_by(&pool.filesystem, first(), &new, options, &mut on_and_on).expect("it is larger");
    assert_eq!(ended.control, Control::Continue);
    pool.devices.push(new);
    ended.progress
}

/// Number of errors of all copies.
fn errors(filesystem: &Filesystem) -> u64 {
    let scrub = Scrub::new(filesystem, &Plan { read_only: true, ..Plan::default() }).expect("a plan");
    scrub.run(filesystem).expect("it runs");
    scrub.report().counts().errors()
}

/// Spoils all that lies on a device but its superblocks, up to some bytes of each device extent.
fn spoil(filesystem: &Filesystem, device: &SparseDevice, devid: u64, bytes: u64) {
    let stripes = filesystem.pool().volume().chunks().into_iter().flat_map(|chunk| chunk.stripes);
    for stripe in stripes.filter(|stripe| stripe.devid == DevId::new(devid)) {
        for at in (0..stripe.length.min(bytes)).step_by(8192) {
            device.write_at(stripe.physical.get() + at + 50, &[0x5a; 300]).expect("memory");
        }
    }
}

#[test]
fn in_every_profile_another_device_takes_the_place_of_one() {
    for row in &Profile::TABLE {
        let count = usize::from(row.devs_min.max(row.nparity * 2 + 1));
        for avoid_source in [false, true] {
            let what = format!("{} {avoid_source}", row.name);
            let mut pool = Members::new(count, row.profile);
            let options = ReplaceOptions { avoid_source, ..ReplaceOptions::default() };
            let progress = replace_first(&mut pool, &options);
            assert_eq!((progress.left, progress.done), (0, progress.expected), "{what}");
            assert_eq!(progress.moved_bytes, progress.expected_bytes, "{what}");
            assert!(superblock(&pool.devices[0]).is_none(), "{what}: it is no member any more");
            write_more(&pool.filesystem);
            let left: Vec<usize> = (1..=count).collect();
            let pool = pool.prove(&what, &left);
            let volume = pool.filesystem.pool().volume();
            let device = volume.devices().into_iter().find(|it| it.name == "new").expect("a member");
            assert_eq!((device.devid.get(), device.total_bytes), (1, 400 * MIB), "{what}");
            assert_eq!(errors(&pool.filesystem), 0, "{what}");
        }
    }
}

#[test]
fn the_place_of_a_missing_device_is_taken() {
    for row in Profile::TABLE.iter().filter(|row| row.ncopies > 1 && row.devs_min > 1 || row.nparity > 0) {
        let count = usize::from(row.devs_min.max(row.nparity * 2 + 1));
        let Members { devices, filesystem } = Members::new(count, row.profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = open(&devices[1..], true);
        write_more(&filesystem);
        let new = target("new", 400 * MIB);
        let by = ReplaceOptions::default();
        let ended =
            replace_by(&filesystem, Leaving::Missing, &new, &by, &mut on_and_on).expect("it is as large");
        assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0), "{}", row.name);
        // It takes new chunks too.
        write_more(&filesystem);
        let devices = [&devices[1..], &[new]].concat();
        let all: Vec<usize> = (0..count).collect();
        let pool = Members { devices, filesystem }.prove(row.name, &all);
        assert_eq!(errors(&pool.filesystem), 0, "{}", row.name);
    }
}

/// An SSD and two disks in raid1, with something in it.
fn common() -> Members {
    let of = [
        (400 * MIB, DeviceClass::Solid),
        (400 * MIB, DeviceClass::Rotating),
        (400 * MIB, DeviceClass::Rotating),
    ];
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
    let made = MadePool::make_of(&of, &options).expect("made");
    let filesystem = open(&made.devices, false);
    fill(&filesystem, FILES, FILE_BYTES);
    Members { devices: made.devices, filesystem }
}

/// Replaces a device of the common pool by one that is gone after that number of calls. Returns whether it was replaced, and the
/// calls that there were.
fn replace_by_failing(devid: u64, calls: u64) -> (bool, u64) {
    let what = format!("devid {devid}, gone after {calls} calls");
    let Members { mut devices, filesystem } = common();
    let new = target("new", 400 * MIB);
    let faulty = FaultyDevice::with(Arc::clone(&new) as _, vec![Fault::VanishAfter { calls }]);
    let faulty = Arc::new(faulty);
    let as_target = Arc::clone(&faulty) as Arc<dyn WritableDevice>;
    let (which, by) = (Leaving::Id(DevId::new(devid)), ReplaceOptions::default());
    let replaced = replace(&filesystem, which, &as_target, &by, &mut on_and_on);
    let counts = faulty.counts();
    let index = usize::try_from(devid - 1).expect("few");
    let is_replaced = superblock(&devices[index]).is_none();
    assert!(replaced.is_err() || is_replaced, "{what}");
    if replaced.is_err() && filesystem.pool().read_only_reason().is_none() {
        // Nothing has come of it: the pool is used as before.
        write_more(&filesystem);
    }
    drop(filesystem);
    if is_replaced {
        devices[index] = new;
    }
    let filesystem = open(&devices, false);
    let pool = Members { devices, filesystem }.prove(&what, &[0, 1, 2]);
    assert!(is_replaced || errors(&pool.filesystem) == 0, "{what}");
    (is_replaced, counts.reads + counts.writes + counts.flushes)
}

#[test]
fn a_target_that_fails_ends_the_replacement_and_nothing_else() {
    for devid in [1, 2] {
        let (is_replaced, all) = replace_by_failing(devid, u64::MAX);
        assert!(is_replaced);
        let places: Vec<u64> = (0..all.saturating_sub(12)).step_by(11).chain(all - 12..all).collect();
        let outcomes: Vec<bool> = places.iter().map(|calls| replace_by_failing(devid, *calls).0).collect();
        assert!(outcomes.contains(&false) && outcomes.is_sorted(), "{outcomes:?}");
    }
}

#[test]
fn rot_on_the_device_is_answered_from_elsewhere() {
    for (profile, count) in
        [(Profile::Raid1, 2), (Profile::Raid10, 4), (Profile::Raid5, 3), (Profile::Raid6, 5)]
    {
        let mut pool = Members::new(count, profile);
        spoil(&pool.filesystem, &pool.devices[0], 1, 4 * MIB);
        let progress = replace_first(&mut pool, &ReplaceOptions::default());
        assert_eq!(progress.left, 0, "{profile}");
        let left: Vec<usize> = (1..=count).collect();
        let pool = pool.prove(profile.attributes().name, &left);
        assert_eq!(errors(&pool.filesystem), 0, "{profile}");
    }
}

#[test]
fn rot_in_all_copies_is_told_and_copied_as_it_is() {
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Raid1));
    let made = MadePool::make_of(&[(400 * MIB, DeviceClass::Unknown); 2], &options).expect("made");
    let mut pool = Members { filesystem: open(&made.devices, false), devices: made.devices };
    fill(&pool.filesystem, FILES, FILE_BYTES);
    let chunks = pool.filesystem.pool().volume().chunks();
    let data = chunks.iter().find(|chunk| chunk.kind.contains(brindle_ondisk::BlockGroupType::DATA));
    let stripe = data.expect("there is data").stripes[0];
    let index = if stripe.devid.get() == 1 { 0 } else { 1 };
    pool.devices[index].write_at(stripe.physical.get() + 4096, &[7; 100]).expect("memory");
    let new = target("new", 400 * MIB);
    let by = ReplaceOptions::default();
    let ended = replace_by(&pool.filesystem, Leaving::Id(stripe.devid), &new, &by, &mut on_and_on);
    assert_eq!(ended.expect("it has checksums").progress.left, 1);
    let mut found = [0; 100];
    new.read_at(stripe.physical.get() + 4096, &mut found).expect("memory");
    assert_eq!(found, [7; 100]);
    pool.devices[index] = new;
    assert_eq!(errors(&pool.filesystem), 1, "it can still be told");
}

#[test]
fn an_attempt_goes_on_where_the_last_one_ended() {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    write_plain(&devices, true, 1);
    let new = target("new", 400 * MIB);
    let filesystem = open(&devices, false);
    let stop = &mut |progress: &Progress| if progress.done > 1 { Control::Cancel } else { Control::Continue };
    let by = ReplaceOptions::default();
    let ended = replace_by(&filesystem, first(), &new, &by, stop).expect("it is as large");
    assert_eq!(ended.control, Control::Cancel);
    assert!(superblock(&new).is_none() && superblock(&devices[0]).is_some());
    write_more(&filesystem);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    // In place, without checksums.
    write_plain(&devices, false, 2);
    let filesystem = open(&devices, false);
    spoil(&filesystem, &new, 1, MIB);
    let ended = replace_by(&filesystem, first(), &new, &by, &mut on_and_on).expect("it goes on");
    assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0));
    let devices = vec![Arc::clone(&devices[1]), new];
    let Members { devices, filesystem } = Members { devices, filesystem }.prove("gone on", &[0, 1]);
    assert_eq!(errors(&filesystem), 0);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert!(plain(&open(&devices[1..], true)) == vec![2; 1 << 20], "it has what was written in place");
}

#[test]
fn files_are_written_meanwhile() {
    for (profile, count, is_missing) in [
        (Profile::Raid1, 2, false),
        (Profile::Raid1, 2, true),
        (Profile::Raid5, 3, false),
        (Profile::Raid6, 4, true),
    ] {
        let what = format!("{profile} {is_missing}");
        let Members { devices, filesystem } = Members::new(count, profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        write_plain(&devices, true, 1);
        let there = if is_missing { &devices[1..] } else { &devices[..] };
        let filesystem = open_nodatacow(there);
        let new = target("new", 400 * MIB);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let write = || {
                let id = filesystem.lookup(filesystem.root(), b"plain").expect("readable").expect("there");
                let file = filesystem.open_file(id.inode).expect("opens");
                let mut byte = 2;
                while !is_over.load(Relaxed) {
                    byte = if byte == 250 { 2 } else { byte + 1 };
                    filesystem.write(&file, 0, &vec![byte; 1 << 20]).expect("room");
                    write_more(&filesystem);
                }
                filesystem.write(&file, 0, &vec![251; 1 << 20]).expect("room");
                filesystem.sync().expect("works");
            };
            let writer = scope.spawn(write);
            let by = ReplaceOptions::default();
            let ended = replace_by(&filesystem, first(), &new, &by, &mut on_and_on);
            is_over.store(true, Relaxed);
            writer.join().expect("it ends well");
            assert_eq!(ended.expect("it is as large").progress.left, 0, "{what}");
        });
        let devices = [&[new], &devices[1..]].concat();
        let all: Vec<usize> = (0..count).collect();
        let Members { devices, filesystem } = Members { devices, filesystem }.prove(&what, &all);
        assert_eq!(errors(&filesystem), 0, "{what}");
        filesystem.shutdown().expect("works");
        drop(filesystem);
        // Each device may be lost: what the new one has is what belongs there.
        for lost in 1..count {
            let left: Vec<_> =
                (0..count).filter(|at| *at != lost).map(|at| Arc::clone(&devices[at])).collect();
            let copies: Vec<_> = left.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
            let mut options = OpenOptions::default();
            options.pool.volume.degraded = true;
            let filesystem = Filesystem::open(copies, &options).expect("opens");
            assert!(plain(&filesystem) == vec![251; 1 << 20], "{what} without {lost}");
            assert_filled(&filesystem, FILES, FILE_BYTES);
        }
    }
}

fn open_nodatacow(devices: &[Arc<SparseDevice>]) -> Filesystem {
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    let write = WriteOptions { nodatacow: true, ..WriteOptions::default() };
    Filesystem::open_writable(writable, &options, &write).expect("opens")
}

#[test]
fn a_device_that_was_away_comes_back_with_what_it_missed() {
    for (profile, count) in [(Profile::Raid1, 2), (Profile::Raid5, 3), (Profile::Raid6, 4)] {
        let Members { devices, filesystem } = Members::new(count, profile);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        write_plain(&devices, true, 1);
        write_plain(&devices[1..], false, 2);
        let filesystem = open(&devices[1..], true);
        write_more(&filesystem);
        let away = Arc::clone(&devices[0]) as Arc<dyn WritableDevice>;
        let member = Arc::clone(&devices[1]) as Arc<dyn WritableDevice>;
        let refused = rejoin(&filesystem, &member, &mut on_and_on).expect_err("it is there").to_string();
        assert_eq!(refused, "memory1 is none of the pool's missing devices");
        let stop =
            &mut |progress: &Progress| if progress.done > 0 { Control::Cancel } else { Control::Continue };
        let (devid, ended) = rejoin(&filesystem, &away, stop).expect("it was away");
        assert_eq!((devid.get(), ended.control), (1, Control::Cancel), "{profile}");
        assert!(superblock(&devices[0]).is_none(), "it is not whole");
        let (_, ended) = rejoin(&filesystem, &away, &mut on_and_on).expect("it goes on");
        assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0), "{profile}");
        let all: Vec<usize> = (0..count).collect();
        let pool = Members { devices, filesystem }.prove(profile.attributes().name, &all);
        assert_eq!(errors(&pool.filesystem), 0, "{profile}");
        let Members { devices, filesystem } = pool;
        filesystem.shutdown().expect("works");
        drop(filesystem);
        assert!(plain(&open(&devices[..count - 1], true)) == vec![2; 1 << 20], "{profile}: it has caught up");
    }
}

#[test]
fn impossible_replacements_are_refused_and_change_nothing() {
    let pool = Members::new(2, Profile::Raid1);
    let refused = |which, target: &Arc<SparseDevice>| {
        let done = replace_by(&pool.filesystem, which, target, &ReplaceOptions::default(), &mut on_and_on);
        done.expect_err("refused").to_string()
    };
    let error = refused(first(), &target("small", 399 * MIB));
    assert_eq!(
        error,
        "small has 418381824 bytes, and devid 1 is used up to 419430400: make that smaller first"
    );
    assert_eq!(refused(Leaving::Missing, &target("new", 400 * MIB)), "no device of the pool is missing");
    let unknown = Leaving::Id(DevId::new(9));
    assert_eq!(refused(unknown, &target("new", 400 * MIB)), "the pool has no device with the id 9");
    let other = devices(&[(400 * MIB, DeviceClass::Unknown)]).remove(0);
    other.write_at(0, b"XFSB").expect("memory");
    assert_eq!(refused(first(), &other), "memory0 holds an XFS filesystem; use -f to overwrite it");
    let forced = ReplaceOptions { force: true, ..ReplaceOptions::default() };
    replace_by(&pool.filesystem, first(), &other, &forced, &mut on_and_on).expect("forced");
    let Members { devices, filesystem } = pool;
    let devices = vec![other, Arc::clone(&devices[1])];
    Members { devices, filesystem }.prove("forced", &[0, 1]);
}

#[test]
fn the_class_of_a_device_is_that_of_the_hint_or_of_the_new_device() {
    for (hint, expected) in
        [(None, PlacementClass::Bulk), (Some(AllocationHint::MetadataPreferred), PlacementClass::Fast)]
    {
        let of = [(400 * MIB, DeviceClass::Solid), (400 * MIB, DeviceClass::Rotating)];
        let mut options = options();
        options.metadata = Some(Profile::Single);
        let made = MadePool::make_of(&of, &options).expect("made");
        let filesystem = open(&made.devices, false);
        if let Some(hint) = hint {
            filesystem.pool().set_allocation_hint(DevId::new(1), hint).expect("writable");
        }
        let new = Arc::new(SparseDevice::new("new", 400 * MIB, DeviceClass::Rotating));
        replace_by(&filesystem, first(), &new, &ReplaceOptions::default(), &mut on_and_on)
            .expect("it is as large");
        let summary = filesystem.pool().space_summary().expect("writable");
        let device = summary.devices.iter().find(|device| device.devid.get() == 1).expect("a member");
        assert_eq!(device.class, expected);
    }
}
