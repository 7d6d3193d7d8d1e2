//! The kernel and btrfs-progs as referees: crash states copied to loop devices, checked, mounted, read, scrubbed (root).

use crate::kernel::patiently;
use crate::kernel::pool::{run, try_run};
use brindle_device::WritableDevice;
use brindle_ondisk::{SUPERBLOCK_SIZE, Superblock};
use brindle_testing::manifest::Manifest;
use brindle_testing::referee::btrfs_check;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// Unit of copying, and of leaving holes, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// The first superblock, in bytes of the device.
const FIRST: u64 = 64 << 10;

/// Held by the process that has copies attached.
const LOCK: &str = "/run/brindle-crash-referee.lock";

/// Devices of one state, copied and attached; detached when dropped. Two states of one pool can't be told from each other, so
/// there is one at a time, in all processes.
struct Attached {
    loops: Vec<PathBuf>,
    scratch: TempDir,
    _alone: (MutexGuard<'static, ()>, File),
}

impl Attached {
    fn copies_of(devices: &[Arc<dyn WritableDevice>]) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = File::create(LOCK).expect("root");
        flock(&lock, FlockOperation::LockExclusive).expect("a lock");
        let scratch = tempfile::Builder::new().prefix("brindle-crash-").tempdir().expect("room");
        let mut attached = Self { loops: Vec::new(), scratch, _alone: (alone, lock) };
        for (number, device) in devices.iter().enumerate() {
            let place = attached.scratch.path().join(format!("{number}.img"));
            copy(&**device, &place);
            let attach = || try_run("losetup", ["--find", "--show"], [&place]);
            attached.loops.push(patiently(attach).unwrap_or_else(|why| panic!("{why}")).into());
        }
        attached
    }

    /// `btrfs check` has nothing to say.
    fn check(&self) -> Result<(), String> {
        btrfs_check(&self.loops[0]).expect("btrfs-progs")
    }

    /// The tree that a mount shows; the mount is written and, unless the pool has parity, scrubbed then.
    fn mounted_tree(&self, has_parity: bool) -> Result<Manifest, String> {
        let at = self.scratch.path().join("mount");
        std::fs::create_dir(&at).expect("room");
        let devices: Vec<String> =
            self.loops.iter().map(|device| format!("device={}", device.display())).collect();
        try_run("mount", ["-t", "btrfs", "-o", &devices.join(",")], [&self.loops[0], &at])?;
        let found = Manifest::of_directory(&at).map_err(|error| error.to_string());
        let used = found.and_then(|found| use_on(&at, has_parity).map(|()| found));
        patiently(|| try_run("umount", [""; 0], [&at])).unwrap_or_else(|why| panic!("{why}"));
        used
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The kernel would take them for devices of the next state.
        let _ = try_run("btrfs", ["device", "scan", "--forget"], &self.loops);
        run("losetup", ["--detach"], &self.loops);
    }
}

/// The kernel goes on with the pool, and finds every copy right.
fn use_on(mount: &Path, has_parity: bool) -> Result<(), String> {
    let path = mount.join("made by the kernel");
    let file = File::create(path).map_err(|error| format!("the kernel cannot go on: {error}"))?;
    rustix::fs::syncfs(&file).map_err(|error| format!("the kernel cannot go on: {error}"))?;
    drop(file);
    if has_parity {
        return Ok(());
    }
    try_run("btrfs", ["scrub", "start", "-B", "-r"], [mount]).map(drop)
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

/// Returns true if the kernel would know every device: it ignores one with a torn first superblock.
fn knows_all(devices: &[Arc<dyn WritableDevice>]) -> bool {
    devices.iter().all(|device| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(FIRST, &mut bytes).expect("in memory");
        Superblock::parse(&bytes, FIRST).is_ok()
    })
}

/// `btrfs check` has nothing to say of these devices.
pub(super) fn check(devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
    Attached::copies_of(devices).check()
}

/// The tree that the kernel shows of these devices, which `btrfs check` accepts before and after; none if the kernel would not
/// know all of them.
pub(super) fn tree(
    devices: &[Arc<dyn WritableDevice>],
    has_parity: bool,
) -> Result<Option<Manifest>, String> {
    if !knows_all(devices) {
        return Ok(None);
    }
    let attached = Attached::copies_of(devices);
    attached.check()?;
    let found = attached.mounted_tree(has_parity)?;
    attached.check().map_err(|what| format!("after a mount by the kernel: {what}"))?;
    Ok(Some(found))
}
