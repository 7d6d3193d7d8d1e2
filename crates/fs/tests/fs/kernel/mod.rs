//! Pools that the kernel of this machine makes now: what it shows of them is what we read, with every device
//! there and with every loss that the profile tolerates.

pub(crate) mod contents;
pub(crate) mod pool;
mod rescue;
mod statistics;
mod turns;

use crate::golden::{assert_same, degraded, read_whole, subsets, top_level};
use crate::walk::{Limits, Walk};
use brindle_device::{Device, FileDevice};
use brindle_fs::Filesystem;
use brindle_testing::manifest::Manifest;
use pool::KernelPool;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Node size and compression of the pools of a profile.
const VARIANTS: [(&str, &str); 2] = [("16384", "zstd"), ("4096", "no")];

/// Returns true if the kernel's pools can be made here. Skipping is allowed, but not where everything must run.
pub(crate) fn can_make() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has_loops = Path::new("/dev/loop-control").exists();
    let knows = std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("btrfs"));
    let lacks = ["mkfs.btrfs", "btrfs", "losetup", "mount"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    let missing = match (is_root, has_loops, knows, lacks) {
        (true, true, true, None) => return true,
        (false, ..) => "root",
        (_, false, ..) => "loop devices",
        (_, _, false, _) => "btrfs in the kernel",
        (.., Some(program)) => program,
    };
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "the kernel's pools cannot be had without {missing}"
    );
    eprintln!("skipped: the kernel's pools cannot be had without {missing}");
    false
}

fn devices(images: &[PathBuf], lost: &[usize]) -> Vec<Arc<dyn Device>> {
    let left = images.iter().enumerate().filter(|(index, _)| !lost.contains(index));
    left.map(|(_, image)| Arc::new(FileDevice::open(image).expect("image")) as Arc<dyn Device>).collect()
}

/// Makes pools of a profile over `device_count` devices, and reads them without up to `tolerated` of these.
fn compare(profile: &str, device_count: usize, tolerated: usize) {
    if !can_make() {
        return;
    }
    for (nodesize, compression) in VARIANTS {
        let name = format!("{profile}, nodesize {nodesize}, {compression} compression");
        let mut pool = KernelPool::make(profile, device_count, nodesize, compression);
        contents::fill(pool.mount_point());
        let expected = Manifest::of_directory(pool.mount_point()).expect("the mounted tree is readable");
        pool.unmount();
        compare_all(&name, pool.images(), &expected, tolerated);
    }
}

fn compare_all(name: &str, images: &[PathBuf], expected: &Manifest, tolerated: usize) {
    let whole = Filesystem::open(devices(images, &[]), &top_level());
    let whole = whole.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_same(name, expected, &read_whole(&whole, name));
    assert!(whole.warnings().is_empty(), "{name}: {:?}", whole.warnings());
    for device in whole.pool().volume().devices() {
        assert_eq!(device.counters, brindle_volume::DeviceCounters::default(), "{name}: {device:?}");
    }
    let odd = Walk::of(&whole, Limits { piece: 30_011, ..Limits::NONE });
    assert_same(name, expected, &odd.expect_whole(name));
    for lost in (1..=tolerated).flat_map(|count| subsets(images.len(), count)) {
        let name = format!("{name}, without {lost:?}");
        let rest = Filesystem::open(devices(images, &lost), &degraded());
        let rest = rest.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(&name, expected, &read_whole(&rest, &name));
    }
}

#[test]
fn single() {
    compare("single", 1, 0);
}

#[test]
fn dup() {
    compare("dup", 1, 0);
}

#[test]
fn raid1() {
    compare("raid1", 2, 1);
}

#[test]
fn raid1c3() {
    compare("raid1c3", 3, 2);
}

#[test]
fn raid10() {
    compare("raid10", 4, 1);
}

#[test]
fn raid5() {
    compare("raid5", 3, 1);
}

#[test]
fn raid6() {
    compare("raid6", 4, 2);
}

/// The kernel keeps less room for deletions than is kept here, and fills a pool further.
#[test]
fn a_mixed_pool_that_the_kernel_filled_can_be_emptied() {
    const FILES: usize = 600;
    if !can_make() {
        return;
    }
    let mut pool = KernelPool::make_mixed(120 << 20);
    let top = pool.mount_point().to_owned();
    let name = |number: usize| top.join(format!("file {number}"));
    (0..50).for_each(|number| std::fs::write(name(number), b"small").expect("room"));
    let fill = std::fs::File::create(top.join("fill")).expect("room");
    let block = vec![1; 1 << 20];
    while std::io::Write::write_all(&mut &fill, &block).is_ok() && fill.sync_all().is_ok() {}
    drop(fill);
    for number in 50..FILES {
        let written = std::fs::write(name(number), vec![2; 3000]);
        if written.and_then(|()| std::fs::File::open(name(number))?.sync_all()).is_err() {
            break;
        }
    }
    pool.unmount();
    let device = patiently(|| FileDevice::open_writable(&pool.images()[0])).expect("an image");
    let devices = vec![Arc::new(device) as Arc<dyn brindle_device::WritableDevice>];
    let write = brindle_fs::WriteOptions::default();
    let filesystem = Filesystem::open_writable(devices, &top_level(), &write).expect("opens");
    for entry in filesystem.read_directory(filesystem.root(), 0, usize::MAX).expect("readable") {
        let name = String::from_utf8_lossy(&entry.name);
        filesystem.unlink(filesystem.root(), &entry.name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    filesystem.shutdown().expect("durable");
    drop(filesystem);
    pool.check();
}

/// Tries what a loop device that is being detached, or a child of another test that is being started, may be in the
/// way of: for a minute at the most.
pub(crate) fn patiently<T, E>(mut action: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..3000 {
        if let Ok(done) = action() {
            return Ok(done);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    action()
}
