//! `top`: JSON and text of a mount at work, and the same counters in `metrics`.

use super::mount::{can_mount, unmount};
use super::status::Mixed;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

/// Output of `top` in two intervals of this many seconds while a file is written and synced again and again.
fn top_beside_a_writer(pool: &Mixed, place: &Path, interval: &str) -> Output {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut file = File::create(place.join(format!("file{}", written % 8))).expect("new");
                file.write_all(&[7; 5000]).and_then(|()| file.sync_all()).expect("room");
                written += 1;
            }
            written
        });
        let output = pool.brindle(&["top", "--json", "-n", "2", "--interval", interval], &[place.to_owned()]);
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().expect("no panic") > 0);
        output
    })
}

/// The objects that `top` has printed.
fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
}

/// Number of fsyncs a second.
fn fsyncs(object: &Value) -> f64 {
    let syncs = |name: &str| object["syncs"][name].as_f64().expect("a number");
    syncs("fsyncs_by_log_per_second") + syncs("fsyncs_by_commit_per_second")
}

#[test]
fn top_shows_the_work_of_a_mount_a_line_an_interval() {
    if !can_mount() {
        return;
    }
    let pool = Mixed::make();
    pool.mount();
    let place = pool.place();
    // An fsync may take longer than a short interval: one of two lies in it from its begin to its end.
    let mut found = [("0.3", 0.3), ("3", 3.0), ("30", 30.0)].into_iter().map(|(interval, seconds)| {
        let lines = lines(&top_beside_a_writer(&pool, &place, interval));
        assert_eq!(lines.len(), 2, "an object an interval");
        let count = fsyncs(&lines[1]) * seconds;
        (lines, count)
    });
    let (lines, _) = found.find(|(_, count)| *count > 1.5).expect("fsyncs are shown");
    let last = &lines[1];
    assert_eq!(last["__header"]["version"], "1", "{last}");
    assert_eq!((&last["name"], &last["server"]), (&"tank".into(), &"brindle".into()), "{last}");
    let syncs = |name: &str| last["syncs"][name].as_f64().expect("a number");
    assert!(
        syncs("fsync_seconds_p50") > 0.0 && syncs("fsync_seconds_p99") >= syncs("fsync_seconds_p50"),
        "{last}"
    );
    let devices = last["devices"].as_array().expect("a list");
    let ssd = devices.iter().find(|device| device["class"] == "fast").expect("an SSD");
    assert_eq!(
        (devices.len(), &ssd["state"], &ssd["counted_by"]),
        (3, &"busy".into(), &"mount".into()),
        "{last}"
    );
    for operation in ["write", "flush"] {
        let rate = &ssd["operations"][operation];
        assert!(
            rate["requests_per_second"].as_f64() > Some(0.0) && rate["latency_seconds"].is_number(),
            "{last}"
        );
    }
    assert!(last["metadata_cache"]["hit_ratio_since_mount"].as_f64() > Some(0.0), "{last}");
    assert_eq!(last["flash_caches"].as_array().map(Vec::len), Some(0), "{last}");
    // Only administrators may ask for chunks; the user that serves the mount is one.
    assert!(ssd["metadata_bytes"].as_u64() > Some(0), "{last}");

    let text = pool.brindle(&["top", "-n", "1", "--interval", "0.01"], std::slice::from_ref(&place));
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.starts_with("tank  ok  ") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "no colours but on a terminal: {text}");

    let metrics =
        String::from_utf8(pool.brindle(&["metrics"], std::slice::from_ref(&place)).stdout).expect("text");
    for name in
        ["brindle_device_requests_total", "brindle_device_in_flight", "brindle_metadata_cache_hits_total"]
    {
        assert!(metrics.contains(&format!("\n{name}{{")), "{name}: {metrics}");
    }
    unmount(&place);
    let gone = pool.brindle(&["top", "-n", "1"], &[place]);
    assert_eq!((gone.status.success(), gone.stdout.len()), (false, 0));
    let refused = pool.brindle(&["top", "-n", "1", "--interval", "0"], &[]);
    assert_eq!(refused.status.code(), Some(2));
}
