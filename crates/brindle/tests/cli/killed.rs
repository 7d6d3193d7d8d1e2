//! Servers that are killed while the kernel, and through it a thread of theirs, waits for an answer of theirs.

use super::ends::Served;
use super::mount::{can_mount, is_mounted, unmount};
use super::support::{brindle_succeeds, is_root, number, text};
use brindle_fuse::Abort;
use brindle_uapi::mount_table::{self, Mount};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WRITERS: u64 = 6;
/// Time for what comes at once where the machine has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a server that does not end is helped, and the test fails.
const HANGS_AT_MOST: Duration = Duration::from_secs(60);

/// Frees what hangs on a mount, should the test fail or take long: sync(2) of the whole machine hangs meanwhile.
struct Freed {
    abort: Arc<Abort>,
    place: PathBuf,
    is_over: Option<Sender<()>>,
    helper: Option<JoinHandle<bool>>,
}

impl Freed {
    fn new(served: &Served) -> Self {
        let place = served.place();
        let mounts = mount_table::read().expect("it is there");
        let connection = mount_table::at(&mounts, &place).and_then(Mount::connection).expect("mounted");
        let abort = Arc::new(Abort::open(connection).expect("root may"));
        let (is_over, over) = channel::<()>();
        let late = Arc::clone(&abort);
        let helper = std::thread::spawn(move || {
            let hangs = over.recv_timeout(HANGS_AT_MOST) == Err(RecvTimeoutError::Timeout);
            if hangs {
                println!("{HANGS_AT_MOST:?} have passed: the connection is aborted");
                late.run().ok();
            }
            hangs
        });
        Self { abort, place, is_over: Some(is_over), helper: Some(helper) }
    }

    /// Everything that waits for the mount goes on, without help.
    fn assert_not_needed(&mut self, served: &mut Served, ends: &Receiver<()>) {
        wait_until("the end of the server", || served.has_ended());
        for _ in 0..=WRITERS {
            ends.recv_timeout(PATIENCE).expect("programs get errors");
        }
        drop(self.is_over.take());
        let hung = self.helper.take().expect("once").join().expect("it waits");
        assert!(!hung, "the connection was not aborted by what is there for that");
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        drop(self.is_over.take());
        self.abort.run().ok();
        if is_mounted(&self.place) {
            Command::new("umount").args(["-i", "-l", text(&self.place)]).status().ok();
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn runs_to_its_end(mut program: Child, what: &str) {
    wait_until(what, || program.try_wait().expect("our child").is_some());
}

/// Keeps pages of a file dirty, until a write fails.
fn write_on(path: &Path, mut place: u64, begin: &Barrier, ended: &Sender<()>) {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).expect("room");
    begin.wait();
    let mut write = || {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.write_all_at(&[7; 70_000], (place >> 33) % (8 << 20))
    };
    while write().is_ok() {}
    drop(file);
    ended.send(()).ok();
}

/// Programs that write, and a program that has their pages taken from the kernel again and again; the end of each is told.
fn programs(place: &Path) -> Receiver<()> {
    let (ended, ends) = channel();
    let begin = Arc::new(Barrier::new(usize::try_from(WRITERS).expect("few") + 1));
    for writer in 0..WRITERS {
        let (path, ended) = (place.join(format!("file-{writer}")), ended.clone());
        let begin = Arc::clone(&begin);
        std::thread::spawn(move || write_on(&path, writer, &begin, &ended));
    }
    begin.wait();
    let place = place.to_owned();
    std::thread::spawn(move || {
        let mut sync = Command::new(env!("CARGO_BIN_EXE_brindle"));
        sync.args(["filesystem", "sync"]).arg(&place).stderr(Stdio::null());
        while sync.status().is_ok_and(|status| status.success()) {}
        ended.send(()).ok();
    });
    ends
}

/// Stops the server at a moment at which the kernel has it wait for its own answer.
fn stop_in_its_own_way(served: &Served) {
    let tasks = format!("/proc/{}/task", served.id());
    let waits = || {
        let tasks = fs::read_dir(&tasks).expect("it lives").flatten();
        let mut stacks = tasks.filter_map(|task| fs::read_to_string(task.path().join("stack")).ok());
        stacks.any(|stack| stack.contains("fuse_reverse_inval_inode"))
    };
    wait_until("a server that waits", || {
        served.signal(Signal::STOP);
        // What is not in the way to stop does so.
        std::thread::sleep(Duration::from_millis(20));
        let is_caught = waits();
        if !is_caught {
            served.signal(Signal::CONT);
        }
        is_caught
    });
}

#[test]
fn a_server_that_is_killed_while_the_kernel_drops_pages_ends() {
    if !can_mount() || !is_root("stacks of threads, and mounts on block devices") {
        return;
    }
    let mut served = Served::make();
    let place = served.place();
    for _ in 0..number("BRINDLE_KILL_ROUNDS", 2) {
        served.mount();
        let ends = programs(&place);
        stop_in_its_own_way(&served);
        let mut freed = Freed::new(&served);
        served.signal(Signal::KILL);
        freed.assert_not_needed(&mut served, &ends);
    }
    served.mount();
    fs::read(place.join("file-0")).expect("it is there, and can be read");
    unmount(&place);
    served.wait_for_success();
    served.check();
}

/// The process that guards a mount.
fn guard_of(server: u32) -> u32 {
    let children = |number: u32| {
        let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{server}\n")) && status.starts_with("Name:\tmount-guard\n")
    };
    let numbers = || fs::read_dir("/proc").expect("it is there").flatten();
    let mut guards = Vec::new();
    wait_until("a guard", || {
        let numbers = numbers().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        guards = numbers.filter(|number| children(*number)).collect();
        !guards.is_empty()
    });
    guards[0]
}

fn send(process: u32, signal: Signal) {
    let process = rustix::process::Pid::from_raw(i32::try_from(process).expect("small")).expect("a process");
    rustix::process::kill_process(process, signal).expect("it is there");
}

#[test]
fn a_forced_unmount_ends_what_a_dead_server_left_and_loses_nothing_of_a_live_one() {
    if !can_mount() || !is_root("stacks of threads, and mounts on block devices") {
        return;
    }
    let mut served = Served::make();
    let place = served.place();
    served.mount();
    // Before files are open: a process that is begun later has them too, and its start would wait for their close.
    let mut force = Command::new("sh");
    force.args([
        "-c",
        "read -r _ && exec \"$0\" umount --force --lazy \"$1\"",
        env!("CARGO_BIN_EXE_brindle"),
    ]);
    let mut force = force.arg(&place).stdin(Stdio::piped()).spawn().expect("sh");
    let ends = programs(&place);
    let guard = guard_of(served.id());
    stop_in_its_own_way(&served);
    let mut freed = Freed::new(&served);
    // Regression: this one waits, as it begins, for the close of files there, and whatever looked at it in /proc waited with it.
    let begun = std::thread::spawn(|| Command::new("true").status());
    // Both, as where all of a container is killed.
    send(guard, Signal::KILL);
    wait_until("the end of the guard", || !Path::new(&format!("/proc/{guard}/fd/1")).exists());
    served.signal(Signal::KILL);
    // Programs have files open there, until they are told.
    let mut word = force.stdin.take().expect("a pipe");
    word.write_all(b"\n").expect("it waits");
    runs_to_its_end(force, "a forced unmount");
    assert!(!is_mounted(&place));
    freed.assert_not_needed(&mut served, &ends);
    drop(freed);
    assert!(begun.join().expect("it waits").expect("it is there").success());

    served.mount_with("commit=3600");
    fs::write(place.join("file"), b"in the page cache").expect("room");
    brindle_succeeds(["umount", "--force", text(&place)]);
    served.wait_for_success();
    served.mount();
    assert_eq!(fs::read(place.join("file")).expect("it is there"), b"in the page cache");
    unmount(&place);
    served.wait_for_success();
}

#[test]
fn a_guard_ends_with_its_server_and_not_by_other_signals() {
    if !can_mount() || !is_root("mounts on block devices") {
        return;
    }
    let mut served = Served::make();
    served.mount();
    let guard = guard_of(served.id());
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::USR1] {
        send(guard, signal);
    }
    fs::write(served.place().join("file"), b"contents").expect("it is served");
    assert_eq!(guard_of(served.id()), guard);
    let holders = fs::read_dir(format!("/proc/{guard}/fd")).expect("it lives").flatten();
    let files: Vec<PathBuf> = holders.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(
        !files.iter().any(|file| file.starts_with(served.image()) || file.ends_with("fuse")),
        "{files:?}"
    );
    unmount(&served.place());
    served.wait_for_success();
    wait_until("the end of the guard", || !Path::new(&format!("/proc/{guard}")).exists());
}

#[test]
fn a_killed_server_that_was_the_last_process_of_a_mount_namespace_ends() {
    if !can_mount() || !is_root("a mount namespace") {
        return;
    }
    let mut served = Served::make();
    let mut server = Command::new("unshare");
    server.args(["-m", "--propagation", "private", env!("CARGO_BIN_EXE_brindle"), "mount", "--foreground"]);
    let mut server = server.arg(served.image()).arg(served.place()).spawn().expect("unshare");
    guard_of(server.id());
    server.kill().expect("our child");
    runs_to_its_end(server, "the end of the server");
    served.mount();
    unmount(&served.place());
    served.wait_for_success();
}

/// Regression: its guard did not find it, and aborted the connection.
#[test]
fn a_server_in_a_pid_namespace_that_sees_another_proc_is_not_taken_for_dead() {
    if !can_mount() || !is_root("a PID namespace") {
        return;
    }
    let served = Served::make();
    let place = served.place();
    let mut server = Command::new("unshare");
    server.args(["--pid", "--fork", env!("CARGO_BIN_EXE_brindle"), "mount", "--foreground"]);
    let server = server.arg(served.image()).arg(&place).spawn().expect("unshare");
    wait_until("the mount", || is_mounted(&place));
    // Longer than a guard looks for the end.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        fs::write(place.join("file"), b"contents").expect("it is served");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Of such a server umount(8) can't tell when it has ended.
    Command::new("umount").arg(&place).stderr(Stdio::null()).status().ok();
    runs_to_its_end(server, "the end of the server");
}
