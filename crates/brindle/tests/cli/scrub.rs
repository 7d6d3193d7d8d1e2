//! `scrub`: on devices, on a mount, and on one of the kernel.

use super::mount::can_mount;
use super::support::{Loops, brindle_fails, brindle_prints, text};
use super::tier::host::{can_mount as kernel_can_mount, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Images of a pool, a mount point, and a directory of records.
struct Pool {
    directory: tempfile::TempDir,
    images: Vec<PathBuf>,
}

impl Pool {
    /// A pool of these profiles, with a file in it.
    fn make(members: usize, profile: &str) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let images: Vec<PathBuf> =
            (0..members).map(|number| directory.path().join(format!("{number}.img"))).collect();
        let tree = directory.path().join("tree");
        fs::create_dir_all(directory.path().join("place")).expect("new");
        fs::create_dir_all(tree.join("sub")).expect("new");
        let contents: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
        fs::write(tree.join("sub/file"), contents).expect("room");
        let mut words = vec!["-q", "mkfs", "--size", "512M", "-d", profile, "-m", profile, "--rootdir"];
        words.push(text(&tree));
        words.extend(images.iter().map(|image| text(image)));
        brindle_prints(words);
        Self { directory, images }
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    /// `brindle scrub` with these words, and the devices.
    fn on_devices(&self, words: &[&str]) -> Output {
        self.scrub(words, &self.images)
    }

    /// The same, and the mount point.
    fn on_mount(&self, words: &[&str]) -> Output {
        self.scrub(words, &[self.place()])
    }

    fn scrub(&self, words: &[&str], operands: &[PathBuf]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.env("BRINDLE_STATE_DIR", self.directory.path().join("state")).env_remove("BRINDLE_LOG");
        command.arg("-q").arg("scrub").args(words).args(operands).output().expect("it was built")
    }

    fn mount(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.env("BRINDLE_STATE_DIR", self.directory.path().join("state"));
        command.args(["-q", "mount"]).args(&self.images).arg(self.place());
        let output = command.output().expect("it was built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn unmount(&self) {
        brindle_prints(["-q", "umount", text(&self.place())]);
    }

    /// The record, as JSON.
    fn status(&self, operands: &[PathBuf]) -> Value {
        let output = self.scrub(&["status", "--json"], operands);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// Inverts a byte of every `step` bytes of an image, where it holds anything but superblocks; places, with what was there.
fn rot(image: &Path, step: usize) -> Vec<(u64, u8)> {
    let file = fs::File::options().read(true).write(true).open(image).expect("an image");
    let is_superblock =
        |at: &u64| [64 << 10, 64 << 20].iter().any(|start| (*start..start + 4096).contains(at));
    let mut byte = [0];
    let mut places = Vec::new();
    for at in (1 << 20..512 << 20).step_by(step).filter(|at| !is_superblock(at)) {
        file.read_exact_at(&mut byte, at).expect("long enough");
        if byte != [0] {
            file.write_all_at(&[!byte[0]], at).expect("room");
            places.push((at, byte[0]));
        }
    }
    places
}

/// Number of places of rot that are as they were before it.
fn restored(image: &Path, places: &[(u64, u8)]) -> usize {
    let file = fs::File::open(image).expect("an image");
    let mut byte = [0];
    let is_restored = |(at, before): &&(u64, u8)| {
        file.read_exact_at(&mut byte, *at).expect("long enough");
        byte == [*before]
    };
    places.iter().filter(is_restored).count()
}

/// Inverts a byte of the first `count` sectors of the file in the pool on an image.
fn rot_file(image: &Path, count: usize) {
    let file = fs::File::options().read(true).write(true).open(image).expect("an image");
    let mut sector = [0; 4096];
    let holds_it = |sector: &[u8]| {
        let numbers: Vec<u32> =
            sector.chunks_exact(4).map(|it| u32::from_le_bytes(it.try_into().expect("four bytes"))).collect();
        numbers[0] > 0 && numbers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
    };
    let mut left = count;
    for at in (1 << 20..512 << 20).step_by(4096) {
        file.read_exact_at(&mut sector, at).expect("long enough");
        if left > 0 && holds_it(&sector) {
            file.write_all_at(&[!sector[77]], at + 77).expect("room");
            left -= 1;
        }
    }
    assert_eq!(left, 0, "sectors of the file that were not found");
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn a_scrub_of_devices_corrects_rot_and_remembers_it() {
    for (members, profile) in [(2, "raid1"), (3, "raid5")] {
        let pool = Pool::make(members, profile);
        assert_eq!(pool.status(&pool.images)["status"], "none");
        assert_eq!(code(&pool.on_devices(&["resume"])), Some(2), "nothing to resume");
        rot(&pool.images[1], 40_000);
        let looked = pool.on_devices(&["start", "-r"]);
        assert_eq!(code(&looked), Some(0), "{looked:?}");
        let status = pool.status(&pool.images);
        let counts = |status: &Value, name: &str| status["counts"][name].as_u64().expect("a number");
        let found = counts(&status, "correctable_errors");
        assert!(found > 0 && counts(&status, "corrected_errors") == 0, "{status}");
        let done = pool.on_devices(&["start", "-B"]);
        assert_eq!(code(&done), Some(0), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("Uncorrectable:  0"), "{done:?}");
        let status = pool.status(&pool.images);
        // Opening the pool to write it has repaired what it has read.
        assert!((1..=found).contains(&counts(&status, "corrected_errors")), "{status}");
        assert_eq!((counts(&status, "uncorrectable_errors"), &status["status"]), (0, &"finished".into()));
        let clean = pool.on_devices(&["start", "-d"]);
        assert!(String::from_utf8_lossy(&clean.stdout).contains("no errors found"), "{clean:?}");
        let mut check = vec!["-q", "check", "--check-data-csum"];
        check.extend(pool.images.iter().map(|image| text(image)));
        brindle_prints(check);
    }
}

#[test]
fn lost_contents_are_told_by_the_names_of_files_and_the_exit_code() {
    let pool = Pool::make(1, "single");
    rot_file(&pool.images[0], 1);
    let done = pool.on_devices(&["start"]);
    assert_eq!(code(&done), Some(3), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("/sub/file offset "), "{said}");
    let status = pool.status(&pool.images);
    assert_eq!(status["uncorrected"][0]["files"][0]["path"], "/sub/file", "{status}");
}

#[test]
fn a_scrub_of_a_mount_is_cancelled_limited_and_resumed_also_after_a_kill() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    rot(&pool.images[1], 100_000);
    pool.mount();
    assert_eq!(code(&pool.on_mount(&["cancel"])), Some(2), "none runs");
    assert_eq!(code(&pool.on_mount(&["limit", "-l", "1M"])), Some(2), "none runs");
    // At this rate it takes weeks.
    assert_eq!(code(&pool.on_mount(&["start", "--limit", "1"])), Some(0));
    assert_eq!(pool.status(&[pool.place()])["status"], "running");
    assert_eq!(code(&pool.on_mount(&["start"])), Some(1), "one is enough");
    assert_eq!(code(&pool.on_mount(&["limit", "-l", "2", "-d", "7"])), Some(1), "no such device");
    assert_eq!(code(&pool.on_mount(&["limit", "-l", "2"])), Some(0));
    let limits = String::from_utf8_lossy(&pool.on_mount(&["limit"]).stdout).into_owned();
    assert!(limits.contains("    1  2.00B/s  /"), "{limits}");
    assert_eq!(code(&pool.on_mount(&["cancel"])), Some(0));
    assert_eq!(pool.status(&[pool.place()])["status"], "aborted");
    // Unmounting ends it, and a kill does.
    assert_eq!(code(&pool.on_mount(&["resume", "--limit", "1"])), Some(0));
    pool.unmount();
    assert_eq!(pool.status(&pool.images)["status"], "aborted");
    pool.mount();
    assert_eq!(code(&pool.on_mount(&["resume", "--limit", "1"])), Some(0));
    kill_server(&pool.place());
    let _ = Command::new("umount").arg("--lazy").arg(pool.place()).output();
    assert_eq!(pool.status(&pool.images)["status"], "aborted");
    // The kernel ends requests of the killed server, and closes its devices, when it comes to it.
    let is_late = |done: &Output| String::from_utf8_lossy(&done.stderr).contains("is in use");
    let (begun, mut done) = (Instant::now(), pool.on_devices(&["resume"]));
    while is_late(&done) && begun.elapsed() < Duration::from_secs(120) {
        done = pool.on_devices(&["resume"]);
    }
    assert_eq!(code(&done), Some(0), "{done:?}");
    let status = pool.status(&pool.images);
    assert!(status["counts"]["corrected_errors"].as_u64() > Some(0), "{status}");
    assert_eq!(status["status"], "finished");
    assert_eq!(pool.on_devices(&["start"]).status.code(), Some(0));
    assert_eq!(pool.status(&pool.images)["counts"]["csum_errors"], 0);
}

/// Kills the process that serves a mount.
pub(super) fn kill_server(place: &Path) {
    let holder = fs::read_dir("/proc").expect("proc").flatten().find(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.contains(&b"mount".as_slice()) && words.contains(&text(place).as_bytes())
    });
    let pid = holder.expect("a server").file_name().into_string().expect("a number");
    run("kill", &["-KILL", &pid]);
    while Path::new("/proc").join(&pid).join("exe").exists() {
        std::thread::yield_now();
    }
}

#[test]
fn the_kernel_and_brindle_agree_about_a_scrub() {
    if !kernel_can_mount() {
        return;
    }
    for (members, profile) in [(2, "raid1"), (4, "raid10"), (3, "raid5"), (4, "raid6")] {
        let pool = Pool::make(members, profile);
        for is_first_ours in [true, false] {
            let rotten = rot(&pool.images[1], 30_000);
            let scrub =
                |is_ours: bool| if is_ours { pool.on_devices(&["start"]) } else { scrub_by_kernel(&pool) };
            let first = scrub(is_first_ours);
            let restored = restored(&pool.images[1], &rotten);
            let second = scrub(!is_first_ours);
            let status = pool.status(&pool.images);
            let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            // The kernel scrubs the devices at once. One with parity has the data of its rows corrected, which the kernel counts
            // nowhere: a device whose turn comes late has no errors any more.
            let has_parity = ["raid5", "raid6"].contains(&profile);
            let is_silent = has_parity && !is_first_ours && said(&first).contains("no errors found");
            let is_told = said(&first).contains("csum=") && said(&first).contains("Uncorrectable:  0");
            assert!(is_silent || is_told, "{profile}: {first:?}");
            // A few were in blocks that are not in use any more.
            assert!(restored > rotten.len() * 3 / 4, "{profile}: {restored} of {}, {first:?}", rotten.len());
            assert!(said(&second).contains("no errors found"), "{profile}: {second:?} {status}");
        }
        let mut check = vec!["-q", "check", "--check-data-csum"];
        check.extend(pool.images.iter().map(|image| text(image)));
        brindle_prints(check);
    }
}

#[test]
fn a_list_of_damaged_files_tells_if_it_may_lack_some() {
    let pool = Pool::make(1, "single");
    let list = pool.directory.path().join("list");
    let listed = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.env("BRINDLE_STATE_DIR", pool.directory.path().join("state")).env_remove("BRINDLE_LOG");
        command.args(["scrub", "status", "--damaged-files", text(&list)]).arg(&pool.images[0]);
        let output = command.output().expect("it was built");
        assert_eq!(fs::read(&list).expect("it was written"), b"sub/file\0");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    rot_file(&pool.images[0], 1);
    assert_eq!(code(&pool.on_devices(&["start"])), Some(3));
    assert_eq!(listed(), "");
    // More sectors than a record has room for are few places of a file.
    rot_file(&pool.images[0], 1100);
    assert_eq!(code(&pool.on_devices(&["start"])), Some(3));
    assert_eq!(listed(), "");
    let status = pool.status(&pool.images);
    let kept = status["uncorrected"].as_array().expect("a list");
    let errors: u64 = kept.iter().map(|it| it["errors"].as_u64().expect("a number")).sum();
    assert!((errors, &status["uncorrected_count"]) == (1101, &1101.into()) && kept.len() < 16, "{status}");
    let state = fs::read_dir(pool.directory.path().join("state")).expect("records").flatten();
    let record =
        state.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|it| it == "status"));
    let record = record.expect("a record");
    let text = fs::read_to_string(&record).expect("text").replace("unlisted 0", "unlisted 7");
    fs::write(&record, text).expect("room");
    let said = listed();
    assert!(said.contains("7 errors") && said.contains("check --check-data-csum --damaged-files"), "{said}");
}

/// A pool that the kernel has mounted at its place, until dropped.
struct ByKernel<'p> {
    pool: &'p Pool,
    loops: Option<Loops>,
}

impl<'p> ByKernel<'p> {
    fn mount(pool: &'p Pool) -> Self {
        let mounted = Self { pool, loops: Some(Loops::attach(&pool.images, &[])) };
        let devices = mounted.devices();
        let words: Vec<&str> = devices.iter().map(|device| text(device)).collect();
        run("btrfs", &[&["device", "scan"], words.as_slice()].concat());
        run("mount", &["-t", "btrfs", words[0], text(&pool.place())]);
        mounted
    }

    fn devices(&self) -> Vec<PathBuf> {
        self.loops.as_ref().map(|loops| loops.0.clone()).unwrap_or_default()
    }
}

impl Drop for ByKernel<'_> {
    fn drop(&mut self) {
        // A process in the background may still be about to end.
        let unmount = || Command::new("umount").arg(self.pool.place()).output();
        while !unmount().is_ok_and(|done| done.status.success()) && !std::thread::panicking() {
            std::thread::yield_now();
        }
        let _ = Command::new("btrfs").args(["device", "scan", "--forget"]).args(self.devices()).output();
        drop(self.loops.take());
        // Another process may have a look at them just now.
        let is_attached = |image: &PathBuf| !run("losetup", &["--associated", text(image)]).is_empty();
        while !std::thread::panicking() && self.pool.images.iter().any(is_attached) {
            std::thread::yield_now();
        }
    }
}

/// A scrub by the kernel, that brindle asks for.
fn scrub_by_kernel(pool: &Pool) -> Output {
    let _mounted = ByKernel::mount(pool);
    pool.on_mount(&["start", "-B"])
}

/// Ids of the devices of a record.
fn scrubbed(output: &Output) -> Vec<u64> {
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let devices = record["devices"].as_array().expect("a list");
    devices.iter().map(|device| device["devid"].as_u64().expect("an id")).collect()
}

#[test]
fn a_device_of_a_mounted_pool_is_scrubbed_alone() {
    if !kernel_can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    let mounted = ByKernel::mount(&pool);
    for (device, devid) in mounted.devices().into_iter().zip(1..) {
        let device = std::slice::from_ref(&device);
        let done = pool.scrub(&["start", "-B", "--json"], device);
        assert_eq!((code(&done), scrubbed(&done)), (Some(0), vec![devid]));
        assert_eq!(pool.status(device)["devices"][0]["devid"], devid);
        assert_eq!(code(&pool.scrub(&["cancel"], device)), Some(2), "none runs");
    }
    drop(mounted);
    pool.mount();
    for (image, devid) in pool.images.iter().zip(1..) {
        let done = pool.scrub(&["start", "-B", "--json"], std::slice::from_ref(image));
        assert_eq!((code(&done), scrubbed(&done)), (Some(0), vec![devid]));
    }
    pool.unmount();
}

#[test]
fn a_scrub_by_the_kernel_in_the_background_has_begun_or_failed() {
    if !kernel_can_mount() {
        return;
    }
    let pool = Pool::make(1, "single");
    let _mounted = ByKernel::mount(&pool);
    let begun = pool.on_mount(&["start", "--limit", "1M"]);
    assert_eq!(code(&begun), Some(0), "{begun:?}");
    let again = pool.on_mount(&["start"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(code(&again) == Some(1) && said.contains("scrub"), "{again:?}");
    // At once, and not only when a process has got there.
    assert_eq!(code(&pool.on_mount(&["cancel"])), Some(0));
    while pool.status(&[pool.place()])["status"] == "running" {
        std::thread::yield_now();
    }
    // A record can't be kept.
    let state = pool.directory.path().join("state");
    fs::remove_dir_all(&state).expect("it was made");
    fs::write(&state, b"").expect("room");
    let failed = pool.on_mount(&["start"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(code(&failed) == Some(1) && said.contains(text(&state)), "{failed:?}");
    fs::remove_file(&state).expect("it was made");
    // Likewise a balance, that finds no second device.
    let failed = brindle_fails(1, ["balance", "start", "--bg", "-dconvert=raid1", text(&pool.place())]);
    assert!(!failed.is_empty());
    assert_eq!(brindle_prints(["balance", "start", "--bg", "-dusage=0", text(&pool.place())]), "");
}

#[test]
fn a_scrub_leaves_sleeping_disks_until_it_is_resumed() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let (tree, place) = (directory.path().join("tree"), directory.path().join("place"));
    [&tree, &place].iter().for_each(|path| fs::create_dir(path).expect("new"));
    fs::write(tree.join("large"), vec![7; 9_000_000]).expect("room");
    let images: Vec<PathBuf> =
        ["ssd1", "ssd2", "disk1", "disk2"].iter().map(|name| directory.path().join(name)).collect();
    let classes = ["fast", "fast", "bulk", "bulk"];
    let operands: Vec<String> =
        images.iter().zip(classes).map(|(image, class)| format!("{}:{class}", text(image))).collect();
    let words = ["-q", "mkfs", "--size", "512M", "-d", "raid1", "-m", "raid1", "--rootdir", text(&tree)];
    brindle_prints(words.into_iter().chain(operands.iter().map(String::as_str)));
    let pool = Pool { directory, images };
    let wrong = pool.on_devices(&["start", "--leave-sleeping"]);
    assert_eq!(code(&wrong), Some(2), "{wrong:?}");
    pool.mount();
    // What goes into trees alone lets disks sleep.
    for number in 0..3 {
        fs::write(place.join(format!("small{number}")), b"inline").expect("room");
        brindle_prints(["-q", "filesystem", "sync", text(&place)]);
    }
    let states = |status: &Value| -> Vec<String> {
        let devices = status["devices"].as_array().expect("a list").iter();
        devices.map(|device| device["status"].as_str().expect("text").to_owned()).collect()
    };
    let left = pool.on_mount(&["start", "-B", "--leave-sleeping"]);
    assert_eq!(code(&left), Some(0), "{left:?}");
    let said = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(said.contains("Status:           incomplete") && said.contains("Left asleep:      /"), "{said}");
    let status = pool.status(&[pool.place()]);
    assert_eq!(states(&status), ["finished", "finished", "asleep", "asleep"], "{status}");
    assert_eq!((&status["status"], &status["devices"][2]["done_bytes"]), (&"incomplete".into(), &0.into()));
    let health = brindle_prints(["-q", "status", "-v", text(&place)]);
    assert!(health.contains("the last scrub left 2 devices asleep"), "{health}");
    let still = pool.on_mount(&["resume", "-B", "--leave-sleeping"]);
    assert_eq!((code(&still), states(&pool.status(&[pool.place()]))[2].as_str()), (Some(0), "asleep"));
    let resumed = pool.on_mount(&["resume", "-B"]);
    assert_eq!(code(&resumed), Some(0), "{resumed:?}");
    let status = pool.status(&[pool.place()]);
    assert_eq!((&status["status"], states(&status)), (&"finished".into(), vec!["finished".to_owned(); 4]));
    assert_eq!(code(&pool.on_mount(&["resume", "-B"])), Some(2), "nothing is left");
    pool.unmount();
}
