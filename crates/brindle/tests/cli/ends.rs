//! Servers that end while programs write: asked to by a signal, or killed.

use super::mount::{can_mount, is_mounted, unmount};
use super::support::{brindle, brindle_prints, text};
use brindle_testing::referee::btrfs_check;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const WRITERS: usize = 8;
/// Number of files of each writer, which it writes in turn.
const SLOTS: u64 = 6;
/// Number of files that are made durable before the server is killed.
const DURABLE_FILES: u64 = 40;
/// Least length of a file in bytes, also the range of its random part.
const LEAST_BYTES: u64 = 20_000;

/// A pool in an image file, and a server of it that is our child.
pub(super) struct Served {
    scratch: TempDir,
    child: Option<Child>,
}

impl Served {
    pub(super) fn make() -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let served = Self { scratch, child: None };
        File::create(served.image()).and_then(|image| image.set_len(512 << 20)).expect("sparse");
        fs::create_dir(served.place()).expect("new");
        brindle_prints(["mkfs", text(&served.image())]);
        served
    }

    pub(super) fn image(&self) -> PathBuf {
        self.scratch.path().join("pool.img")
    }

    pub(super) fn place(&self) -> PathBuf {
        self.scratch.path().join("place")
    }

    pub(super) fn mount(&mut self) {
        self.mount_with("defaults");
    }

    pub(super) fn mount_with(&mut self, options: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(["mount", "--foreground", "-o", options]).arg(self.image()).arg(self.place());
        let said = File::create(self.scratch.path().join("said")).expect("room");
        command.stdout(Stdio::null()).stderr(said);
        let child = self.child.insert(command.spawn().expect("the binary was built"));
        let place = self.scratch.path().join("place");
        while !is_mounted(&place) {
            assert!(child.try_wait().expect("our child").is_none(), "it ended before it mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of the server's process.
    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().expect("it is mounted").id()
    }

    /// Returns true if the server has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        self.child.as_mut().expect("it was mounted").try_wait().expect("our child").is_some()
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("it is mounted");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("our child");
    }

    /// Kills the server, and removes what is left of its mount.
    pub(super) fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        assert!(!self.wait().success());
        while is_mounted(&self.place()) {
            Command::new("umount").args(["-l", text(&self.place())]).status().expect("umount");
        }
    }

    /// Kills the server, unless it has ended.
    pub(super) fn kill_if_alive(&mut self) {
        let mut child = self.child.take().expect("it was mounted");
        child.kill().ok();
        child.wait().expect("our child");
    }

    /// Waits for the server's end.
    fn wait(&mut self) -> ExitStatus {
        self.child.take().expect("it was mounted").wait().expect("our child")
    }

    /// Waits for the server's end, which must be a good one.
    pub(super) fn wait_for_success(&mut self) {
        let status = self.wait();
        let said = fs::read_to_string(self.scratch.path().join("said")).expect("text");
        assert!(status.success(), "{status}: {said}");
    }

    /// Checks the image with both checkers.
    pub(super) fn check(&self) {
        brindle_prints(["check", "--check-data-csum", text(&self.image())]);
        match btrfs_check(&self.image()) {
            Some(said) => said.unwrap_or_else(|said| panic!("{said}")),
            None => println!("skipped: btrfs check, which is not installed"),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
        if is_mounted(&self.place()) {
            Command::new("umount").arg("-l").arg(self.place()).status().ok();
        }
    }
}

/// Contents of a file in its nth version: that number, and more that follows from it and from its writer.
fn contents(writer: usize, version: u64) -> Vec<u8> {
    let length = usize::try_from(LEAST_BYTES + version * 7919 % LEAST_BYTES).expect("small");
    let byte = |at: usize| (at as u64 * 31 + version + writer as u64).to_le_bytes()[0];
    version.to_le_bytes().into_iter().chain((8..length).map(byte)).collect()
}

/// Writes files in turn, each anew and made durable, until that fails; the versions that are durable, by slot. Counts
/// them in `progress` too.
fn replace_files(directory: &Path, writer: usize, from: u64, progress: &AtomicU64) -> Vec<Option<u64>> {
    let mut durable = vec![None; usize::try_from(SLOTS).expect("few")];
    for version in from.. {
        let slot = version % SLOTS;
        let (new, name) = (directory.join("new"), directory.join(slot.to_string()));
        let replaced = File::create(&new).and_then(|mut file| {
            file.write_all(&contents(writer, version))?;
            // Another's fsync may make the new name durable before this one's, and must find the contents there.
            file.sync_all()?;
            fs::rename(&new, &name)?;
            file.sync_all()
        });
        if replaced.is_err() {
            break;
        }
        durable[usize::try_from(slot).expect("few")] = Some(version);
        progress.fetch_add(1, Ordering::Relaxed);
    }
    durable
}

/// Each file that was durable is there, as it was then or later; the greatest version of all.
fn assert_survived(directory: &Path, writer: usize, durable: &[Option<u64>]) -> u64 {
    let mut greatest = 0;
    for (slot, wanted) in durable.iter().enumerate() {
        let name = directory.join(slot.to_string());
        let Ok(found) = fs::read(&name) else {
            assert_eq!(*wanted, None, "{} is gone", name.display());
            continue;
        };
        let version = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        assert!(found == contents(writer, version), "{}: not as it ever was", name.display());
        assert!(wanted.is_none_or(|wanted| version >= wanted), "{}: {version}, {wanted:?}", name.display());
        greatest = greatest.max(version);
    }
    greatest
}

#[test]
fn fsynced_data_survives_a_killed_server() {
    if !can_mount() {
        return;
    }
    let rounds: u64 =
        std::env::var("BRINDLE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let mut served = Served::make();
    let directory = |writer: usize| served.scratch.path().join("place").join(format!("w{writer}"));
    let directories: Vec<PathBuf> = (0..WRITERS).map(directory).collect();
    let mut from = vec![0; WRITERS];
    for round in 0..rounds {
        served.mount();
        for directory in &directories {
            fs::create_dir_all(directory).expect("room");
        }
        let progress = AtomicU64::new(0);
        let durable: Vec<Vec<Option<u64>>> = std::thread::scope(|scope| {
            let writers = directories.iter().zip(&from).enumerate();
            let writers: Vec<_> = writers
                .map(|(writer, (directory, from))| {
                    let progress = &progress;
                    scope.spawn(move || replace_files(directory, writer, *from, progress))
                })
                .collect();
            while progress.load(Ordering::Relaxed) < DURABLE_FILES {
                std::thread::sleep(Duration::from_millis(1));
            }
            // At some moment of a commit.
            std::thread::sleep(Duration::from_millis(round * 7 % 20));
            served.signal(rustix::process::Signal::KILL);
            writers.into_iter().map(|writer| writer.join().expect("no writer panics")).collect()
        });
        assert!(!served.wait().success());
        // Nothing answers there any more.
        while is_mounted(&served.place()) {
            Command::new("umount").args(["-l", text(&served.place())]).status().expect("umount");
        }
        served.check();
        served.mount();
        for (writer, directory) in directories.iter().enumerate() {
            from[writer] = assert_survived(directory, writer, &durable[writer]) + 1;
        }
        unmount(&served.place());
        served.wait_for_success();
    }
    served.check();
}

/// Writes behind what is there until told to stop; how many blocks were written. Counts the writers that have begun.
fn extend(file: &File, writer: usize, is_over: &AtomicBool, begun: &AtomicU64) -> u64 {
    const SYNCED_EACH: u64 = 64;
    let mut blocks = 0;
    while !is_over.load(Ordering::Relaxed) && blocks < 4000 {
        file.write_all_at(&block(writer, blocks), blocks * BLOCK).expect("the mount is served until it ends");
        blocks += 1;
        if blocks == 1 {
            begun.fetch_add(1, Ordering::Relaxed);
        }
        if blocks % SYNCED_EACH == 0 {
            file.sync_data().expect("the mount is served until it ends");
        }
    }
    blocks
}

const BLOCK: u64 = 5000;

fn block(writer: usize, number: u64) -> Vec<u8> {
    let byte = (writer as u64 * 37 + number).to_le_bytes()[0];
    vec![byte; usize::try_from(BLOCK).expect("small")]
}

#[test]
fn a_server_that_is_asked_to_end_serves_its_writers_and_loses_nothing() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    served.mount();
    let name = |writer: usize| served.place().join(format!("file-{writer}"));
    let open = |writer| OpenOptions::new().create_new(true).write(true).open(name(writer)).expect("room");
    let files: Vec<File> = (0..WRITERS).map(open).collect();
    let (is_over, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    let written: Vec<u64> = std::thread::scope(|scope| {
        let writers = files.into_iter().enumerate();
        let writers: Vec<_> = writers
            .map(|(writer, file)| {
                let (is_over, begun) = (&is_over, &begun);
                scope.spawn(move || extend(&file, writer, is_over, begun))
            })
            .collect();
        let have_begun = || begun.load(Ordering::Relaxed) == WRITERS as u64;
        while !have_begun() && writers.iter().all(|writer| !writer.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(200));
        served.signal(rustix::process::Signal::TERM);
        // It disappears at once, and is served as long as files are open.
        while is_mounted(&served.place()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("no write fails")).collect()
    });
    served.wait_for_success();
    served.check();
    served.mount();
    for (writer, blocks) in written.iter().enumerate() {
        let found = fs::read(served.place().join(format!("file-{writer}"))).expect("it is there");
        let expected: Vec<u8> = (0..*blocks).flat_map(|number| block(writer, number)).collect();
        assert!(
            *blocks > 0 && found == expected,
            "{writer}: {} of {blocks} blocks",
            found.len() as u64 / BLOCK
        );
    }
    unmount(&served.place());
    served.wait_for_success();
}

#[test]
fn a_server_that_does_not_answer_is_told_and_keeps_no_monitor_waiting() {
    if !can_mount() {
        return;
    }
    let (mut stopped, mut other) = (Served::make(), Served::make());
    stopped.mount();
    other.mount();
    let places = [stopped.place(), other.place()];
    stopped.signal(rustix::process::Signal::STOP);
    let status = brindle(["status", "--json", text(&places[0]), text(&places[1])]);
    let metrics = brindle(["metrics", text(&places[0])]);
    stopped.signal(rustix::process::Signal::CONT);
    let report: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let pools = report["pools"].as_array().expect("a list");
    let states: Vec<&str> = pools.iter().filter_map(|pool| pool["state"].as_str()).collect();
    assert_eq!((status.status.code(), states), (Some(3), vec!["down", "ok"]), "{report}");
    assert!(report.to_string().contains("does not answer"), "{report}");
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("brindle_pool_unknown{") && metrics.contains("state=\"down\""), "{metrics}");
    assert!(brindle_prints(["status", text(&places[0])]).contains("  ok  "));
    for served in [&mut stopped, &mut other] {
        unmount(&served.place());
        served.wait_for_success();
    }
}

#[test]
fn commands_that_look_for_a_pool_among_all_mounts_leave_out_one_that_does_not_answer() {
    if !can_mount() {
        return;
    }
    let (mut stopped, mut other) = (Served::make(), Served::make());
    stopped.mount();
    other.mount();
    let image = other.image();
    let words: [&[&str]; 3] = [
        &["filesystem", "show", "--mounted"],
        &["filesystem", "show", text(&image)],
        &["scrub", "start", "-B", text(&image)],
    ];
    stopped.signal(rustix::process::Signal::STOP);
    // At once, as each waits for an answer for a while.
    let start = |words: &&[&str]| {
        let mut command = Command::new("timeout");
        command.args(["120", env!("CARGO_BIN_EXE_brindle")]).args(*words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let begun: Vec<_> = words.iter().map(start).collect();
    let ended: Vec<_> = begun.into_iter().map(|child| child.and_then(Child::wait_with_output)).collect();
    stopped.signal(rustix::process::Signal::CONT);
    for (words, output) in words.iter().zip(ended) {
        let output = output.expect("timeout(1), and the binary");
        let (said, shown) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{words:?}: {said}");
        assert!(said.contains(&format!("{}: left out", stopped.place().display())), "{words:?}: {said}");
        assert!(!shown.contains(text(&stopped.image())), "{words:?}: {shown}");
        assert!(words[0] == "scrub" || shown.contains(text(&image)), "{words:?}: {shown}");
    }
    for served in [&mut stopped, &mut other] {
        unmount(&served.place());
        served.wait_for_success();
    }
}
