//! Pools of cached disks: after a crash of everything, in which SSDs and disks lose what was not flushed, each on its own.

use super::subject::LibrarySubject;
use super::{COMMON, ONE, crash};
use crate::simulated::{Layout, Library};
use brindle_cache::{Cache, CacheClock, CreateOptions, Mode, create, disk_mark, load, load_to_read};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_ondisk::Profile;
use brindle_sim::{Image, ImageDevice};
use brindle_testing::crash::{CrashGuarantees, CrashTest, NewDevice, Subject};
use brindle_testing::manifest::Manifest;
use brindle_testing::model::{Errno, TreePath};
use brindle_testing::operations::{Mix, Operation, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Two cached disks.
const MIRRORS: Layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
/// Bytes of an SSD: 512 slots of 4 KiB, of which a third is soon dirty.
const SSD_BYTES: u64 = (64 << 10) + (2 << 20);
/// Slots of a set.
const ASSOCIATIVITY: u32 = 64;

/// Time stands still.
#[derive(Debug)]
struct Still;

impl CacheClock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// A pool of which some devices are cached disks: the SSD of each stands before its disk.
struct Cached {
    library: LibrarySubject,
    mode: Mode,
    /// True for each device of the pool that is a cached disk.
    are_cached: Vec<bool>,
    /// True if the SSD of the first cached disk is lost in each crash.
    loses_ssd: bool,
    /// True once the pool was recorded.
    is_after_crash: AtomicBool,
}

/// A device of the pool.
enum Part {
    Plain(Arc<dyn WritableDevice>),
    Cached([Arc<dyn WritableDevice>; 2]),
}

/// The library on cached disks, which are cleaned and flushed between operations.
struct CachedLibrary {
    library: Library,
    caches: Vec<Arc<Cache>>,
    disks: Vec<Arc<dyn WritableDevice>>,
    /// Number of operations.
    count: usize,
    /// Blocks that were cleaned beside the operations.
    cleaned: u64,
}

impl Cached {
    fn new(library: LibrarySubject, mode: Mode, are_cached: &[bool]) -> Self {
        let is_after_crash = AtomicBool::new(false);
        Self { library, mode, are_cached: are_cached.to_vec(), loses_ssd: false, is_after_crash }
    }

    /// Devices of the pool, made of the devices that there are.
    fn parts(&self, devices: &[Arc<dyn WritableDevice>]) -> Vec<Part> {
        let mut devices = devices.iter().cloned();
        let mut next = || devices.next().expect("as many as were made");
        let part = |is_cached: &bool| match is_cached {
            true => Part::Cached([next(), next()]),
            false => Part::Plain(next()),
        };
        let mut parts: Vec<Part> = self.are_cached.iter().map(part).collect();
        if self.loses_ssd && self.is_after_crash.load(Relaxed) {
            // The disk alone is refused, and so is away too.
            parts.remove(self.are_cached.iter().position(|is_cached| *is_cached).expect("a cached disk"));
        }
        parts
    }

    /// Devices to be read, as they are.
    fn to_read(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Vec<Arc<dyn WritableDevice>>, String> {
        let device = |part| match part {
            Part::Plain(device) => Ok(device),
            Part::Cached([ssd, disk]) => {
                let cache = load_to_read(&ssd, &disk, Arc::new(Still)).map_err(|error| error.to_string())?;
                Ok(Arc::new(cache) as Arc<dyn WritableDevice>)
            }
        };
        self.parts(devices).into_iter().map(device).collect()
    }
}

impl Subject for Cached {
    type Target = CachedLibrary;

    fn make(&self) -> Vec<NewDevice> {
        self.is_after_crash.store(false, Relaxed);
        let mut devices = Vec::new();
        for (number, (disk, is_cached)) in self.library.make().into_iter().zip(&self.are_cached).enumerate() {
            if *is_cached {
                let name = format!("ssd{number}");
                let ssd = Arc::new(ImageDevice::new(&name, Image::new(SSD_BYTES), DeviceClass::Solid));
                let copy = ImageDevice::new(&disk.name, disk.image.clone(), disk.class);
                let uuid = u8::try_from(number).expect("few");
                let options = CreateOptions {
                    name: format!("cache{number}"),
                    mode: self.mode,
                    block_bytes: 4096,
                    associativity: ASSOCIATIVITY,
                    size_bytes: None,
                    is_write_only: false,
                    is_forced: false,
                    uuids: [[uuid; 16], [uuid + 16; 16], [uuid + 32; 16]],
                };
                create(Arc::clone(&ssd) as _, Arc::new(copy), &options, Arc::new(Still)).expect("room");
                devices.push(NewDevice { name, image: ssd.image(), class: DeviceClass::Solid });
            }
            devices.push(disk);
        }
        devices
    }

    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<CachedLibrary, String> {
        let (mut pool, mut caches, mut disks) = (Vec::new(), Vec::new(), Vec::new());
        for part in self.parts(devices) {
            match part {
                Part::Plain(device) => pool.push(device),
                Part::Cached([ssd, disk]) => {
                    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", disk.name());
                    let cache = load(&ssd, &disk, false, Arc::new(Still)).map_err(|error| failed(&error))?;
                    let is_veiled = cache.veil().map_err(|error| failed(&error))?;
                    assert_eq!(is_veiled, self.mode == Mode::Back, "there is room for the mark");
                    let cache = Arc::new(cache);
                    pool.push(Arc::clone(&cache) as Arc<dyn WritableDevice>);
                    caches.push(cache);
                    disks.push(disk);
                }
            }
        }
        let library = self.library.open(&pool)?;
        Ok(CachedLibrary { library, caches, disks, count: 0, cleaned: 0 })
    }

    /// The disks alone are the pool then.
    fn close(&self, target: CachedLibrary) -> Result<(), String> {
        let CachedLibrary { library, caches, disks, .. } = target;
        let mut devices = library.pool.devices.clone();
        self.library.close(library)?;
        for (cache, disk) in caches.iter().zip(&disks) {
            cache.verify()?;
            cache.close().map_err(|error| error.to_string())?;
            assert_eq!(disk_mark(&**disk).map_err(|error| error.to_string())?, None, "unveiled");
            let cached = Arc::clone(cache) as Arc<dyn WritableDevice>;
            let place = devices.iter().position(|device| Arc::ptr_eq(device, &cached)).expect("of the pool");
            devices[place] = Arc::clone(disk);
        }
        self.library.check(&devices).map_err(|what| format!("the disks alone: {what}"))
    }

    fn check(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        self.is_after_crash.store(true, Relaxed);
        self.library.check(&self.to_read(devices)?)
    }

    fn pool(&self) -> String {
        format!("{}, cached disks ({})", self.library.pool(), self.mode)
    }

    fn referee(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Option<Manifest>, String> {
        self.library.referee(&self.to_read(devices)?)
    }

    fn guarantees(&self) -> CrashGuarantees {
        self.library.guarantees()
    }
}

impl Target for CachedLibrary {
    fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        self.count += 1;
        if let Some(cache) = self.caches.get(self.count % 5) {
            let before = cache.status().counters.cleanings;
            while cache.upkeep().map_err(|_| Errno::Other(5))? {}
            if self.count % 4 == 0 {
                cache.clean_all().map_err(|_| Errno::Other(5))?;
            }
            self.cleaned += cache.status().counters.cleanings - before;
        }
        self.library.apply(operation)
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        self.library.manifest()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let sum = |of: &dyn Fn(&Cache) -> u64| self.caches.iter().map(|cache| of(cache)).sum();
        let mut counts = self.library.counts();
        counts.push(("cleaned blocks", self.cleaned));
        counts.push(("dirty blocks", sum(&|cache| cache.status().dirty_blocks)));
        counts.push(("cached writes", sum(&|cache| cache.status().counters.ssd_writes)));
        counts
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        self.library.contents(path)
    }

    fn may_be_full(&self) -> bool {
        self.library.may_be_full()
    }
}

fn cached(name: &str, seed: u64) -> CrashTest {
    let test = crash(&format!("cached::{name}"), seed);
    let mix = Mix { sync_file: 25, contents: 45, ..test.mix.clone() };
    test.mixed(mix)
}

fn run(test: &CrashTest, subject: &Cached) {
    let summary = test.run(subject);
    if subject.mode == Mode::Back {
        let [cleaned, dirty] = ["cleaned blocks", "dirty blocks"].map(|kind| summary.count(kind));
        assert!(cleaned > 0 && dirty > 0, "{summary:?}");
    }
}

#[test]
fn one_cached_disk() {
    let subject = |library| Cached::new(library, Mode::Back, &[true]);
    run(&cached("one_cached_disk", 9000).of(2, 60, 300), &subject(LibrarySubject::new(ONE)));
    run(&cached("one_cached_disk", 9050).of(2, 60, 300), &subject(LibrarySubject::hasty(ONE).logging()));
}

#[test]
fn two_cached_mirrors() {
    let subject = |library| Cached::new(library, Mode::Back, &[true, true]);
    let test = |seed| cached("two_cached_mirrors", seed).of(2, 60, 300);
    run(&test(9100), &subject(LibrarySubject::new(MIRRORS)));
    run(&test(9150), &subject(LibrarySubject::hasty(MIRRORS).logging()));
}

/// An SSD has metadata and small files, cached disks have the rest.
#[test]
fn an_ssd_and_two_cached_disks() {
    let library = LibrarySubject::hasty(COMMON).logging();
    let subject = Cached::new(library, Mode::Back, &[false, true, true]);
    run(&cached("an_ssd_and_two_cached_disks", 9200).of(2, 60, 300), &subject);
}

#[test]
fn a_cached_disk_beside_a_plain_one() {
    let library = LibrarySubject::new(MIRRORS).logging();
    let subject = Cached::new(library, Mode::Back, &[true, false]);
    run(&cached("a_cached_disk_beside_a_plain_one", 9300).of(2, 60, 300), &subject);
}

#[test]
fn caches_that_write_through_and_around() {
    for mode in [Mode::Through, Mode::Around] {
        let subject = Cached::new(LibrarySubject::new(MIRRORS), mode, &[true, true]);
        run(&cached("caches_that_write_through_and_around", 9400).of(1, 60, 300), &subject);
    }
}

#[test]
fn an_ssd_that_is_lost_with_its_dirty_blocks() {
    let library = LibrarySubject::new(MIRRORS).into_degraded();
    let subject = Cached { loses_ssd: true, ..Cached::new(library, Mode::Back, &[true, true]) };
    run(&cached("an_ssd_that_is_lost_with_its_dirty_blocks", 9500).of(2, 60, 300), &subject);
}
