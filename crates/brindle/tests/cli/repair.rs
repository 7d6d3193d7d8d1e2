//! `check --repair`, `rescue`, and their undoing.

use super::support::{brindle, brindle_fails, brindle_prints, text};
use brindle_testing::damage::Victim;
use serde_json::Value;
use std::fs;

#[test]
fn a_repair_is_shown_agreed_to_written_and_undone() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("dup");
    victim.edit_superblocks(|superblock| superblock.bytes_used += 4096);
    let image = directory.path().join("dev1.img");
    victim.images()[0].write_to(&image).expect("room");
    let before = fs::read(&image).expect("there");
    let (image, undo) = (text(&image), directory.path().join("undo"));
    let undo = text(&undo);

    let shown = brindle(["check", "--repair", "--dry-run", image]);
    let said = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(1), "{said}");
    for part in
        ["bytes_used is the sum", "because: superblock: bytes_used is", "errors that would be left: 0"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without a terminal no question is answered.
    let said = brindle_fails(1, ["check", "--repair", "--undo", undo, image]);
    assert!(said.contains("--yes writes it"), "{said}");
    assert_eq!(fs::read(image).expect("there"), before, "nothing was written");

    let said = brindle_prints(["-q", "check", "--repair", "--yes", "--json", "--undo", undo, image]);
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&report["written"], &report["undo_file"]), (&true.into(), &undo.into()), "{report}");
    assert_eq!(report["after"]["clean"], Value::Bool(true), "{report}");
    brindle_prints(["-q", "check", image]);
    assert!(
        brindle_prints(["-q", "check", "--repair", "--yes", image]).contains("nothing is to be repaired")
    );

    brindle_prints(["-q", "rescue", "undo", undo, image]);
    assert_eq!(fs::read(image).expect("there"), before, "undone");
    let said = brindle_fails(1, ["check", "--repair", "--yes", "--undo", undo, image]);
    assert!(said.contains("exists: another name"), "{said}");
}

#[test]
fn words_of_a_rescue_write_behind_an_undo_file() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = directory.path().join("dev1.img");
    Victim::load("dup").images()[0].write_to(&image).expect("room");
    let (before, image) = (fs::read(&image).expect("there"), text(&image));
    for (number, words) in
        [&["clear-space-cache", "v2"][..], &["clear-uuid-tree"], &["fix-device-size"], &["zero-log"]]
            .iter()
            .enumerate()
    {
        let undo = directory.path().join(number.to_string());
        let words = ["-q", "rescue"].iter().chain(*words).copied();
        let said = brindle_prints(words.chain(["--yes", "--undo", text(&undo), image]));
        let is_written = undo.exists();
        assert!(said.contains(if is_written { "pages were written" } else { "nothing is to be" }), "{said}");
        brindle_prints(["-q", "check", image]);
        if is_written {
            brindle_prints(["-q", "rescue", "undo", text(&undo), image]);
        }
        assert_eq!(fs::read(image).expect("there"), before, "{number}");
    }
    let said = brindle_fails(1, ["rescue", "undo", image, image]);
    assert!(said.contains("no undo file of brindle"), "{said}");
    brindle_fails(2, ["rescue", "clear-space-cache", "v3", image]);
    brindle_fails(2, ["rescue", "create-control-device"]);
}
