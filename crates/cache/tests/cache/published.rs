//! The published use of flashcache below the object store of Ceph, in virtual time: each write of an object is a record of
//! 147 bytes in a log, one of 496 bytes in an index, and 512 KiB of data; streams go around the cache.

use brindle_cache::{Cache, CacheClock, CreateOptions, Mode, create};
use brindle_device::WritableDevice;
use brindle_sim::{Drive, DriveCounts, Image, ModelDevice, VirtualTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const DATA: u64 = 512 << 10;
/// Data of all clients, in writes of 512 KiB.
const OBJECTS: usize = 320;
/// Writes of objects between two syncs: 4 MiB of data, the length of an object.
const SYNC_EVERY: usize = 8;
/// Modelled time between two looks of the cleaner.
const UPKEEP_NS: u64 = 200_000_000;

#[derive(Debug)]
struct ModelledClock(Arc<VirtualTime>);

impl CacheClock for ModelledClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now_ns())
    }

    fn is_modelled(&self) -> bool {
        true
    }

    fn pause(&self) {
        self.0.sleep(100_000);
    }
}

/// Result of a run: MiB of data a second, and the counts of the hard disk.
struct Rate {
    mib_per_second: u64,
    counts: DriveCounts,
    cache: Option<Arc<Cache>>,
}

/// One write of an object: blocks that the two small records lie in, and the data, one behind the other on the disk.
fn write_object(device: &dyn WritableDevice, client: usize, number: usize, object: usize, data: &[u8]) {
    let region = (client as u64 + 1) * (40 << 30);
    // 27 records fill a block of the log.
    let log = region + number as u64 / 27 * 4096;
    device.write_at(log, &data[..4096]).expect("it works");
    device.write_at(region + (1 << 30), &data[..4096]).expect("it works");
    device.write_at(object as u64 * DATA, data).expect("it works");
}

/// Has clients write until all objects are there and durable. With a cache, the disk ends clean.
fn run(clients: usize, cached: bool) -> Rate {
    let time = VirtualTime::new();
    let disk = Arc::new(ModelDevice::new("disk", Image::new(2_000_000 << 20), Drive::hard_disk(), &time));
    let flash = Arc::new(ModelDevice::new("flash", Image::new(8 << 30), Drive::sata_ssd(), &time));
    let cache = cached.then(|| {
        let options = CreateOptions {
            name: "fsdc".to_owned(),
            mode: Mode::Back,
            block_bytes: 4096,
            associativity: 512,
            size_bytes: Some(1 << 30),
            is_write_only: false,
            is_forced: false,
            uuids: [[1; 16], [2; 16], [3; 16]],
        };
        let clock = Arc::new(ModelledClock(Arc::clone(&time)));
        let cache =
            create(Arc::clone(&flash) as _, Arc::clone(&disk) as _, &options, clock).expect("it can be made");
        cache.set("skip_seq_thresh_kb", "32").expect("a setting");
        Arc::new(cache)
    });
    let device: Arc<dyn WritableDevice> = match &cache {
        Some(cache) => Arc::clone(cache) as _,
        None => Arc::clone(&disk) as _,
    };
    disk.reset_counts();
    let (begin, next, ended) = (time.now_ns(), AtomicUsize::new(0), AtomicUsize::new(0));
    let data = vec![7; usize::try_from(DATA).expect("small")];
    time.run(clients + 1, |job| {
        if job < clients {
            for number in 0.. {
                let object = next.fetch_add(1, Ordering::Relaxed);
                if object >= OBJECTS {
                    break;
                }
                write_object(&*device, job, number, object, &data);
                if object % SYNC_EVERY == SYNC_EVERY - 1 {
                    device.flush().expect("it works");
                }
            }
            ended.fetch_add(1, Ordering::Relaxed);
            return;
        }
        while ended.load(Ordering::Relaxed) < clients {
            time.sleep(UPKEEP_NS);
            if let Some(cache) = &cache {
                cache.upkeep().expect("it works");
            }
        }
    });
    device.flush().expect("it works");
    let took_ns = time.now_ns() - begin;
    let bytes = OBJECTS as u64 * DATA;
    let mib_per_second = bytes * 1000 / (1 << 20) * 1_000_000 / took_ns;
    Rate { mib_per_second, counts: disk.counts(), cache }
}

/// Rate of the data alone, with a sync after some writes.
fn sequential(sync_every: Option<usize>) -> u64 {
    let time = VirtualTime::new();
    let disk = ModelDevice::new("disk", Image::new(2_000_000 << 20), Drive::hard_disk(), &time);
    let data = vec![7; usize::try_from(DATA).expect("small")];
    for object in 0..OBJECTS {
        disk.write_at(object as u64 * DATA, &data).expect("it works");
        if sync_every.is_some_and(|every| object % every == every - 1) {
            disk.flush().expect("it works");
        }
    }
    disk.flush().expect("it works");
    OBJECTS as u64 * DATA * 1000 / (1 << 20) * 1_000_000 / time.now_ns()
}

#[test]
fn small_records_on_the_flash_leave_the_disk_to_its_streams() {
    let [whole, synced] = [None, Some(SYNC_EVERY)].map(sequential);
    println!("modelled hard disk, data alone: {whole} MiB/s, with syncs by one client {synced} MiB/s");
    for clients in [1, 2, 4, 8, 16] {
        let (bare, cached) = (run(clients, false), run(clients, true));
        println!(
            "{clients} clients: bare {} MiB/s, {} seeks; cached {} MiB/s, {} seeks",
            bare.mib_per_second, bare.counts.seeks, cached.mib_per_second, cached.counts.seeks
        );
        // One client leaves the disk idle while it waits for the flash.
        let (aim, percent) = if clients == 1 { (synced, 90) } else { (whole, 95) };
        assert!(cached.mib_per_second * 100 >= aim * percent, "{} of {aim}", cached.mib_per_second);
        assert!(cached.counts.seeks * 3 < bare.counts.seeks);
        let status = cached.cache.expect("with a cache").status();
        let data_blocks = OBJECTS as u64 * DATA / 4096;
        assert_eq!(status.counters.uncached_sequential_writes, data_blocks, "all data went around");
        assert_eq!(status.stopped, None);
    }
}
