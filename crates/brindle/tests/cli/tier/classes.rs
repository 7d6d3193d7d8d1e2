//! Four classes of devices, on a pool that the kernel mounts, writes and balances in between.

use super::host::{TierPool, can_mount, run};
use crate::mount::unmount;
use crate::support::{brindle_fails, brindle_prints, text};
use serde_json::Value;
use std::path::Path;
use std::process::Child;

const SINGLE: [&str; 4] = ["-m", "single", "-d", "single"];
/// Classes of the loop devices, two of which rotate.
const NAMES: [&str; 4] = ["disk", "smr", "nvme", "ssd"];
const RANKS: [u64; 4] = [2, 3, 0, 1];

/// Words that name all devices.
fn loops(pool: &TierPool) -> Vec<&str> {
    pool.loops().iter().map(String::as_str).collect()
}

fn set_classes(pool: &TierPool) {
    let pairs: Vec<String> =
        pool.loops().iter().zip(NAMES).map(|(device, name)| format!("--device={device}={name}")).collect();
    let words = ["-q", "tier", "class", "set", "--fast", "nvme,ssd", "--bulk", "disk,smr"];
    brindle_prints(
        [&words[..], &pairs.iter().map(String::as_str).collect::<Vec<_>>(), &loops(pool)].concat(),
    );
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&brindle_prints(words)).expect("JSON")
}

/// The ranks of devices on which a content lies.
fn ranks_with(status: &Value, content: &str) -> Vec<u64> {
    let devices = status["devices"].as_array().expect("a list").iter();
    let there = devices.filter(|device| device[content].as_u64().expect("a number") > 0);
    let mut ranks: Vec<u64> = there.map(|device| device["rank"].as_u64().expect("a number")).collect();
    ranks.sort_unstable();
    ranks
}

fn assert_listed(of: &[&str]) {
    let listed = json(&[&["tier", "class", "list", "--json"], of].concat());
    let classes = listed["classes"].as_array().expect("a list");
    let names: Vec<&str> = classes.iter().map(|class| class["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["nvme", "ssd", "disk", "smr"]);
    let devids: Vec<u64> = classes.iter().map(|class| class["devids"][0].as_u64().expect("one")).collect();
    assert_eq!(devids, [3, 4, 1, 2]);
}

#[test]
fn a_kernel_that_knows_no_classes_keeps_them_and_puts_metadata_on_the_fastest() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::made(4, &SINGLE);
    pool.fill();
    let at = pool.at();
    // The kernel has it mounted.
    let refused = brindle_fails(1, ["-q", "tier", "class", "set", "--fast", "nvme", text(&at)]);
    assert!(refused.contains("knows no classes"), "{refused}");
    let contents = pool.contents();
    pool.check();
    set_classes(&pool);
    assert_listed(&loops(&pool));
    run("btrfs", &["check", "--check-data-csum", loops(&pool)[0]]);

    pool.mount();
    assert_listed(&[text(&at)]);
    assert_eq!(pool.contents(), contents);
    let plan = pool.json("plan");
    assert_eq!(plan["passes"][0]["target_name"], "nvme", "{plan}");
    pool.tier_prints(&["apply"]);
    let status = pool.json("status");
    assert_eq!(ranks_with(&status, "metadata_bytes"), [0], "{status}");
    assert_eq!(ranks_with(&status, "system_bytes"), [0], "{status}");
    assert!(ranks_with(&status, "data_bytes").iter().all(|rank| *rank >= 2), "{status}");
    assert!(pool.tier_prints(&["plan"]).contains("Nothing to move."));
    let usage = brindle_prints(["device", "usage", text(&at)]);
    assert!(usage.contains("0 nvme") && usage.contains("3 smr"), "{usage}");

    // Work of its own, and everything moved.
    let said = run("btrfs", &["scrub", "start", "-B", text(&at)]);
    assert!(said.contains("no errors found"), "{said}");
    run("btrfs", &["balance", "start", "--full-balance", text(&at)]);
    assert_eq!(pool.contents(), contents);
    pool.grow_metadata("grown", 200);
    pool.check();

    // Not mounted: the same decisions, by brindle's own relocation.
    let all = loops(&pool);
    assert_listed(&all);
    brindle_prints([&["-q", "tier", "apply"], &all[..]].concat());
    let status = json(&[&["tier", "status", "--json"], &all[..]].concat());
    assert_eq!(ranks_with(&status, "metadata_bytes"), [0], "{status}");
    for device in status["devices"].as_array().expect("a list") {
        let number = usize::try_from(device["devid"].as_u64().expect("a number")).expect("small") - 1;
        assert_eq!((&device["class_name"], &device["rank"]), (&NAMES[number].into(), &RANKS[number].into()));
    }
    let map = brindle_prints([&["map", "--svg"], &all[..]].concat());
    assert!(map.contains("0 nvme") && map.contains("3 smr"), "{map}");
    run("btrfs", &["check", "--check-data-csum", all[0]]);
    pool.mount();
    pool.check();
}

#[test]
fn marks_that_name_classes_are_followed_on_a_mount_of_brindle_and_read_by_the_kernel() {
    if !can_mount() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let mut pool = TierPool::made(4, &SINGLE);
    pool.unmount();
    set_classes(&pool);
    let at = pool.at();
    brindle_prints([&["-q", "mount"], &loops(&pool)[..], &[text(&at)]].concat());
    let where_is = |path: &Path| {
        let found = json(&["tier", "where", "--json", text(path)]);
        let reasons = found["reasons"].as_array().expect("a list").clone();
        let pair = |reason: &Value| format!("{} {}", reason["class_name"], reason["reason"]).replace('"', "");
        reasons.iter().map(pair).collect::<Vec<_>>()
    };
    for name in NAMES {
        let directory = at.join(name);
        std::fs::create_dir(&directory).expect("room");
        brindle_prints(["property", "set", text(&directory), "tier", name]);
        std::fs::write(directory.join("file"), vec![7; 3 << 20]).expect("room");
        assert_eq!(where_is(&directory.join("file")), [format!("{name} mark")]);
    }
    std::fs::write(at.join("plain"), vec![9; 3 << 20]).expect("room");
    assert_eq!(where_is(&at.join("plain")), ["disk data"]);
    // Classes and marks are changed while it is mounted.
    let refused = brindle_fails(2, ["property", "set", text(&at.join("plain")), "tier", "tape"]);
    assert!(refused.contains("nvme, ssd, disk, smr"), "{refused}");
    brindle_prints(["property", "set", text(&at.join("plain")), "tier", "smr"]);
    assert_eq!(where_is(&at.join("plain")), ["disk spilled"]);
    let status = json(&["tier", "status", "--json", text(&at)]);
    let smr = &status["files"]["marked_by_class"][3];
    assert_eq!((&smr["class_name"], smr["wrong_bytes"].as_u64()), (&"smr".into(), Some(3 << 20)), "{status}");
    let plan = brindle_prints(["tier", "plan", text(&at)]);
    assert!(plan.contains("To the smr devices: 3.00MiB of files"), "{plan}");
    brindle_prints(["-q", "tier", "apply", text(&at)]);
    assert_eq!(where_is(&at.join("plain")), ["smr mark"]);
    brindle_prints(["tier", "class", "set", "--rename", "smr=shingled", "--device", "4=nvme", text(&at)]);
    let listed = brindle_prints(["tier", "class", "list", text(&at)]);
    assert!(listed.contains("shingled") && !listed.contains("smr"), "{listed}");
    let refused = brindle_fails(2, ["tier", "class", "set", "--bulk", "disk", text(&at)]);
    assert!(refused.contains("devices are of class shingled: devid 2"), "{refused}");
    let refused = brindle_fails(2, ["tier", "class", "set", "--device", "1=SMR", text(&at)]);
    assert!(refused.contains("no class 'SMR'"), "{refused}");
    brindle_prints(["-q", "tier", "apply", text(&at)]);
    unmount(&at);
    run("btrfs", &["check", "--check-data-csum", loops(&pool)[0]]);
    pool.mount();
    for name in NAMES {
        assert!(std::fs::read(at.join(name).join("file")).expect("readable") == vec![7; 3 << 20]);
    }
    assert!(std::fs::read(at.join("plain")).expect("readable") == vec![9; 3 << 20]);
    pool.check();
    brindle_prints([&["-q", "tier", "class", "set", "--discard"], &loops(&pool)[..]].concat());
    let listed = json(&[&["tier", "class", "list", "--json"], &loops(&pool)[..]].concat());
    assert_eq!((&listed["listed"], listed["classes"].as_array().map(Vec::len)), (&false.into(), Some(2)));
}

/// Ends a watch, which is to end well.
fn end(watch: Child) {
    run("kill", &["-TERM", &watch.id().to_string()]);
    let output = watch.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_watch_keeps_growing_metadata_of_a_kernel_on_the_fastest_class() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::made(4, &SINGLE);
    pool.fill();
    pool.unmount();
    set_classes(&pool);
    pool.mount();
    let sizes = pool.sizes();
    let watch =
        pool.tier_starts(&["watch", "-v", "--interval", "1", "--low-water", "120M", "--data-reserve", "16M"]);
    pool.wait_until("metadata is on the fastest class", |status| ranks_with(status, "metadata_bytes") == [0]);
    pool.grow_metadata("until it is near the mark", 9500);
    pool.wait_until("the pool is fenced", |status| status["fenced"] == true);
    pool.grow_metadata("beyond the chunk", 9000);
    pool.wait_until("there is another metadata chunk, and no fence", |status| {
        let is_grown = |kind: &Value| kind["content"] == "metadata" && kind["chunks"].as_u64() > Some(1);
        status["kinds"].as_array().expect("a list").iter().any(is_grown) && status["fenced"] == false
    });
    let status = pool.json("status");
    assert_eq!(ranks_with(&status, "metadata_bytes"), [0], "{status}");
    end(watch);
    assert_eq!(pool.sizes(), sizes);
    pool.check();
}

#[test]
fn a_watch_on_a_mount_of_brindle_follows_marks_and_classes_that_change() {
    if !can_mount() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let mut pool = TierPool::made(4, &SINGLE);
    pool.unmount();
    set_classes(&pool);
    let at = pool.at();
    brindle_prints([&["-q", "mount"], &loops(&pool)[..], &[text(&at)]].concat());
    std::fs::write(at.join("file"), vec![9; 3 << 20]).expect("room");
    run("sync", &["-f", text(&at)]);
    brindle_prints(["property", "set", text(&at.join("file")), "tier", "smr"]);
    let wrong = |status: &Value| status["files"]["marked_by_class"][3]["wrong_bytes"].as_u64();
    assert_eq!(wrong(&json(&["tier", "status", "--json", text(&at)])), Some(3 << 20));
    let watch = pool.tier_starts(&["watch", "-v", "--interval", "1"]);
    pool.wait_until("the file is in the class of its mark", |status| wrong(status) == Some(0));
    // Another device is the fastest.
    brindle_prints(["tier", "class", "set", "--device", "3=ssd", "--device", "4=nvme", text(&at)]);
    pool.wait_until("metadata follows", |status| {
        let devices = status["devices"].as_array().expect("a list");
        let fourth = devices.iter().find(|device| device["devid"] == 4).expect("four devices");
        ranks_with(status, "metadata_bytes") == [0] && fourth["metadata_bytes"].as_u64() > Some(0)
    });
    end(watch);
    assert!(std::fs::read(at.join("file")).expect("readable") == vec![9; 3 << 20]);
    unmount(&at);
    run("btrfs", &["check", "--check-data-csum", loops(&pool)[0]]);
    pool.mount();
    pool.check();
}
