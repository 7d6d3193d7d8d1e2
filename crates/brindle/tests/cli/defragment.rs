//! `filesystem defragment`, on a mount and on devices.

use super::mount::unmount;
use super::support::{brindle_fails, brindle_prints, text};
use brindle_testing::referee::btrfs_check;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

const FILES: usize = 3000;

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&brindle_prints(words)).expect("JSON")
}

/// Percentage of the top level's leaves that lie directly after their siblings.
fn adjacent_percent(image: &Path) -> u64 {
    let found = json(&["inspect", "tree-stats", "--json", "-t", "5", text(image)]);
    let siblings = &found[0]["siblings"];
    let (adjacent, total) = (siblings["adjacent"].as_u64(), siblings["total"].as_u64());
    adjacent.expect("a number") * 100 / total.expect("a number")
}

/// Files that come, and of which some change from commit to commit.
fn live(place: &Path) {
    let file = |number: usize| place.join(format!("a name of some length {number}"));
    for number in 0..FILES {
        std::fs::write(file(number), "some contents".repeat(number % 40)).expect("room");
    }
    for round in 0..12 {
        brindle_prints(["filesystem", "sync", text(place)]);
        for number in (round..FILES).step_by(37) {
            std::fs::write(file(number), "other contents".repeat(number % 50)).expect("room");
        }
    }
    brindle_prints(["filesystem", "sync", text(place)]);
}

#[test]
fn metadata_is_defragmented_on_a_mount_and_on_devices() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: needs /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let [image, place] = ["image", "place"].map(|name| directory.path().join(name));
    File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("sparse");
    std::fs::create_dir(&place).expect("new");
    brindle_prints(["-q", "mkfs", "--nodesize", "4k", text(&image)]);
    brindle_prints(["-q", "mount", "-o", "metadata_defrag", text(&image), text(&place)]);
    let mode = brindle_prints(["property", "get", text(&place), "metadata_defrag"]);
    assert_eq!(mode, "metadata_defrag=rotating\n");
    live(&place);
    let before = adjacent_percent(&image);
    let said = brindle_fails(1, ["filesystem", "defragment", text(&place.join("a name of some length 1"))]);
    assert!(said.contains("only metadata"), "{said}");
    let done = json(&["filesystem", "defragment", "--json", text(&place)]);
    assert!(done["moved"].as_u64().expect("a number") > 50 && done["is_whole"] == true, "{done}");
    let after = adjacent_percent(&image);
    assert!(before < 80 && after > 93, "{before} %, then {after} %");
    let all = json(&["filesystem", "defragment", "--all", "--json", text(&place)]);
    assert!(all["leaves"].as_u64() > done["leaves"].as_u64(), "{all}");
    unmount(&place);
    let said = brindle_prints(["filesystem", "defragment", text(&image)]);
    assert!(said.starts_with("Done: "), "{said}");
    brindle_prints(["check", text(&image)]);
    // The kernel's own examiner, where it is there.
    match btrfs_check(&image) {
        Some(said) => said.unwrap_or_else(|said| panic!("{said}")),
        None => println!("skipped: needs btrfs-progs"),
    }
}
