//! A sample of crash states is held before `btrfs check`, on all devices of the pool (root). `BRINDLE_CRASH_STATES` and
//! `BRINDLE_CRASH_ROUNDS` ask for more; each state takes about a second.

use super::subject::LibrarySubject;
use super::{ONE, crash};
use crate::kernel::pool::{run, try_run};
use crate::kernel::{can_make, patiently};
use crate::simulated::{Layout, Library};
use brindle_device::WritableDevice;
use brindle_ondisk::{Profile, Uuid};
use brindle_testing::crash::{CrashGuarantees, NewDevice, Subject};
use brindle_testing::referee::btrfs_check;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Unit of copying, and of leaving holes, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// Unit that a device writes whole, in bytes: a superblock, for btrfs-progs ignores a device with a torn first copy.
const SECTOR_BYTES: u64 = 4096;

/// A subject whose states btrfs-progs examines, too.
struct Refereed {
    library: LibrarySubject,
}

/// No other pool that is attached here has this UUID: btrfs-progs tell devices by it.
fn own_uuid(number: u8) -> Uuid {
    let mut uuid = [0xc4; 16];
    uuid[..4].copy_from_slice(&std::process::id().to_le_bytes());
    uuid[15] = number;
    Uuid(uuid)
}

impl Refereed {
    /// `btrfs check` has nothing to say.
    fn judge(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        /// Two states of one pool can't be told from each other.
        static ATTACHED: Mutex<()> = Mutex::new(());
        let scratch = tempfile::Builder::new().prefix("brindle-crash-").tempdir().expect("room");
        let place = |number: usize| scratch.path().join(format!("{number}.img"));
        for (number, device) in devices.iter().enumerate() {
            copy(&**device, &place(number));
        }
        let _alone = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        let attach = |number| patiently(|| try_run("losetup", ["--find", "--show"], [place(number)]));
        let loops: Vec<PathBuf> = (0..devices.len())
            .map(|number| attach(number).unwrap_or_else(|why| panic!("{why}")).into())
            .collect();
        let check = btrfs_check(&loops[0]);
        run("losetup", ["--detach"], &loops);
        check.expect("btrfs-progs")
    }
}

/// The contents of a device, holes left out.
fn copy(device: &dyn WritableDevice, to: &Path) {
    let file = File::create(to).expect("room");
    file.set_len(device.size_bytes()).expect("sparse");
    let mut piece = vec![0; PIECE_BYTES];
    for offset in (0..device.size_bytes()).step_by(PIECE_BYTES) {
        device.read_at(offset, &mut piece).expect("in memory");
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece, offset).expect("room");
        }
    }
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
        self.library.check(devices).and_then(|()| self.judge(devices))
    }

    fn guarantees(&self) -> CrashGuarantees {
        self.library.guarantees()
    }
}

/// A few states, of pools of this kind.
fn judge_some(name: &str, seed: u64, library: LibrarySubject) {
    let mut test = crash(&format!("referee::{name}"), seed).of(1, 60, 5);
    test.sector_bytes = SECTOR_BYTES;
    test.run(&Refereed { library });
}

#[test]
fn mirrors_before_btrfs_check() {
    if can_make() {
        let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
        judge_some("mirrors_before_btrfs_check", 6000, LibrarySubject::named(layout, own_uuid(1)));
    }
}

#[test]
fn striped_mirrors_before_btrfs_check() {
    if can_make() {
        let layout = Layout { devices: 4, data: Profile::Raid10, metadata: Profile::Raid10, ..ONE };
        let library = LibrarySubject::named(layout, own_uuid(2)).into_hasty();
        judge_some("striped_mirrors_before_btrfs_check", 6100, library);
    }
}

#[test]
fn parity_before_btrfs_check() {
    if can_make() {
        let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
        let library = LibrarySubject::named(layout, own_uuid(3)).into_relocating();
        judge_some("parity_before_btrfs_check", 6200, library);
    }
}

#[test]
fn parts_before_btrfs_check() {
    if can_make() {
        let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
        let library = LibrarySubject::named(layout, own_uuid(4)).into_relocating().in_parts();
        judge_some("parts_before_btrfs_check", 6300, library);
    }
}
