//! `metrics` and `map`: of devices, of a mount, and of one of the kernel.

use super::mount::{can_mount, unmount};
use super::status::Mixed;
use super::support::text;
use super::tier::host::{TierPool, can_mount as kernel_can_mount};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Samples by name and labels; panics where the text is not of the exposition format.
fn parse(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut samples, mut families, mut present) =
        (BTreeMap::new(), BTreeSet::new(), (String::new(), String::new()));
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split_once(' ').expect("a text").0;
            let kind = lines
                .next()
                .and_then(|line| line.strip_prefix("# TYPE "))
                .and_then(|line| line.split_once(' '));
            let (other, kind) = kind.expect("a type follows");
            assert_eq!(name, other);
            assert!(families.insert(name.to_owned()), "{name} has one place");
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            present = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').expect("labels");
        let family = name.strip_prefix(&present.0).expect("samples of a family stand together");
        let suffixes: &[&str] = if present.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&family), "{line}");
        let is_name = |name: &str| {
            name.starts_with("brindle_") && name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase())
        };
        assert!(is_name(name), "{line}");
        check_labels(labels.strip_suffix('}').expect("labels end"));
        let value: f64 = value.parse().expect("a number");
        assert!(
            value.is_finite() && samples.insert(series.to_owned(), value).is_none(),
            "{line} is there twice"
        );
    }
    samples
}

/// Labels: `name="value"`, with commas between, and quotes only escaped.
fn check_labels(labels: &str) {
    let mut rest = labels;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").expect("a label");
        assert!(!name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()), "{labels}");
        let mut is_escaped = false;
        let end = behind.find(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        rest = &behind[end.expect("a quote") + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn value(samples: &BTreeMap<String, f64>, name: &str, labels: &[&str]) -> f64 {
    let is_it = |series: &&String| {
        series.starts_with(&format!("{name}{{")) && labels.iter().all(|it| series.contains(it))
    };
    let found: Vec<&String> = samples.keys().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    samples[found[0]]
}

fn metrics(pool: &Mixed, operands: &[PathBuf]) -> BTreeMap<String, f64> {
    let output = pool.brindle(&["metrics"], operands);
    assert!(output.status.success(), "{output:?}");
    parse(&String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn metrics_of_devices_agree_with_the_status_and_are_written_whole() {
    let pool = Mixed::make();
    let found = metrics(&pool, &pool.images);
    assert_eq!(value(&found, "brindle_pool_state", &["state=\"ok\""]), 1.0);
    assert_eq!(value(&found, "brindle_pool_info", &["label=\"tank\"", "server=\"none\""]), 1.0);
    let status: Value =
        serde_json::from_slice(&pool.brindle(&["status", "--json"], &pool.images).stdout).expect("JSON");
    for device in status["pools"][0]["devices"].as_array().expect("a list") {
        let devid = format!("devid=\"{}\"", device["devid"]);
        assert_eq!(
            Some(value(&found, "brindle_device_allocated_bytes", &[&devid])),
            device["allocated_bytes"].as_f64()
        );
    }
    let degraded = metrics(&pool, &pool.images[1..]);
    assert_eq!(value(&degraded, "brindle_pool_state", &["state=\"degraded\""]), 1.0);
    assert_eq!(value(&degraded, "brindle_device_missing", &["devid=\"2\""]), 1.0);
    let lost = metrics(&pool, &pool.images[..1]);
    assert_eq!(value(&lost, "brindle_pool_unknown", &["state=\"down\""]), 1.0);
    let file = pool.place().join("brindle.prom");
    fs::write(&file, "old").expect("room");
    assert!(pool.brindle(&["metrics", "--output", text(&file)], &pool.images).status.success());
    parse(&fs::read_to_string(&file).expect("it is there"));
    assert_eq!(fs::read_dir(pool.place()).expect("there").count(), 1, "nothing else is left");
    let nowhere = pool.place().join("none/brindle.prom");
    assert_eq!(pool.brindle(&["metrics", "--output", text(&nowhere)], &pool.images).status.code(), Some(1));
}

#[test]
fn metrics_of_a_mount_count_fsyncs_and_have_histograms() {
    if !can_mount() {
        return;
    }
    let pool = Mixed::make();
    pool.mount();
    let file = fs::File::create(pool.place().join("synced")).expect("room");
    (0..3).for_each(|_| file.sync_all().expect("room"));
    let found = metrics(&pool, &[pool.place()]);
    assert_eq!(value(&found, "brindle_fsync_seconds_count", &[]), 3.0);
    assert_eq!(value(&found, "brindle_autodefrag_waiting_files", &[]), 0.0);
    assert_eq!(value(&found, "brindle_autodefrag_moved_extents_total", &[]), 0.0);
    assert_eq!(value(&found, "brindle_fsync_seconds_bucket", &["le=\"+Inf\""]), 3.0);
    assert_eq!(value(&found, "brindle_pool_written", &[]), 1.0);
    assert_eq!(value(&found, "brindle_device_info", &["class=\"fast\"", "ssd.img"]), 1.0);
    value(&found, "brindle_write_back_waiting_bytes", &[]);
    for devid in ["devid=\"1\"", "devid=\"2\"", "devid=\"3\""] {
        let of = |content: &str| value(&found, "brindle_device_content_bytes", &[devid, content]);
        let all: f64 = ["\"data\"", "\"metadata\"", "\"write_back\""].map(of).iter().sum();
        assert_eq!(all, value(&found, "brindle_device_allocated_bytes", &[devid]), "{devid}");
    }
    drop(file);
    let map = pool.brindle(&["map", "--json"], &[pool.place()]);
    let map: Value = serde_json::from_slice(&map.stdout).expect("JSON");
    check_map(&map, 3);
    unmount(&pool.place());
}

/// Extents of a map lie within their devices, one behind the other.
fn check_map(map: &Value, count: usize) {
    let devices = map["devices"].as_array().expect("a list");
    assert_eq!((&map["__header"]["version"], devices.len()), (&"1".into(), count), "{map}");
    for device in devices {
        let number = |value: &Value| value.as_u64().expect("a number");
        let mut end = 1 << 20;
        for extent in device["extents"].as_array().expect("a list") {
            assert!(number(&extent["physical"]) >= end, "{device}");
            end = number(&extent["physical"]) + number(&extent["length_bytes"]);
        }
        assert!(end <= number(&device["total_bytes"]), "{device}");
    }
}

#[test]
fn a_map_of_devices_is_a_picture_with_a_strip_each() {
    let pool = Mixed::make();
    let picture = pool.brindle(&["map", "--svg"], &pool.images);
    assert!(picture.status.success(), "{picture:?}");
    let picture = String::from_utf8(picture.stdout).expect("text");
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<title>unallocated").count(), 3);
    assert!(picture.contains("<title id=\"title\">tank, pool "), "{picture}");
    let file = pool.place().join("map.svg");
    assert!(pool.brindle(&["map", "--svg", "-o", text(&file)], &pool.images).status.success());
    assert_eq!(fs::read_to_string(&file).expect("it is there"), picture);
    let map = pool.brindle(&["map", "--json"], &pool.images);
    let map: Value = serde_json::from_slice(&map.stdout).expect("JSON");
    check_map(&map, 3);
    let kinds: BTreeSet<&str> = map["devices"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|device| {
            device["extents"].as_array().expect("a list").iter().filter_map(|extent| extent["kind"].as_str())
        })
        .collect();
    assert_eq!(kinds, ["data", "metadata", "system"].into(), "{map}");
    assert_eq!(pool.brindle(&["map"], &pool.images).status.code(), Some(2), "a form is to be chosen");
}

#[test]
fn metrics_and_map_of_a_mount_of_the_kernel() {
    if !kernel_can_mount() {
        return;
    }
    let mut pool = TierPool::made(2, &[]);
    let run = |words: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_brindle")).arg("-q").args(words).arg(pool.at()).output();
        String::from_utf8(output.expect("it was built").stdout).expect("text")
    };
    let found = parse(&run(&["metrics"]));
    assert_eq!(value(&found, "brindle_pool_info", &["server=\"kernel\""]), 1.0);
    let groups =
        value(&found, "brindle_block_groups_size_bytes", &["content=\"metadata\"", "profile=\"raid1\""]);
    assert!(groups > 0.0);
    let map: Value = serde_json::from_str(&run(&["map", "--json"])).expect("JSON");
    check_map(&map, 2);
    pool.unmount();
}
