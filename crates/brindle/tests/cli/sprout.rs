//! A pool that has grown from a seed, and is named by its own device alone.

use super::mount::{can_mount, unmount};
use super::support::{Image, Loops, brindle, brindle_fails, brindle_prints, is_root, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Bytes that are free in the chunk of data of the sprout, and those that are unallocated there.
const FREE: u64 = 32_010_240 + (32 << 20);
/// Room for data that the kernel's statfs(2) tells of this pool, in bytes.
const KERNEL_FREE: u64 = 64_516_096;

/// Sums that `filesystem usage` shows.
fn overall(operands: &[&Path]) -> Value {
    let words = ["-q", "filesystem", "usage", "--json"].into_iter();
    let shown = brindle_prints(words.chain(operands.iter().map(|path| text(path))));
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    shown["overall"].clone()
}

#[test]
fn nothing_of_a_seed_counts_as_room() {
    let image = Image::unpack("seed");
    let overall = overall(&[&image.devices[0], &image.devices[1]]);
    assert_eq!(overall["free_estimated_bytes"], FREE, "{overall}");
    assert_eq!(overall["unallocated_bytes"], 32 << 20, "that of the sprout alone: {overall}");
}

#[test]
fn the_health_of_a_sprout_on_images_is_that_of_one_pool() {
    let image = Image::unpack("seed");
    let [seed, sprout] = [&image.devices[0], &image.devices[1]];
    let status = |operands: &[&Path]| -> Vec<(String, String)> {
        let words = ["-q", "status", "--json"].into_iter();
        let output = brindle(words.chain(operands.iter().map(|path| text(path))));
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let pools = shown["pools"].as_array().expect("a list").iter();
        let word = |pool: &Value, name: &str| pool[name].as_str().unwrap_or_default().to_owned();
        pools.map(|pool| (word(pool, "uuid"), word(pool, "state"))).collect()
    };
    let together = status(&[seed, sprout]);
    let [(fsid, state)] = &together[..] else { panic!("one pool: {together:?}") };
    assert_eq!(state, "ok");
    assert_eq!(status(&[sprout, seed]), together);
    assert_eq!(status(&[sprout]), together, "its seed lies beside it");
    let of_seed = status(&[seed]);
    assert!(of_seed.len() == 1 && of_seed[0].0 != *fsid && of_seed[0].1 == "ok", "{of_seed:?}");
    // Elsewhere it is not looked for.
    let elsewhere = tempfile::tempdir().expect("temporary directory");
    let moved = elsewhere.path().join("seed");
    fs::copy(seed, &moved).and_then(|_| fs::remove_file(seed)).expect("room");
    let alone = status(&[sprout]);
    assert!(alone.len() == 1 && alone[0].1 == "down", "{alone:?}");
    assert_eq!(status(&[sprout, &moved]), together);
}

#[test]
fn a_sprout_is_named_alone_and_its_seed_is_found_or_told_of() {
    if !is_root("loop devices") {
        return;
    }
    let image = Image::unpack("seed");
    let sprout = Loops::attach(&image.devices[1..], &[]);
    let device = text(&sprout.0[0]);
    let seed = brindle_prints(["inspect-internal", "dump-super", text(&image.devices[0])]);
    let fsid = seed.lines().find_map(|line| line.strip_prefix("fsid")).expect("a UUID").trim().to_owned();
    for command in [&["ls"][..], &["check"], &["filesystem", "usage"]] {
        let said = brindle_fails(1, command.iter().copied().chain([device]));
        assert!(said.contains(&format!("of the seed {fsid} that the pool has grown from")), "{said}");
    }
    let attached = Loops::attach(&image.devices[..1], &[]);
    let names = brindle_prints(["-q", "ls", device]);
    assert!(!names.is_empty());
    brindle_prints(["-q", "check", device]);
    assert_eq!(overall(&[&sprout.0[0]])["free_estimated_bytes"], FREE);
    let status: Value =
        serde_json::from_str(&brindle_prints(["-q", "status", "--json", device])).expect("JSON");
    assert_eq!(status["pools"][0]["state"], "ok", "{status}");
    if can_mount() {
        let place = image.beside("place");
        fs::create_dir(&place).expect("new");
        brindle_prints(["-q", "mount", device, text(&place)]);
        let found = fs::read_dir(&place).expect("a directory").count();
        let free = overall(&[&place]);
        unmount(&place);
        assert_eq!(found, names.lines().count());
        assert_eq!(free["unallocated_bytes"], 32 << 20, "{free}");
        assert_eq!(free["free_statfs_bytes"], KERNEL_FREE, "{free}");
    }
    drop(attached);
}
