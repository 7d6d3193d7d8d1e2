//! The kernel beside brindle, on the same images (root).

use super::put;
use crate::kernel::can_make;
use crate::kernel::pool::{KernelPool, run};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_ondisk::{LEASE_BYTES, LEASE_OFFSET, LeasePlace};
use brindle_volume::LeaseMode;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open(pool: &KernelPool, mode: LeaseMode) -> Filesystem {
    let open = |image: &Path| {
        let device = FileDevice::open_writable(image).expect("nobody has it");
        Arc::new(device) as Arc<dyn WritableDevice>
    };
    let devices = pool.images().iter().map(|image| open(image)).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.lease.mode = mode;
    Filesystem::open_writable(devices, &options, &WriteOptions::default()).expect("opens")
}

/// The places of the records.
fn records(pool: &KernelPool) -> Vec<[u8; LEASE_BYTES]> {
    let read = |image: &Path| {
        let mut bytes = [0; LEASE_BYTES];
        let device = FileDevice::open(image).expect("it is there");
        brindle_device::Device::read_at(&device, LEASE_OFFSET, &mut bytes).expect("readable");
        bytes
    };
    pool.images().iter().map(|image| read(image)).collect()
}

#[test]
fn the_kernel_leaves_records_of_leases_where_they_are_and_needs_none() {
    if !can_make() {
        return;
    }
    let mut pool = KernelPool::make_with("raid1", 2, "16384", "compress=no", &[]);
    pool.unmount();
    let filesystem = open(&pool, LeaseMode::Always);
    put(&filesystem, "of brindle");
    filesystem.shutdown().expect("its own");
    // Its process is killed: the record stays as it is, and nothing renews it.
    let kept: Vec<PathBuf> = pool.images().iter().map(|image| image.with_extension("killed")).collect();
    for (image, kept) in pool.images().iter().zip(&kept) {
        run("cp", ["--sparse=always"], [image, kept]);
    }
    drop(filesystem);
    for (image, kept) in pool.images().iter().zip(&kept) {
        std::fs::rename(kept, image).expect("it was copied");
    }
    let held = records(&pool);
    for bytes in &held {
        assert!(matches!(LeasePlace::parse(bytes), LeasePlace::Record(record) if record.is_held()));
    }
    pool.check();
    pool.mount("compress=no");
    for round in 0..20 {
        std::fs::write(pool.mount_point().join(format!("{round}")), vec![round; 300_000]).expect("room");
    }
    run("btrfs", ["scrub", "start", "-B"], [pool.mount_point()]);
    run("btrfs", ["balance", "start", "--full-balance"], [pool.mount_point()]);
    run("btrfs", ["filesystem", "resize", "1:max"], [pool.mount_point()]);
    pool.unmount();
    pool.check();
    assert!(records(&pool) == held, "the kernel does not write there");
}

#[test]
fn a_mount_of_the_kernel_by_another_way_is_found_and_its_pool_stays_whole() {
    if !can_make() {
        return;
    }
    let mut pool = KernelPool::make_with("raid1", 2, "16384", "compress=no", &[]);
    std::fs::write(pool.mount_point().join("before"), b"of the kernel").expect("room");
    pool.unmount();
    let filesystem = open(&pool, LeaseMode::Shared);
    put(&filesystem, "of brindle");
    filesystem.sync().expect("alone");
    // Loop devices ask nothing of a file that is locked.
    pool.mount("compress=no");
    for round in 0..20 {
        std::fs::write(pool.mount_point().join(format!("{round}")), vec![round; 100_000]).expect("room");
    }
    let top = std::fs::File::open(pool.mount_point()).expect("mounted");
    rustix::fs::syncfs(&top).expect("the kernel writes");
    drop(top);
    let new = brindle_fs::NewInode { mode: 0o100_644, ..Default::default() };
    filesystem.create(filesystem.root(), b"too late", &new).expect("in memory");
    let error = filesystem.sync().expect_err("the kernel has written").to_string();
    assert!(error.contains("another system or program writes the pool"), "{error}");
    assert!(!filesystem.is_writable());
    filesystem.shutdown().expect_err("read-only");
    drop(filesystem);
    let names = std::fs::read_dir(pool.mount_point()).expect("readable").count();
    assert_eq!(names, 2 + 20);
    pool.unmount();
    pool.check();
    // Half of it was not the kernel's to begin with.
    pool.mount("compress=no");
    assert!(std::fs::read(pool.mount_point().join("19")).expect("readable") == vec![19; 100_000]);
    pool.unmount();
}
