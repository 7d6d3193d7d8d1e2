//! Mounts on a block device (`fuseblk`): the first device of a pool, or the anchor of an image.

use super::ends::Served;
use super::mount::{can_mount, is_mounted, unmount};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Line of the mount table: source, place, type.
fn shown(place: &Path) -> (PathBuf, String) {
    let table = fs::read_to_string("/proc/mounts").expect("text");
    let mut lines = table.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|fields| fields[1] == text(place)).expect("it is mounted");
    (PathBuf::from(line[0]), line[2].to_owned())
}

/// Two devices in raid1, and a place to mount them.
fn pool() -> (TempDir, [PathBuf; 2], PathBuf) {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let images = ["a.img", "b.img"].map(|name| scratch.path().join(name));
    for image in &images {
        File::create(image).and_then(|image| image.set_len(512 << 20)).expect("sparse");
    }
    let place = scratch.path().join("place");
    fs::create_dir(&place).expect("new");
    brindle_prints(["mkfs", "-m", "raid1", "-d", "raid1", text(&images[0]), text(&images[1])]);
    (scratch, images, place)
}

fn backing(loop_device: &Path) -> Option<String> {
    let name = loop_device.file_name()?.to_str()?;
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

#[test]
fn umount_alone_returns_after_the_last_commit() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let mut served = Served::make();
    served.mount_with("commit=3600,blkdev");
    fs::write(served.place().join("file"), b"of the last moment").expect("room");
    // The server is stopped in its tracks as soon as the call has returned, whatever helpers are installed.
    let status = Command::new("umount").arg("-i").arg(served.place()).status().expect("umount");
    assert!(status.success());
    served.kill_if_alive();
    served.check();
    served.mount();
    assert_eq!(fs::read(served.place().join("file")).expect("it is there"), b"of the last moment");
    unmount(&served.place());
    served.wait_for_success();
}

#[test]
fn an_image_is_claimed_by_an_anchor_that_goes_with_the_mount() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (_scratch, images, place) = pool();
    brindle_succeeds(["mount", text(&images[0]), text(&images[1]), text(&place)]);
    let (source, kind) = shown(&place);
    assert_eq!(kind, "fuseblk.brindle");
    assert_eq!(backing(&source).expect("a loop device").trim_end(), text(&images[0]));
    let size = Command::new("blockdev").arg("--getsize64").arg(&source).output().expect("blockdev");
    assert_eq!(String::from_utf8_lossy(&size.stdout).trim(), "4096", "no pool is seen on it");
    let said = brindle_fails(1, ["mount", text(&images[0]), text(&images[1]), text(&place)]);
    assert!(said.contains("another process writes it"), "{said}");
    unmount(&place);
    assert_eq!(backing(&source), None);
    for options in ["noblkdev", "fsname=other", "ro", "auto_unmount"] {
        brindle_succeeds(["mount", "-o", options, text(&images[0]), text(&images[1]), text(&place)]);
        assert_eq!(shown(&place).1, "fuse.brindle", "{options}");
        unmount(&place);
    }
}

#[test]
fn a_block_device_is_claimed_by_its_mount() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, place) = pool();
    let loops = Loops::attach(&images, &[]);
    let [first, second] = [text(&loops.0[0]), text(&loops.0[1])];
    brindle_succeeds(["mount", first, second, text(&place)]);
    assert_eq!(shown(&place), (loops.0[0].clone(), "fuseblk.brindle".to_owned()));
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("new");
    for device in [first, second] {
        assert!(!brindle(["mkfs", "-f", device]).status.success(), "{device} is in use");
    }
    brindle_fails(1, ["mount", first, second, text(&other)]);
    fs::write(place.join("file"), b"contents").expect("room");
    assert!(Command::new("sync").arg("-f").arg(place.join("file")).status().expect("sync").success());
    unmount(&place);
    assert!(!is_mounted(&place));
    for options in ["noblkdev", "blkdev"] {
        brindle_succeeds(["mount", "-o", options, first, second, text(&place)]);
        assert_eq!(fs::read(place.join("file")).expect("it is there"), b"contents");
        // Claimed by the process, or by the mount.
        assert!(!brindle(["mkfs", "-f", first]).status.success(), "{options}");
        unmount(&place);
    }
    brindle_prints(["check", "--check-data-csum", first, second]);
}

#[test]
fn a_mount_that_lost_its_server_keeps_no_image() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, place) = pool();
    let devices = [text(&images[0]), text(&images[1])];
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("new");
    let mut server = Command::new(env!("CARGO_BIN_EXE_brindle"));
    server.args(["mount", "--foreground"]).args(devices).arg(&place);
    let mut server = server.spawn().expect("the binary was built");
    while !is_mounted(&place) {
        assert!(server.try_wait().expect("our child").is_none(), "it ended before it mounted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    server.kill().and_then(|()| server.wait()).expect("our child");
    brindle_succeeds(["mount", devices[0], devices[1], text(&other)]);
    unmount(&other);
    Command::new("umount").arg("-l").arg(&place).status().expect("umount");
}
