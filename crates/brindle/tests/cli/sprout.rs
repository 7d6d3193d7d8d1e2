//! A pool that has grown from a seed, and is named by its own device alone.

use super::mount::{can_mount, unmount};
use super::support::{Image, Loops, brindle_fails, brindle_prints, is_root, text};
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
