//! Fsyncs that are logged, crashed at any write and flush.

use super::subject::{Contents, LibrarySubject};
use super::{ONE, crash};
use crate::simulated::{Layout, Library};
use brindle_device::WritableDevice;
use brindle_fs::{Compression, LogProfile};
use brindle_ondisk::Profile;
use brindle_testing::crash::{CrashGuarantees, CrashTest, NewDevice, Subject};
use brindle_testing::operations::Mix;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An SSD and two disks, two copies of everything: the first copy of metadata lies on the SSD.
pub(super) const SSD_AND_DISKS: Layout =
    Layout { devices: 3, fast: 1, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };

/// Many fsyncs, few commits.
fn fsyncs(name: &str, seed: u64) -> CrashTest {
    let test = crash(&format!("logs::{name}"), seed);
    let mix = Mix { sync_file: 30, sync: 1, contents: 55, names: 25, ..test.mix.clone() };
    test.mixed(mix)
}

fn run(test: &CrashTest, subject: &LibrarySubject) {
    let summary = test.run(subject);
    let (logs, commits) = (summary.count("logs"), summary.count("fsyncs that were commits"));
    assert!(logs > 0, "no log was written, {commits} commits");
    eprintln!("{logs} logs written, {commits} fsyncs that were commits");
}

#[test]
fn one_device() {
    run(&fsyncs("one_device", 6000).of(6, 80, 600), &LibrarySubject::new(ONE).logging());
}

#[test]
fn two_mirrors() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    run(&fsyncs("two_mirrors", 6100).of(4, 80, 500), &LibrarySubject::new(layout).logging());
}

/// The log is on the first device alone: the second one keeps the superblock of the commit.
#[test]
fn two_tiers() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    run(&fsyncs("two_tiers", 6800).of(6, 80, 600), &LibrarySubject::new(layout).logging());
    run(&fsyncs("two_tiers", 6850).of(3, 80, 500), &LibrarySubject::hasty(layout).logging());
    let in_place = LibrarySubject::hasty(layout).of(Contents::InPlace).logging();
    run(&fsyncs("two_tiers", 6870).of(3, 80, 500), &in_place);
}

/// Regression: the disk slept, the first crash tore its second superblock, and the second one the first, which the mount changed.
#[test]
fn a_second_crash_after_a_torn_copy_of_a_disk_that_slept() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    let test = fsyncs("a_second_crash_after_a_torn_copy_of_a_disk_that_slept", 1_006_803).of(1, 80, 600);
    test.only(78, 1).run(&LibrarySubject::new(layout).logging());
}

/// The log is on two of four devices.
#[test]
fn two_tiers_of_mirrors() {
    let layout = Layout { devices: 4, fast: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    run(&fsyncs("two_tiers_of_mirrors", 6900).of(5, 80, 500), &LibrarySubject::new(layout).logging());
}

/// Metadata lies on an SSD and on disks, the log on the SSD alone: the other copies of its blocks are stale.
#[test]
fn fewer_copies_than_other_metadata() {
    let test = |seed| fsyncs("fewer_copies_than_other_metadata", seed);
    let single = |subject: LibrarySubject| subject.logging_as(LogProfile::Single);
    run(&test(7600).of(6, 80, 500), &single(LibrarySubject::new(SSD_AND_DISKS)));
    run(&test(7650).of(3, 80, 500), &single(LibrarySubject::hasty(SSD_AND_DISKS)));
    let three = Layout { devices: 4, fast: 2, metadata: Profile::Raid1c3, ..SSD_AND_DISKS };
    run(&test(7700).of(3, 80, 500), &LibrarySubject::new(three).logging_as(LogProfile::Raid1));
}

/// The SSD that alone held the log is gone after the crash: everything is as the last commit left it.
#[test]
fn the_device_of_the_log_is_lost() {
    let library = || LibrarySubject::new(SSD_AND_DISKS).logging_as(LogProfile::Single).into_degraded();
    for seed in [7800, 7850] {
        let test = fsyncs("the_device_of_the_log_is_lost", seed).of(4, 80, 500);
        let subject = Lost { library: library(), is_lost: AtomicBool::new(false) };
        assert!(test.run(&subject).count("logs") > 0, "no log was written");
    }
}

/// A pool of which the first device is lost in each crash.
struct Lost {
    library: LibrarySubject,
    /// From when the first state is examined.
    is_lost: AtomicBool,
}

impl Subject for Lost {
    type Target = Library;

    fn make(&self) -> Vec<NewDevice> {
        self.is_lost.store(false, Ordering::Relaxed);
        self.library.make()
    }

    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Library, String> {
        let lost = usize::from(self.is_lost.load(Ordering::Relaxed));
        self.library.open(&devices[lost..])
    }

    fn close(&self, target: Library) -> Result<(), String> {
        self.library.close(target)
    }

    fn check(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        self.is_lost.store(true, Ordering::Relaxed);
        self.library.check(&devices[1..])
    }

    fn guarantees(&self) -> CrashGuarantees {
        CrashGuarantees { fsyncs_are_kept: false, ..self.library.guarantees() }
    }
}

#[test]
fn parity() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    run(&fsyncs("parity", 6200).of(4, 80, 500), &LibrarySubject::new(layout).logging());
}

#[test]
fn compressed_with_holes_that_are_told() {
    let layout = Layout {
        nodesize: 16384,
        compression: Some(Compression::Zstd),
        features: "^no-holes,^block-group-tree",
        ..ONE
    };
    let test = fsyncs("compressed_with_holes_that_are_told", 6300).of(4, 80, 500);
    run(&test, &LibrarySubject::new(layout).logging());
}

#[test]
fn contents_that_are_written_early() {
    let test = fsyncs("contents_that_are_written_early", 6400).of(4, 80, 500);
    run(&test, &LibrarySubject::hasty(ONE).logging());
    run(&test, &LibrarySubject::hasty(ONE).of(Contents::InPlace).logging());
    run(&test, &LibrarySubject::hasty(ONE).of(Contents::Unsummed).logging());
}

#[test]
fn files_that_stay() {
    let test = fsyncs("files_that_stay", 6500);
    let mix = Mix { names: 6, contents: 80, sync_file: 40, subvolumes: 0, ..test.mix.clone() };
    run(&test.mixed(mix).of(8, 80, 500), &LibrarySubject::new(ONE).logging());
}

#[test]
fn names_and_subvolumes() {
    let test = fsyncs("names_and_subvolumes", 6600);
    let mix = Mix { names: 70, contents: 15, sync_file: 40, subvolumes: 6, ..test.mix.clone() };
    run(&test.mixed(mix).of(8, 100, 500), &LibrarySubject::new(ONE).logging());
}

#[test]
fn block_groups_that_move() {
    let test = fsyncs("block_groups_that_move", 6700).of(4, 80, 500);
    run(&test, &LibrarySubject::relocating(ONE).logging());
}
