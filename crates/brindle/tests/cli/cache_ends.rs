//! Caches that lose an SSD or a user: what is told then, and what is refused.

use super::cache::{Pair, write_at};
use super::mount::{can_mount, is_mounted};
use super::support::{Loops, brindle, brindle_fails, brindle_succeeds, is_root, text};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

#[test]
fn blocks_that_can_not_be_written_to_the_disk_fail_what_should_write_them() {
    if !can_mount() {
        return;
    }
    let mut pair = Pair::new("back", 16, 64);
    pair.load(&[]);
    write_at(&pair.device, 7, 1 << 20);
    let ssd = pair.at("ssd");
    let saved = fs::read(&ssd).expect("ours");
    File::options().write(true).open(&ssd).and_then(|ssd| ssd.set_len(0)).expect("ours");
    let waits = format!("16384 bytes wait on {} for {}", text(&ssd), text(&pair.at("disk")));
    for words in [&["set", "do_sync=1"][..], &["stop"]] {
        let said = brindle_fails(1, pair.cache(words));
        assert!(said.contains(&waits), "{words:?}: {said}");
    }
    assert!(is_mounted(&pair.at("place")), "it goes on");
    // The SSD works again.
    let file = File::options().write(true).open(&ssd).expect("ours");
    file.write_all_at(&saved, 0).expect("room");
    drop(file);
    brindle_succeeds(pair.cache(&["stop"]));
}

#[test]
fn a_load_that_fails_leaves_the_disk_as_it_was() {
    let pair = Pair::new("back", 16, 64);
    let disk = fs::read(pair.at("disk")).expect("ours");
    let [ssd, image, nowhere] = ["ssd", "disk", "nowhere"].map(|name| pair.at(name));
    brindle_fails(1, ["cache", "load", text(&ssd), text(&image), text(&nowhere)]);
    assert!(fs::read(&image).expect("ours") == disk, "it bears no mark");
    brindle_succeeds(["cache", "destroy", text(&ssd)]);
}

#[test]
fn a_disk_has_one_cache() {
    let pair = Pair::new("thru", 16, 64);
    let [ssd, disk, other] = ["ssd", "disk", "other"].map(|name| pair.at(name));
    File::create(&other).and_then(|image| image.set_len(16 << 20)).expect("room");
    let create = ["cache", "create", "-p", "back", "second", text(&other), text(&disk)];
    let said = brindle_fails(1, create);
    assert!(said.contains(&format!("has the cache pair on {} already", text(&ssd))), "{said}");
    brindle_succeeds(["cache", "create", "-f", "-p", "back", "second", text(&other), text(&disk)]);
}

#[test]
fn a_directory_shows_one_cache() {
    if !can_mount() {
        return;
    }
    let (mut first, second) = (Pair::new("back", 16, 64), Pair::new("back", 16, 64));
    first.load(&[]);
    let [ssd, disk] = ["ssd", "disk"].map(|name| second.at(name));
    let said = brindle_fails(1, ["cache", "load", text(&ssd), text(&disk), text(&first.at("place"))]);
    assert!(said.contains("pair is served there already"), "{said}");
    brindle_succeeds(["cache", "destroy", text(&ssd)]);
}

#[test]
fn the_mark_stays_on_a_disk_whose_ssd_is_found_under_another_name() {
    if !can_mount() {
        return;
    }
    let mut pair = Pair::new("back", 16, 64);
    let mut load = Command::new(env!("CARGO_BIN_EXE_brindle"));
    load.args(["cache", "load", "ssd", "disk", "place"]).current_dir(pair.at(""));
    assert!(load.status().expect("the binary was built").success());
    pair.device = pair.at("place").join("disk");
    write_at(&pair.device, 7, 1 << 20);
    pair.kill();
    pair.clear();
    let disk = pair.at("disk");
    let refused = |ssd: &str| {
        let said = brindle_fails(1, ["cache", "destroy", "--force", text(&disk)]);
        assert!(said.contains(&format!("needs the blocks that {ssd} has")), "{said}");
    };
    refused(text(&pair.at("ssd")));
    fs::rename(pair.at("ssd"), pair.at("renamed")).expect("ours");
    refused(text(&pair.at("renamed")));
    let elsewhere = tempfile::tempdir().expect("temporary directory");
    let moved = elsewhere.path().join("ssd");
    fs::copy(pair.at("renamed"), &moved).expect("room");
    fs::remove_file(pair.at("renamed")).expect("ours");
    if is_root("a loop device") {
        let loops = Loops::attach(&[moved], &[]);
        refused(text(&loops.0[0]));
    }
    let output = brindle(["cache", "destroy", "--force", text(&disk)]);
    assert!(output.status.success(), "the SSD is lost: {}", String::from_utf8_lossy(&output.stderr));
}
