//! The table of `docs/user/semantics.md`, held: a server is killed as soon as the call returned that promises durability, and
//! what was written is there at the next mount. Commits by themselves are an hour away, unless they are the promise.

use super::ends::Served;
use super::mount::{can_mount, unmount};
use super::support::{brindle_prints, is_root, text};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A way to ask for durability, and what can be written so.
struct Row {
    asked: &'static str,
    /// Mount options.
    options: &'static str,
    writes: &'static [&'static str],
}

/// Changes of a file, and of its only name.
const FILE: &[&str] = &[
    "buffered",
    "direct",
    "mmap",
    "fallocate",
    "truncate",
    "copy",
    "xattr",
    "chmod",
    "rename",
    "link",
    "create",
];
/// Changes of names alone.
const NAMES: &[&str] = &["rename", "link", "touch", "mkdir", "symlink", "fifo", "unlink", "rmdir"];
/// Contents, as part of the call that writes.
const WRITTEN: &[&str] = &["buffered", "direct", "fallocate", "copy", "create"];
const PWRITEV2: &[&str] = &["buffered", "direct"];
const QUEUED: &[&str] = &["direct"];
/// Changes of an inode.
const INODE: &[&str] = &["buffered", "direct", "fallocate", "truncate", "copy", "xattr", "chmod"];
/// Calls, except those that change a mapping.
const CALLS: &[&str] = &[
    "buffered",
    "direct",
    "fallocate",
    "truncate",
    "copy",
    "xattr",
    "chmod",
    "rename",
    "link",
    "create",
    "mkdir",
    "symlink",
    "fifo",
    "unlink",
    "rmdir",
];

const TABLE: [Row; 22] = [
    Row { asked: "fsync", options: "", writes: FILE },
    Row { asked: "fdatasync", options: "", writes: FILE },
    Row { asked: "O_SYNC", options: "", writes: WRITTEN },
    Row { asked: "O_DSYNC", options: "", writes: WRITTEN },
    Row { asked: "RWF_SYNC", options: "", writes: PWRITEV2 },
    Row { asked: "RWF_DSYNC", options: "", writes: PWRITEV2 },
    Row { asked: "sync", options: ",blkdev", writes: ALL },
    Row { asked: "syncfs", options: ",blkdev", writes: ALL },
    Row { asked: "msync", options: "", writes: &["mmap"] },
    Row { asked: "directory", options: "", writes: NAMES },
    Row { asked: "aio-fsync", options: "", writes: FILE },
    Row { asked: "aio-fdsync", options: "", writes: FILE },
    Row { asked: "aio-sync", options: "", writes: QUEUED },
    Row { asked: "aio-dsync", options: "", writes: QUEUED },
    Row { asked: "uring-fsync", options: "", writes: FILE },
    Row { asked: "uring-fdsync", options: "", writes: FILE },
    Row { asked: "uring-sync", options: "", writes: QUEUED },
    Row { asked: "uring-dsync", options: "", writes: QUEUED },
    Row { asked: "sync-mount", options: ",sync", writes: CALLS },
    Row { asked: "dirsync-mount", options: ",dirsync", writes: NAMES },
    Row { asked: "chattr+S", options: "", writes: INODE },
    Row { asked: "chattr+D", options: "", writes: NAMES },
];
/// No commit comes by itself.
const ALONE: &str = "commit=3600";
/// Kinds of writes.
const ALL: &[&str] = &[
    "mmap",
    "buffered",
    "direct",
    "fallocate",
    "truncate",
    "copy",
    "xattr",
    "chmod",
    "rename",
    "link",
    "create",
    "mkdir",
    "symlink",
    "fifo",
    "unlink",
    "rmdir",
];

/// The program that makes the calls.
struct Worker {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/durability.py");
        let mut command = Command::new("python3");
        let command = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("there is python3");
        let asks = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, asks, answers }
    }

    /// Runs a command of the child; returns its error.
    fn ask(&mut self, words: &[&str]) -> Result<(), String> {
        writeln!(self.asks, "{}", words.join(" ")).expect("it reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        if answer == "ok\n" { Ok(()) } else { Err(answer.trim().to_owned()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A pool, the program that writes it, and what was not as it should be.
struct Bench {
    served: Served,
    worker: Worker,
    wrong: Vec<String>,
}

impl Bench {
    /// With a directory for each cell, all of it durable.
    fn prepare<'c>(cells: impl Iterator<Item = (&'c str, &'c str)>) -> Self {
        let mut bench = Self { served: Served::make(), worker: Worker::start(), wrong: Vec::new() };
        bench.served.mount();
        for (asked, write) in cells {
            let directory = bench.directory(asked, write);
            bench.worker.ask(&["prepare", &directory, asked]).expect("there is room");
        }
        unmount(&bench.served.place());
        bench.served.wait_for_success();
        bench
    }

    fn directory(&self, asked: &str, write: &str) -> String {
        let path: PathBuf = self.served.place().join(asked).join(write);
        text(&path).to_owned()
    }

    /// Writes, and asks for durability.
    fn write(&mut self, asked: &str, write: &str) {
        let directory = self.directory(asked, write);
        if let Err(why) = self.worker.ask(&["do", &directory, write, asked]) {
            self.wrong.push(format!("{asked}, {write}: not done: {why}"));
        }
    }

    /// Kills the server.
    fn crash(&mut self) {
        self.served.kill();
        self.worker.ask(&["leave"]).expect("it closes what it has");
    }

    /// Sees whether what was written is there.
    fn look(&mut self, asked: &str, write: &str) {
        let directory = self.directory(asked, write);
        if let Err(why) = self.worker.ask(&["look", &directory, write]) {
            self.wrong.push(format!("{asked}, {write}: lost: {why}"));
        }
    }

    /// Ends well, if nothing was lost.
    fn finish(mut self) {
        unmount(&self.served.place());
        self.served.wait_for_success();
        self.served.check();
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
    }
}

#[test]
fn durable_changes_survive_a_killed_server() {
    if !can_mount() || !is_root("options of mounts and attributes of files") {
        return;
    }
    let cells = || TABLE.iter().flat_map(|row| row.writes.iter().map(move |write| (row, *write)));
    let mut bench = Bench::prepare(cells().map(|(row, write)| (row.asked, write)));
    for (row, write) in cells() {
        // The last one alone: what comes later would make durable what came before.
        bench.served.mount_with(&format!("{ALONE}{}", row.options));
        bench.write(row.asked, write);
        bench.crash();
    }
    bench.served.mount();
    for (row, write) in cells() {
        bench.look(row.asked, write);
    }
    bench.finish();
}

#[test]
fn filesystem_sync_and_umount_make_every_change_durable() {
    if !can_mount() {
        return;
    }
    let cells = ["filesystem-sync", "umount"]
        .into_iter()
        .flat_map(|asked| ALL.iter().map(move |write| (asked, *write)));
    let mut bench = Bench::prepare(cells);
    bench.served.mount_with(ALONE);
    for write in ALL {
        bench.write("filesystem-sync", write);
    }
    brindle_prints(["filesystem", "sync", text(&bench.served.place())]);
    bench.crash();
    bench.served.mount_with(ALONE);
    for write in ALL {
        bench.look("filesystem-sync", write);
        bench.write("umount", write);
    }
    bench.worker.ask(&["leave"]).expect("it closes what it has");
    unmount(&bench.served.place());
    // The command has waited for the server.
    bench.served.mount();
    for write in ALL {
        bench.look("umount", write);
    }
    bench.finish();
}

/// The number of commits that a mount has made.
fn commits(bench: &Bench) -> u64 {
    let said = brindle_prints(["filesystem", "commit-stats", text(&bench.served.place())]);
    let number = said.strip_prefix("commits ").and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.trim_end_matches(',').parse().ok()).expect("a number")
}

/// Waits until a commit has come by itself.
fn wait_for_commit(bench: &Bench) {
    let (before, end) = (commits(bench), Instant::now() + Duration::from_secs(120));
    while commits(bench) == before {
        assert!(Instant::now() < end, "no commit comes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sync_and_syncfs_that_are_not_passed_on_are_durable_with_the_next_commit() {
    if !can_mount() {
        return;
    }
    let asked = ["sync", "syncfs"];
    let mut bench =
        Bench::prepare(asked.into_iter().flat_map(|asked| ALL.iter().map(move |write| (asked, *write))));
    for asked in asked {
        bench.served.mount_with("commit=1,noblkdev");
        for write in ALL {
            bench.write(asked, write);
        }
        wait_for_commit(&bench);
        // That one may have begun before the last write.
        std::fs::write(bench.served.place().join(format!("after-{asked}")), b"x").expect("room");
        wait_for_commit(&bench);
        bench.crash();
    }
    bench.served.mount();
    for asked in asked {
        for write in ALL {
            bench.look(asked, write);
        }
    }
    bench.finish();
}
