//! Devices that sleep, of pools with superblocks of different age; and devices that slept, and were away then.

use super::subject::{Contents, LibrarySubject};
use super::{ONE, crash};
use crate::contents::patterns::Program;
use crate::simulated::{FOUND_ASLEEP, Layout, Library, Pool};
use brindle_device::WritableDevice;
use brindle_ondisk::Profile;
use brindle_sim::ImageDevice;
use brindle_testing::crash::{CrashGuarantees, CrashTest, NewDevice, Subject};
use brindle_testing::operations::Mix;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Two fast devices and two others.
pub(super) const PAIRS: Layout =
    Layout { devices: 4, fast: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };

/// Many commits that bulk devices have nothing of, and remounts.
fn commits(name: &str, seed: u64) -> CrashTest {
    let test = crash(&format!("asleep::{name}"), seed);
    let mix = Mix { sync: 20, sync_file: 6, contents: 25, names: 50, remount: 3, ..test.mix.clone() };
    test.mixed(mix)
}

fn run(test: &CrashTest, subject: &impl Subject) {
    let before = FOUND_ASLEEP.load(Relaxed);
    test.run(subject);
    let found = FOUND_ASLEEP.load(Relaxed) - before;
    assert!(found > 0, "no device slept");
    eprintln!("{found} devices were found asleep");
}

#[test]
fn one_of_each() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    run(&commits("one_of_each", 7100).of(4, 60, 500), &LibrarySubject::new(layout));
    run(&commits("one_of_each", 7150).of(2, 60, 500), &LibrarySubject::hasty(layout).logging());
}

#[test]
fn two_of_each() {
    run(&commits("two_of_each", 7200).of(4, 60, 500), &LibrarySubject::new(PAIRS));
    run(&commits("two_of_each", 7250).of(2, 60, 500), &LibrarySubject::hasty(PAIRS).logging());
}

/// One of the bulk devices has metadata, and never sleeps; the other one does.
#[test]
fn metadata_on_a_disk() {
    let layout = Layout { devices: 3, fast: 1, metadata: Profile::Raid1, ..ONE };
    run(&commits("metadata_on_a_disk", 7300).of(4, 60, 500), &LibrarySubject::new(layout).logging());
}

/// Superblocks of a log go to all devices then, also to those that sleep.
#[test]
fn disks_of_the_lowest_devids() {
    let layout = Layout { devices: 3, fast: 1, ..ONE };
    let subject = LibrarySubject::reversed(layout).logging();
    run(&commits("disks_of_the_lowest_devids", 7400).of(4, 60, 500), &subject);
}

/// A pool that is recorded without one of its devices, which slept before; after the crash it is back.
struct Away {
    library: LibrarySubject,
    images: Vec<NewDevice>,
    absent: usize,
    /// From when a run begins until the first state is examined.
    is_away: AtomicBool,
}

impl Away {
    /// The last devices of the pool are asleep, in the midst of a mount.
    fn new(library: LibrarySubject, layout: &Layout, absent: usize) -> Self {
        let mut images = library.make();
        let devices: Vec<Arc<ImageDevice>> = images
            .iter()
            .map(|device| Arc::new(ImageDevice::new(&device.name, device.image.clone(), device.class)))
            .collect();
        let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let filesystem = Pool::on(writable.collect(), layout).open().expect("a new pool");
        let program = Program::new(&filesystem);
        for round in 0..4_usize {
            program.put("large", &vec![7; 80 << 10]);
            (0..=round).for_each(|_| {
                program.put("small", &[3; 100]);
                program.unlink("small");
            });
            program.unlink("large");
            filesystem.sync().expect("commits");
        }
        drop(filesystem);
        for (new, device) in images.iter_mut().zip(&devices) {
            new.image = device.image();
        }
        let reopened = Pool::on(writable_copies(&images), layout).open().expect("reopens");
        let asleep = reopened.pool().volume().devices().into_iter().filter(|device| device.is_asleep);
        let asleep: Vec<u64> = asleep.map(|device| device.devid.get()).collect();
        assert_eq!(asleep, [3, 4], "bulk devices slept");
        Self { library, images, absent, is_away: AtomicBool::new(true) }
    }
}

fn writable_copies(images: &[NewDevice]) -> Vec<Arc<dyn WritableDevice>> {
    let copy = |device: &NewDevice| {
        Arc::new(ImageDevice::new(&device.name, device.image.clone(), device.class))
            as Arc<dyn WritableDevice>
    };
    images.iter().map(copy).collect()
}

impl Subject for Away {
    type Target = Library;

    fn make(&self) -> Vec<NewDevice> {
        self.is_away.store(true, Relaxed);
        self.images.clone()
    }

    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Library, String> {
        let mut there = devices.to_vec();
        if self.is_away.load(Relaxed) {
            there.remove(self.absent);
        }
        self.library.open(&there)
    }

    fn close(&self, target: Library) -> Result<(), String> {
        self.library.close(target)
    }

    fn check(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        self.is_away.store(false, Relaxed);
        self.library.check(devices)
    }

    fn guarantees(&self) -> CrashGuarantees {
        self.library.guarantees()
    }
}

#[test]
fn a_device_that_slept_and_was_away_is_found_out() {
    for contents in [Contents::Plain, Contents::Unsummed] {
        for absent in [3, 0] {
            let library = LibrarySubject::failing(PAIRS).of(contents);
            let subject = Away::new(library, &PAIRS, absent);
            let test = commits("a_device_that_slept_and_was_away_is_found_out", 7500).of(2, 40, 150);
            let mix = Mix { contents: 50, sync: 12, ..test.mix.clone() };
            test.mixed(mix).run(&subject);
        }
    }
}
