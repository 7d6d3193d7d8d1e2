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
