//! Rules of POSIX and the kernel, script by script: a mount of the kernel's and one of ours must give the same
//! result.

use crate::support::{KernelMount, Written, can_mount, run};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a script hangs, in seconds: many times what it takes on a machine that has a lot else to do.
const PATIENCE_SECONDS: u64 = 600;

/// The lines that a script prints in a directory. One that does not end fails.
fn said_in(directory: &Path, script: &str) -> Vec<String> {
    let path = format!("{}/tests/scripts/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new("timeout");
    let limit = PATIENCE_SECONDS.to_string();
    let said = run(python.args(["-s", "KILL", &limit, "python3", &path]).current_dir(directory));
    String::from_utf8_lossy(&said.stdout).lines().map(str::to_owned).collect()
}

fn assert_same(script: &str) {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let reference = ours.scratch.path().join("reference");
    run(Command::new("truncate").args(["-s", "512M"]).arg(&reference));
    run(Command::new("mkfs.btrfs").arg("-q").arg(&reference));
    let kernel = KernelMount::of(&reference, &ours.directory("kernel"), "rw");
    let (expected, found) = (said_in(&kernel.at, script), said_in(ours.root(), script));
    assert!(expected.len() > 10, "{script} says something");
    let differ = expected.iter().zip(&found).filter(|(kernel, ours)| kernel != ours);
    let differences: Vec<String> =
        differ.map(|(kernel, ours)| format!("kernel: {kernel}\nours:   {ours}")).collect();
    assert!(differences.is_empty(), "{script}:\n{}", differences.join("\n"));
    assert_eq!(expected.len(), found.len(), "{script}");
    ours.finish();
}

#[test]
fn files_lose_their_privileges_when_they_change() {
    assert_same("privileges.py");
}

#[test]
fn append_only_and_immutable_files_refuse_what_the_kernel_refuses() {
    assert_same("flags.py");
}

#[test]
fn names_and_times_at_the_limits_are_the_kernels() {
    assert_same("extremes.py");
}

#[test]
fn directories_that_change_or_go_while_open_are_listed_as_the_kernel_does() {
    assert_same("directories.py");
}

#[test]
fn calls_that_seldom_come_turn_out_as_the_kernels_do() {
    assert_same("numbers.py");
}

#[test]
fn interfaces_that_fuse_does_not_carry_are_refused() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let expected = [
        "FIEMAP ENOTSUP",
        "freeze ENOTSUP",
        "read NOWAIT ENOTSUP",
        "write NOWAIT ENOTSUP",
        "read ATOMIC ENOTSUP",
        "write ATOMIC ENOTSUP",
        "read DONTCACHE ENOTSUP",
        "write DONTCACHE ENOTSUP",
        "watch done",
        "watch with handles done",
        "watch all with handles ENODEV",
        "long list done",
        "longer list E2BIG",
        "behind the end b'\\x00\\x00\\x00' b'\\x00\\x00\\x00'",
    ];
    assert_eq!(said_in(ours.root(), "not_carried.py"), expected);
    ours.finish();
}

#[test]
fn open_files_without_a_name_stay_usable() {
    assert_same("removed.py");
}

#[test]
fn an_append_only_file_is_added_to_whatever_became_of_the_descriptor() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let said = said_in(ours.root(), "append_only.py");
    assert!(said.iter().all(|line| line.starts_with("right: ")) && said.len() > 20, "{}", said.join("\n"));
    ours.finish();
}

#[test]
fn buffered_reads_find_what_was_written_past_the_cache() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    assert_eq!(said_in(ours.root(), "asynchronous.py"), ["stale 0"]);
    ours.finish();
}

#[test]
fn files_that_are_written_through_the_cache_and_past_it_are_synced() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let script = format!("{}/tests/scripts/past_cache.py", env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new("python3");
    let mut python =
        python.arg(script).current_dir(ours.root()).stdout(Stdio::piped()).spawn().expect("python");
    let begin = Instant::now();
    while python.try_wait().expect("a child").is_none() {
        if begin.elapsed() > Duration::from_secs(PATIENCE_SECONDS) {
            // A thread that waits for a page can't be killed, and a sync of the machine would wait for it, too.
            Command::new("umount").arg("-f").arg(ours.root()).output().ok();
            panic!("a sync hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = python.wait_with_output().expect("it has ended");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "wrong 0\n");
    ours.finish();
}
