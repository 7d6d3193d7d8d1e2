//! Read policies on modelled drives, in virtual time: every figure is exact, and that of a *modelled* disk. What is read is
//! one raid1 or raid1c3 chunk without checksums; what a reader costs the processor does not count.

mod aims;
mod counting;
mod table;

use super::support::{FSID, OwnedChunk, dev_item, put_superblock, stripe, superblock};
use crate::{DataChecksums, OpenOptions, Volume, read_for};
use brindle_device::Device;
use brindle_ondisk::{BlockGroupType, Logical, SUPERBLOCK_SIZE};
use brindle_policy::read::{ReadPolicy, ReadSettings, Readahead};
use brindle_sim::{Drive, Image, ModelDevice, Random, VirtualTime};
use std::sync::Arc;

const GIB: u64 = 1 << 30;
const READ_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 4096;
/// Length of the chunk to read, in bytes.
const CHUNK_BYTES: u64 = 1024 * GIB;
/// Bytes that a sequential test reads.
const STREAM_BYTES: u64 = GIB;
/// Lead of a reader over the others of its file, in bytes.
const LEAD_BYTES: u64 = 128 << 10;

/// Drives of a pool.
type Drives = &'static [fn() -> Drive];

const THREE_DISKS: Drives = &[Drive::hard_disk, Drive::hard_disk, Drive::hard_disk];
const TWO_DISKS_AND_FLASH: Drives = &[Drive::hard_disk, Drive::hard_disk, Drive::sata_ssd];
const DISK_AND_NVME: Drives = &[Drive::hard_disk, Drive::nvme];
const NEW_AND_OLD_DISK: Drives = &[Drive::hard_disk, Drive::old_hard_disk];
const FLASH_AND_NVME: Drives = &[Drive::sata_ssd, Drive::nvme];
const TWO_NVME: Drives = &[Drive::nvme, Drive::nvme];

/// Work of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// All the same file from its start, through one page cache.
    SameFile,
    /// Each a file of its own, far from each other.
    OwnFiles,
    /// Blocks anywhere.
    Random,
}

/// A pool of modelled drives, with one chunk on all of them.
struct Modelled {
    time: Arc<VirtualTime>,
    volume: Volume,
}

impl Modelled {
    fn new(drives: &[fn() -> Drive]) -> Self {
        let time = VirtualTime::new();
        let size = CHUNK_BYTES + 2 * GIB;
        let device = |(index, make): (usize, &fn() -> Drive)| {
            let devid = index as u64 + 1;
            let mut head = vec![0; (64 << 10) + SUPERBLOCK_SIZE];
            let mut superblock = superblock(FSID, devid, drives.len() as u64, 10);
            superblock.dev_item = dev_item(devid, FSID, size);
            put_superblock(&mut head, &superblock, 64 << 10);
            let mut image = Image::new(size);
            image.write(0, &head);
            Arc::new(ModelDevice::new(format!("disk{devid}"), image, make(), &time)) as Arc<dyn Device>
        };
        let devices = drives.iter().enumerate().map(device).collect();
        let volume = Volume::open(devices, &OpenOptions::default()).expect("there is a pool");
        for devid in 1..=drives.len() as u64 {
            volume.add_device(&dev_item(devid, FSID, size)).expect("a device");
        }
        let profile = match drives.len() {
            1 => BlockGroupType::empty(),
            2 => BlockGroupType::RAID1,
            3 => BlockGroupType::RAID1C3,
            _ => BlockGroupType::RAID1C4,
        };
        let stripes = (1..=drives.len() as u64).map(|devid| stripe(devid, GIB)).collect();
        let chunk = OwnedChunk::new(BlockGroupType::DATA | profile, CHUNK_BYTES, stripes);
        volume.add_chunk(Logical::new(GIB), &chunk.view()).expect("a chunk");
        let clock = Arc::clone(&time);
        volume.set_read_clock(move || clock.now_ns());
        Self { time, volume }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.volume
            .read_data(Logical::new(GIB + offset), buffer, &DataChecksums::none())
            .expect("drives that do not fail");
    }

    /// Reads a range in order, as a filesystem does. Of several readers of one file, which share a page cache, each is
    /// ahead of the others now and then; the process that reads is told by where.
    fn read_in_order(&self, start: u64, bytes: u64, readers: u64, pid: u32) {
        let (mut readahead, mut buffer) = (Readahead::default(), vec![0; READ_BYTES]);
        for at in (start..start + bytes).step_by(READ_BYTES) {
            let leader = at / LEAD_BYTES % readers;
            read_for(pid + u32::try_from(leader).expect("few"));
            self.read_ahead(at, start + bytes, &mut readahead);
            self.read(at, &mut buffer);
        }
    }

    fn read_ahead(&self, at: u64, end: u64, readahead: &mut Readahead) {
        readahead.set_worth(self.volume.readahead_bytes(Logical::new(GIB + at)));
        if let Some(range) = readahead.advance(at, at + READ_BYTES as u64, end) {
            let done = self.volume.prefetch(Logical::new(GIB + range.start), range.end - range.start);
            readahead.fell_short(&range, range.start + done);
        }
    }
}

/// Throughput of `jobs` jobs: MiB a second read from the devices, or blocks a second.
fn reach(drives: &[fn() -> Drive], settings: ReadSettings, work: Work, jobs: usize) -> f64 {
    reach_from(drives, settings, work, jobs, 0)
}

/// The same, if the first process has this number.
fn reach_from(drives: &[fn() -> Drive], settings: ReadSettings, work: Work, jobs: usize, pid: u32) -> f64 {
    let pool = Modelled::new(drives);
    pool.volume.set_read_settings(settings);
    let reads = if drives.iter().all(|make| make().is_rotating()) { 1000 * drives.len() } else { 20_000 };
    let begin = pool.time.now_ns();
    let done = match work {
        Work::SameFile => {
            pool.read_in_order(0, STREAM_BYTES, jobs as u64, pid);
            STREAM_BYTES as f64 / f64::from(1 << 20)
        }
        Work::OwnFiles => {
            let bytes = STREAM_BYTES / 2;
            pool.time.run(jobs, |job| {
                let pid = pid + u32::try_from(job).expect("few");
                pool.read_in_order(job as u64 * 100 * GIB, bytes, 1, pid);
            });
            (bytes * jobs as u64) as f64 / f64::from(1 << 20)
        }
        Work::Random => {
            pool.time.run(jobs, |job| {
                read_for(pid + u32::try_from(job).expect("few"));
                let (mut random, mut buffer) = (Random::new(7).fork(job as u64), [0; BLOCK_BYTES]);
                for _ in 0..reads / jobs {
                    pool.read(random.below(CHUNK_BYTES / 4096) * 4096, &mut buffer);
                }
            });
            (reads / jobs * jobs) as f64
        }
    };
    done * 1e9 / (pool.time.now_ns() - begin) as f64
}

/// Throughput of the drives together if each works for itself, with its share of the jobs.
fn sum_alone(drives: &[fn() -> Drive], work: Work, jobs: usize) -> f64 {
    let share = jobs.div_ceil(drives.len());
    let jobs = if work == Work::Random { share } else { 1 };
    let alone = |make: &fn() -> Drive| reach(&[*make], ReadSettings::default(), work, jobs);
    drives.iter().map(alone).sum()
}

fn of(policy: ReadPolicy) -> ReadSettings {
    let mut settings = ReadSettings::of(policy);
    settings.devid = 1;
    settings
}
