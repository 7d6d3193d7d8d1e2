//! `brindle lab`: modelled disks, served, attached, cut off from power and killed.

use super::mount::{can_mount, is_mounted};
use super::support::{brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time of anything here: a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// A disk on a directory of its own; whatever is left of it goes when this is dropped.
struct LabDisk {
    scratch: TempDir,
    path: PathBuf,
}

/// Waits until something is so.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program that may not take for ever.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    let seconds = PATIENCE.as_secs().to_string();
    command.args(["-s", "KILL", &seconds, program]).args(arguments);
    command.output().expect("coreutils")
}

#[track_caller]
fn succeed(program: &str, arguments: &[&str]) {
    let output = run(program, arguments);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

impl LabDisk {
    fn new(options: &[&str], model: &str) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(scratch.path().join("place")).expect("new");
        let mut disk = Self { scratch, path: PathBuf::new() };
        disk.start(options, model);
        disk
    }

    fn start(&mut self, options: &[&str], model: &str) {
        let place = self.place();
        let words = ["lab", "disk"].into_iter().chain(options.iter().copied());
        let said = brindle_prints(words.chain([model, text(&place)]));
        self.path = PathBuf::from(said.trim_end());
    }

    fn place(&self) -> PathBuf {
        self.scratch.path().join("place")
    }

    fn lab(&self, words: &[&str]) -> Vec<PathBuf> {
        ["lab"].iter().chain(words).map(PathBuf::from).chain([self.place()]).collect()
    }

    fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&brindle_prints(self.lab(&["stats", "--json"]))).expect("JSON")
    }

    fn number(&self, name: &str) -> u64 {
        self.stats()[name].as_u64().unwrap_or_else(|| panic!("{name} is a number"))
    }

    fn server(&self) -> Pid {
        let number = i32::try_from(self.number("process")).expect("a process");
        Pid::from_raw(number).expect("a process")
    }

    fn open(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(self.place().join("disk"))
    }
}

fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

impl Drop for LabDisk {
    fn drop(&mut self) {
        let place = self.place();
        if is_mounted(&place) {
            let left = brindle(self.lab(&["stop"]));
            if !left.status.success() {
                Command::new("umount").arg("-l").arg(&place).status().ok();
            }
        }
        if self.path.starts_with("/dev") && is_backed(&self.path, self.scratch.path()) {
            Command::new("losetup").arg("--detach").arg(&self.path).status().ok();
        }
    }
}

/// Returns true if a loop device has its contents below a directory.
fn is_backed(device: &Path, below: &Path) -> bool {
    let name = device.file_name().expect("a device").to_string_lossy();
    let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
    file.is_ok_and(|file| Path::new(&file).starts_with(below))
}

fn queue(device: &Path, property: &str) -> String {
    let name = device.file_name().expect("a device").to_string_lossy();
    let value = fs::read_to_string(format!("/sys/block/{name}/queue/{property}"));
    value.expect("a property of this kernel").trim().to_owned()
}

#[test]
fn models_are_listed_and_wrong_ones_named() {
    let said = brindle_prints(["lab", "models"]);
    assert!(
        said.contains("ssd           SATA SSD, 256 GB; also m550\n") && said.contains("spindown"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&brindle_prints(["lab", "models", "--json"])).expect("JSON");
    assert_eq!(json["models"][0]["size_bytes"], 2_000_398_934_016_u64);
    let scratch = tempfile::tempdir().expect("temporary directory");
    let place = text(scratch.path());
    let said = brindle_fails(2, ["lab", "disk", "floppy", place]);
    assert!(
        said.contains("no model \"floppy\"; there are hdd, old-hdd, smr, ssd, ssd-plp, nvme, nvme-consumer"),
        "{said}"
    );
    let said = brindle_fails(2, ["lab", "disk", "ssd,rpm=7200", place]);
    assert!(said.contains("a drive of model ssd has no rpm"), "{said}");
    let said = brindle_fails(1, ["lab", "disk", "ssd", "/nowhere/at/all"]);
    assert!(said.contains("/nowhere/at/all"), "{said}");
    let said = brindle_fails(1, ["lab", "stats", place]);
    assert!(said.contains("no modelled disk is mounted there"), "{said}");
    for command in ["cut", "restore", "stop"] {
        let said = brindle_fails(1, ["lab", command, place]);
        assert!(said.contains("no modelled disk is mounted there"), "{said}");
    }
    let said = brindle_fails(2, ["lab", "cut", "--mode", "half", place]);
    assert!(said.contains("a cut is one of lost, kept, torn, reordered"), "{said}");
}

#[test]
fn disk_is_a_file_whose_requests_are_counted_and_whose_power_can_be_cut() {
    if !can_mount() {
        return;
    }
    let disk = LabDisk::new(&["--size", "64M"], "ssd");
    assert_eq!(disk.path, disk.place().join("disk"));
    let file = disk.open().expect("ours");
    assert_eq!(file.metadata().expect("open").len(), 64 << 20);
    file.write_all_at(&[1; 8192], 4096).expect("writes");
    file.sync_all().expect("flushes");
    file.write_all_at(&[2; 4096], 1 << 20).expect("writes");
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 1 << 20).expect("reads");
    assert_eq!(bytes, [2; 4096]);
    let stats = disk.stats();
    let numbers =
        ["reads", "writes", "written_bytes", "flushes", "unflushed_writes"].map(|name| &stats[name]);
    assert_eq!(numbers.map(serde_json::Value::as_u64), [1, 2, 12288, 1, 1].map(Some));
    assert_eq!((&stats["model"], &stats["power"]), (&"ssd".into(), &true.into()));
    let of = |stats: &serde_json::Value, name: &str| stats[name].as_u64().expect("a number");
    // A flush takes a millisecond.
    assert!((1_000_000..of(&stats, "elapsed_ns")).contains(&of(&stats, "busy_ns")), "{stats}");
    assert!(of(&stats, "in_flight_max") > 0 && stats["queue_mean"].as_f64() > Some(0.0), "{stats}");
    brindle_succeeds(disk.lab(&["stats", "--reset"]));
    let stats = disk.stats();
    assert_eq!(["writes", "busy_ns", "in_flight_max"].map(|name| of(&stats, name)), [0, 0, 0]);
    let said = brindle_prints(disk.lab(&["cut", "--mode", "lost", "--seed", "3"]));
    assert_eq!(said, "mode lost, seed 3: of the writes without a flush 0 kept, 1 lost, 0 torn\n");
    let said = brindle_fails(1, disk.lab(&["cut"]));
    assert!(said.contains("the power of this disk is off"), "{said}");
    let error = file.read_exact_at(&mut bytes, 0).expect_err("no power");
    assert_eq!(error.raw_os_error(), Some(5));
    file.write_all_at(&bytes, 0).expect_err("no power");
    file.sync_all().expect_err("no power");
    brindle_succeeds(disk.lab(&["restore"]));
    let said = brindle_fails(1, disk.lab(&["restore"]));
    assert!(said.contains("the power of this disk is on"), "{said}");
    file.read_exact_at(&mut bytes, 1 << 20).expect("reads");
    assert_eq!(bytes, [0; 4096], "it was not flushed");
    file.read_exact_at(&mut bytes, 8192).expect("reads");
    assert_eq!(bytes, [1; 4096], "it was flushed");
    let said = brindle_fails(1, disk.lab(&["stop"]));
    assert!(said.contains("busy"), "the file is open: {said}");
    drop(file);
    brindle_succeeds(disk.lab(&["stop"]));
    assert!(!is_mounted(&disk.place()));
}

#[test]
fn contents_of_a_file_outlive_the_disk_and_its_cut() {
    if !can_mount() {
        return;
    }
    let mut disk = LabDisk::new(&["--size", "16M"], "hdd");
    brindle_succeeds(disk.lab(&["stop"]));
    let contents = disk.scratch.path().join("contents");
    let options = ["--size", "16M", "--file", text(&contents)].map(str::to_owned);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    disk.start(&options, "nvme");
    let file = disk.open().expect("ours");
    file.write_all_at(&[7; 4096], 0).expect("writes");
    file.sync_all().expect("flushes");
    file.write_all_at(&[8; 4096], 0).expect("writes");
    drop(file);
    brindle_succeeds(disk.lab(&["cut", "--mode", "lost"]));
    let other = tempfile::tempdir().expect("temporary directory");
    let words = ["lab", "disk"].iter().chain(&options).copied();
    let said = brindle_fails(1, words.chain(["hdd", text(other.path())]));
    assert!(said.contains("another disk has it"), "{said}");
    brindle_succeeds(disk.lab(&["stop"]));
    disk.start(&options, "nvme");
    let mut bytes = [0; 4096];
    disk.open().expect("ours").read_exact_at(&mut bytes, 0).expect("reads");
    assert_eq!(bytes, [7; 4096]);
}

/// A reader of a disk that takes an hour to wake up.
fn waiting_reader(disk: &LabDisk) -> Child {
    let mut reader = Command::new("dd");
    let input = format!("if={}", disk.place().join("disk").display());
    let reader = reader.args([&input, "of=/dev/null", "bs=4096", "count=1", "skip=1000"]);
    let reader = reader.stderr(Stdio::null()).spawn().expect("coreutils");
    wait_until("the request of the reader", || disk.number("in_flight") == 1);
    reader
}

/// Waits for the end of a program.
fn wait_for(child: &mut Child) -> Option<i32> {
    wait_until("the end of the program", || child.try_wait().expect("our child").is_some());
    child.wait().expect("our child").code()
}

const SLEEPER: &str = "hdd,spindown=1,spinup=3600";

#[test]
fn power_cut_and_death_of_the_server_leave_no_reader_waiting() {
    if !can_mount() {
        return;
    }
    let disk = LabDisk::new(&["--size", "64M"], SLEEPER);
    wait_until("the disk sleeps", || disk.stats()["asleep"] == true);
    let mut reader = waiting_reader(&disk);
    assert_eq!(disk.number("wake_ups"), 1);
    brindle_succeeds(disk.lab(&["cut"]));
    assert_eq!(wait_for(&mut reader), Some(1), "dd tells of the error");
    brindle_succeeds(disk.lab(&["restore"]));
    wait_until("the disk sleeps again", || disk.stats()["asleep"] == true);
    let (mut reader, server) = (waiting_reader(&disk), disk.server());
    kill_process(server, Signal::KILL).expect("ours");
    assert_eq!(wait_for(&mut reader), Some(1), "dd tells of the error");
    wait_until("the end of the server", || !is_alive(server));
    let said = brindle_fails(1, disk.lab(&["stats"]));
    assert!(said.contains("is gone") && said.contains("unmount it"), "{said}");
}

#[test]
fn signal_ends_a_disk_and_a_second_one_a_disk_that_is_in_use() {
    if !can_mount() {
        return;
    }
    let disk = LabDisk::new(&["--size", "64M"], "hdd");
    let server = disk.server();
    kill_process(server, Signal::TERM).expect("ours");
    wait_until("the end of the server", || !is_alive(server));
    assert!(!is_mounted(&disk.place()));
    let disk = LabDisk::new(&["--size", "64M"], "hdd");
    let (file, server) = (disk.open().expect("ours"), disk.server());
    kill_process(server, Signal::TERM).expect("ours");
    wait_until("the mount is out of the tree", || !is_mounted(&disk.place()));
    file.write_all_at(&[1; 4096], 0).expect("it is served until its last user has gone");
    kill_process(server, Signal::TERM).expect("ours");
    wait_until("the end of the server", || !is_alive(server));
    file.write_all_at(&[1; 4096], 0).expect_err("the server is gone");
}

#[test]
fn attached_disk_is_a_block_device_that_a_filesystem_survives_a_cut_on() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    for (model, rotates, discards) in [("hdd", "1", false), ("ssd", "0", true)] {
        let disk = LabDisk::new(&["--attach", "--size", "512M"], model);
        assert!(disk.path.starts_with("/dev"), "{}", disk.path.display());
        let properties = ["rotational", "logical_block_size", "max_sectors_kb"];
        let found = properties.map(|property| queue(&disk.path, property));
        assert_eq!(found, [rotates, "512", "1024"], "{model}");
        assert_eq!(queue(&disk.path, "discard_max_bytes") != "0", discards, "{model}");
        let (device, at) = (text(&disk.path).to_owned(), disk.scratch.path().join("files"));
        fs::create_dir(&at).expect("new");
        succeed("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", &device]);
        succeed("mount", &[&device, text(&at)]);
        let file = at.join("file");
        let written = File::create(&file).and_then(|mut file| {
            io::Write::write_all(&mut file, b"of a moment before")?;
            file.sync_all()
        });
        written.expect("room");
        succeed("sync", &["-f", text(&at)]);
        let said = brindle_fails(1, disk.lab(&["stop"]));
        assert!(said.contains(&device), "{said}");
        assert!(disk.number("flushes") > 0 && (disk.number("seeks") > 0) == (rotates == "1"));
        brindle_succeeds(disk.lab(&["cut", "--mode", "reordered", "--seed", "5"]));
        succeed("umount", &[text(&at)]);
        brindle_succeeds(disk.lab(&["restore"]));
        succeed("mount", &[&device, text(&at)]);
        assert_eq!(fs::read(&file).expect("it was made durable"), b"of a moment before");
        succeed("umount", &[text(&at)]);
        brindle_succeeds(disk.lab(&["stop"]));
        assert!(!is_mounted(&disk.place()));
        wait_until("the end of the loop device", || !is_backed(&disk.path, disk.scratch.path()));
    }
}

#[test]
fn killed_server_of_an_attached_disk_leaves_errors_and_nothing_that_waits() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let disk = LabDisk::new(&["--attach", "--size", "64M"], SLEEPER);
    wait_until("the disk sleeps", || disk.stats()["asleep"] == true);
    // Far from what others probe, which the disk may have in its cache.
    let mut reader = Command::new("dd");
    let input = format!("if={}", disk.path.display());
    let reader = reader.args([&input, "of=/dev/null", "bs=4096", "count=1", "skip=8000", "iflag=direct"]);
    let mut reader = reader.stderr(Stdio::null()).spawn().expect("coreutils");
    wait_until("the request of the reader", || disk.number("in_flight") > 0);
    let server = disk.server();
    kill_process(server, Signal::KILL).expect("ours");
    assert_eq!(wait_for(&mut reader), Some(1), "dd tells of the error");
    wait_until("the end of the server", || !is_alive(server));
    succeed("losetup", &["--detach", text(&disk.path)]);
    // A process that looks at the devices of the host keeps the loop device for a moment, and this the mount.
    let unmounts = || run("umount", &[text(&disk.place())]).status.success();
    wait_until("the end of the mount", unmounts);
}

fn json_of(words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&brindle_prints(words)).expect("JSON")
}

#[test]
fn suites_run_on_any_directory_and_leave_it_as_it_was() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let at = text(scratch.path());
    for (suite, names) in [
        ("fsync", &["put"][..]),
        ("files", &["create", "remove"]),
        ("reads", &["write", "sequential", "random"]),
        ("objects", &["put"]),
        ("mail", &["mail"]),
        ("walk", &["walk"]),
        ("untar", &["unpack"]),
        ("upgrade", &["upgrade"]),
        ("dpkg", &["install", "upgrade"]),
        ("overwrites", &["write", "read new", "overwrite", "read overwritten"]),
        ("threads", &["write+fsync"]),
    ] {
        let jobs = if ["untar", "upgrade", "dpkg", "overwrites"].contains(&suite) { "1" } else { "2" };
        // Each package is a dozen files, and several flushes.
        let count = if ["upgrade", "dpkg"].contains(&suite) { "3" } else { "30" };
        let words = ["lab", "run", suite, "--json", "--count", count, "--jobs", jobs, "--size", "1M", at];
        let report = json_of(&words);
        let phases = report["phases"].as_array().expect("phases");
        assert_eq!(phases.iter().map(|phase| &phase["name"]).collect::<Vec<_>>(), names);
        assert_eq!((&report["seed"], &report["disks"]), (&1.into(), &serde_json::json!([])));
        let said = brindle_prints(words.iter().filter(|word| **word != "--json"));
        let head = format!("suite {suite} on ");
        assert!(said.starts_with(&head) && said.contains("PER SECOND"), "{said}");
        assert_eq!(fs::read_dir(at).expect("ours").count(), 0, "{suite}");
    }
    assert!(
        brindle_fails(2, ["lab", "run", "all", at]).contains("one of fsync, files, reads, objects, cases")
    );
    assert!(brindle_fails(2, ["lab", "run", "reads", "--size", "4K", at]).contains("64K or more"));
    assert!(brindle_fails(2, ["lab", "run", "files", "--journal", at, at]).contains("no journal"));
    assert!(brindle_fails(2, ["lab", "run", "files", "--no-sync", at]).contains("no packages"));
    assert!(
        brindle_fails(2, ["lab", "run", "files", "--defragment", at]).contains("reads nothing that was torn")
    );
    assert!(brindle_fails(2, ["lab", "run", "files", "--packages", at, at]).contains("installs none"));
    let said = brindle_fails(1, ["lab", "run", "dpkg", "--packages", at, at]);
    assert!(said.contains("no package is there") && fs::read_dir(at).expect("ours").count() == 0, "{said}");
    assert!(brindle_fails(2, ["lab", "run", "untar", "--jobs", "2", at]).contains("jobs of its own"));
    assert!(
        brindle_fails(2, ["lab", "run", "untar", "--seconds", "2", at]).contains("when its work is done")
    );
    assert!(brindle_fails(1, ["lab", "run", "fsync", "/nowhere"]).contains("/nowhere/brindle-lab-run"));
    let said = brindle_fails(1, ["lab", "run", "fsync", "--disk", at, at]);
    assert!(said.contains("no modelled disk is mounted there"), "{said}");
}

/// Number of processes with a word in their command lines.
fn processes_of(word: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

#[test]
fn database_of_a_run_that_is_killed_ends_with_it() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    // The server has a user of its own.
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    let words = ["lab", "run", "pgbench", "--count", "10000000", "--jobs", "2", "--size", "16M"];
    let mut run = command.args(words).arg(scratch.path()).stderr(Stdio::piped()).spawn().expect("ours");
    let socket = format!("@brindle-lab-{}-0", run.id());
    let begin = Instant::now();
    while processes_of(&socket) < 2 {
        if run.try_wait().expect("our child").is_some() {
            let said = run.wait_with_output().expect("our child").stderr;
            let said = String::from_utf8_lossy(&said);
            // It is no package of the tests; `make programs` has it.
            assert!(said.contains("the suite pgbench needs"), "{said}");
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "neither a server nor its client");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.kill().expect("ours");
    run.wait().expect("our child");
    wait_until("the end of the server", || processes_of(&socket) == 0);
}

#[test]
fn all_73_cases_are_told_and_those_slower_than_a_reference_are_poor() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let at = text(scratch.path());
    let sizes = ["--count", "20", "--size", "256K", "--seconds", "5"];
    let words: Vec<&str> = ["lab", "run", "cases"].into_iter().chain(sizes).collect();
    let mut report = json_of(&words.iter().copied().chain(["--json", at]).collect::<Vec<_>>());
    let phases = report["phases"].as_array_mut().expect("phases");
    assert_eq!(phases.len(), 73);
    for (index, phase) in phases.iter_mut().enumerate() {
        // No filesystem is that fast, or that slow.
        phase["operations_per_second"] = if index % 2 == 0 { 1e12 } else { 1e-6 }.into();
    }
    let reference = scratch.path().join("reference.json");
    fs::write(&reference, report.to_string()).expect("room");
    let compared = ["--reference", text(&reference), at];
    let said = brindle_prints(words.iter().copied().chain(compared));
    assert_eq!(said.lines().filter(|line| line.ends_with(" poor")).count(), 37, "{said}");
    fs::write(&reference, "{}").expect("room");
    let said = brindle_fails(1, words.iter().copied().chain(compared));
    assert!(said.contains("no output of `brindle lab run --json`"), "{said}");
}

#[test]
fn run_tells_the_counts_of_the_disks_below() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let disk = LabDisk::new(&["--attach", "--size", "256M"], "ssd");
    let (device, at) = (text(&disk.path).to_owned(), disk.scratch.path().join("files"));
    fs::create_dir(&at).expect("new");
    succeed("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", &device]);
    succeed("mount", &[&device, text(&at)]);
    let place = disk.place();
    let report =
        json_of(&["lab", "run", "fsync", "--json", "--count", "40", "--disk", text(&place), text(&at)]);
    succeed("umount", &[text(&at)]);
    assert_eq!((&report["filesystem"], &report["disks"][0]["model"]), (&"ext4".into(), &"ssd".into()));
    let number = |name: &str| report["disks"][0][name].as_u64().expect("a number");
    assert!((80..400).contains(&number("flushes")), "two for each file: {}", number("flushes"));
    assert!(number("writes") >= 80 && number("seeks") == 0);
    let activity = &report["phases"][0]["activity"][0];
    let cells = activity["cells"].as_array().expect("cells");
    let written: u64 = cells.iter().map(|cell| cell[3].as_u64().expect("KiB")).sum();
    assert!(written >= 40 * 4 && activity["rows"].as_u64() > Some(0), "{activity}");
    let of_phase = report["phases"][0]["disks"][0]["flushes"].as_u64().expect("a number");
    assert!((80..=number("flushes")).contains(&of_phase), "those of the phase: {of_phase}");
    let elapsed = report["phases"][0]["elapsed_ns"].as_u64().expect("a number");
    assert!(elapsed > 40 * 983_000, "each file waits for a flush of nearly 1 ms: {elapsed}");
    brindle_succeeds(disk.lab(&["stop"]));
}

#[test]
fn comparison_is_listed_and_wrong_names_refused() {
    let said = brindle_prints(["lab", "compare", "--plan", "full", "--list"]);
    assert!(
        said.contains("upgrade-nosync") && said.contains("brindle-ssd+hdd-small ext4-cache xfs-cache"),
        "{said}"
    );
    let said = brindle_prints(["lab", "compare", "--plan", "smoke", "--work", "untar", "--list"]);
    assert!(said.contains("brindle lab run untar") && said.ends_with("1 rounds, 7 steps\n"), "{said}");
    let said = brindle_fails(2, ["lab", "compare", "--plan", "all", "--list"]);
    assert!(said.contains("one of smoke, quick, full"), "{said}");
    let said = brindle_fails(2, ["lab", "compare", "--configuration", "fat", "--list"]);
    assert!(said.contains("no configuration fat"), "{said}");
    let said = brindle_fails(2, ["lab", "compare", "--hdd", "floppy", "--list"]);
    assert!(said.contains("no model \"floppy\""), "{said}");
    brindle_fails(2, ["lab", "compare"]);
}

#[test]
fn comparison_measures_filesystems_in_turn_checks_them_and_goes_on_where_it_was() {
    if !can_mount() || !is_root("filesystems on loop devices") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let results = scratch.path().join("results.jsonl");
    let words = ["lab", "compare", "--plan", "smoke", "--work", "untar", "--scratch", text(scratch.path())];
    let compare = |configurations: &[&'static str]| {
        let chosen = configurations.iter().flat_map(|name| ["--configuration", name]);
        brindle_prints(words.into_iter().chain(chosen).chain([text(&results)]))
    };
    let said = compare(&["ext4-ssd"]);
    assert!(said.starts_with("1 of 1 steps are done, 0 now void, 0 failed"), "{said}");
    let all = ["ext4-ssd", "brindle-ssd+hdd-sync", "ext4-cache", "brindle-cache"];
    let said = compare(&all);
    assert!(said.starts_with("4 of 4 steps are done, 0 now void, 0 failed"), "{said}");
    let lines = fs::read_to_string(&results).expect("written");
    assert!(compare(&all).starts_with("4 of 4 steps are done"));
    assert_eq!(fs::read_to_string(&results).expect("written"), lines, "nothing was left to do");
    let steps: Vec<serde_json::Value> =
        lines.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<_> = steps.iter().map(|step| step["configuration"].as_str().expect("a name")).collect();
    assert_eq!(names, all);
    for (step, checks, disks) in [(&steps[0], 1, 1), (&steps[1], 2, 2), (&steps[2], 1, 2), (&steps[3], 2, 2)]
    {
        let found = step["checks"].as_array().expect("checks");
        assert!(found.len() == checks && found.iter().all(|check| check["passed"] == true), "{step}");
        let phase = &step["run"]["phases"][0];
        assert_eq!((&phase["name"], &phase["operations"]), (&"unpack".into(), &60.into()));
        assert_eq!(phase["disks"].as_array().map(Vec::len), Some(disks));
        assert!(phase["disks"][0]["written_bytes"].as_u64() > Some(0), "{phase}");
    }
    let left: Vec<_> = fs::read_dir(scratch.path()).expect("ours").collect();
    assert_eq!(left.len(), 1, "the results alone: {left:?}");
    let said = brindle_fails(1, ["lab", "compare", "--plan", "smoke", "--seed", "2", text(&results)]);
    assert!(said.contains("holds results of another plan, seed"), "{said}");
}

#[test]
fn report_of_results_is_a_page_and_markdown() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/src/report/sample");
    let results = sample.join("results.jsonl");
    let golden = fs::read_to_string(sample.join("report.md")).expect("there");
    assert_eq!(brindle_prints(["lab", "report", text(&results)]), golden);
    let [html, markdown] = ["report.html", "report.md"].map(|name| scratch.path().join(name));
    let words = ["lab", "report", "--html", text(&html), "--markdown", text(&markdown), text(&results)];
    assert_eq!(brindle_prints(words), "");
    assert_eq!(fs::read_to_string(markdown).expect("written"), golden);
    let page = fs::read_to_string(html).expect("written");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.ends_with("</html>\n"));
    let said = brindle_fails(1, ["lab", "report", text(&sample.join("report.md"))]);
    assert!(said.contains("line 1 is not one of results"), "{said}");
}
