//! Halves of a mirrored pool that were each written alone, and are then given together.

use super::device::{FILE_BYTES, FILES, Members, on_and_on, open, superblock};
use crate::support::files::fill;
use crate::support::{MIB, MadePool, options as made_options};
use brindle_care::device::{Leaving, ReplaceOptions, rejoin, replace};
use brindle_check::{CheckOptions, NoProgress, check};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{Profile, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use brindle_sim::{Fault, FaultyDevice};
use std::sync::Arc;

fn options(degraded: bool) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = degraded;
    options
}

/// Error of opening the devices to write them.
fn refused(devices: &[Arc<SparseDevice>], degraded: bool) -> String {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let opened = Filesystem::open_writable(devices, &options(degraded), &WriteOptions::default());
    opened.map(|_| "opened").expect_err("two histories").to_string()
}

fn readable(devices: &[Arc<SparseDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
}

/// A pool of two devices, and each of these written alone, by some commits.
fn halves(commits: [usize; 2]) -> Vec<Arc<SparseDevice>> {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    for (half, commits) in commits.into_iter().enumerate() {
        let filesystem = open(&devices[half..=half], true);
        for commit in 0..commits {
            write(&filesystem, &format!("half {half} {commit}"));
            filesystem.sync().expect("commits");
        }
        filesystem.shutdown().expect("works");
    }
    devices
}

fn write(filesystem: &Filesystem, name: &str) {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    filesystem.create(filesystem.root(), name.as_bytes(), &new).expect("room");
}

fn has(filesystem: &Filesystem, name: &str) -> bool {
    filesystem.lookup(filesystem.root(), name.as_bytes()).expect("readable").is_some()
}

#[test]
fn halves_that_were_written_apart_are_never_put_together() {
    for (one, other) in [(1, 1), (1, 2), (2, 1), (3, 2), (1, 4), (4, 1)] {
        let devices = halves([one, other]);
        for degraded in [false, true] {
            let error = refused(&devices, degraded);
            assert!(error.contains("written apart"), "{one} {other} {degraded}: {error}");
            assert!(error.contains("memory0") && error.contains("memory1"), "{error}");
            let read = Filesystem::open(readable(&devices), &options(degraded)).map(|_| "opened");
            assert!(read.expect_err("nor read").to_string().contains("written apart"));
        }
        let check = check(readable(&devices), &CheckOptions::default(), &NoProgress).map(|_| "opened");
        assert!(check.expect_err("nor examined").to_string().contains("written apart"));
        // Each half alone is whole.
        for half in 0..2 {
            let filesystem = open(&devices[half..=half], true);
            assert!(has(&filesystem, &format!("half {half} 0")));
        }
    }
}

#[test]
fn halves_that_are_far_apart_are_stale_and_do_not_rejoin() {
    for (one, other) in [(1, 9), (9, 1), (3, 8)] {
        let devices = halves([one, other]);
        let error = refused(&devices, false);
        assert!(error.contains("stale") || error.contains("written apart"), "{error}");
        let newest = usize::from(other > one);
        let filesystem = open(&devices[newest..=newest], true);
        let away = Arc::clone(&devices[1 - newest]) as Arc<dyn WritableDevice>;
        let error = rejoin(&filesystem, &away, &mut on_and_on).map(|_| "rejoined");
        let error = error.expect_err("it has something of its own").to_string();
        assert!(error.contains("has been written by itself"), "{error}");
        // What is said to help does.
        let (own, forced) = (Leaving::Missing, ReplaceOptions { force: true, ..ReplaceOptions::default() });
        replace(&filesystem, own, &away, &forced, &mut on_and_on).expect("it gives up what it has");
        assert!(has(&filesystem, &format!("half {newest} 0")));
        let pool = Members { devices, filesystem }.prove("replaced", &[0, 1]);
        assert!(has(&pool.filesystem, &format!("half {newest} 0")));
    }
}

#[test]
fn a_device_that_was_only_away_rejoins_after_many_degraded_mounts() {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    for round in 0..3 {
        let filesystem = open(&devices[1..], true);
        write(&filesystem, &format!("round {round}"));
        filesystem.shutdown().expect("works");
    }
    assert!(refused(&devices, false).contains("stale"));
    let filesystem = open(&devices[1..], true);
    let away = Arc::clone(&devices[0]) as Arc<dyn WritableDevice>;
    rejoin(&filesystem, &away, &mut on_and_on).expect("it lacks something, and has nothing of its own");
    let pool = Members { devices, filesystem }.prove("rejoined", &[0, 1]);
    assert!(has(&pool.filesystem, "round 2"));
}

/// A pool of two devices with something in it.
fn whole() -> Vec<Arc<SparseDevice>> {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.shutdown().expect("works");
    devices
}

fn copies(devices: &[Arc<SparseDevice>]) -> Vec<Arc<SparseDevice>> {
    let copy = |device: &Arc<SparseDevice>| {
        let copy = SparseDevice::new(device.name(), device.size_bytes(), device.class());
        for (offset, bytes) in device.written() {
            copy.write_at(offset, &bytes).expect("in memory");
        }
        Arc::new(copy)
    };
    devices.iter().map(copy).collect()
}

fn fsync(filesystem: &Filesystem, name: &str) {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let (_, file) = filesystem.create_open(filesystem.root(), name.as_bytes(), &new).expect("room");
    filesystem.write(&file, 0, name.as_bytes()).expect("room");
    filesystem.sync_file(&file).expect("durable");
}

/// The devices with a log of some files, after a power cut.
fn with_log(devices: &[Arc<SparseDevice>], name: &str, count: usize) -> Vec<Arc<SparseDevice>> {
    let devices = copies(devices);
    let filesystem = open(&devices, false);
    (0..count).for_each(|number| fsync(&filesystem, &format!("{name} {number}")));
    assert_ne!(filesystem.pool().superblock().log_root.get(), 0, "nothing but a log");
    devices
}

#[test]
fn halves_with_logs_of_their_own_are_never_put_together() {
    // Each half is as a driver leaves it that has written it alone, and has made no commit.
    let before = whole();
    for (one, other) in [(1, 1), (1, 4), (4, 1)] {
        let logs = [with_log(&before, "one", one), with_log(&before, "other", other)];
        for (first, second) in [(0, 1), (1, 0)] {
            let halves = [Arc::clone(&logs[first][0]), Arc::clone(&logs[second][1])];
            for degraded in [false, true] {
                let error = refused(&halves, degraded);
                assert!(error.contains("written apart"), "{one} {other} {degraded}: {error}");
                assert!(error.contains("memory0") && error.contains("memory1"), "{error}");
                let read = Filesystem::open(readable(&halves), &options(degraded)).map(|_| "opened");
                assert!(read.expect_err("nor read").to_string().contains("written apart"));
            }
            // Nor does either rejoin the other.
            for half in 0..2 {
                let halves = copies(&halves);
                let filesystem = open(&halves[half..=half], true);
                assert!(has(&filesystem, "one 0") != has(&filesystem, "other 0"), "its own log");
                write(&filesystem, "more");
                filesystem.sync().expect("commits");
                let away = Arc::clone(&halves[1 - half]) as Arc<dyn WritableDevice>;
                let error = rejoin(&filesystem, &away, &mut on_and_on).map(|_| "rejoined");
                let error = error.expect_err("it has a log of its own").to_string();
                assert!(error.contains("names a log"), "{error}");
                assert!(error.contains("memory0") && error.contains("memory1"), "{error}");
            }
        }
    }
}

#[test]
fn a_device_that_lacks_the_log_of_another_is_refused_until_it_rejoins() {
    let before = whole();
    for has_log in 0..2 {
        let logged = with_log(&before, "logged", 3);
        let mut devices = copies(&before);
        devices[has_log] = Arc::clone(&logged[has_log]);
        for degraded in [false, true] {
            let error = refused(&devices, degraded);
            let begin = format!("memory{has_log} (devid {}) was written without", has_log + 1);
            assert!(error.starts_with(&begin), "{error}");
        }
        let filesystem = open(&devices[has_log..=has_log], true);
        let away = Arc::clone(&devices[1 - has_log]) as Arc<dyn WritableDevice>;
        rejoin(&filesystem, &away, &mut on_and_on).expect("it has nothing of its own");
        let pool = Members { devices, filesystem }.prove("rejoined", &[0, 1]);
        assert!(has(&pool.filesystem, "logged 2"));
    }
}

#[test]
fn a_device_that_went_away_in_a_power_cut_rejoins_with_the_log_of_the_pool() {
    for away in 0..2 {
        let devices = with_log(&whole(), "logged", 3);
        for round in 0..4 {
            let filesystem = open(&devices[1 - away..=1 - away], true);
            // More than the places of the log.
            (0..80).for_each(|number| fsync(&filesystem, &format!("round {round} {number}")));
        }
        let filesystem = open(&devices[1 - away..=1 - away], true);
        let device = Arc::clone(&devices[away]) as Arc<dyn WritableDevice>;
        rejoin(&filesystem, &device, &mut on_and_on).expect("its log is one that the pool had");
        let pool = Members { devices, filesystem }.prove("rejoined", &[0, 1]);
        assert!(has(&pool.filesystem, "logged 2") && has(&pool.filesystem, "round 3 79"));
    }
}

#[test]
fn a_device_that_vanishes_while_the_pool_is_in_use_rejoins_with_the_log_of_then() {
    for away in 0..2 {
        let devices = whole();
        let faulty: Vec<Arc<FaultyDevice>> = devices
            .iter()
            .map(|device| Arc::new(FaultyDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>)))
            .collect();
        let given = faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        let filesystem = Filesystem::open_writable(given, &options(false), &WriteOptions::default());
        let filesystem = filesystem.expect("whole");
        fsync(&filesystem, "with both");
        faulty[away].vanish();
        (0..80).for_each(|number| fsync(&filesystem, &format!("with one {number}")));
        filesystem.sync().expect("one is enough");
        drop((filesystem, faulty));
        let filesystem = open(&devices[1 - away..=1 - away], true);
        (0..80).for_each(|number| fsync(&filesystem, &format!("later {number}")));
        let device = Arc::clone(&devices[away]) as Arc<dyn WritableDevice>;
        rejoin(&filesystem, &device, &mut on_and_on).expect("its log is one that the pool had");
        let pool = Members { devices, filesystem }.prove("rejoined", &[0, 1]);
        assert!(has(&pool.filesystem, "with both") && has(&pool.filesystem, "later 79"));
    }
}

/// The superblocks of bulk devices, which name no log any more, come before that of the fast one.
#[test]
fn an_ssd_that_vanishes_beside_disks_rejoins_with_the_log_of_then() {
    let mut made = made_options();
    (made.data, made.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
    let classes = [DeviceClass::Solid, DeviceClass::Rotating, DeviceClass::Rotating];
    let pool = MadePool::make_of(&classes.map(|class| (400 * MIB, class)), &made).expect("made");
    let devices = pool.devices;
    let ssd = Arc::new(FaultyDevice::new(Arc::clone(&devices[0]) as Arc<dyn WritableDevice>));
    let disks = devices[1..].iter().map(|disk| Arc::clone(disk) as Arc<dyn WritableDevice>);
    let given = std::iter::once(Arc::clone(&ssd) as _).chain(disks).collect();
    let filesystem = Filesystem::open_writable(given, &options(false), &WriteOptions::default());
    let filesystem = filesystem.expect("whole");
    fill(&filesystem, FILES, FILE_BYTES);
    filesystem.sync().expect("commits");
    fsync(&filesystem, "with all");
    assert_ne!(filesystem.pool().superblock().log_root.get(), 0, "nothing but a log");
    ssd.vanish();
    (0..80).for_each(|number| fsync(&filesystem, &format!("without {number}")));
    filesystem.sync().expect("two are enough");
    drop((filesystem, ssd));
    let filesystem = open(&devices[1..], true);
    (0..80).for_each(|number| fsync(&filesystem, &format!("later {number}")));
    let device = Arc::clone(&devices[0]) as Arc<dyn WritableDevice>;
    rejoin(&filesystem, &device, &mut on_and_on).expect("its log is one that the pool had");
    let devices = vec![Arc::clone(&devices[1]), Arc::clone(&devices[2]), Arc::clone(&devices[0])];
    let pool = Members { devices, filesystem }.prove("rejoined", &[0, 1, 2]);
    assert!(has(&pool.filesystem, "with all") && has(&pool.filesystem, "later 79"));
}

/// Regression: its log was none that the pool had recorded.
#[test]
fn a_device_that_took_the_last_log_alone_and_vanished_rejoins() {
    let before = whole();
    for away in 0..2 {
        let opened = || {
            let devices = copies(&before);
            let faulty = |device: &Arc<SparseDevice>| {
                Arc::new(FaultyDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>))
            };
            let faulty: Vec<Arc<FaultyDevice>> = devices.iter().map(faulty).collect();
            let given = faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
            let filesystem = Filesystem::open_writable(given, &options(false), &WriteOptions::default());
            let filesystem = filesystem.expect("whole");
            fsync(&filesystem, "with both");
            (devices, faulty, filesystem)
        };
        let calls = |device: &FaultyDevice| {
            let counts = device.counts();
            counts.reads + counts.writes + counts.flushes
        };
        let log_of = |device: &SparseDevice| superblock(device).expect("of the pool").log_root.get();
        // An fsync without faults: the superblock is the last write of each device.
        let (_, faulty, filesystem) = opened();
        let (calls_before, writes_before) = (calls(&faulty[away]), faulty[1 - away].counts().writes);
        fsync(&filesystem, "between");
        let calls_of_one = calls(&faulty[away]) - calls_before;
        let writes_of_one = faulty[1 - away].counts().writes - writes_before;
        drop(filesystem);
        let (devices, faulty, filesystem) = opened();
        let logs: Vec<u64> = devices.iter().map(|device| log_of(device)).collect();
        faulty[1 - away]
            .inject(Fault::Write { number: faulty[1 - away].counts().writes + writes_of_one - 1 });
        faulty[away].inject(Fault::VanishAfter { calls: calls(&faulty[away]) + calls_of_one });
        fsync(&filesystem, "between");
        assert_eq!(faulty[1 - away].counts().faults, 1);
        assert_ne!(log_of(&devices[away]), logs[away], "it has taken it");
        (0..80).for_each(|number| fsync(&filesystem, &format!("with one {number}")));
        filesystem.sync().expect("one is enough");
        drop((filesystem, faulty));
        let filesystem = open(&devices[1 - away..=1 - away], true);
        (0..80).for_each(|number| fsync(&filesystem, &format!("later {number}")));
        let device = Arc::clone(&devices[away]) as Arc<dyn WritableDevice>;
        rejoin(&filesystem, &device, &mut on_and_on).expect("its log is one that the pool had");
        let pool = Members { devices, filesystem }.prove("rejoined", &[0, 1]);
        assert!(has(&pool.filesystem, "between") && has(&pool.filesystem, "later 79"));
    }
}

#[test]
fn a_device_that_lacks_the_last_superblock_alone_is_whole_after_the_next_commit() {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.sync().expect("commits");
    let before: Vec<(u64, Vec<u8>)> = SUPERBLOCK_OFFSETS[..2]
        .iter()
        .map(|offset| {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            devices[1].read_at(*offset, &mut bytes).expect("memory");
            (*offset, bytes)
        })
        .collect();
    let generation = || filesystem.pool().superblock().generation.get();
    let of_before = generation();
    write(&filesystem, "new");
    filesystem.sync().expect("commits");
    assert_eq!(generation(), of_before + 1);
    // A power cut between the superblocks of the two devices.
    std::mem::forget(filesystem);
    for (offset, bytes) in before {
        devices[1].write_at(offset, &bytes).expect("memory");
    }
    let filesystem = open(&devices, false);
    let stale = || {
        let devices = filesystem.pool().volume().devices().into_iter();
        devices.filter(|device| device.is_stale).map(|device| device.is_incomplete).collect::<Vec<_>>()
    };
    assert_eq!(stale(), [false], "it is behind, and lacks nothing");
    write(&filesystem, "newer");
    filesystem.sync().expect("commits");
    assert_eq!(stale(), [false; 0]);
    filesystem.shutdown().expect("works");
}

#[test]
fn a_mirror_that_loses_its_superblock_in_a_flush_gets_it_with_the_same_commit() {
    let mut has_failed = true;
    for number in 0.. {
        if !has_failed {
            assert!(number > 1, "a commit flushes what it says, then the superblocks");
            break;
        }
        let devices = whole();
        let mirror = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]) as Arc<dyn WritableDevice>));
        let given: Vec<Arc<dyn WritableDevice>> =
            vec![Arc::clone(&devices[0]) as _, Arc::clone(&mirror) as _];
        let filesystem = Filesystem::open_writable(given, &options(false), &WriteOptions::default());
        let filesystem = filesystem.expect("whole");
        write(&filesystem, "before");
        filesystem.sync().expect("commits");
        write(&filesystem, "new");
        mirror.inject(Fault::Flush { number: mirror.counts().flushes + number });
        let faults = mirror.counts().faults;
        filesystem.sync().expect("one is enough");
        has_failed = mirror.counts().faults > faults;
        let pool = filesystem.pool();
        let without = pool.volume().devices_without_superblock(pool.superblock().generation);
        assert!(without.is_empty(), "flush {number}: {without:?}");
        filesystem.shutdown().expect("works");
    }
}

#[test]
fn a_device_that_lacks_tree_blocks_alone_is_behind_until_it_has_them() {
    let devices = whole();
    let mirror = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]) as Arc<dyn WritableDevice>));
    let given: Vec<Arc<dyn WritableDevice>> = vec![Arc::clone(&devices[0]) as _, Arc::clone(&mirror) as _];
    let filesystem = Filesystem::open_writable(given, &options(false), &WriteOptions::default());
    let filesystem = filesystem.expect("whole");
    let behind = || {
        let devices = filesystem.pool().volume().devices();
        devices.iter().map(|device| device.is_behind).collect::<Vec<_>>()
    };
    write(&filesystem, "before");
    filesystem.sync().expect("commits");
    assert_eq!(behind(), [false, false]);
    mirror.inject(Fault::WritesFrom { number: 0 });
    write(&filesystem, "meanwhile");
    filesystem.sync().expect("one is enough");
    assert_eq!(behind(), [false, true], "it takes no tree blocks");
    mirror.heal();
    write(&filesystem, "after");
    filesystem.sync().expect("commits");
    assert_eq!(behind(), [false, false], "it has got what it lacked");
    filesystem.shutdown().expect("works");
}
