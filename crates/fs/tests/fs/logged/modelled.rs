//! A whole pool on modelled drives, in virtual time: how long an fsync takes, and what it asks of the disk. Exact, and
//! of a *modelled* SSD and a *modelled* hard disk.

use crate::contents::patterns::Program;
use crate::simulated::{Layout, Pool, check};
use brindle_device::WritableDevice;
use brindle_fs::Filesystem;
use brindle_ondisk::Profile;
use brindle_sim::{Drive, DriveCounts, HardDisk, HardDiskParameters, Image, ModelDevice, VirtualTime};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// Fsyncs of a run.
const ROUNDS: u64 = 200;

/// An SSD and a disk, metadata and small files on the SSD.
const ONE_OF_EACH: Layout = Layout {
    devices: 2,
    device_mib: 4096,
    data: Profile::Single,
    metadata: Profile::Dup,
    nodesize: 16384,
    features: "",
    compression: None,
    fast: 1,
};

/// A pool on modelled drives.
struct Modelled {
    time: Arc<VirtualTime>,
    devices: Vec<Arc<ModelDevice>>,
    filesystem: Filesystem,
}

impl Modelled {
    fn new(layout: &Layout, drives: Vec<Drive>) -> Self {
        let time = VirtualTime::new();
        let new = |(number, drive): (usize, Drive)| {
            let image = Image::new(layout.device_bytes());
            Arc::new(ModelDevice::new(format!("drive{number}"), image, drive, &time))
        };
        let devices: Vec<_> = drives.into_iter().enumerate().map(new).collect();
        let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let writable: Vec<_> = writable.collect();
        layout.mkfs(&writable);
        let mut pool = Pool::on(writable, layout);
        pool.write.tree_log = true;
        let filesystem = pool.open().expect("opens");
        let program = Program::new(&filesystem);
        program.make_directory("mail");
        program.put("first", &[1; 12 << 10]);
        filesystem.sync().expect("commits");
        program.put("second", b"");
        Self { time, devices, filesystem }
    }

    /// Makes small files durable, one a second; returns the longest time that one took, in nanoseconds.
    fn mail(&self) -> u64 {
        let program = Program::new(&self.filesystem);
        let put = |round| {
            self.time.sleep(SECOND);
            let begin = self.time.now_ns();
            program.put(&format!("mail/{round}"), &[7; 3000]);
            self.time.now_ns() - begin
        };
        (0..ROUNDS).map(put).max().expect("some")
    }

    fn counts(&self) -> Vec<DriveCounts> {
        self.devices.iter().map(|device| device.counts()).collect()
    }
}

fn sleeper() -> Drive {
    let parameters = HardDiskParameters { spin_down_ns: Some(20 * SECOND), ..HardDiskParameters::default() };
    Drive::HardDisk(Box::new(HardDisk::new(parameters)))
}

/// Fsyncs, then a file that the disk has to take; the longest fsync, the time of all, and the counts.
fn run() -> (u64, u64, Vec<DriveCounts>) {
    let pool = Modelled::new(&ONE_OF_EACH, vec![Drive::sata_ssd(), sleeper()]);
    pool.devices.iter().for_each(|device| device.reset_counts());
    let longest = pool.mail();
    assert_eq!(pool.counts()[1], DriveCounts::default(), "the disk sleeps on");
    assert!(longest < 10_000_000, "{longest} ns on an SSD whose flush takes 1 ms");
    let begin = pool.time.now_ns();
    let bytes: Vec<u8> = (0..64 * MIB).map(|at| (at / 4096 % 251) as u8).collect();
    Program::new(&pool.filesystem).put("film", &bytes);
    pool.filesystem.sync().expect("commits");
    let took = pool.time.now_ns() - begin;
    let counts = pool.counts();
    assert_eq!(counts[1].wake_ups, 1, "the disk is woken once");
    assert!((64 * MIB..66 * MIB).contains(&counts[1].written_bytes), "{:?}", counts[1]);
    assert!((7 * SECOND..8 * SECOND).contains(&took), "{took} ns: 7 s until it turns, then 220 MB/s");
    let file = Program::new(&pool.filesystem).open("film");
    let mut found = vec![0; bytes.len()];
    let read = pool.filesystem.read(&file, 0, &mut found).expect("reads");
    assert!(read == found.len() && found == bytes);
    Program::new(&pool.filesystem).close(file);
    let (end, counts) = (pool.time.now_ns(), pool.counts());
    let devices: Vec<_> =
        pool.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    pool.filesystem.sync().expect("commits");
    drop(pool.filesystem);
    check(&devices).expect("whole");
    (longest, end, counts)
}

#[test]
fn fsyncs_on_an_ssd_let_the_disk_sleep_and_a_large_file_wakes_it_once() {
    let first = run();
    println!("longest fsync {} ns; in all {} ns; {:#?}", first.0, first.1, first.2);
    assert_eq!(run(), first, "the same in each run");
}

#[test]
fn fsync_on_a_disk_alone_costs_revolutions() {
    let layout = Layout { devices: 1, fast: 0, ..ONE_OF_EACH };
    let pool = Modelled::new(&layout, vec![Drive::hard_disk()]);
    pool.devices[0].reset_counts();
    let (longest, counts) = (pool.mail(), pool.counts()[0]);
    println!("longest fsync {longest} ns, {counts:#?}");
    assert!((8_000_000..200_000_000).contains(&longest), "{longest}");
    assert!(counts.seeks >= 2 * ROUNDS && counts.flushes >= 2 * ROUNDS, "{counts:?}");
}
