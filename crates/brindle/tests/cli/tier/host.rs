//! The host: loop devices that rotate or do not, and a pool on them; taken down when dropped.

use crate::support::{is_root, text};
use brindle_testing::referee::btrfs_check;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// A disk: its size in bytes, and that it rotates.
const DISK: (u64, bool) = (4608 * MIB, true);
/// A fast device, on which the kernel would put a new chunk last.
const FAST: (u64, bool) = (2560 * MIB, false);

/// Number of directories of a filled pool.
const DIRECTORIES: usize = 20;

/// Returns true if the kernel's btrfs can be had; reports missing tools.
pub(crate) fn can_mount() -> bool {
    if !is_root("what is done to a pool that the kernel has mounted") {
        return false;
    }
    let found = ["mkfs.btrfs", "btrfs", "losetup"]
        .into_iter()
        .all(|tool| Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success()));
    assert!(found || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "needs btrfs-progs");
    if !found {
        println!("skipped: needs btrfs-progs");
    }
    found
}

/// Runs a program, and expects success; what it printed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// A pool made by mkfs.btrfs on two disks, filled, with two fast devices added, mounted by the kernel.
pub(crate) struct TierPool {
    loops: Vec<String>,
    is_mounted: bool,
    directory: TempDir,
}

impl TierPool {
    /// With some data, and metadata of many small files.
    pub(crate) fn filled() -> Self {
        let pool = Self::made(2, &[]);
        pool.fill();
        let [_, _, third, fourth] = &pool.loops[..] else { unreachable!("four devices") };
        run("btrfs", &["device", "add", "-f", "-K", third, fourth, text(&pool.at())]);
        pool
    }

    /// The same with one fast device.
    pub(crate) fn filled_with_one_fast_device() -> Self {
        Self::beside_one_fast_device(2, ["raid1", "raid1"], DIRECTORIES)
    }

    /// This number of disks with a few files, in these profiles, and one fast device that was added.
    pub(crate) fn filled_beside_one_fast_device(disks: usize, metadata: &str, data: &str) -> Self {
        Self::beside_one_fast_device(disks, [metadata, data], DIRECTORIES / 4)
    }

    fn beside_one_fast_device(disks: usize, [metadata, data]: [&str; 2], directories: usize) -> Self {
        let devices = [vec![DISK; disks], vec![FAST]].concat();
        let pool = Self::made_of(&devices, disks, &["-m", metadata, "-d", data]);
        pool.fill_directories(directories);
        run("btrfs", &["device", "add", "-f", "-K", &pool.loops[disks], text(&pool.at())]);
        pool
    }

    /// Makes a pool on the first `used` of two disks and two fast devices, and mounts it.
    pub(crate) fn made(used: usize, options: &[&str]) -> Self {
        Self::made_of(&[DISK, DISK, FAST, FAST], used, options)
    }

    /// The same, of these devices.
    fn made_of(devices: &[(u64, bool)], used: usize, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("brindle-tier-").tempdir().expect("room");
        let mut pool = Self { loops: Vec::new(), is_mounted: false, directory };
        std::fs::create_dir(pool.at()).expect("room");
        for (index, (bytes, rotates)) in devices.iter().enumerate() {
            let image = pool.directory.path().join(format!("{index}.img"));
            let file = std::fs::File::create(&image).expect("room");
            file.set_len(*bytes).expect("sparse");
            let device = run("losetup", &["--find", "--show", text(&image)]).trim().to_owned();
            let queue = format!("/sys/block/{}/queue/rotational", device.trim_start_matches("/dev/"));
            pool.loops.push(device);
            std::fs::write(queue, if *rotates { "1" } else { "0" }).expect("root may");
        }
        let made: Vec<&str> = pool.loops[..used].iter().map(String::as_str).collect();
        let profiles: &[&str] = &["-m", "raid1", "-d", "raid1"];
        // Profiles that are named twice are added up.
        let profiles = if options.contains(&"-m") { &[] } else { profiles };
        run("mkfs.btrfs", &[&["-q", "-f"], profiles, options, &made].concat());
        pool.mount();
        pool
    }

    pub(crate) fn fill(&self) {
        self.fill_directories(DIRECTORIES);
    }

    fn fill_directories(&self, directories: usize) {
        for directory in 0..directories {
            let directory = self.at().join(format!("d{directory}"));
            std::fs::create_dir(&directory).expect("room");
            for file in 0..200_usize {
                let contents = vec![u8::try_from(file % 251).expect("small"); 100 + file * 17];
                std::fs::write(directory.join(format!("f{file}")), contents).expect("room");
            }
        }
        for file in 0..4_u8 {
            let part: Vec<u8> = (0..1 << 16).map(|at: u32| at.to_le_bytes()[usize::from(file % 2)]).collect();
            std::fs::write(self.at().join(format!("large{file}")), part.repeat(128)).expect("room");
        }
        run("sync", &["-f", text(&self.at())]);
    }

    /// The devices: two that rotate, two that do not.
    pub(crate) fn loops(&self) -> &[String] {
        &self.loops
    }

    pub(crate) fn at(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn devices(&self) -> Vec<PathBuf> {
        self.loops.iter().map(PathBuf::from).collect()
    }

    pub(crate) fn mount(&mut self) {
        self.mount_with("rw");
    }

    pub(crate) fn mount_with(&mut self, options: &str) {
        let scan: Vec<&str> = self.loops.iter().map(String::as_str).collect();
        // What is no btrfs yet is none of its business.
        for device in scan {
            let _ = Command::new("btrfs").args(["device", "scan", device]).output();
        }
        run("mount", &["-t", "btrfs", "-o", options, &self.loops[0], text(&self.at())]);
        self.is_mounted = true;
    }

    pub(crate) fn unmount(&mut self) {
        run("umount", &[text(&self.at())]);
        self.is_mounted = false;
    }

    /// `brindle tier` with a state directory of its own.
    fn command(&self, words: &[&str]) -> Command {
        // Where the tests run in the background of a shell, SIGINT is ignored, also by started processes.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_brindle")]);
        command.arg("tier").args(words).env("BRINDLE_STATE_DIR", self.state()).env_remove("BRINDLE_LOG");
        command
    }

    /// Runs `brindle tier` with these words, and the mount point.
    pub(crate) fn tier(&self, words: &[&str]) -> Output {
        self.command(words).arg(self.at()).output().expect("the binary was built")
    }

    /// The same, expecting success; what it printed.
    pub(crate) fn tier_prints(&self, words: &[&str]) -> String {
        let output = self.tier(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}: {said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, expecting exit code 1; what it said.
    pub(crate) fn tier_fails(&self, words: &[&str]) -> String {
        let output = self.tier(words);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Starts it.
    pub(crate) fn tier_starts(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.arg(self.at()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// JSON report of a command.
    pub(crate) fn json(&self, word: &str) -> Value {
        serde_json::from_str(&self.tier_prints(&[word, "--json"])).expect("JSON")
    }

    /// Sizes of all devices as the kernel has them.
    pub(crate) fn sizes(&self) -> String {
        let usage = run("btrfs", &["device", "usage", "--raw", text(&self.at())]);
        // The size is that of the block device; slack is how much less the pool has of it.
        let is_size = |line: &&str| line.contains("Device slack") || line.starts_with('/');
        usage.lines().filter(is_size).collect::<Vec<_>>().join("\n")
    }

    /// A checksum of every file.
    pub(crate) fn contents(&self) -> String {
        let script = "cd \"$1\" && find . -type f -print0 | sort -z | xargs -0 sha1sum";
        run("sh", &["-c", script, "sh", text(&self.at())])
    }

    /// Extents of data, as the kernel lists them for each large file.
    pub(crate) fn data_extents(&self) -> String {
        let script = "cd \"$1\" && filefrag -v large*";
        let shown = run("sh", &["-c", script, "sh", text(&self.at())]);
        shown.lines().filter(|line| line.contains("..")).collect::<Vec<_>>().join("\n")
    }

    /// Waits until a fence is about to be put up.
    pub(crate) fn wait_for_a_journal(&self) {
        for _ in 0..12_000 {
            let entries = std::fs::read_dir(self.state()).into_iter().flatten().flatten();
            if entries.into_iter().any(|entry| entry.path().extension().is_some_and(|end| end == "json")) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no journal in two minutes");
    }

    /// Waits until the status is as it is to be.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        for _ in 0..1500 {
            if is_so(&self.json("status")) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        panic!("not in five minutes: {what}: {}", self.json("status"));
    }

    /// Makes files that fill a leaf each with an attribute.
    pub(crate) fn grow_metadata(&self, directory: &str, files: usize) {
        let directory = self.at().join(directory);
        std::fs::create_dir(&directory).expect("room");
        for number in 0..files {
            let path = directory.join(number.to_string());
            std::fs::write(&path, b"").expect("room");
            let value = vec![u8::try_from(number % 251).expect("small"); 15_000];
            rustix::fs::setxattr(&path, "user.leaf", &value, rustix::fs::XattrFlags::empty()).expect("room");
        }
        run("sync", &["-f", text(&self.at())]);
    }

    /// Exclusive operation on the pool, as the kernel names it.
    pub(crate) fn exclusive_operation(&self) -> String {
        let uuid = run("findmnt", &["-n", "-o", "UUID", text(&self.at())]);
        let path = format!("/sys/fs/btrfs/{}/exclusive_operation", uuid.trim());
        std::fs::read_to_string(path).expect("of a mounted pool").trim().to_owned()
    }

    /// The first chunk of a content, by its logical address.
    pub(crate) fn first_chunk(&self, content: &str) -> u64 {
        run("sync", &["-f", text(&self.at())]);
        let shown = run("btrfs", &["inspect-internal", "dump-tree", "-t", "chunk", &self.loops[0]]);
        let lines: Vec<&str> = shown.lines().collect();
        // "item 5 key (FIRST_CHUNK_TREE CHUNK_ITEM 22020096) ...", and what it is in the next line.
        let content = format!(" type {content}|");
        let mut items =
            lines.windows(2).filter(|lines| lines[0].contains("CHUNK_ITEM") && lines[1].contains(&content));
        let item = items.next().unwrap_or_else(|| panic!("none is{content}: {shown}"))[0];
        let key = item.split_once("CHUNK_ITEM ").and_then(|(_, rest)| rest.split_once(')')).expect("a key").0;
        key.parse().expect("an address")
    }

    /// Begins a balance and pauses it; returns false if it was done before.
    pub(crate) fn pause_a_balance(&self) -> bool {
        self.pause_balance("-d")
    }

    /// The same with one that is for a chunk of data alone.
    pub(crate) fn pause_a_balance_of(&self, chunk: u64) -> bool {
        self.pause_balance(&format!("-dvrange={chunk}..{}", chunk + 1))
    }

    fn pause_balance(&self, filter: &str) -> bool {
        let at = self.at();
        let mut start = Command::new("btrfs");
        start.args(["balance", "start", filter]).arg(&at).stdout(Stdio::null()).stderr(Stdio::null());
        let mut start = start.spawn().expect("btrfs");
        while start.try_wait().expect("a child of ours").is_none() {
            // That there is none yet is an error; that it has ended instead is none.
            let _ = Command::new("btrfs").args(["balance", "pause"]).arg(&at).output().expect("btrfs");
        }
        self.exclusive_operation() == "balance paused"
    }

    /// Unmounts it, and has `btrfs check` look at it.
    pub(crate) fn check(&mut self) {
        self.unmount();
        btrfs_check(Path::new(&self.loops[0])).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
    }
}

impl Drop for TierPool {
    fn drop(&mut self) {
        let quietly = |command: &mut Command| drop(command.output());
        if self.is_mounted {
            quietly(Command::new("umount").arg(self.at()));
        }
        for device in &self.loops {
            quietly(Command::new("btrfs").args(["device", "scan", "--forget", device]));
            quietly(Command::new("losetup").args(["--detach", device]));
        }
    }
}
