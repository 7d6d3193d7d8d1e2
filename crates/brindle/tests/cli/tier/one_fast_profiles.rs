//! One SSD beside as many disks as a profile of more than two devices needs: on a mount of the kernel, and then on one of brindle.

use super::host::{TierPool, can_mount, run};
use super::wrong_bytes;
use crate::support::{brindle_prints, brindle_succeeds, text, with_devices};
use serde_json::Value;

/// Metadata, its profile and what is expected of it.
struct Case {
    disks: usize,
    metadata: &'static str,
    data: &'static str,
    /// Copies of the metadata if one lies on the SSD; `None` if the profile stripes, and has no preference.
    copies: Option<u64>,
    /// The note about a further SSD.
    note: &'static str,
}

const THREE_COPIES: Case = Case {
    disks: 3,
    metadata: "raid1c3",
    data: "raid6",
    copies: Some(3),
    note: "metadata of profile raid1c3: one copy of three on fast devices is right; all copies on flash: add 2 more fast devices",
};

const FOUR_COPIES: Case = Case {
    disks: 4,
    metadata: "raid1c4",
    data: "raid1c3",
    copies: Some(4),
    note: "metadata of profile raid1c4: one copy of four on fast devices is right; all copies on flash: add 3 more fast devices",
};

const STRIPED: Case = Case {
    disks: 4,
    metadata: "raid10",
    data: "raid10",
    copies: None,
    note: "metadata of profile raid10 needs 2 fast devices, and there is 1",
};

const PARITY: Case = Case {
    disks: 4,
    metadata: "raid6",
    data: "raid1c4",
    copies: None,
    note: "metadata of profile raid6 needs 3 fast devices, and there is 1",
};

/// Nothing is in a wrong place, and of mirrored metadata one copy is on the SSD.
fn assert_right(case: &Case, pool: &TierPool) {
    let status = pool.json("status");
    assert_eq!(status["fenced"], false);
    for kind in status["kinds"].as_array().expect("a list") {
        assert_eq!((&kind["wrong_bytes"], &kind["wrong_chunks"]), (&0.into(), &0.into()), "{kind}");
        let bytes = |side: &str| kind[side].as_u64().expect("a number");
        if let Some(copies) = case.copies.filter(|_| kind["content"] != "data") {
            assert_ne!(bytes("fast_bytes"), 0, "{kind}");
            assert_eq!(bytes("fast_bytes") * (copies - 1), bytes("bulk_bytes"), "{kind}");
        }
    }
}

/// Runs `plan` and `apply`: each tells the note, and `apply` moves what the plan announces.
fn plan_and_apply(case: &Case, pool: &TierPool, moves: bool) {
    let plan = pool.json("plan");
    assert_eq!(plan["refusals"].as_array().map(Vec::len), Some(0), "{plan}");
    assert_eq!(plan["nothing_to_move"], !moves, "{plan}");
    let said = pool.tier_prints(&["plan"]);
    assert!(said.contains(case.note), "{said}");
    let said = pool.tier_prints(&["apply"]);
    assert!(said.contains(case.note), "{said}");
    assert_eq!(said.starts_with("Nothing to move."), !moves, "{said}");
    assert_right(case, pool);
}

/// Reads all names and attributes, and asserts which devices the trees are read from.
fn read_trees(case: &Case, pool: &TierPool) {
    let at = pool.at();
    brindle_prints(["property", "set", text(&at), "read_statistics", "1"]);
    run("find", &[text(&at), "-size", "+1"]);
    let said = brindle_prints(["device", "reads", "--json", text(&at)]);
    let reads: Value = serde_json::from_str(&said).expect("JSON");
    let devices = reads["devices"].as_array().expect("a list");
    let (ssd, disks) = devices.split_last().expect("there are some");
    let has_reads = |device: &Value| device["reads"] != 0;
    match case.copies {
        Some(_) => assert!(has_reads(ssd) && !disks.iter().any(has_reads), "{reads}"),
        None => assert!(devices.iter().any(has_reads), "{reads}"),
    }
}

fn plan_apply_and_keep(case: &Case) {
    if !can_mount() {
        return;
    }
    let mut pool = TierPool::filled_beside_one_fast_device(case.disks, case.metadata, case.data);
    let (sizes, contents, data) = (pool.sizes(), pool.contents(), pool.data_extents());
    let is_mirrored = case.copies.is_some();
    plan_and_apply(case, &pool, is_mirrored);
    plan_and_apply(case, &pool, false);
    assert_eq!((pool.sizes(), pool.data_extents()), (sizes.clone(), data), "data was moved");
    // The kernel puts new chunks on the devices with the most room, which are the disks; a watch moves them back.
    run("btrfs", &["-q", "balance", "start", "-m", text(&pool.at())]);
    assert_eq!(wrong_bytes(&pool) != 0, is_mirrored);
    let watch = pool.tier_starts(&["watch", "--interval", "1"]);
    pool.wait_until("metadata is right", |_| wrong_bytes(&pool) == 0);
    run("kill", &["-TERM", &watch.id().to_string()]);
    let output = watch.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_right(case, &pool);
    assert_eq!((pool.sizes(), pool.contents()), (sizes, contents.clone()));
    pool.check();
    let (devices, at) = (pool.devices(), pool.at());
    brindle_succeeds(with_devices(&["mount"], &[devices.clone(), vec![at.clone()]].concat()));
    read_trees(case, &pool);
    // What brindle writes anew lies right at once.
    brindle_prints(["-q", "balance", "start", "-m", text(&at)]);
    plan_and_apply(case, &pool, false);
    assert_eq!(pool.contents(), contents);
    brindle_succeeds(["umount", text(&at)]);
    brindle_prints(with_devices(&["-q", "check", "--check-data-csum"], &devices));
    pool.mount();
    assert_eq!(pool.contents(), contents);
    pool.check();
}

#[test]
fn one_copy_of_three_lies_on_the_ssd() {
    plan_apply_and_keep(&THREE_COPIES);
}

#[test]
fn one_copy_of_four_lies_on_the_ssd() {
    plan_apply_and_keep(&FOUR_COPIES);
}

#[test]
fn striped_mirrors_stay_where_they_are() {
    plan_apply_and_keep(&STRIPED);
}

#[test]
fn metadata_with_parity_stays_where_it_is() {
    plan_apply_and_keep(&PARITY);
}
