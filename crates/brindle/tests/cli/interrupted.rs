//! Replacements that the kernel was interrupted in.

use crate::support::{Loops, brindle, brindle_fails, brindle_prints, is_root, text, with_devices};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
const CONTENTS: usize = 64 << 20;

fn succeeds<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns true if the kernel can be had to replace devices.
fn can_run() -> bool {
    let has_kernel = fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\tbtrfs\n"));
    let has_tools = Command::new("btrfs").arg("--version").output().is_ok();
    let has_throttle = File::options().write(true).open(THROTTLE).is_ok();
    let can = has_kernel && has_tools && has_throttle;
    if !can {
        println!("skipped: needs the kernel's btrfs, btrfs-progs and a throttle of block devices");
    }
    can
}

/// A mount of the kernel, gone when dropped.
struct Mount<'p>(&'p Path);

impl<'p> Mount<'p> {
    fn of(device: &Path, place: &'p Path) -> Self {
        succeeds("mount", &["-t", "btrfs", text(device), text(place)]);
        Self(place)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Images of a pool of two devices, and of the target of a replacement of the second, as a crash left them.
struct Crashed {
    images: Vec<PathBuf>,
    place: PathBuf,
    _directory: TempDir,
}

impl Crashed {
    /// The kernel is stopped in the midst of it: the target is slow.
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let at = |name: &str| directory.path().join(name);
        let images = ["a", "b", "target"].map(at).to_vec();
        let crashed = ["a.img", "b.img", "target.img"].map(at).to_vec();
        for image in &images {
            File::create(image).and_then(|file| file.set_len(2 << 30)).expect("room");
        }
        let place = at("mnt");
        fs::create_dir(&place).expect("a new directory");
        let loops = Loops::attach(&images, &[]);
        let [first, second, target] = [0, 1, 2].map(|index| text(&loops.0[index]));
        succeeds("mkfs.btrfs", &["-q", "-f", "-d", "raid1", "-m", "raid1", first, second]);
        {
            let _mount = Mount::of(&loops.0[0], &place);
            fs::write(place.join("file"), contents()).expect("room");
            succeeds("sync", &["-f", text(&place)]);
            let number = succeeds("lsblk", &["-ndo", "MAJ:MIN", target]);
            fs::write(THROTTLE, format!("{} 4194304", number.trim())).expect("a throttle");
            let mut running = Command::new("btrfs");
            let running = running.args(["replace", "start", "-B", "-K", "-f", "2", target, text(&place)]);
            let mut running = running.stderr(Stdio::null()).spawn().expect("btrfs runs");
            Self::copy(&images, &crashed, &place, &mut running);
            fs::write(THROTTLE, format!("{} 0", number.trim())).expect("a throttle");
            let _ = Command::new("btrfs").args(["replace", "cancel", text(&place)]).output();
            running.wait().expect("it ends");
        }
        forget(&loops);
        Self { images: crashed, place, _directory: directory }
    }

    /// Copies the images when the record of the replacement, the target's superblock, and what was written meanwhile are durable.
    fn copy(images: &[PathBuf], crashed: &[PathBuf], place: &Path, running: &mut Child) {
        let begun = Instant::now();
        while !succeeds("btrfs", &["replace", "status", "-1", text(place)]).contains("done") {
            assert!(begun.elapsed() < Duration::from_secs(300), "the replacement does not begin");
            assert!(running.try_wait().expect("it runs").is_none(), "the replacement has ended");
            sleep(Duration::from_millis(20));
        }
        fs::write(place.join("meanwhile"), b"written meanwhile").expect("room");
        succeeds("sync", &["-f", text(place)]);
        for (image, copy) in images.iter().zip(crashed) {
            succeeds("cp", &["--sparse=always", text(image), text(copy)]);
        }
        assert!(running.try_wait().expect("it runs").is_none(), "the replacement has ended");
    }

    fn members(&self) -> &[PathBuf] {
        &self.images[..2]
    }
}

fn contents() -> Vec<u8> {
    (0..CONTENTS).map(|at| ((at >> 12).to_le_bytes()[0]).wrapping_mul(at.to_le_bytes()[0] | 1)).collect()
}

fn replaces(images: &[PathBuf]) -> String {
    brindle_prints(with_devices(&["device", "replace", "status"], images))
}

/// Has the kernel know these devices. A target that was retired is none to it.
fn scan(loops: &Loops) {
    for device in &loops.0 {
        let _ = Command::new("btrfs").args(["device", "scan", text(device)]).output();
    }
}

/// Has the kernel forget these devices, and none of a test that runs beside this one: copies of them are to come.
fn forget(loops: &Loops) {
    for device in &loops.0 {
        let _ = Command::new("btrfs").args(["device", "scan", "--forget", text(device)]).output();
    }
}

/// The kernel mounts the devices, and has everything on them.
fn kernel_mounts(images: &[PathBuf], place: &Path) {
    let loops = Loops::attach(images, &[]);
    scan(&loops);
    {
        let _mount = Mount::of(&loops.0[0], place);
        assert!(fs::read(place.join("file")).expect("a file") == contents(), "other contents");
        assert_eq!(fs::read(place.join("meanwhile")).expect("a file"), b"written meanwhile");
        succeeds("btrfs", &["scrub", "start", "-B", text(place)]);
        let said = succeeds("btrfs", &["replace", "status", "-1", text(place)]);
        assert!(said.contains("canceled"), "{said}");
    }
    succeeds("btrfs", &["check", text(&loops.0[0])]);
    forget(&loops);
}

/// The kernel does not mount the devices.
fn kernel_refuses(images: &[PathBuf], place: &Path) {
    let loops = Loops::attach(images, &[]);
    scan(&loops);
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "btrfs", text(&loops.0[0]), text(place)]).output().expect("mount runs");
    if mount.status.success() {
        drop(Mount(place));
        panic!("the kernel has mounted it");
    }
    forget(&loops);
}

fn status(images: &[PathBuf]) -> String {
    String::from_utf8_lossy(&brindle(with_devices(&["status", "-v"], images)).stdout).into_owned()
}

#[test]
fn a_replacement_that_the_kernel_was_interrupted_in_is_told_and_ended() {
    if !is_root("a mount of the kernel") || !can_run() {
        return;
    }
    let crashed = Crashed::new();
    let (members, target) = (crashed.members(), text(&crashed.images[2]));
    let said = status(&crashed.images);
    assert!(said.contains(&format!("interrupted while it replaced devid 2 by {target}")), "{said}");
    assert!(said.contains("`brindle device replace cancel "), "{said}");
    let said = status(members);
    assert!(said.contains("interrupted while it replaced devid 2 by a target that is not there"), "{said}");
    let refused = |devices: &[PathBuf]| brindle_fails(1, with_devices(&["device", "stats", "-z"], devices));
    let said = refused(&crashed.images);
    assert!(said.contains(&format!("replaced devid 2 by {target}; mount it with the kernel")), "{said}");
    assert!(refused(members).contains("by a target that is not there"));
    kernel_refuses(members, &crashed.place);
    let copies: Vec<PathBuf> = members.iter().map(|image| image.with_extension("copy")).collect();
    for (image, copy) in members.iter().zip(&copies) {
        succeeds("cp", &["--sparse=always", text(image), text(copy)]);
    }

    // With the target, which loses its superblocks.
    let said = brindle_prints(with_devices(&["device", "replace", "cancel"], &crashed.images));
    assert_eq!(said, "replacement canceled\n");
    assert!(replaces(members).contains("canceled on"), "{}", replaces(members));
    assert!(!status(members).contains("interrupted"), "{}", status(members));
    let said = brindle_fails(2, with_devices(&["device", "replace", "cancel"], members));
    assert!(said.contains("no replacement runs"), "{said}");
    kernel_mounts(&crashed.images, &crashed.place);

    // Without it.
    brindle_prints(with_devices(&["device", "replace", "cancel"], &copies));
    kernel_mounts(&copies, &crashed.place);
}

#[test]
fn a_target_that_is_left_is_retired_when_the_replacement_was_canceled_without_it() {
    if !is_root("a mount of the kernel") || !can_run() {
        return;
    }
    let crashed = Crashed::new();
    let said = brindle(with_devices(&["device", "replace", "cancel"], crashed.members()));
    assert!(said.status.success());
    assert!(String::from_utf8_lossy(&said.stderr).contains("the target was not found"));
    kernel_refuses(&crashed.images, &crashed.place);
    brindle_prints(with_devices(&["device", "replace", "cancel"], &crashed.images));
    kernel_mounts(&crashed.images, &crashed.place);
}
