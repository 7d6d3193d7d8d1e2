//! A hit of the cache beside the fast device alone: random reads of 4 KiB in one process, and how many are answered in a second.
//!
//! Fast devices are modelled drives in real time, and memory, where the processor alone is measured. Each line is the median of five
//! rounds, in which both take turns, and the ratio with its range. The cache has one read path for all modes.

use brindle_cache::{Cache, CreateOptions, HostClock, Mode, create};
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use brindle_sim::{Drive, DriveRequestKind, Image, ImageDevice, Random, RealDrive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// Bytes that are read at random, all of them cached.
const HOT_BYTES: u64 = 32 << 20;
const FLASH_BYTES: u64 = 96 << 20;
const DISK_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;
const TRIAL: Duration = Duration::from_secs(1);

/// A device in memory, whose reads take the time of a drive once it is timed.
#[derive(Debug)]
struct TimedDevice {
    image: ImageDevice,
    drive: Option<RealDrive>,
    is_timed: AtomicBool,
}

impl TimedDevice {
    fn new(drive: Option<Drive>) -> Self {
        Self {
            image: ImageDevice::new("flash", Image::new(FLASH_BYTES), DeviceClass::Solid),
            drive: drive.map(|drive| RealDrive::start(drive).expect("a thread")),
            is_timed: AtomicBool::new(false),
        }
    }
}

impl Device for TimedDevice {
    fn name(&self) -> &str {
        self.image.name()
    }

    fn size_bytes(&self) -> u64 {
        self.image.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if let Some(drive) = self.drive.as_ref().filter(|_| self.is_timed.load(Ordering::Relaxed)) {
            let (answer, answered) = mpsc::sync_channel(1);
            let request = DriveRequestKind::Read(offset, buffer.len() as u64);
            drive.submit(request, move || answer.send(()).unwrap_or(()));
            answered.recv().expect("the drive goes on");
        }
        self.image.read_at(offset, buffer)
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::Solid
    }
}

impl WritableDevice for TimedDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.image.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.image.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.image.set_size(size_bytes)
    }
}

/// A cache that holds all of the hot range.
fn warm_cache(flash: &Arc<TimedDevice>) -> Cache {
    let disk = Arc::new(ImageDevice::new("disk", Image::new(DISK_BYTES), DeviceClass::Rotating));
    let options = CreateOptions {
        name: "hits".to_owned(),
        mode: Mode::Back,
        block_bytes: BLOCK,
        associativity: 512,
        size_bytes: None,
        is_write_only: false,
        is_forced: false,
        uuids: [[1; 16], [2; 16], [3; 16]],
    };
    let cache = create(Arc::clone(flash) as _, disk, &options, Arc::new(HostClock::new())).expect("a cache");
    let mut buffer = vec![0; 64 << 10];
    for offset in (0..HOT_BYTES).step_by(buffer.len()) {
        cache.read_at(offset, &mut buffer).expect("it is in memory");
    }
    cache.zero_counters();
    cache
}

/// Reads in a second, of all readers together.
fn rate(device: &dyn Device, readers: u64) -> f64 {
    let begun = Instant::now();
    let read = |reader: u64| {
        let (mut random, mut buffer) = (Random::new(reader), vec![0; 4096]);
        let mut done = 0_u64;
        while begun.elapsed() < TRIAL {
            let block = random.below(HOT_BYTES / BLOCK);
            device.read_at(block * BLOCK, &mut buffer).expect("a read");
            done += 1;
        }
        done
    };
    let done: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|reader| scope.spawn(move || read(reader))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader")).sum()
    });
    done as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    println!("| fast device | readers | alone, reads/s | cached, reads/s | ratio |\n|---|---|---|---|---|");
    let drives = [("memory", None), ("SATA SSD", Some(Drive::sata_ssd())), ("NVMe", Some(Drive::nvme()))];
    for (name, drive) in drives {
        let flash = Arc::new(TimedDevice::new(drive));
        let cache = warm_cache(&flash);
        flash.is_timed.store(true, Ordering::Relaxed);
        for readers in [1, 8, 32] {
            let rounds: Vec<[f64; 2]> =
                (0..ROUNDS).map(|_| [rate(&*flash, readers), rate(&cache, readers)]).collect();
            let of = |index: usize| median(rounds.iter().map(|round| round[index]).collect()).0;
            let (ratio, least, most) = median(rounds.iter().map(|[alone, cached]| cached / alone).collect());
            let (alone, cached) = (of(0), of(1));
            println!(
                "| {name} | {readers} | {alone:.0} | {cached:.0} | {ratio:.2} ({least:.2} to {most:.2}) |"
            );
        }
        let counters = cache.status().counters;
        assert_eq!(counters.read_hits, counters.reads, "all are hits");
    }
}
