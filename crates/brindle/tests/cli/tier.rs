//! Tiers: on a pool that the kernel has mounted, two disks and two fast devices.

mod classes;
pub(crate) mod host;
mod kills;
mod one_fast;
mod one_fast_profiles;

use crate::support::{Image, brindle_fails, brindle_prints, with_devices};
use host::{TierPool, can_mount};
use serde_json::Value;

#[test]
fn status_and_plan_of_a_pool_that_is_not_mounted() {
    let image = Image::unpack("raid1");
    let status = brindle_prints(with_devices(&["tier", "status", "--json", "--fast", "1"], &image.devices));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["devices"][0]["class"], "fast");
    assert_eq!(status["devices"][0]["why"], "as told");
    let kinds = status["kinds"].as_array().expect("a list");
    let metadata = kinds.iter().find(|kind| kind["content"] == "metadata").expect("there is metadata");
    assert_eq!((&metadata["profile"], &metadata["has_enough_devices"]), (&"raid1".into(), &false.into()));
    assert!(metadata["used_bytes"].as_u64().expect("a number") > 0);
    let text = brindle_prints(with_devices(&["tier", "status", "--fast", "1"], &image.devices));
    assert!(text.contains("metadata of profile raid1: right, one copy of two on fast devices"), "{text}");
    let said = brindle_fails(1, with_devices(&["tier", "status", "--fast", "77"], &image.devices));
    assert!(said.contains("no device of the pool"), "{said}");
    let both = ["tier", "plan", "--fast", "1", "--bulk", "1"];
    let said = brindle_fails(1, with_devices(&both, &image.devices));
    assert!(said.contains("both fast and bulk"), "{said}");
    let said = brindle_fails(1, ["tier", "status", "/proc"]);
    assert!(said.contains("not on a mounted btrfs"), "{said}");
}

#[test]
fn status_and_plan_of_a_mounted_pool_agree_with_those_of_its_devices() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled();
    let status = pool.json("status");
    let classes: Vec<&str> = status["devices"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|device| device["class"].as_str())
        .collect();
    assert_eq!(classes, ["bulk", "bulk", "fast", "fast"]);
    for kind in status["kinds"].as_array().expect("a list") {
        let is_data = kind["content"] == "data";
        assert_eq!(kind["wrong_bytes"] == 0, is_data, "{kind}");
        assert_eq!(kind["fast_bytes"], 0, "{kind}");
    }
    let plan = pool.json("plan");
    assert_eq!(plan["passes"].as_array().expect("a list").len(), 1, "{plan}");
    assert_eq!(
        (&plan["passes"][0]["target"], &plan["passes"][0]["fences_hold"]),
        (&"fast".into(), &true.into())
    );
    assert_eq!(plan["refusals"].as_array().expect("a list").len(), 0, "{plan}");
    pool.unmount();
    let unmounted = brindle_prints(with_devices(&["tier", "status", "--json"], &pool.devices()));
    let unmounted: Value = serde_json::from_str(&unmounted).expect("JSON");
    assert_eq!(unmounted["kinds"], status["kinds"]);
    assert_eq!(unmounted["devices"], status["devices"]);
}

/// A watch whose fence is due at once, and for ever, where nothing is misplaced.
const FENCED_FOR_EVER: [&str; 7] =
    ["watch", "--interval", "1", "--low-water", "100G", "--data-reserve", "1M"];

/// Bytes on the wrong devices.
fn wrong_bytes(pool: &TierPool) -> u64 {
    let status = pool.json("status");
    let kinds = status["kinds"].as_array().expect("a list");
    kinds.iter().map(|kind| kind["wrong_bytes"].as_u64().expect("a number")).sum()
}

/// Asserts that metadata and system chunks are on the fast devices, and data on the disks.
fn assert_all_in_place(pool: &TierPool) {
    let status = pool.json("status");
    assert_eq!(status["fenced"], false);
    for kind in status["kinds"].as_array().expect("a list") {
        let is_data = kind["content"] == "data";
        assert_eq!((&kind["wrong_bytes"], &kind["wrong_chunks"]), (&0.into(), &0.into()), "{kind}");
        assert_eq!(kind["fast_bytes"] == 0, is_data, "{kind}");
        assert_eq!(kind["bulk_bytes"] == 0, !is_data, "{kind}");
    }
}

#[test]
fn metadata_moves_to_fast_devices_and_all_else_is_as_before() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled();
    let (sizes, contents, data) = (pool.sizes(), pool.contents(), pool.data_extents());
    let said = pool.tier_prints(&["apply"]);
    assert!(said.starts_with("Relocated "), "{said}");
    assert_all_in_place(&pool);
    assert_eq!(pool.sizes(), sizes);
    assert_eq!(pool.data_extents(), data, "data was moved");
    assert!(pool.tier_prints(&["apply"]).contains("Nothing to move"));
    // The other way round: what belongs on the disks leaves the fast devices.
    pool.tier_prints(&["apply", "--fast", "1", "--fast", "2", "--bulk", "3", "--bulk", "4"]);
    let status = pool.json("status");
    for kind in status["kinds"].as_array().expect("a list") {
        assert_ne!(kind["wrong_bytes"], 0, "{kind}");
    }
    assert_eq!((pool.sizes(), pool.contents()), (sizes, contents));
    pool.tier_prints(&["apply", "--only", "data"]);
    pool.tier_prints(&["apply"]);
    assert_all_in_place(&pool);
    pool.check();
}

#[test]
fn a_fence_that_a_crash_has_left_is_told_of_and_taken_down_by_the_next_run() {
    if !can_mount() {
        return;
    }
    let pool = TierPool::filled();
    let sizes = pool.sizes();
    let mut child = pool.tier_starts(&["apply", "--rate", "1"]);
    pool.wait_for_a_journal();
    child.kill().expect("a child of ours");
    child.wait().expect("it ends");
    let output = pool.tier(&["status"]);
    let said = String::from_utf8_lossy(&output.stderr);
    // Between two chunks the fence may be down; then there is nothing to tell.
    assert!(pool.sizes() == sizes || said.contains("tier recover"), "{said}");
    pool.tier_prints(&["apply"]);
    assert_eq!(pool.sizes(), sizes);
    assert_all_in_place(&pool);
}

#[test]
fn an_interrupted_run_takes_its_fences_down() {
    if !can_mount() {
        return;
    }
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        // What an interrupted run leaves to be moved may be one chunk, after which the next run would just end.
        let pool = TierPool::filled();
        let sizes = pool.sizes();
        let child = pool.tier_starts(&["apply", "--rate", "1"]);
        pool.wait_for_a_journal();
        host::run("kill", &[signal, &child.id().to_string()]);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(!said.contains("cancel"), "{said}");
        assert_eq!(pool.sizes(), sizes);
        assert_eq!(pool.json("status")["fenced"], false);
    }
}

#[test]
fn an_interrupted_run_does_not_wait_for_the_chunk_that_it_moves() {
    if !can_mount() {
        return;
    }
    // A fast machine may be done before it hears of the signal; not with any number of files.
    let is_interrupted = |files: usize| {
        let pool = TierPool::filled();
        let sizes = pool.sizes();
        pool.grow_metadata("so that it takes a while", files);
        let begin = std::time::Instant::now();
        let mut child = pool.tier_starts(&["apply"]);
        while pool.exclusive_operation() != "balance" {
            if child.try_wait().expect("our child").is_some() {
                return false;
            }
        }
        host::run("kill", &["-INT", &child.id().to_string()]);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{files} files: ended after {:?}: {said}", begin.elapsed());
        assert_eq!(pool.sizes(), sizes);
        assert_eq!(pool.exclusive_operation(), "none");
        if wrong_bytes(&pool) == 0 {
            return false;
        }
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(!said.contains("cancel"), "{said}");
        true
    };
    assert!([1500, 4000, 12_000].into_iter().any(is_interrupted), "it was done before it heard");
}

#[test]
fn impossible_moves_are_refused_and_change_nothing() {
    if !can_mount() {
        return;
    }
    let pool = TierPool::filled();
    let (sizes, status) = (pool.sizes(), pool.json("status"));
    // Nothing to do is no failure.
    let said = pool.tier_prints(&["apply", "--bulk", "3", "--bulk", "4"]);
    assert!(said.contains("Nothing to move.") && said.contains("no fast devices, all are bulk"), "{said}");
    assert_eq!((pool.sizes(), pool.json("status")), (sizes.clone(), status));
    // Another process is at it.
    if pool.pause_a_balance() {
        let said = pool.tier_fails(&["apply"]);
        assert!(said.contains("busy") && said.contains("balance"), "{said}");
        host::run("btrfs", &["balance", "cancel", crate::support::text(&pool.at())]);
    }
    assert_eq!(pool.sizes(), sizes);
    let said = brindle_fails(1, with_devices(&["tier", "apply"], &pool.devices()));
    assert!(said.contains("is in use: it is mounted"), "{said}");
}

#[test]
fn nothing_is_planned_for_a_mount_of_the_kernel_while_a_device_is_missing() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled();
    pool.unmount();
    host::run("btrfs", &["device", "scan", "--forget", &pool.loops()[3]]);
    host::run("losetup", &["--detach", &pool.loops()[3]]);
    pool.mount_with("degraded");
    let why = "device 4 is missing: nothing is moved in a degraded pool";
    assert!(pool.tier_fails(&["apply"]).contains(why));
    let said = pool.tier_fails(&["plan"]);
    assert!(said.contains(&format!("Can't be done: {why}")) && !said.contains("To the fast"), "{said}");
    assert!(
        said.contains("1 fast and 2 bulk devices are there. Its return changes things by its class"),
        "{said}"
    );
    let said = pool.tier_fails(&["plan", "--fast", "4"]);
    assert!(said.contains("1 fast and 2 bulk devices are there. Once it is back, metadata of"), "{said}");
    let plan = pool.tier_fails(&["-q", "plan", "--json"]);
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    assert_eq!((&plan["passes"], &plan["nothing_to_move"]), (&Value::Array(Vec::new()), &false.into()));
    assert_eq!((&plan["refusals"][0], &plan["missing_devids"]), (&why.into(), &[4].into()), "{plan}");
    let status = pool.json("status");
    let kinds = status["kinds"].as_array().expect("a list").iter();
    let metadata = kinds.filter(|kind| kind["content"] == "metadata").collect::<Vec<_>>();
    assert_eq!(metadata[0]["copies_on_fast_devices"], 1, "{status}");
}

#[test]
fn a_watched_pool_grows_its_metadata_on_fast_devices() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled();
    let sizes = pool.sizes();
    let words = ["watch", "-v", "--interval", "1", "--low-water", "120M", "--data-reserve", "16M"];
    let child = pool.tier_starts(&words);
    // It begins by moving misplaced chunks.
    pool.wait_until("metadata is on the fast devices", |status| {
        status["kinds"].as_array().expect("a list").iter().all(|kind| kind["wrong_bytes"] == 0)
    });
    // A leaf of metadata for each: more than the one chunk of 256 MiB holds.
    pool.grow_metadata("until it is near the mark", 9500);
    pool.wait_until("the pool is fenced", |status| status["fenced"] == true);
    pool.grow_metadata("beyond the chunk", 9000);
    pool.wait_until("there is another metadata chunk, and no fence", |status| {
        let kinds = status["kinds"].as_array().expect("a list");
        let grown =
            kinds.iter().any(|kind| kind["content"] == "metadata" && kind["chunks"].as_u64() > Some(1));
        grown && status["fenced"] == false
    });
    assert_eq!(pool.sizes(), sizes);
    host::run("kill", &["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("fence up") && said.contains("fence down"), "{said}");
    let moved = said.split_once("fence up").map_or("", |(_, after)| after);
    assert!(!moved.contains("relocating"), "metadata went to the disks first: {said}");
    assert_all_in_place(&pool);
    pool.check();
}

#[test]
fn a_watch_that_is_ended_while_its_fence_stands_takes_it_down() {
    if !can_mount() {
        return;
    }
    let pool = TierPool::filled();
    let sizes = pool.sizes();
    pool.tier_prints(&["apply"]);
    let mut child = pool.tier_starts(&FENCED_FOR_EVER);
    pool.wait_until("the pool is fenced", |status| status["fenced"] == true);
    let said = pool.tier_fails(&["recover"]);
    assert!(said.contains("another process"), "{said}");
    child.kill().expect("a child of ours");
    child.wait().expect("it ends");
    // The fence that is waited for is to be that of the next one, which handles signals.
    pool.tier_prints(&["recover"]);
    let child = pool.tier_starts(&FENCED_FOR_EVER);
    pool.wait_until("the pool is fenced", |status| status["fenced"] == true);
    host::run("kill", &["-INT", &child.id().to_string()]);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(pool.sizes(), sizes);
    assert_eq!(pool.json("status")["fenced"], false);
}
