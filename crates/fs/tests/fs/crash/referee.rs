//! A few crash states are held before the kernel and `btrfs check`, on all devices of the pool (root); of all other tests, a
//! sample goes there if `BRINDLE_CRASH_KERNEL` asks for one. `BRINDLE_CRASH_STATES` and `BRINDLE_CRASH_ROUNDS` ask for more;
//! each state takes about a second.

use super::subject::LibrarySubject;
use super::{COMMON, ONE, crash, kernel};
use crate::kernel::can_make;
use crate::simulated::{Layout, Library};
use brindle_device::WritableDevice;
use brindle_ondisk::Profile;
use brindle_testing::crash::{CrashGuarantees, NewDevice, Subject};
use brindle_testing::manifest::Manifest;
use std::sync::Arc;

/// Unit that a device writes whole, in bytes: a superblock, for btrfs-progs ignores a device with a torn first copy.
const SECTOR_BYTES: u64 = 4096;

/// A subject whose states btrfs-progs examine wherever brindle's own check does.
struct Refereed {
    library: LibrarySubject,
}

impl Subject for Refereed {
    type Target = Library;

    fn make(&self) -> Vec<NewDevice> {
        self.library.make()
    }

    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Library, String> {
        self.library.open(devices)
    }

    fn close(&self, target: Library) -> Result<(), String> {
        self.library.close(target)
    }

    fn check(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        self.library.check(devices).and_then(|()| kernel::check(devices))
    }

    fn pool(&self) -> String {
        self.library.pool()
    }

    fn referee(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Option<Manifest>, String> {
        self.library.referee(devices)
    }

    fn guarantees(&self) -> CrashGuarantees {
        self.library.guarantees()
    }
}

/// A few states, of pools of this kind.
fn judge_some(name: &str, seed: u64, library: LibrarySubject) {
    if !can_make() {
        return;
    }
    let mut test = crash(&format!("referee::{name}"), seed).of(1, 60, 5);
    test.sector_bytes = SECTOR_BYTES;
    test.referee_every = Some(1);
    let summary = test.run(&Refereed { library });
    assert_eq!(summary.refereed, summary.states, "the kernel knows every device");
}

#[test]
fn mirrors_before_the_kernel() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    judge_some("mirrors_before_the_kernel", 6000, LibrarySubject::new(layout));
}

#[test]
fn striped_mirrors_before_the_kernel() {
    let layout = Layout { devices: 4, data: Profile::Raid10, metadata: Profile::Raid10, ..ONE };
    judge_some("striped_mirrors_before_the_kernel", 6100, LibrarySubject::hasty(layout));
}

#[test]
fn parity_before_the_kernel() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    judge_some("parity_before_the_kernel", 6200, LibrarySubject::relocating(layout));
}

#[test]
fn parts_before_the_kernel() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    judge_some("parts_before_the_kernel", 6300, LibrarySubject::relocating(layout).in_parts());
}

#[test]
fn logs_before_the_kernel() {
    judge_some("logs_before_the_kernel", 6400, LibrarySubject::hasty(COMMON).logging());
}
