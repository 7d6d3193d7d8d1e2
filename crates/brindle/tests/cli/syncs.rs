//! Histograms of syncs, of a mount with a known number of fsyncs.

use super::mount::{can_mount, unmount};
use super::support::{brindle_prints, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

const THREADS: usize = 8;
const FSYNCS: usize = 25;
const NODESIZE: u64 = 16384;

fn statistics(place: &Path) -> Value {
    let said = brindle_prints(["filesystem", "commit-stats", "--json", text(place)]);
    serde_json::from_str(&said).expect("JSON")
}

/// Appends to a file and syncs it, again and again.
fn append(file: &mut File) {
    for _ in 0..FSYNCS {
        file.write_all(b"a line\n").expect("room");
        file.sync_all().expect("syncs");
    }
}

#[test]
fn histograms_agree_with_the_fsyncs_of_eight_threads() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let (image, place) = (directory.path().join("pool.img"), directory.path().join("place"));
    fs::create_dir(&place).expect("new");
    brindle_prints(["-q", "mkfs", "--size", "512M", "--nodesize", "16384", text(&image)]);
    // No commit may come between: it ends a log, with all that wait for it. A mount on a block device commits whenever another
    // program of the machine calls sync(2).
    brindle_prints(["-q", "mount", "-o", "commit=3000,noblkdev", text(&image), text(&place)]);
    let make = |number: usize| File::create(place.join(number.to_string())).expect("room");
    let mut files: Vec<File> = (0..THREADS).map(make).collect();
    files.iter_mut().for_each(|file| file.write_all(b"first\n").expect("room"));
    brindle_prints(["filesystem", "sync", text(&place)]);
    let before = statistics(&place);
    std::thread::scope(|scope| {
        files.iter_mut().for_each(|file| drop(scope.spawn(|| append(file))));
    });
    let after = statistics(&place);
    let shown = brindle_prints(["filesystem", "commit-stats", text(&place)]);
    drop(files);
    unmount(&place);
    let grown = |path: &str| {
        let number = |value: &Value| value.pointer(path).and_then(Value::as_u64).expect("a number");
        number(&after) - number(&before)
    };
    let histogram = |name: &str| ["count", "sum"].map(|part| grown(&format!("/histograms/{name}/{part}")));
    assert_eq!(grown("/commits"), 0, "{after}");
    let (logs, fsyncs) = (grown("/log/syncs"), grown("/log/fsyncs"));
    assert!(0 < logs && logs <= fsyncs, "{after}");
    assert_eq!(grown("/log/runs"), logs, "the blocks of a log lie side by side: {after}");
    assert_eq!(histogram("sync_us")[0], (THREADS * FSYNCS) as u64, "{after}");
    assert_eq!(histogram("lock_held_us")[0], logs, "one of those that share a write has the turn: {after}");
    assert_eq!(histogram("entry_held_us")[0], (THREADS * FSYNCS) as u64, "{after}");
    assert_eq!(histogram("fsyncs_per_log"), [logs, fsyncs], "{after}");
    assert_eq!(histogram("log_bytes"), [logs, grown("/log/blocks") * NODESIZE], "{after}");
    for name in ["sync_us", "lock_held_us", "entry_held_us", "fsyncs_per_log", "log_bytes"] {
        let of = &after["histograms"][name];
        let buckets = of["buckets"].as_array().expect("a list").iter();
        assert_eq!(
            buckets.filter_map(|bucket| bucket["count"].as_u64()).sum::<u64>(),
            of["count"],
            "{after}"
        );
        assert!(
            shown.contains(&format!("\n{name:<16} {:>25}  mean ", of["count"].as_u64().expect("a number"))),
            "{shown}"
        );
    }
}
