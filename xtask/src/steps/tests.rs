//! Steps that end, that are overdue, that are interrupted.

use super::*;
use rustix::process::{Pid, test_kill_process};
use std::io::Write;

/// Limit of a step that is to be overdue, long enough for it to start its processes.
const START: Duration = Duration::from_secs(5);
/// A limit that no step of these tests reaches.
const AMPLE: Duration = Duration::from_secs(600);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Steps that nothing interrupts but the other end of the returned stream.
fn steps(limit: Duration, all: Duration) -> (Steps, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    (Steps::with(Limits { step: limit, all }, ours).expect("steps"), theirs)
}

/// Runs a script which starts processes, writes their numbers into `$TMPDIR/pids` and waits; returns its end and report.
fn stuck(limit: Duration, script: &str) -> (String, String, Vec<Pid>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (interrupt, _other) = UnixStream::pair().expect("a pair");
    let step = child::Step { folder: folder.path(), limit, interrupts: &[&interrupt] };
    let mut report = Vec::new();
    let ended = step.run(shell(script).env("TMPDIR", folder.path()), &mut report);
    let pids = std::fs::read_to_string(folder.path().join("pids")).expect("the processes");
    let pids = pids.split_whitespace().map(|pid| Pid::from_raw(pid.parse().expect("a number")).expect("one"));
    let error = format!("{:#}", ended.expect_err("it is stuck"));
    (error, String::from_utf8(report).expect("text"), pids.collect())
}

/// Returns true once a process has ended: it may be about to end, or not have been reaped.
fn is_gone(pid: Pid) -> bool {
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    (0..6000).any(|_| {
        let is_gone = test_kill_process(pid).is_err() || state().contains(") Z ");
        if !is_gone {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_gone
    })
}

#[test]
fn a_step_that_is_overdue_is_listed_and_killed() {
    let script = "sleep 1000 & echo $$ $! > $TMPDIR/pids; wait";
    let (error, report, pids) = stuck(START, script);
    assert!(error.contains("overdue"), "{error}");
    for pid in &pids {
        assert!(report.contains(&format!("process {pid} ")), "{report}");
        assert!(report.contains(&format!("  thread {pid} ")), "{report}");
    }
    assert!(report.contains(" sleep 1000\n") && report.contains(" state S wchan "), "{report}");
    assert_eq!(pids.len(), 2);
    assert!(pids.into_iter().all(is_gone));
}

#[test]
fn a_process_that_left_the_group_is_listed_and_killed() {
    let (_, report, pids) = stuck(
        START,
        "setsid sh -c 'echo $$ > $TMPDIR/pids.new; mv $TMPDIR/pids.new $TMPDIR/pids; exec sleep 1001' & sleep 1002",
    );
    assert!(report.contains(" sleep 1001\n") && report.contains(" sleep 1002\n"), "{report}");
    assert!(pids.into_iter().all(is_gone));
}

#[test]
fn an_interrupt_ends_the_step() {
    let (mut steps, mut other) = steps(AMPLE, AMPLE);
    let pids = steps.folder.path().join("pids");
    other.write_all(b"x").expect("a signal");
    let error = steps.run(&mut shell("echo $$ > $TMPDIR/pids; exec sleep 1000")).expect_err("interrupted");
    assert!(format!("{error:#}").contains("interrupted"), "{error:#}");
    // The signal may have come before the shell's first command.
    let pid = std::fs::read_to_string(pids).ok().and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?));
    assert!(pid.is_none_or(is_gone));
}

#[test]
fn steps_end_when_the_budget_is_used_up() {
    let (mut steps, _other) = steps(AMPLE, Duration::ZERO);
    let error = steps.run_as("the last", &mut shell("true")).expect_err("no time is left");
    assert_eq!(error.to_string(), "no time is left for the last");
}

#[test]
fn a_step_returns_its_output_or_its_failure() {
    let (mut steps, _other) = steps(AMPLE, AMPLE);
    assert_eq!(steps.output(&mut shell("echo here")).expect("a success"), "here\n");
    let error = steps.run_as("it", &mut shell("exit 3")).expect_err("a failure");
    assert_eq!(error.to_string(), "it failed: exit status: 3");
}

#[test]
fn lanes_run_side_by_side_and_print_each_step_as_a_whole() {
    let (mut steps, _other) = steps(AMPLE, AMPLE);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (one, two) = (file("one"), file("two"));
    // Each waits for the other.
    let meet = |ours: &str, theirs: &str| {
        shell(&format!("echo before; touch {ours}; until [ -e {theirs} ]; do sleep 0.01; done; echo after"))
    };
    let lane = |name: &str, command| vec![(name.to_owned(), command), ("last".to_owned(), shell("true"))];
    let mut report = Vec::new();
    let lanes = vec![lane("a", meet(&one, &two)), lane("b", meet(&two, &one))];
    steps.lanes(lanes, &mut report).expect("they meet");
    let report = String::from_utf8(report).expect("text");
    assert_eq!(report.matches("before\nafter\n").count(), 2, "{report}");
    assert_eq!(steps.done.len(), 4);
}

#[test]
fn steps_that_fail_are_all_told_and_end_no_lane() {
    let (mut steps, _other) = steps(AMPLE, AMPLE);
    let step = |name: &str, script: &str| (name.to_owned(), shell(script));
    let one = vec![step("it", "echo why; exit 3"), step("next", "exit 4")];
    let other = vec![step("another", "echo fine")];
    let mut report = Vec::new();
    let error = steps.lanes(vec![one, other], &mut report).expect_err("two fail");
    assert_eq!(format!("{error:#}"), "it failed: exit status: 3; next failed: exit status: 4");
    let report = String::from_utf8(report).expect("text");
    assert!(report.contains("why\n") && report.contains("fine\n"), "{report}");
    assert_eq!(steps.done.len(), 3);
}

#[test]
fn a_step_that_is_interrupted_ends_all_lanes() {
    let (mut steps, mut other) = steps(AMPLE, AMPLE);
    let lane = |number: u32| {
        let step = |name: &str, script: &str| (format!("{name} {number}"), shell(script));
        vec![step("short", "exit 3"), step("long", "exec sleep 1000"), step("later", "exit 5")]
    };
    other.write_all(b"x").expect("a signal");
    let mut report = Vec::new();
    let error = steps.lanes(vec![lane(1), lane(2)], &mut report).expect_err("interrupted");
    let (error, report) = (format!("{error:#}"), String::from_utf8(report).expect("text"));
    assert!(error.contains("interrupted") && !report.contains("later"), "{error}\n{report}");
}

#[test]
fn the_slowest_steps_are_listed_first() {
    let (mut steps, _other) = steps(AMPLE, AMPLE);
    assert_eq!(steps.slowest(), "");
    steps.done = (0..7).map(|n| (format!("step {n}"), Duration::from_secs(n * 61))).collect();
    let table = steps.slowest();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 6, "{table}");
    assert_eq!((lines[1], lines[5]), ("   06:06 step 6", "   02:02 step 2"));
}

#[test]
fn a_process_that_is_left_running_is_killed_at_the_end() {
    let (mut steps, _other) = steps(AMPLE, AMPLE);
    let script = "setsid sleep 1003 >/dev/null 2>&1 & echo $!";
    let pid = steps.output(&mut shell(script)).expect("a success");
    let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("one");
    let mut report = Vec::new();
    leftovers::clear(steps.folder.path(), &mut report);
    let report = String::from_utf8(report).expect("text");
    assert!(report.starts_with(&format!("left running, and killed: {pid} ")), "{report}");
    assert!(is_gone(pid));
}

#[test]
fn a_mount_and_a_loop_device_that_are_left_are_detached_at_the_end() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "needs root");
        return eprintln!("skipped: needs root");
    }
    let (mut steps, _other) = steps(AMPLE, AMPLE);
    let script = "mkdir $TMPDIR/m && mount -t tmpfs none $TMPDIR/m && truncate -s 1M $TMPDIR/m/image && \
                  losetup --find --show $TMPDIR/m/image";
    let device = steps.output(&mut shell(script)).expect("a success");
    let mut report = Vec::new();
    leftovers::clear(steps.folder.path(), &mut report);
    let report = String::from_utf8(report).expect("text");
    let mount = steps.folder.path().join("m");
    assert!(report.contains(&format!("left mounted, and detached: {}\n", mount.display())), "{report}");
    assert!(report.contains(&format!("left attached, and detached: {device}")), "{report}");
    assert!(!mount.join("image").exists(), "it is still mounted");
}
