//! The pool of two disks in raid1 and one SSD: one copy of the metadata belongs on the SSD.

use super::host::{TierPool, can_mount, run};
use super::wrong_bytes;
use crate::support::{brindle_succeeds, text, with_devices};
use serde_json::Value;

fn kinds(status: &Value) -> Vec<Value> {
    status["kinds"].as_array().expect("a list").clone()
}

/// One copy of all metadata on the SSD and the other one on a disk, all data on the disks.
fn assert_one_copy_on_flash(pool: &TierPool) {
    let status = pool.json("status");
    assert_eq!(status["fenced"], false);
    for kind in kinds(&status) {
        assert_eq!((&kind["wrong_bytes"], &kind["wrong_chunks"]), (&0.into(), &0.into()), "{kind}");
        let is_data = kind["content"] == "data";
        assert_eq!(kind["fast_bytes"] == 0, is_data, "{kind}");
        assert!(is_data || kind["fast_bytes"] == kind["bulk_bytes"], "{kind}");
    }
}

#[test]
fn one_copy_of_the_metadata_moves_to_the_ssd() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled_with_one_fast_device();
    let (sizes, contents, data) = (pool.sizes(), pool.contents(), pool.data_extents());
    let plan = pool.json("plan");
    assert_eq!(plan["passes"][0]["fences"].as_array().map(Vec::len), Some(1), "one disk is open: {plan}");
    assert_eq!((&plan["passes"][0]["fences_hold"], &plan["nothing_to_move"]), (&true.into(), &false.into()));
    let said = pool.tier_prints(&["apply"]);
    assert!(said.starts_with("Relocated "), "{said}");
    assert!(said.contains("one copy of two on fast devices is right; both copies on flash"), "{said}");
    assert_one_copy_on_flash(&pool);
    assert_eq!(pool.sizes(), sizes);
    assert_eq!(pool.data_extents(), data, "data was moved");
    assert_eq!(pool.contents(), contents);
    let said = pool.tier_prints(&["apply"]);
    assert!(said.starts_with("Nothing to move."), "{said}");
    let said = pool.tier_prints(&["plan"]);
    assert!(said.starts_with("Nothing to move."), "{said}");
    assert_eq!(pool.json("plan")["nothing_to_move"], true);
    let shown = pool.tier_prints(&["status"]);
    assert!(shown.contains("metadata of profile raid1: right, one copy of two on fast devices"), "{shown}");
    run("btrfs", &["scrub", "start", "-B", text(&pool.at())]);
    // A disk is said to be the fast one, and back: both ways a copy moves, once data has made room.
    for classes in [&["--fast", "1", "--bulk", "3"][..], &[]] {
        pool.tier_prints(&[&["apply", "--only", "data"], classes].concat());
        pool.tier_prints(&[&["apply"], classes].concat());
    }
    assert_one_copy_on_flash(&pool);
    assert_eq!((pool.sizes(), pool.contents()), (sizes, contents));
    pool.check();
}

/// Metadata of every profile that two disks can have: on a mount of the kernel, and then on one of brindle.
#[test]
fn metadata_of_any_profile_lies_right_beside_one_ssd() {
    if !can_mount() {
        return;
    }
    for profile in ["single", "dup", "raid0", "raid5"] {
        let mut pool = TierPool::filled_beside_one_fast_device(2, profile, "raid1");
        let (sizes, contents) = (pool.sizes(), pool.contents());
        pool.tier_prints(&["apply"]);
        assert_metadata_is_right(&pool, profile, &["single", "dup"]);
        if profile == "raid0" {
            assert!(pool.tier_prints(&["plan"]).contains("the kernel stripes it over all devices"));
        }
        assert_eq!(pool.sizes(), sizes, "{profile}");
        pool.unmount();
        let (devices, at) = (pool.devices(), pool.at());
        brindle_succeeds(with_devices(&["mount"], &[devices, vec![at.clone()]].concat()));
        pool.tier_prints(&["apply"]);
        assert_metadata_is_right(&pool, profile, &["single", "dup", "raid0"]);
        assert_eq!(pool.contents(), contents, "{profile}");
        brindle_succeeds(["umount", text(&at)]);
        pool.mount();
        pool.check();
    }
}

/// Nothing is in a wrong place, and all metadata of the profiles `all_on_flash` lies on the SSD.
fn assert_metadata_is_right(pool: &TierPool, profile: &str, all_on_flash: &[&str]) {
    for kind in kinds(&pool.json("status")).iter().filter(|kind| kind["content"] != "data") {
        assert_eq!(kind["wrong_chunks"], 0, "{profile}: {kind}");
        assert!(kind["bulk_bytes"] == 0 || !all_on_flash.contains(&profile), "{profile}: {kind}");
    }
}

#[test]
fn a_watch_keeps_one_copy_of_growing_metadata_on_the_ssd() {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled_with_one_fast_device();
    let sizes = pool.sizes();
    let words = ["watch", "-v", "--interval", "1", "--low-water", "120M", "--data-reserve", "16M"];
    let child = pool.tier_starts(&words);
    pool.wait_until("a copy of the metadata is on the SSD", |_| wrong_bytes(&pool) == 0);
    pool.grow_metadata("until it is near the mark", 9500);
    pool.wait_until("the pool is fenced", |status| status["fenced"] == true);
    pool.grow_metadata("beyond the chunk", 9000);
    pool.wait_until("there is another metadata chunk, and no fence", |status| {
        let is_grown = |kind: &Value| kind["content"] == "metadata" && kind["chunks"].as_u64() > Some(1);
        kinds(status).iter().any(is_grown) && status["fenced"] == false
    });
    assert_eq!(pool.sizes(), sizes);
    run("kill", &["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let moved = said.split_once("fence up").map_or("", |(_, after)| after);
    assert!(
        said.contains("fence up") && !moved.contains("relocating"),
        "metadata went to the disks first: {said}"
    );
    assert_one_copy_on_flash(&pool);
    pool.check();
}
