//! A pool of mirrors loses a device. The library writes on, more than its mirrors have room for, the kernel takes over,
//! and the device comes back as it was.

use super::case::{Case, Maker};
use super::pool::SharedPool;
use crate::kernel::can_make;
use crate::kernel::pool::try_run;
use crate::model::target::Ground;
use brindle_check::{CheckOptions, Finding, NoProgress};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{BlockGroupType, Profile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEVICE_BYTES: u64 = 1 << 30;
const MIB: usize = 1 << 20;
/// More than the first data chunk has room for.
const WRITTEN_MIB: usize = 400;

fn contents(number: usize) -> Vec<u8> {
    let mut bytes = vec![number.to_le_bytes()[0]; MIB];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn write(fs: &Filesystem, name: &[u8], count: usize) {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = fs.create(fs.root(), name, &new).expect("room");
    let open = fs.open_file(made.id).expect("there");
    for number in 0..count {
        fs.write(&open, (number * MIB) as u64, &contents(number)).expect("room");
    }
}

fn assert_read(fs: &Filesystem, name: &[u8], count: usize) {
    let found = fs.lookup(fs.root(), name).expect("reads").expect("there");
    let open = fs.open_file(found.inode).expect("there");
    let mut buffer = vec![0; MIB];
    for number in 0..count {
        assert_eq!(fs.read(&open, (number * MIB) as u64, &mut buffer).expect("reads"), MIB);
        assert!(buffer == contents(number), "MiB {number}");
    }
}

fn assert_same(file: &Path, count: usize) {
    let bytes = std::fs::read(file).expect("reads");
    let expected = (0..count).flat_map(contents);
    assert!(bytes.len() == count * MIB && bytes.iter().copied().eq(expected), "{}", file.display());
}

/// Opens it without the second device.
fn open_degraded(pool: &SharedPool) -> Filesystem {
    let device =
        crate::kernel::patiently(|| FileDevice::open_writable(&pool.loops()[0])).expect("nobody has it");
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    let devices = vec![Arc::new(device) as Arc<dyn WritableDevice>];
    Filesystem::open_writable(devices, &options, &WriteOptions::default()).expect("one mirror is there")
}

/// Opens all of it, to be read.
fn open_to_read(pool: &SharedPool) -> Filesystem {
    let open = |path: &PathBuf| Arc::new(FileDevice::open(path).expect("there")) as Arc<dyn Device>;
    let devices = pool.loops().iter().map(open).collect();
    Filesystem::open(devices, &OpenOptions::default()).expect("all devices are there")
}

fn assert_clean_degraded(pool: &SharedPool, when: &str) {
    let device = Arc::new(FileDevice::open(&pool.loops()[0]).expect("there")) as Arc<dyn Device>;
    let mut options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
    options.volume.degraded = true;
    let report = brindle_check::check(vec![device], &options, &NoProgress).expect("a pool");
    // That the copies of the missing device are missing is no news.
    let is_news = |found: &Finding| {
        !matches!(found, Finding::BadCopy { .. }) && !found.to_string().contains("device is missing")
    };
    let findings = report.findings().filter(|(_, found)| is_news(found));
    let findings: Vec<String> = findings.map(|(pass, found)| format!("{pass}: {found}")).take(20).collect();
    assert!(findings.is_empty(), "{when}: {findings:#?}");
}

/// The profiles of data chunks.
fn data_profiles(fs: &Filesystem) -> Vec<Option<Profile>> {
    let chunks = fs.pool().volume().chunks();
    let data = chunks.iter().filter(|chunk| chunk.kind.contains(BlockGroupType::DATA));
    data.map(|chunk| chunk.kind.profile()).collect()
}

#[test]
fn a_mirror_that_lost_a_device_is_written_on() {
    if !can_make() {
        return;
    }
    for maker in [Maker::Progs, Maker::Brindle] {
        let case = Case::of(2, "raid1", "raid1");
        let mut pool = case.make_on(SharedPool::of_size(2, DEVICE_BYTES), maker);
        let fs = pool.open();
        write(&fs, b"before", 20);
        fs.shutdown().expect("closes");
        drop(fs);
        let fs = open_degraded(&pool);
        assert_read(&fs, b"before", 20);
        write(&fs, b"after", WRITTEN_MIB);
        fs.shutdown().expect("closes");
        // As the kernel: in the mirrors that there are as long as these have room, then without redundancy.
        let profiles = data_profiles(&fs);
        assert!(profiles.contains(&Some(Profile::Single)) && profiles.contains(&Some(Profile::Raid1)));
        drop(fs);
        assert_clean_degraded(&pool, "written without a device");
        pool.mount_without_others("degraded");
        assert_same(&pool.mount_point().join("before"), 20);
        assert_same(&pool.mount_point().join("after"), WRITTEN_MIB);
        std::fs::write(pool.mount_point().join("kernel"), contents(0)).expect("room");
        pool.unmount();
        let fs = open_degraded(&pool);
        assert_read(&fs, b"after", WRITTEN_MIB);
        fs.shutdown().expect("closes");
        drop(fs);
        assert_clean_degraded(&pool, "written by the kernel");
        // The device that is back has old blocks and no new ones. Never are they taken for the others, and nothing is
        // written as long as it is so.
        let fs = open_to_read(&pool);
        assert_read(&fs, b"before", 20);
        assert_read(&fs, b"after", WRITTEN_MIB);
        drop(fs);
        pool.mount("compress=no");
        // It says that it found errors, and mends them.
        let _ = try_run("btrfs", ["scrub", "start", "-B"], [pool.mount_point()]);
        assert_same(&pool.mount_point().join("after"), WRITTEN_MIB);
        assert_same(&pool.mount_point().join("kernel"), 1);
        pool.unmount();
    }
}

/// Error of opening all of it, to be read.
fn refusal(pool: &SharedPool) -> String {
    let open = |path: &PathBuf| Arc::new(FileDevice::open(path).expect("there")) as Arc<dyn Device>;
    let devices = pool.loops().iter().map(open).collect();
    Filesystem::open(devices, &OpenOptions::default()).map(|_| "opened").expect_err("refused").to_string()
}

/// Error of opening all of it degraded, to be written.
fn refusal_to_write(pool: &SharedPool) -> String {
    let open = |path: &PathBuf| {
        let device = crate::kernel::patiently(|| FileDevice::open_writable(path)).expect("nobody has it");
        Arc::new(device) as Arc<dyn WritableDevice>
    };
    let devices = pool.loops().iter().map(open).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    let opened = Filesystem::open_writable(devices, &options, &WriteOptions::default());
    opened.map(|_| "opened").expect_err("refused").to_string()
}

#[test]
fn halves_that_the_kernel_wrote_apart_are_refused() {
    if !can_make() {
        return;
    }
    // The second half is committed as often, or more often: so far that no superblock has recorded roots of both.
    for (commits, more) in [(1, 0), (1, 1), (3, 3)] {
        let case = Case::of(2, "raid1", "raid1");
        let mut pool = case.make_on(SharedPool::of_size(2, DEVICE_BYTES), Maker::Progs);
        let fs = pool.open();
        write(&fs, b"before", 2);
        fs.shutdown().expect("closes");
        drop(fs);
        for half in 0..2 {
            pool.mount_alone(half, "degraded");
            for commit in 0..commits + half * more {
                std::fs::write(pool.mount_point().join(format!("half {half} {commit}")), b"x").expect("room");
                try_run("sync", ["-f"], [pool.mount_point()]).expect("syncs");
            }
            pool.unmount();
        }
        for error in [refusal(&pool), refusal_to_write(&pool)] {
            assert!(error.contains("written apart"), "{commits} {more}: {error}");
        }
        let fs = open_degraded(&pool);
        assert!(fs.lookup(fs.root(), b"half 0 0").expect("reads").is_some(), "each half is whole");
        assert!(fs.lookup(fs.root(), b"half 1 0").expect("reads").is_none());
        fs.shutdown().expect("closes");
    }
}

/// Names of as many files of a MiB as are written to a pool that loses data.
fn small_names() -> impl Iterator<Item = String> {
    (0..300).map(|number| format!("file{number}"))
}

/// Makes a pool with single data on two devices and a copy of metadata on each, and fills some of each device.
fn pool_with_single_data() -> SharedPool {
    let pool = Case::of(2, "single", "raid1").make_on(SharedPool::of_size(2, DEVICE_BYTES), Maker::Progs);
    let fs = pool.open();
    small_names().for_each(|name| write(&fs, name.as_bytes(), 1));
    fs.shutdown().expect("closes");
    pool
}

/// Opens the first device alone, to be read.
fn open_first_to_read(pool: &SharedPool) -> Filesystem {
    let device = Arc::new(FileDevice::open(&pool.loops()[0]).expect("there")) as Arc<dyn Device>;
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    Filesystem::open(vec![device], &options).expect("metadata is whole")
}

/// Contents of a file, `None` if they are lost.
fn read_what_is_left(fs: &Filesystem, name: &str) -> Option<Vec<u8>> {
    let found = fs.lookup(fs.root(), name.as_bytes()).expect("metadata is whole").expect("there");
    let open = fs.open_file(found.inode).expect("there");
    let mut buffer = vec![0; MIB];
    let read = fs.read(&open, 0, &mut buffer);
    if let Err(error) = &read {
        let said = error.to_string();
        assert!(said.contains(" (chunk ") && said.contains("devid 2 (missing)"), "{said}");
    }
    read.ok().map(|_| buffer)
}

#[test]
fn a_pool_that_lost_data_is_read_as_the_kernel_reads_it() {
    if !can_make() {
        return;
    }
    let mut pool = pool_with_single_data();
    let fs = open_first_to_read(&pool);
    let warnings = fs.warnings().join("\n");
    assert!(warnings.contains("missing devid 2") && warnings.contains("of data, "), "{warnings}");
    let ours: Vec<_> = small_names().map(|name| read_what_is_left(&fs, &name)).collect();
    drop(fs);
    let lost = ours.iter().filter(|read| read.is_none()).count();
    let whole = ours.iter().flatten().filter(|read| **read == contents(0)).count();
    assert!(lost > 0 && whole > 0 && lost + whole == ours.len(), "{lost} lost, {whole} whole");
    pool.mount_without_others("degraded,ro");
    for (name, ours) in small_names().zip(ours) {
        let theirs = std::fs::read(pool.mount_point().join(&name)).map_err(|error| error.raw_os_error());
        assert!(theirs == ours.ok_or(Some(rustix::io::Errno::IO.raw_os_error())), "{name}");
    }
    pool.unmount();
}

#[test]
fn a_pool_that_lost_data_is_not_written_and_says_how_to_read_it() {
    if !can_make() {
        return;
    }
    let pool = pool_with_single_data();
    let device = crate::kernel::patiently(|| FileDevice::open_writable(&pool.loops()[0])).expect("free");
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    let devices = vec![Arc::new(device) as Arc<dyn WritableDevice>];
    let refusal = Filesystem::open_writable(devices, &options, &WriteOptions::default());
    let refusal = refusal.expect_err("data is lost").to_string();
    assert!(
        refusal.contains("everything else can be read with -o degraded (as a mount: -o degraded,ro)"),
        "{refusal}"
    );
}
