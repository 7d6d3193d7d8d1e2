//! Mounts on a block device (`fuseblk`): the first device of a pool, or the anchor of an image.

use super::ends::Served;
use super::mount::{can_mount, is_mounted, unmount};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time after which what is waited for does not come.
const PATIENCE: Duration = Duration::from_secs(300);

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
fn nothing_is_written_once_umount_has_returned() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let mut served = Served::make();
    served.mount_with("commit=3600,blkdev");
    fs::write(served.place().join("file"), vec![7; 32 << 20]).expect("room");
    let place = served.place();
    assert!(Command::new("sync").arg("-f").arg(&place).status().expect("sync").success());
    let is_running = || {
        let said = brindle(["balance", "status", "--json", text(&place)]).stdout;
        String::from_utf8_lossy(&said).contains("\"running\"")
    };
    let mut balance = Command::new(env!("CARGO_BIN_EXE_brindle"));
    let mut balance =
        balance.args(["balance", "start", "-d", "--rate", "1M", text(&place)]).spawn().expect("built");
    while !is_running() {
        assert!(balance.try_wait().expect("our child").is_none(), "it ended before it was seen");
    }
    // The client goes; the balance is the server's.
    balance.kill().and_then(|()| balance.wait()).expect("our child");
    let status = Command::new("umount").arg("-i").arg(&place).status().expect("umount");
    assert!(status.success());
    let before = fs::read(served.image()).expect("the image");
    served.wait_for_success();
    assert!(fs::read(served.image()).expect("the image") == before, "the server wrote on");
    served.check();
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
    assert!(said.contains("it is mounted there already"), "{said}");
    // mount(8) with -a asks again.
    brindle_succeeds(["mount", "--helper", text(&images[0]), text(&images[1]), text(&place)]);
    assert_eq!(fs::read_to_string("/proc/mounts").expect("text").matches(text(&place)).count(), 1);
    let said =
        brindle_fails(1, ["mount", "-o", "noblkdev", text(&images[0]), text(&images[1]), text(&place)]);
    assert!(said.contains(") writes it"), "{said}");
    unmount(&place);
    // A process that looks at the devices of the host keeps a loop device for a moment, and another test may have it next.
    let begun = Instant::now();
    while backing(&source).is_some_and(|file| file.trim_end() == text(&images[0])) {
        assert!(begun.elapsed() < PATIENCE, "the anchor stays");
        std::thread::sleep(Duration::from_millis(5));
    }
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
    for (device, by) in
        [(first, format!("it is mounted on {}", text(&place))), (second, ") has it open".to_owned())]
    {
        let said = brindle_fails(1, ["mkfs", "-f", device]);
        assert!(said.contains(&format!("{device} is in use: ")) && said.contains(&by), "{said}");
    }
    brindle_fails(1, ["mount", "-o", "noblkdev", first, second, text(&other)]);
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
        std::thread::sleep(Duration::from_millis(5));
    }
    server.kill().and_then(|()| server.wait()).expect("our child");
    brindle_succeeds(["mount", devices[0], devices[1], text(&other)]);
    unmount(&other);
    Command::new("umount").arg("-l").arg(&place).status().expect("umount");
}

#[test]
fn a_block_device_that_a_dead_mount_keeps_is_told_with_the_way_out() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, place) = pool();
    let loops = Loops::attach(&images, &[]);
    let [first, second] = [text(&loops.0[0]), text(&loops.0[1])];
    let mut server = Command::new(env!("CARGO_BIN_EXE_brindle"));
    server.args(["mount", "--foreground", first, second]).arg(&place);
    let mut server = server.spawn().expect("the binary was built");
    while !is_mounted(&place) {
        assert!(server.try_wait().expect("our child").is_none(), "it ended before it mounted");
        std::thread::sleep(Duration::from_millis(5));
    }
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("new");
    server.kill().and_then(|()| server.wait()).expect("our child");
    let way_out = format!(
        "the process that served the mount has ended; the pool is as of its last sync: `brindle umount {}`",
        text(&place)
    );
    for at in [&place, &other] {
        let said = brindle_fails(1, ["mount", first, second, text(at)]);
        assert!(said.contains(&format!("{first} is in use: ")) && said.contains(&way_out), "{said}");
    }
    brindle_prints(["umount", text(&place)]);
    brindle_succeeds(["mount", first, second, text(&place)]);
    unmount(&place);
}

/// A pool with subvolumes `@`, `@home` and `directory/deep`, each with a file of its name.
fn pool_with_subvolumes() -> (TempDir, [PathBuf; 2], PathBuf) {
    let (scratch, images, place) = pool();
    brindle_succeeds(["mount", text(&images[0]), text(&images[1]), text(&place)]);
    fs::create_dir(place.join("directory")).expect("room");
    for name in ["@", "@home", "directory/deep"] {
        brindle_succeeds(["subvolume", "create", text(&place.join(name))]);
        fs::write(place.join(name).join("file"), name).expect("room");
    }
    unmount(&place);
    (scratch, images, place)
}

fn file_at(place: &Path) -> String {
    fs::read_to_string(place.join("file")).expect("it is there")
}

/// Waits until no process has the images open.
fn wait_for_the_server(images: &[PathBuf; 2]) {
    let is_free = || brindle(["device", "stats", text(&images[0]), text(&images[1])]).stderr.is_empty();
    while !is_free() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn subvolumes_of_a_pool_are_mounted_at_once() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, place) = pool_with_subvolumes();
    let [first, second] = [text(&images[0]), text(&images[1])];
    let [home, deep, whole] = ["home", "deep", "whole"].map(|name| scratch.path().join(name));
    for directory in [&home, &deep, &whole] {
        fs::create_dir(directory).expect("new");
    }
    brindle_succeeds(["mount", "-o", "subvol=@,commit=3600", first, second, text(&place)]);
    // By whichever device, path or number; other options of the mount itself.
    let said = brindle_succeeds(["mount", "-o", "subvol=/@home,ro,noexec", second, text(&home)]);
    assert!(said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    brindle_succeeds(["mount", "-o", "subvolid=258", first, second, text(&deep)]);
    let said = brindle_succeeds(["mount", "-o", "subvolid=5,noatime", first, text(&whole)]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("are as there"), "{said}");
    let said = brindle_fails(1, ["mount", "-o", "subvol=@none", first, text(&deep)]);
    assert!(said.contains("@none: no such subvolume"), "{said}");
    assert_eq!([&place, &home, &deep].map(|place| file_at(place)), ["@", "@home", "directory/deep"]);
    assert!(fs::write(home.join("more"), b"x").is_err(), "it is read-only");
    fs::write(place.join("more"), b"by the other way").expect("room");
    assert_eq!(fs::read(whole.join("@/more")).expect("one filesystem"), b"by the other way");
    // The first to come may go first; the last to go makes the last commit.
    unmount(&place);
    unmount(&whole);
    fs::write(deep.join("last"), b"x").expect("room");
    unmount(&deep);
    assert_eq!(file_at(&home), "@home");
    unmount(&home);
    wait_for_the_server(&images);
    brindle_prints(["check", "--check-data-csum", first, second]);
    brindle_succeeds(["mount", first, second, text(&whole)]);
    assert!(whole.join("directory/deep/last").exists() && whole.join("@/more").exists());
    unmount(&whole);
}

#[test]
fn mounts_of_one_pool_that_come_at_once_share_a_server() {
    const MOUNTS: usize = 6;
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, _) = pool_with_subvolumes();
    let places: [_; MOUNTS] = std::array::from_fn(|number| scratch.path().join(number.to_string()));
    std::thread::scope(|scope| {
        for (number, place) in places.iter().enumerate() {
            let images = &images;
            scope.spawn(move || {
                fs::create_dir(place).expect("new");
                let options = if number % 2 == 0 { "subvol=@" } else { "subvol=@home" };
                // In any order of devices: none waits for what another one has while that waits for it.
                let turned = usize::from(number % 3 == 0);
                let [first, second] = [turned, 1 - turned].map(|index| text(&images[index]));
                brindle_succeeds(["mount", "-o", options, first, second, text(place)]);
            });
        }
    });
    for (number, place) in places.iter().enumerate() {
        assert_eq!(file_at(place), if number % 2 == 0 { "@" } else { "@home" });
    }
    let devices: Vec<_> = places.iter().map(|place| shown(place).0).collect();
    assert!(devices.iter().all(|device| *device == devices[0]), "{devices:?}");
    places.iter().for_each(|place| unmount(place));
    wait_for_the_server(&images);
    brindle_prints(["check", text(&images[0]), text(&images[1])]);
}

#[test]
fn a_server_that_is_told_to_end_ends_all_its_mounts() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, place) = pool_with_subvolumes();
    let home = scratch.path().join("home");
    fs::create_dir(&home).expect("new");
    let devices = [text(&images[0]), text(&images[1])];
    let mut server = Command::new(env!("CARGO_BIN_EXE_brindle"));
    server.args(["mount", "--foreground", "-o", "subvol=@"]).args(devices).arg(&place);
    let mut server = server.spawn().expect("the binary was built");
    while !is_mounted(&place) {
        assert!(server.try_wait().expect("our child").is_none(), "it ended before it mounted");
        std::thread::sleep(Duration::from_millis(5));
    }
    brindle_succeeds(["mount", "-o", "subvol=@home", devices[0], text(&home)]);
    fs::write(home.join("last"), b"x").expect("room");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM).expect("our child");
    assert!(server.wait().expect("our child").success());
    assert!(!is_mounted(&place) && !is_mounted(&home));
    brindle_succeeds(["mount", "-o", "subvol=@home", devices[0], devices[1], text(&home)]);
    assert!(home.join("last").exists());
    unmount(&home);
}

#[test]
fn a_copy_of_an_image_is_a_pool_of_its_own() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, images, place) = pool_with_subvolumes();
    let copies = ["c.img", "d.img"].map(|name| scratch.path().join(name));
    for (image, copy) in images.iter().zip(&copies) {
        assert!(
            Command::new("cp").arg("--sparse=always").args([image, copy]).status().expect("cp").success()
        );
    }
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("new");
    brindle_succeeds(["mount", text(&images[0]), text(&images[1]), text(&place)]);
    brindle_succeeds(["mount", text(&copies[0]), text(&copies[1]), text(&other)]);
    fs::write(place.join("here"), b"x").expect("room");
    assert!(!other.join("here").exists() && other.join("@").exists());
    unmount(&place);
    unmount(&other);
}

#[test]
fn a_copy_of_a_member_is_not_taken_for_it_where_the_pool_is_mounted() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let (scratch, [first, second], place) = pool();
    brindle_succeeds(["mount", "-o", "blkdev", text(&first), text(&second), text(&place)]);
    let copy = scratch.path().join("copy.img");
    fs::copy(&second, &copy).expect("room");
    let other = scratch.path().join("other");
    fs::create_dir(&other).expect("new");
    let said = brindle_fails(1, ["mount", "-o", "blkdev", text(&first), text(&copy), text(&other)]);
    let expected = format!("{} is devid 2, as is {}", copy.display(), second.display());
    assert!(said.contains(&expected) && !is_mounted(&other), "{said}");
    brindle_succeeds(["mount", "-o", "blkdev", text(&first), text(&second), text(&other)]);
    unmount(&other);
    unmount(&place);
}

#[test]
fn a_mount_tells_absolute_paths_of_devices_that_were_given_by_relative_ones() {
    if !can_mount() {
        return;
    }
    let (scratch, [first, second], place) = pool();
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    command.args(["mount", "a.img", "b.img", text(&place)]).current_dir(scratch.path());
    assert!(command.status().expect("runs").success());
    let said = brindle_prints(["filesystem", "show", text(&place)]);
    assert!(said.contains(text(&first)) && said.contains(text(&second)), "{said}");
    unmount(&place);
}

#[test]
fn a_server_of_another_pool_that_hangs_keeps_no_mount_waiting() {
    if !can_mount() || !is_root("a mount on a block device") {
        return;
    }
    let mut hanging = Served::make();
    hanging.mount_with("blkdev");
    let (scratch, images, place) = pool();
    let [first, second] = [text(&images[0]), text(&images[1])];
    let further = scratch.path().join("further");
    fs::create_dir(&further).expect("new");
    hanging.signal(Signal::STOP);
    let mounts = [vec!["mount", first, second, text(&place)], vec!["mount", first, text(&further)]];
    // What hangs would hang until the server goes on.
    let done = mounts.map(|words| {
        let mut command = Command::new("timeout");
        command.args([&PATIENCE.as_secs().to_string(), env!("CARGO_BIN_EXE_brindle")]).args(words);
        command.status().expect("timeout").code()
    });
    hanging.signal(Signal::CONT);
    for place in [&further, &place] {
        unmount(place);
    }
    wait_for_the_server(&images);
    unmount(&hanging.place());
    hanging.wait_for_success();
    assert_eq!(done, [Some(0), Some(0)]);
}
