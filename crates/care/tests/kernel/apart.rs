//! Parts of a mirrored pool that the kernel and brindle wrote, each by itself.

use super::host::{LoopPool, can_mount, options, run};
use crate::support::MIB;
use brindle_care::device::{Leaving, ReplaceOptions, rejoin, replace};
use brindle_care::job::{Control, Progress};
use brindle_care::mkfs::mkfs;
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, FsError, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::Profile;
use std::process::Command;
use std::sync::Arc;

/// More than the superblocks keep roots of, and enough for blocks of the other part to be overwritten.
const COMMITS: usize = 7;

fn degraded(is_degraded: bool) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = is_degraded;
    options
}

fn writable(pool: &LoopPool, which: &[usize]) -> Vec<Arc<dyn WritableDevice>> {
    let open = |index: &usize| {
        let device = FileDevice::open_writable(&pool.images[*index]).expect("nobody has it");
        Arc::new(device) as Arc<dyn WritableDevice>
    };
    which.iter().map(open).collect()
}

fn open_some(pool: &LoopPool, which: &[usize], is_degraded: bool) -> Result<Filesystem, FsError> {
    Filesystem::open_writable(writable(pool, which), &degraded(is_degraded), &WriteOptions::default())
}

fn create(filesystem: &Filesystem, name: &str) {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    filesystem.create(filesystem.root(), name.as_bytes(), &new).expect("room");
}

/// The kernel writes a part of the pool.
fn write_by_kernel(pool: &mut LoopPool, which: &[usize], commits: usize) {
    pool.attach_some(which);
    pool.mount("degraded");
    for commit in 0..commits {
        std::fs::write(pool.mount_point().join(format!("kernel {commit}")), "x").expect("room");
        run(Command::new("sync").arg("-f").arg(pool.mount_point()));
    }
    pool.unmount();
    pool.detach();
}

#[test]
fn parts_that_the_kernel_wrote_much_further_are_refused_by_the_marks_of_the_others() {
    if !can_mount() {
        return;
    }
    let cases = [
        (Profile::Raid1, 2, &[0][..], &[1][..], 1),
        (Profile::Raid1, 2, &[1], &[0], 3),
        (Profile::Raid1c3, 3, &[0], &[1, 2], 2),
        (Profile::Raid1c3, 3, &[0, 2], &[1], 1),
    ];
    for (profile, count, theirs, ours, commits) in cases {
        let what = format!("{} {theirs:?} {commits}", profile.attributes().name);
        let mut options = options();
        (options.data, options.metadata) = (Some(profile), Some(profile));
        let mut pool = LoopPool::make(&vec![512 * MIB; count], &options);
        write_by_kernel(&mut pool, theirs, COMMITS);
        let filesystem = open_some(&pool, ours, true).expect("a copy is there");
        for commit in 0..commits {
            create(&filesystem, &format!("brindle {commit}"));
            filesystem.sync().expect("commits");
        }
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let all: Vec<usize> = (0..count).collect();
        for is_degraded in [false, true] {
            let error = open_some(&pool, &all, is_degraded).map(|_| "opened").expect_err(&what).to_string();
            assert!(error.contains("written apart"), "{what}: {error}");
            let read: Vec<Arc<dyn Device>> =
                writable(&pool, &all).into_iter().map(|device| device as Arc<dyn Device>).collect();
            let error = Filesystem::open(read, &degraded(is_degraded)).map(|_| "read").expect_err(&what);
            assert!(error.to_string().contains("written apart"), "{what}: {error}");
        }
        let filesystem = open_some(&pool, theirs, true).expect("each part is whole");
        let away = writable(&pool, &ours[..1]).remove(0);
        let error = rejoin(&filesystem, &away, &mut |_: &Progress| Control::Continue).map(|_| "rejoined");
        let error = error.expect_err(&what).to_string();
        assert!(error.contains("has been written by itself"), "{what}: {error}");
    }
}

#[test]
fn a_device_that_the_kernel_wrote_without_is_no_part_of_its_own_although_it_has_marks() {
    if !can_mount() {
        return;
    }
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
    let mut pool = LoopPool::make(&[512 * MIB; 2], &options);
    // The second one is marked as absent, and comes back.
    let filesystem = open_some(&pool, &[0], true).expect("a copy is there");
    create(&filesystem, "alone");
    filesystem.shutdown().expect("works");
    drop(filesystem);
    let filesystem = open_some(&pool, &[0], true).expect("a copy is there");
    let away = writable(&pool, &[1]).remove(0);
    rejoin(&filesystem, &away, &mut |_: &Progress| Control::Continue).expect("it was only away");
    filesystem.shutdown().expect("works");
    drop((filesystem, away));
    // Now the first one is away, whose chunk tree is of after the other's return.
    write_by_kernel(&mut pool, &[1], COMMITS);
    let error = open_some(&pool, &[0, 1], false).map(|_| "opened").expect_err("stale").to_string();
    assert!(error.contains("stale"), "{error}");
    let filesystem = open_some(&pool, &[1, 0], true).expect("without the stale one");
    assert!(filesystem.lookup(filesystem.root(), b"alone").expect("reads").is_some());
    drop(filesystem);
    let filesystem = open_some(&pool, &[1], true).expect("a copy is there");
    let away = writable(&pool, &[0]).remove(0);
    rejoin(&filesystem, &away, &mut |_: &Progress| Control::Continue).expect("it was only away");
    filesystem.shutdown().expect("works");
    drop((filesystem, away));
    let filesystem = open_some(&pool, &[0, 1], false).expect("whole");
    assert!(filesystem.lookup(filesystem.root(), b"kernel 6").expect("reads").is_some());
    filesystem.shutdown().expect("works");
}

/// A pool whose second device was replaced by the third one, by the kernel or by brindle, while it was away.
fn replaced(by_kernel: bool) -> LoopPool {
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
    let mut pool = LoopPool::files(&[512 * MIB; 3]);
    mkfs(&pool.writable()[..2], &options).expect("made");
    if by_kernel {
        pool.attach_some(&[0]);
        pool.mount("degraded");
        pool.attach_some(&[2]);
        let target = &pool.loops[1];
        run(Command::new("btrfs").args(["replace", "start", "-B", "2"]).args([target, &pool.mount_point()]));
        pool.unmount();
        pool.detach();
    } else {
        let filesystem = open_some(&pool, &[0], true).expect("a copy is there");
        let target = writable(&pool, &[2]).remove(0);
        let (which, options) = (Leaving::Missing, ReplaceOptions::default());
        replace(&filesystem, which, &target, &options, &mut |_: &Progress| Control::Continue)
            .expect("copied");
        filesystem.shutdown().expect("works");
    }
    pool
}

#[test]
fn a_device_that_was_replaced_and_then_written_by_itself_does_not_win() {
    if !can_mount() {
        return;
    }
    for (by_kernel, commits) in [(false, 0), (false, 40), (true, 0), (true, 40), (true, 2)] {
        let what = format!("replaced by the kernel: {by_kernel}, {commits} commits by itself");
        let mut pool = replaced(by_kernel);
        if commits > 0 {
            write_by_kernel(&mut pool, &[1], commits);
        }
        for (order, is_degraded) in [([0, 1, 2], false), ([0, 1, 2], true), ([2, 1, 0], true)] {
            let opened = open_some(&pool, &order, is_degraded);
            if commits < 40 {
                let filesystem = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                let unused = filesystem.pool().volume().unused_devices();
                assert!(unused.iter().any(|it| it.device.ends_with("1.img")), "{what}: {unused:?}");
                continue;
            }
            let error = opened.map(|_| "opened").expect_err(&what).to_string();
            let are_named = error.contains("1.img") && error.contains("2.img");
            assert!(are_named && error.contains("are both devid 2"), "{what}: {error}");
            let read: Vec<Arc<dyn Device>> =
                writable(&pool, &order).into_iter().map(|device| device as Arc<dyn Device>).collect();
            let error = Filesystem::open(read, &degraded(is_degraded)).map(|_| "read").expect_err(&what);
            assert!(error.to_string().contains("are both devid 2"), "{what}: {error}");
        }
        for (which, is_degraded) in [(&[0, 2][..], false), (&[1], true)] {
            open_some(&pool, which, is_degraded).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}
