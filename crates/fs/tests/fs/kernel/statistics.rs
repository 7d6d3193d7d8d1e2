//! Device errors, counted by brindle and by the kernel in the same place.

use super::can_make;
use super::pool::{KernelPool, run};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_sim::{Fault, FaultyDevice};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const SECTOR: usize = 4096;

/// The counters of each device, as `btrfs device stats` shows those of what the kernel has mounted.
fn of_kernel(pool: &KernelPool) -> Vec<[u64; 5]> {
    let said = run("btrfs", ["device", "stats"], [pool.mount_point()]);
    let values: Vec<u64> = said
        .lines()
        .map(|line| line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a counter"))
        .collect();
    values.chunks(5).map(|device| device.try_into().expect("five each")).collect()
}

fn of_brindle(filesystem: &Filesystem) -> Vec<[u64; 5]> {
    let all = filesystem.pool().device_statistics().expect("readable");
    all.into_iter().map(|(_, statistics)| statistics.values()).collect()
}

fn devices(pool: &KernelPool) -> Vec<Arc<FaultyDevice>> {
    let open = |image| {
        let device = super::patiently(|| FileDevice::open_writable(image)).expect("image");
        Arc::new(FaultyDevice::new(Arc::new(device)))
    };
    pool.images().iter().map(|image| open(image)).collect()
}

fn open(devices: &[Arc<FaultyDevice>]) -> Filesystem {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default()).expect("opens")
}

#[test]
fn the_kernel_and_brindle_count_in_the_same_place() {
    if !can_make() {
        return;
    }
    let mut pool = KernelPool::make("raid1", 2, "16384", "no");
    // A sector that is bad on one device, and another one on the other: one of them will be read.
    let pattern: Vec<u8> = (0..2 * SECTOR).map(|at| (at * 7 / 3 % 251).to_le_bytes()[0]).collect();
    std::fs::write(pool.mount_point().join("file"), &pattern).expect("writes");
    pool.unmount();
    for (number, image) in pool.images().iter().enumerate() {
        let bytes = std::fs::read(image).expect("reads");
        let at = bytes.chunks(SECTOR).position(|sector| *sector == pattern[..SECTOR]).expect("there");
        let image = File::options().write(true).open(image).expect("opens");
        image.write_all_at(&[0xee; 100], ((at + number) * SECTOR) as u64).expect("writes");
    }
    pool.mount("");
    assert_eq!(std::fs::read(pool.mount_point().join("file")).expect("one copy is good"), pattern);
    // The kernel writes the counters with the next transaction.
    std::fs::write(pool.mount_point().join("other"), b"other").expect("writes");
    // Not those of other tests, which wait for a crash.
    run("sync", ["-f"], [pool.mount_point()]);
    let counted = of_kernel(&pool);
    assert_eq!(counted.iter().map(|device| device[3]).sum::<u64>(), 1, "{counted:?}");
    pool.unmount();
    let given = devices(&pool);
    let filesystem = open(&given);
    assert_eq!(of_brindle(&filesystem), counted);
    given[1].inject(Fault::Write { number: given[1].counts().writes });
    for name in [&b"one"[..], b"two"] {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        filesystem.create(filesystem.root(), name, &new).expect("room");
        filesystem.sync().expect("the other device has it");
    }
    let mut expected = counted;
    expected[1][0] += 1;
    assert_eq!(of_brindle(&filesystem), expected);
    assert!(given[1].name().ends_with("dev2.img"));
    drop((filesystem, given));
    pool.mount("");
    assert_eq!(of_kernel(&pool), expected);
    pool.unmount();
    let given = devices(&pool);
    let filesystem = open(&given);
    for devid in [1, 2] {
        filesystem.pool().reset_device_statistics(brindle_ondisk::DevId::new(devid)).expect("there");
    }
    filesystem.sync().expect("nothing fails");
    drop((filesystem, given));
    pool.mount("");
    assert_eq!(of_kernel(&pool), [[0; 5]; 2]);
    run("btrfs", ["scrub", "start", "-B"], [pool.mount_point()]);
    pool.unmount();
    pool.check();
}
