//! `lab record` and `lab plan`: requests of a mount, and their replay with and without an SSD.

use super::mount::{can_mount, unmount};
use super::status::Mixed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Records the requests of a mount for this many seconds, while files are written and synced. Returns the record.
fn record_beside_a_writer(pool: &Mixed, place: &Path, record: &Path, seconds: &str) -> String {
    let stop = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let mut file = File::create(place.join(format!("file{}", number % 8))).expect("new");
                file.write_all(&[7; 5000]).and_then(|()| file.sync_all()).expect("room");
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let words = ["lab", "record", "--seconds", seconds, "--output", record.to_str().expect("a name")];
        let output = pool.brindle(&words, &[place.to_owned()]);
        stop.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(record).expect("a record")
}

/// Returns true if there are requests of every kind that an fsync makes.
fn has_an_fsync(requests: &[Value]) -> bool {
    let is = |operation: &str, is_metadata: bool| {
        requests.iter().any(|it| it["operation"] == operation && it["is_metadata"] == is_metadata)
    };
    is("write", true) && is("write", false) && is("flush", true)
}

#[test]
fn requests_of_a_mount_are_recorded_and_replayed_in_each_role() {
    if !can_mount() {
        return;
    }
    let pool = Mixed::make();
    pool.mount();
    let place = pool.place();
    let record = place.with_file_name("record");
    // An fsync may take longer than a second.
    let is_recorded = ["1", "10", "60"].into_iter().any(|seconds| {
        let text = record_beside_a_writer(&pool, &place, &record, seconds);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let (header, requests) = lines.split_first().expect("a header");
        assert_eq!(header["disks"].as_array().map(Vec::len), Some(3), "{header}");
        has_an_fsync(requests)
    });
    assert!(is_recorded);
    unmount(&place);

    let plan = pool.brindle(&["lab", "plan", "--json", "--size", "1G"], &[record]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let roles = plan["roles"].as_array().expect("a list");
    let names: Vec<_> = roles.iter().map(|role| role["role"].as_str().expect("a name")).collect();
    assert_eq!(names, ["none", "metadata", "write-back", "cache-thru", "cache-back"]);
    assert!(roles.iter().all(|role| role["elapsed_ns"].as_u64() > Some(0)), "{plan}");
    assert!(roles[2]["destage_bytes"].as_u64() > Some(0), "{plan}");
}

#[test]
fn a_mount_is_recorded_and_planned_for_in_one_command() {
    if !can_mount() {
        return;
    }
    let pool = Mixed::make();
    pool.mount();
    let (place, stop) = (pool.place(), AtomicBool::new(false));
    let plan = |more: &[&str]| {
        pool.brindle(
            &[&["lab", "plan", "--json", "--seconds", "1"], more].concat(),
            std::slice::from_ref(&place),
        )
    };
    let idle = plan(&[]);
    let said = String::from_utf8_lossy(&idle.stderr).into_owned();
    // A commit may come meanwhile.
    assert!(idle.status.success() || said.contains("has asked nothing of its devices"), "{said}");
    let (all, one) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut file = File::create(place.join("file")).expect("new");
                file.write_all(&[7; 5000]).and_then(|()| file.sync_all()).expect("room");
            }
        });
        let found = (plan(&[]), plan(&["--device", pool.images[0].to_str().expect("a name")]));
        stop.store(true, Ordering::Relaxed);
        found
    });
    for output in [all, one] {
        assert!(output.status.success(), "{output:?}");
        let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(plan["requests"].as_u64() > Some(0) && plan["recorded_ns"].as_u64() > Some(0), "{plan}");
    }
    let output = plan(&["--device", "8,0"]);
    unmount(&place);
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn a_record_that_a_signal_ends_is_written() {
    if !can_mount() {
        return;
    }
    let pool = Mixed::make();
    pool.mount();
    let place = pool.place();
    let record = place.with_file_name("record");
    // Where the tests run in the background of a shell, SIGINT is ignored, also by started processes.
    let mut recorder = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_brindle")])
        .args(["-q", "lab", "record", "--seconds", "3600", "--output"])
        .args([&record, &place])
        .spawn()
        .expect("it was built");
    let pid = Pid::from_child(&recorder);
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("it runs");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("a number") & (1 << (Signal::INT.as_raw() - 1)) != 0
    };
    let begin = Instant::now();
    while !catches() {
        assert!(begin.elapsed() < Duration::from_secs(300), "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(pid, Signal::INT).expect("ours");
    assert!(recorder.wait().expect("ours").success());
    unmount(&place);
    let text = fs::read_to_string(&record).expect("a record");
    let header: Value = serde_json::from_str(text.lines().next().expect("a header")).expect("JSON");
    assert_eq!(header["disks"].as_array().map(Vec::len), Some(3), "{header}");
}

#[test]
fn numbers_make_a_plan_and_nonsense_is_refused() {
    let pool = Mixed::make();
    let words = ["lab", "plan", "--size", "1G", "--files", "50", "--syncs-per-second", "20"];
    let found = String::from_utf8(pool.brindle(&words, &[]).stdout).expect("text");
    assert!(
        found.starts_with("modelled hdd, and ssd of 1.00GiB\n") && found.contains("\nwrite-back "),
        "{found}"
    );
    assert_eq!(pool.brindle(&["lab", "plan"], &[]).status.code(), Some(2));
    assert_eq!(pool.brindle(&["lab", "plan", "--disk", "tape", "--files", "1"], &[]).status.code(), Some(2));
    let refused = pool.brindle(&["lab", "plan"], &pool.images[..1]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said(&refused).contains("disk1.img: no text, and so no record"), "{}", said(&refused));
    let refused = pool.brindle(&["lab", "plan", "--seconds", "5"], &pool.images[..1]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("--seconds is for a mount"), "{}", said(&refused));
    assert_eq!(pool.brindle(&["lab", "plan", "--files", "1", "--seconds", "5"], &[]).status.code(), Some(2));
}
