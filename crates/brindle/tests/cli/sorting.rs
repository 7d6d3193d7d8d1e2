//! `balance` and `tier` on mounts of brindle: while programs write, over kills of the server, and by a watch.

mod log_profile;
mod missing;
mod one_fast;
mod write_back;

use super::mount::{can_mount, is_mounted, unmount};
use super::support::{brindle, brindle_fails, brindle_prints, text, with_devices};
use rustix::fs::FallocateFlags;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WRITERS: usize = 8;
/// Time to wait for a condition.
const PATIENCE: Duration = Duration::from_secs(300);

/// Two disks and two SSDs as image files, and a server that is our child.
pub(super) struct Served {
    scratch: TempDir,
    devices: Vec<PathBuf>,
    child: Option<Child>,
    mount_options: &'static str,
}

impl Served {
    /// With the classes that the pool stores, and mounted.
    pub(super) fn make(classes: [&str; 4], options: &[&str]) -> Self {
        Self::make_mounted(classes, options, "rw")
    }

    /// The same, with options of the mount.
    fn make_mounted(classes: [&str; 4], options: &[&str], mount_options: &'static str) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let devices: Vec<PathBuf> =
            (1..=4).map(|number| scratch.path().join(format!("dev{number}"))).collect();
        fs::create_dir(scratch.path().join("place")).expect("new");
        let mut words: Vec<String> = ["-q", "mkfs", "--size", "512M"].map(str::to_owned).into();
        words.extend(options.iter().map(|word| (*word).to_owned()));
        words.extend(devices.iter().zip(classes).map(|(device, class)| format!("{}{class}", text(device))));
        brindle_prints(words);
        let mut served = Self { scratch, devices, child: None, mount_options };
        served.mount();
        served
    }

    pub(super) fn place(&self) -> PathBuf {
        self.scratch.path().join("place")
    }

    fn mount(&mut self) {
        let place = self.place();
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command
            .args(["-q", "mount", "--foreground", "-o", self.mount_options])
            .args(&self.devices)
            .arg(&place);
        let child = self.child.insert(command.stdout(Stdio::null()).spawn().expect("the binary was built"));
        while !is_mounted(&place) {
            assert!(child.try_wait().expect("our child").is_none(), "it ended before it mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn unmount(&mut self) {
        unmount(&self.place());
        let status = self.child.take().expect("it was mounted").wait().expect("our child");
        assert!(status.success(), "{status}");
    }

    /// Kills the server, and clears away what is left of the mount.
    fn kill(&mut self) {
        let mut child = self.child.take().expect("it was mounted");
        child.kill().expect("our child");
        child.wait().expect("it ends");
        unmount(&self.place());
    }

    pub(super) fn check(&self) {
        brindle_prints(with_devices(&["-q", "check", "--check-data-csum"], &self.devices));
    }

    fn json(&self, words: &[&str]) -> Value {
        let place = self.place();
        json(words.iter().map(PathBuf::from).chain([place]).collect())
    }

    fn starts(&self, words: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(words).arg(self.place()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("the binary was built")
    }

    fn prints(&self, words: &[&str]) -> String {
        let place = self.place();
        brindle_prints(words.iter().copied().chain([text(&place)]))
    }

    /// Report of a balance, with its exit code checked.
    fn balance(&self) -> Value {
        let output = brindle(["balance", "status", "--json", text(&self.place())]);
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(output.status.code(), Some(i32::from(said["state"] != "none")), "{said}");
        said
    }

    fn state_of_balance(&self) -> String {
        self.balance()["state"].as_str().expect("a word").to_owned()
    }

    fn has_moved_something(&self) -> bool {
        self.balance()["moved_bytes"].as_u64() > Some(0)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            brindle(["umount", "--lazy", text(&self.place())]);
            child.kill().ok();
            child.wait().ok();
            brindle(["umount", text(&self.place())]);
        }
    }
}

fn json(words: Vec<PathBuf>) -> Value {
    serde_json::from_str(&brindle_prints(words)).expect("JSON")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Misplaced bytes of block groups and of files.
fn wrong(status: &Value) -> (u64, u64) {
    let kinds = status["kinds"].as_array().expect("a list").iter();
    let of_kinds = kinds.map(|kind| kind["wrong_bytes"].as_u64().expect("a number")).sum();
    let files = &status["files"];
    let of = |what: &str| files[what]["wrong_bytes"].as_u64().expect("a number");
    (of_kinds, of("small_and_marked") + of("other"))
}

/// A block of a writer's file, with the writer and the round.
fn block(writer: usize, round: u64) -> Vec<u8> {
    let word = (writer as u64) << 32 | round;
    word.to_le_bytes().repeat(8192)
}

/// Writers, each with a file of blocks that are overwritten and read back all the time, until `work` is done.
fn under_writers(directory: &Path, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let write = |writer: usize| {
        let path = directory.join(format!("writer{writer}"));
        let file =
            File::options().create(true).truncate(false).read(true).write(true).open(path).expect("opens");
        let mut round = 0;
        while !is_over.load(Ordering::Relaxed) {
            let (at, bytes) = (round % 40 * 65_536, block(writer, round));
            file.write_all_at(&bytes, at).expect("there is room");
            if round % 16 == 0 {
                file.sync_data().expect("it can be written");
            }
            let mut found = vec![0; 65_536];
            file.read_exact_at(&mut found, at).expect("it is there");
            assert!(found == bytes, "writer {writer}, round {round}");
            round += 1;
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        // A failed assertion must not leave them writing.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("no writer failed");
        }
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn contents(number: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / 5 + number * 17) % 251).expect("small");
    (0..400_000 + number).map(byte).collect()
}

fn fill(directory: &Path) {
    for number in 0..60 {
        fs::write(directory.join(format!("file{number}")), contents(number)).expect("room");
    }
}

fn assert_filled(directory: &Path) {
    for number in 0..60 {
        let found = fs::read(directory.join(format!("file{number}"))).expect("it is there");
        assert!(found == contents(number), "file {number}");
    }
}

#[test]
fn a_balance_is_begun_paused_resumed_and_cancelled_while_programs_write() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([""; 4], &["-d", "single", "-m", "raid1"]);
    let place = served.place();
    fill(&place);
    under_writers(&place, || {
        assert_eq!(served.state_of_balance(), "none");
        // Nothing matches.
        let said = served.prints(&["balance", "start", "-dusage=0,limit=0"]);
        assert!(said.contains("0 of 0"), "{said}");
        let mut child = served.starts(&["balance", "start", "-d", "-m", "--rate", "1M"]);
        wait_until("it runs", || served.state_of_balance() == "running");
        brindle_fails(1, ["balance", "start", "-m", text(&place)]);
        served.prints(&["balance", "pause"]);
        assert_eq!(served.state_of_balance(), "paused", "it has ended when the command has");
        assert!(child.wait().expect("our child").success());
        brindle_fails(1, ["balance", "start", "-m", text(&place)]);
        let mut child = served.starts(&["balance", "resume", "--rate", "1M"]);
        wait_until("it runs again", || served.state_of_balance() == "running");
        served.prints(&["balance", "cancel"]);
        assert_eq!(served.state_of_balance(), "none", "it has ended when the command has");
        child.wait().expect("our child");
        let said = brindle_fails(2, ["balance", "start", "-d", "--rate", "0", text(&place)]);
        assert!(said.contains("never end"), "{said}");
        for what in ["pause", "cancel", "resume"] {
            let said = brindle_fails(2, ["balance", what, text(&place)]);
            assert!(said.contains("no balance"), "{said}");
        }
        let said = served.prints(&["balance", "start", "-dconvert=raid1", "-mconvert=raid1c3"]);
        assert!(said.starts_with("Done"), "{said}");
    });
    let usage = served.prints(&["filesystem", "usage"]);
    assert!(usage.contains("Data,RAID1:") && usage.contains("Metadata,RAID1C3:"), "{usage}");
    assert!(!usage.contains("Data,single"), "{usage}");
    assert_filled(&place);
    served.unmount();
    served.check();
}

#[test]
fn a_balance_goes_on_after_its_server_was_killed() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([""; 4], &["-d", "single", "-m", "raid1"]);
    let place = served.place();
    fill(&place);
    served.prints(&["filesystem", "sync"]);
    let mut child =
        served.starts(&["balance", "start", "--rate", "1M", "-dconvert=raid1", "-mconvert=raid1c3"]);
    wait_until("it has moved something", || served.has_moved_something());
    served.kill();
    child.wait().expect("it has nobody to ask");
    served.check();
    served.mount();
    assert_filled(&place);
    assert_eq!(served.state_of_balance(), "paused");
    let said = served.prints(&["balance", "resume"]);
    assert!(said.starts_with("Done"), "{said}");
    let usage = served.prints(&["filesystem", "usage"]);
    assert!(usage.contains("Data,RAID1:") && !usage.contains("Data,single"), "{usage}");
    assert_filled(&place);
    served.unmount();
    served.check();
}

/// One disk is said to be an SSD, and an SSD to be a disk: the first two devices are the SSDs.
fn swap_devices(served: &Served) {
    for (devid, hint) in [("1", "DATA_PREFERRED"), ("3", "METADATA_PREFERRED")] {
        let place = served.place();
        brindle_prints(["property", "set", "--devid", devid, text(&place), "allocation_hint", hint]);
    }
}

/// Files of a megabyte, marked, and small ones; then a limit for small files and another mark for one directory.
fn put_files_in_the_wrong_tier(served: &Served) {
    let place = served.place();
    for name in ["small", "marked"] {
        fs::create_dir(place.join(name)).expect("room");
    }
    for number in 0..20 {
        fs::write(place.join(format!("small/{number}")), [7; 9000]).expect("room");
        fs::write(place.join(format!("marked/{number}")), vec![8; 1 << 20]).expect("room");
    }
    served.prints(&["filesystem", "sync"]);
    brindle_prints(["property", "set", text(&place), "small_files", "64K"]);
    for number in 0..10 {
        let file = place.join(format!("marked/{number}"));
        brindle_prints(["property", "set", text(&file), "tier", "fast"]);
    }
}

const SMALL: u64 = 20 * 12_288;
const MARKED: u64 = 10 << 20;

#[test]
fn tiers_of_a_mount_and_of_its_devices_are_shown_and_put_right_alike() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":bulk", ":bulk", ":fast", ":fast"], &["-d", "single", "-m", "raid1"]);
    let place = served.place();
    swap_devices(&served);
    put_files_in_the_wrong_tier(&served);
    let status = served.json(&["tier", "status", "--json"]);
    let (groups, files) = wrong(&status);
    assert!(groups > 0, "half of the metadata: {status}");
    assert_eq!(files, SMALL + MARKED, "{status}");
    let shown = served.prints(&["tier", "status"]);
    assert!(shown.contains("small and marked files") && shown.contains("MISPLACED"), "{shown}");
    let plan = served.json(&["tier", "plan", "--json"]);
    assert_eq!(plan["files"][0]["target"], "fast", "{plan}");
    assert_eq!(
        (plan["files"][0]["extents"].as_u64(), plan["files"][0]["bytes"].as_u64()),
        (Some(30), Some(files))
    );
    assert_eq!(plan["passes"][0]["fences"].as_array().map(Vec::len), Some(0), "{plan}");
    assert!(served.prints(&["tier", "plan"]).contains("About "), "it says for how long");
    let said = brindle_fails(1, ["tier", "apply", "--fast", "1", text(&place)]);
    assert!(said.contains("allocation_hint"), "{said}");

    served.unmount();
    let offline = |words: &[&str]| json(with_devices(words, &served.devices));
    let unmounted = offline(&["tier", "status", "--json"]);
    assert_eq!(unmounted["kinds"], status["kinds"]);
    assert_eq!(unmounted["files"], status["files"]);
    assert_eq!(offline(&["tier", "plan", "--json"])["files"], plan["files"]);

    // Killed in the middle, and begun again.
    served.mount();
    let mut child = served.starts(&["tier", "apply", "--rate", "1M"]);
    wait_until("something has been moved", || served.has_moved_something());
    served.kill();
    child.wait().expect("it has nobody to ask");
    served.check();
    served.mount();
    let said = served.prints(&["tier", "apply"]);
    assert!(said.starts_with("Done"), "{said}");
    let status = served.json(&["tier", "status", "--json"]);
    assert_eq!(wrong(&status), (0, 0), "{status}");
    assert_eq!(status["files"]["small_and_marked"]["fast_bytes"].as_u64(), Some(SMALL + MARKED));
    assert!(served.prints(&["tier", "apply"]).contains("Nothing to move"));
    assert!(served.prints(&["tier", "plan"]).contains("Nothing to move"));
    served.unmount();
    assert!(
        brindle_prints(with_devices(&["-q", "tier", "apply"], &served.devices)).contains("Nothing to move")
    );
    served.check();
    let reversed = |command| ["tier", command, "--fast=1", "--fast=2", "--bulk=3", "--bulk=4"];
    let words = [&reversed("status")[..], &["--json"]].concat();
    let of_reversed = || json(with_devices(&words, &served.devices));
    assert_ne!(wrong(&of_reversed()), (0, 0));
    brindle_prints(with_devices(&reversed("apply"), &served.devices));
    assert_eq!(wrong(&of_reversed()), (0, 0), "{}", of_reversed());
    served.check();
}

#[test]
fn a_watch_moves_what_becomes_misplaced_until_it_is_told_to_stop() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":bulk", ":bulk", ":fast", ":fast"], &["-d", "single", "-m", "raid1"]);
    let place = served.place();
    put_files_in_the_wrong_tier(&served);
    let child = served.starts(&["-v", "tier", "watch", "--interval", "1"]);
    let status = || served.json(&["tier", "status", "--json"]);
    wait_until("files are where they belong", || wrong(&status()) == (0, 0));
    swap_devices(&served);
    wait_until("metadata follows", || wrong(&status()).0 == 0);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("moved to where they belong"), "{said}");
    let said = brindle_fails(1, ["tier", "watch", "--fast", "1", text(&place)]);
    assert!(said.contains("allocation_hint"), "{said}");
    // It does not keep the mount busy, and ends with it.
    let watch = Command::new(env!("CARGO_BIN_EXE_brindle"))
        .args(["-v", "tier", "watch", "--interval", "1", text(&place)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = watch.expect("the binary was built");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(said.any(|line| line.expect("text").contains("watching")), "it has begun");
    served.unmount();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{:?}", said.collect::<Vec<_>>());
    assert!(String::from_utf8_lossy(&output.stdout).contains("not mounted there any more"));
    served.check();
}

#[test]
fn a_watch_goes_on_during_writes_to_a_full_pool() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":bulk", ":bulk", ":fast", ":fast"], &["-d", "single", "-m", "raid1"]);
    let place = served.place();
    let filler = File::create(place.join("filler")).expect("new");
    for step in 0.. {
        const STEP_BYTES: u64 = 64 << 20;
        if rustix::fs::fallocate(&filler, FallocateFlags::empty(), step * STEP_BYTES, STEP_BYTES).is_err() {
            break;
        }
    }
    let mut watch = served.starts(&["-v", "tier", "watch", "--interval", "1"]);
    let mut growing = File::create(place.join("growing")).expect("new");
    let (begin, mut refused) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(4) || refused == 0 {
        assert!(begin.elapsed() < PATIENCE, "the pool is full");
        if growing.write_all(&vec![7; 1 << 20]).is_err() {
            refused += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(watch.try_wait().expect("our child").is_none(), "it goes on");
    drop((filler, growing));
    served.unmount();
    let output = watch.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    served.check();
}

/// Standard error of a command that succeeds.
fn warning(words: &[&str]) -> String {
    let output = brindle(words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

#[test]
fn tiers_that_make_no_difference_are_warned_of_and_plan_and_apply_agree() {
    if !can_mount() {
        return;
    }
    let cases: [([&str; 4], &str, &str, bool); 4] = [
        ([":bulk"; 4], "single", "no fast devices", true),
        (
            [":fast", ":bulk", ":bulk", ":bulk"],
            "raid10",
            "data of profile raid10 needs 2 fast devices, and there is 1",
            true,
        ),
        ([":fast", ":bulk", ":bulk", ":bulk"], "raid1", "", false),
        ([":fast", ":fast", ":bulk", ":bulk"], "raid1", "", false),
    ];
    for (classes, data, reason, is_futile) in cases {
        let mut served = Served::make(classes, &["-d", data, "-m", "raid1"]);
        let place = served.place();
        let file = place.join("file");
        fs::write(&file, "contents").expect("room");
        for words in [
            ["property", "set", text(&place), "small_files", "64K"],
            ["property", "set", text(&file), "tier", "fast"],
        ] {
            let said = warning(&words);
            assert_eq!(said.contains("makes no difference"), is_futile, "{words:?}: {said}");
            assert!(said.contains(reason), "{words:?}: {said}");
        }
        assert_eq!(warning(&["property", "set", text(&place), "small_files", "0"]), "");
        if is_futile {
            // That there is nothing to do is said, and no failure.
            let planned = served.prints(&["tier", "plan"]);
            assert!(planned.starts_with("Nothing to move."), "{planned}");
            let note = planned.lines().find(|line| line.starts_with("Note: ")).expect("a reason");
            let said = served.prints(&["tier", "apply"]);
            assert!(said.starts_with("Nothing to move.") && said.contains(note), "{planned}: {said}");
            let plan = served.json(&["tier", "plan", "--json"]);
            assert_eq!(plan["nothing_to_move"], true, "{plan}");
        }
        served.unmount();
        let scratch = served.scratch.path();
        let image = scratch.join("again");
        let mkfs = ["mkfs", "--size", "512M", "--small-files", "64K", text(&image)];
        let said = warning(&mkfs);
        assert!(said.contains("no fast devices") && said.contains("--small-files"), "{said}");
        let mut words = vec!["mount", "-o", "small_files=64K"];
        words.extend(served.devices.iter().map(|device| text(device)));
        words.push(text(&place));
        let said = warning(&words);
        assert_eq!(said.contains("makes no difference"), is_futile, "{said}");
        unmount(&place);
    }
}

#[test]
fn a_pool_that_is_filled_when_it_is_made_has_everything_where_it_belongs() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).expect("new");
    for number in 0..30 {
        fs::write(tree.join(format!("{number}-small")), [7; 9000]).expect("room");
        fs::write(tree.join(format!("{number}-large")), vec![8; 300_000]).expect("room");
    }
    let make = |name: &str, options: &[&str]| {
        let device = |number: u32| scratch.path().join(format!("{name}{number}"));
        let devices: Vec<PathBuf> = (1..=4).map(device).collect();
        let mut words: Vec<String> =
            ["-q", "mkfs", "--size", "512M", "-d", "single"].map(str::to_owned).into();
        words.extend(options.iter().map(|word| (*word).to_owned()));
        let classes = ["bulk", "bulk", "fast", "fast"];
        words.extend(devices.iter().zip(classes).map(|(device, class)| format!("{}:{class}", text(device))));
        brindle_prints(words);
        brindle_prints(with_devices(&["-q", "check", "--check-data-csum"], &devices));
        let status = json(with_devices(&["tier", "status", "--json"], &devices));
        assert_eq!(wrong(&status), (0, 0), "{status}");
        let on_fast = status["files"]["small_and_marked"]["fast_bytes"].as_u64().expect("a number");
        let on_bulk = status["files"]["other"]["bulk_bytes"].as_u64().expect("a number");
        let metadata =
            status["kinds"].as_array().expect("a list").iter().find(|kind| kind["content"] == "metadata");
        assert_eq!(metadata.expect("there is some")["bulk_bytes"], 0);
        (on_fast, on_bulk, devices)
    };
    let (small, large) = (30 * 12_288, 30 * 303_104);
    let (on_fast, on_bulk, _) = make("filled", &["--rootdir", text(&tree), "--small-files", "64K"]);
    assert_eq!((on_fast, on_bulk), (small, large));
    let (on_fast, on_bulk, _) = make("plain", &["--rootdir", text(&tree)]);
    assert_eq!((on_fast, on_bulk), (0, small + large));
    let (on_fast, on_bulk, devices) = make("empty", &["--small-files", "64K"]);
    assert_eq!((on_fast, on_bulk), (0, 0));
    if can_mount() {
        let place = scratch.path().join("place");
        fs::create_dir(&place).expect("new");
        let mut words = with_devices(&["-q", "mount"], &devices);
        words.push(place.clone());
        brindle_prints(words);
        let shown = brindle_prints(["property", "get", text(&place), "small_files"]);
        unmount(&place);
        assert_eq!(shown, "small_files=65536\n");
    }
}
