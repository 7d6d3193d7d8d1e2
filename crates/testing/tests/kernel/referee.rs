//! The verdict of btrfs-progs where loop devices change hands, as they do while tests run beside each other.

use crate::{can_mount, run, turn};
use brindle_testing::referee::btrfs_check;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A loop device, detached when it is dropped.
struct Loop(String);

impl Loop {
    fn of(image: &Path) -> Self {
        let shown = Command::new("losetup").args(["-f", "--show"]).arg(image).output().expect("installed");
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        Self(String::from_utf8_lossy(&shown.stdout).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).output();
    }
}

#[test]
fn a_device_that_held_another_filesystem_a_moment_ago_is_found() {
    let _turn = turn();
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("room in /tmp");
    let [first, second, other] = ["first", "second", "other"].map(|name| scratch.path().join(name));
    for image in [&first, &second, &other] {
        File::create(image).and_then(|image| image.set_len(128 << 20)).expect("room, sparsely");
    }
    run(Command::new("mkfs.btrfs").args(["-q", "-d", "raid0", "-m", "raid0"]).args([&first, &second]));
    run(Command::new("mkfs.ext4").arg("-q").arg(&other));
    let first = Loop::of(&first);
    // Between its two owners another test may take the device.
    let is_reused = (0..100).any(|_| {
        let reused = Loop::of(&other);
        let verdict = btrfs_check(Path::new(&first.0)).expect("btrfs-progs are installed");
        assert!(verdict.is_err(), "half of it is there");
        run(Command::new("losetup").arg("-d").arg(&reused.0));
        let attached = Command::new("losetup").arg(&reused.0).arg(&second).output().expect("installed");
        if !attached.status.success() {
            std::mem::forget(reused);
            return false;
        }
        let verdict = btrfs_check(Path::new(&first.0)).expect("btrfs-progs are installed");
        verdict.unwrap_or_else(|said| panic!("{said}"));
        true
    });
    assert!(is_reused);
}
