//! `umount`: what it waits for, what it does not wait for, and what it says is in the way.

use super::ends::Served;
use super::mount::{can_mount, is_mounted, unmount};
use super::support::{brindle, brindle_fails, brindle_succeeds, is_root, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `brindle umount`, which must come back: the server does not end.
fn umount_returns(place: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    let child = command.args(["umount", place]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
    let (mut child, end) = (child.expect("the binary was built"), Instant::now() + Duration::from_secs(120));
    while child.try_wait().expect("our child").is_none() {
        if Instant::now() > end {
            child.kill().ok();
            panic!("{place}: umount does not return");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("it ended");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// A mount at a second place, until dropped.
struct Bind(PathBuf);

impl Drop for Bind {
    fn drop(&mut self) {
        if is_mounted(&self.0) {
            Command::new("umount").args(["-i", "-l"]).arg(&self.0).status().ok();
        }
    }
}

#[test]
fn a_bind_mount_goes_without_its_server() {
    if !can_mount() || !is_root("a bind mount") {
        return;
    }
    let mut served = Served::make();
    let other = Bind(served.place().with_file_name("other"));
    fs::create_dir(&other.0).expect("new");
    served.mount_with("commit=3600");
    let directory = served.place().join("directory");
    fs::create_dir(&directory).expect("room");
    let bound = Command::new("mount").arg("--bind").args([&directory, &other.0]).status().expect("mount");
    assert!(bound.success());
    fs::write(other.0.join("file"), b"by the other way").expect("room");
    assert_eq!(umount_returns(text(&other.0)), "");
    assert!(!is_mounted(&other.0) && is_mounted(&served.place()));
    // What was written is durable all the same.
    served.kill();
    served.mount();
    assert_eq!(fs::read(directory.join("file")).expect("it is there"), b"by the other way");
    unmount(&served.place());
    served.wait_for_success();
}

/// A process with a mount namespace of its own, until dropped.
struct Elsewhere(Child);

impl Elsewhere {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 1000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("unshare");
        let mut line = String::new();
        let said = child.stdout.as_mut().expect("a pipe");
        BufReader::new(said).read_line(&mut line).expect("it is ready");
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_mount_that_another_namespace_has_too_is_not_waited_for() {
    if !can_mount() || !is_root("a mount namespace") {
        return;
    }
    let mut served = Served::make();
    served.mount_with("commit=3600");
    let elsewhere = Elsewhere::start();
    fs::write(served.place().join("file"), b"contents").expect("room");
    let said = umount_returns(text(&served.place()));
    let named = format!("another mount namespace, that of process {} (sleep)", elsewhere.0.id());
    assert!(said.contains(&named), "{said}");
    assert!(!is_mounted(&served.place()));
    drop(elsewhere);
    served.wait_for_success();
    served.mount();
    assert_eq!(fs::read(served.place().join("file")).expect("it is there"), b"contents");
    unmount(&served.place());
    served.wait_for_success();
}

#[test]
fn a_busy_unmount_names_the_processes() {
    if !can_mount() || !is_root("another process's open files") {
        return;
    }
    let mut served = Served::make();
    served.mount();
    let place = served.place();
    let file = place.join("file");
    File::create(&file).and_then(|made| made.write_all_at(&[1; 8192], 0)).expect("room");
    let busy = || brindle_fails(1, ["umount", text(&place)]);
    let user = |command: &mut Command| {
        let mut child = command.stdin(Stdio::null()).spawn().expect("it starts");
        // Until it is the program, and no copy of this process.
        let name = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&name).expect("it runs") != "sleep\n" {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = busy();
        child.kill().expect("our child");
        child.wait().expect("our child");
        said.replace(&child.id().to_string(), "PID")
    };
    let said = user(Command::new("sleep").arg("1000").current_dir(&place));
    assert!(said.contains("process PID (sleep) stands in a directory of it"), "{said}");
    let said = user(Command::new("sh").args(["-c", "exec sleep 1000 <\"$0\"", text(&file)]));
    assert!(said.contains(&format!("process PID (sleep) has {} open", text(&file))), "{said}");
    fs::create_dir(place.join("below")).expect("room");
    let below = Bind(place.join("below"));
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below.0).status().expect("mount");
    assert!(mounted.success());
    let said = busy();
    assert!(said.contains(&format!("busy: {} is mounted on it", text(&below.0))), "{said}");
    drop(below);
    unmount(&place);
    served.wait_for_success();
}

#[test]
fn a_balance_that_keeps_a_mount_busy_is_named_and_one_without_its_command_keeps_none() {
    if !can_mount() || !is_root("another process's open files") {
        return;
    }
    let mut served = Served::make();
    served.mount();
    let place = served.place();
    fs::write(place.join("file"), vec![7; 64 << 20]).expect("room");
    brindle_succeeds(["filesystem", "sync", text(&place)]);
    let mut balance = Command::new(env!("CARGO_BIN_EXE_brindle"));
    let balance = balance.args(["balance", "start", "-d", "--rate", "1M", text(&place)]);
    let mut balance = balance.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it was built");
    let is_running = || brindle(["balance", "status", text(&place)]).stdout.starts_with(b"Running");
    while !is_running() {
        assert!(balance.try_wait().expect("our child").is_none(), "it ended before it was seen");
    }
    let said = brindle_fails(1, ["umount", text(&place)]);
    let expected = format!("process {} (", balance.id());
    assert!(said.contains(&expected) && said.contains("balance start -d --rate 1M"), "{said}");
    let remedy = format!("; `brindle balance cancel {}` ends it; ", text(&place));
    assert!(said.contains(&remedy), "{said}");
    assert!(is_running(), "it is not disturbed");
    balance.kill().and_then(|()| balance.wait()).expect("our child");
    umount_returns(text(&place));
    served.wait_for_success();
    let status = brindle(["balance", "status", text(&served.image())]).stdout;
    assert!(status.starts_with(b"Paused"), "{}", String::from_utf8_lossy(&status));
    served.check();
}

#[test]
fn commands_that_look_at_a_mount_do_not_keep_it() {
    const ROUNDS: usize = 12;
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    let (place, is_over) = (served.place(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    brindle(["filesystem", "df", text(&place)]);
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..ROUNDS {
                served.mount();
                brindle_succeeds(["umount", text(&place)]);
                served.wait_for_success();
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}
