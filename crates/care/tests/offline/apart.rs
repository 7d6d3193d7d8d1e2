//! Halves of a mirrored pool that were each written alone, and are then given together.

use super::device::{Members, on_and_on, open};
use brindle_care::device::{Leaving, ReplaceOptions, rejoin, replace};
use brindle_check::{CheckOptions, NoProgress, check};
use brindle_device::{Device, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::Profile;
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
