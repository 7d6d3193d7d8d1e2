//! `check --repair`, `rescue`, and their undoing.

use super::support::{brindle, brindle_fails, brindle_prints, text};
use brindle_ondisk::Generation;
use brindle_testing::damage::Victim;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

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

#[test]
fn a_device_that_was_left_behind_and_lacks_nothing_is_readmitted() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("raid1-metadata-raid0-data");
    victim.edit_superblocks_of(2, |superblock| {
        superblock.generation = Generation::new(superblock.generation.get() - 5);
        superblock.super_roots = zerocopy::FromZeros::new_zeroed();
    });
    let images: Vec<PathBuf> =
        (0..victim.images().len()).map(|number| directory.path().join(number.to_string())).collect();
    for (image, path) in victim.images().iter().zip(&images) {
        image.write_to(path).expect("room");
    }
    let images: Vec<&str> = images.iter().map(|path| text(path)).collect();
    brindle_fails(1, [&["check"], &images[..]].concat());
    let undo = directory.path().join("undo");
    let words = ["-q", "rescue", "readmit", "--trust-unverified", "--yes", "--undo", text(&undo)];
    let said = brindle_prints([&words[..], &images[..]].concat());
    assert!(said.contains("superblocks are written anew") && said.contains("pages were written"), "{said}");
    brindle_prints([&["-q", "check"], &images[..]].concat());
    brindle_prints([&["-q", "rescue", "undo", text(&undo)], &images[..]].concat());
    brindle_fails(1, [&["check"], &images[..]].concat());
}

#[test]
fn a_disk_that_has_shrunk_ends_where_it_ends_now() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = ["one", "two"].map(|name| directory.path().join(name));
    let [one, two] = [text(&images[0]), text(&images[1])];
    brindle_prints(["-q", "mkfs", "-d", "raid1", "-m", "raid1", "--size", "300M", one, two]);
    let size_bytes = (300 << 20) - 4097;
    fs::File::options().write(true).open(two).and_then(|file| file.set_len(size_bytes)).expect("there");
    brindle_fails(1, ["check", one, two]);
    let undo = directory.path().join("undo");
    let words = ["-q", "rescue", "fix-device-size", "--yes", "--undo", text(&undo), one, two];
    assert!(brindle_prints(words).contains("total_bytes is"));
    brindle_prints(["-q", "check", one, two]);
    brindle_prints(["-q", "rescue", "undo", text(&undo), two, one]);
    brindle_fails(1, ["check", one, two]);
}

#[test]
fn an_undo_file_without_room_is_removed_and_nothing_is_written() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = directory.path().join("dev1.img");
    Victim::load("dup").images()[0].write_to(&image).expect("room");
    let (before, undo) = (fs::read(&image).expect("there"), directory.path().join("undo"));
    // No file may have more than a few blocks.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let words = ["rescue", "clear-uuid-tree", "--yes", "--undo", text(&undo), text(&image)];
    let tried =
        Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_brindle")]).args(words).output();
    let tried = tried.expect("a shell");
    let said = String::from_utf8_lossy(&tried.stderr);
    assert_eq!(tried.status.code(), Some(1), "{said}");
    assert!(said.contains("undo file") && !said.contains("takes back"), "{said}");
    assert!(!undo.exists(), "part of an undo file undoes nothing");
    assert_eq!(fs::read(&image).expect("there"), before, "nothing was written");
}

#[test]
fn a_chunk_tree_that_is_lost_is_read_around_shown_written_and_undone() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("raid1");
    let paths: Vec<_> =
        (0..victim.images().len()).map(|number| directory.path().join(format!("dev{number}"))).collect();
    let write = |victim: &Victim| {
        for (image, path) in victim.images().iter().zip(&paths) {
            image.write_to(path).expect("room");
        }
    };
    write(&victim);
    let devices: Vec<&str> = paths.iter().map(|path| text(path)).collect();
    let with = |words: &[&'static str]| -> Vec<String> {
        words.iter().chain(&devices).map(|word| (*word).to_owned()).collect()
    };
    let listed = brindle_prints(with(&["-q", "ls", "-lR"]));
    let blocks: Vec<_> = victim.blocks().to_vec();
    for block in blocks.iter().filter(|block| block.tree == brindle_ondisk::RootId::CHUNK_TREE) {
        victim.edit_block_raw(block.at, |bytes| bytes.fill(0x5a));
    }
    write(&victim);
    let contents = || paths.iter().map(|path| fs::read(path).expect("there")).collect::<Vec<_>>();
    let before = contents();

    brindle_fails(1, with(&["ls"]));
    assert_eq!(brindle_prints(with(&["-q", "ls", "-lR", "-o", "rescue=chunks"])), listed);
    brindle_prints(with(&["-q", "check", "-o", "rescue=chunks", "--check-data-csum"]));
    brindle_prints(with(&["-q", "inspect", "dump-tree", "-o", "rescue=chunks", "-t", "chunk"]));
    let said = brindle_fails(2, with(&["check", "--repair", "-o", "rescue=chunks"]));
    assert!(said.contains("a repair takes all devices"), "{said}");

    let shown = brindle_prints(with(&["-q", "rescue", "chunk-recover", "--dry-run"]));
    assert!(shown.contains("chunks that are proved: ") && shown.contains("nothing was written"), "{shown}");
    assert_eq!(contents(), before, "nothing was written");
    let refused = brindle(["-q", "rescue", "chunk-recover", "--yes", "--json", devices[0]]);
    let report: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert!(report["refused"].as_str().is_some_and(|why| why.contains("is missing")), "{report}");
    assert_eq!(refused.status.code(), Some(1), "{report}");

    let undo = directory.path().join("undo");
    let words = ["-q", "rescue", "chunk-recover", "--yes", "--json", "--undo", text(&undo)];
    let said = brindle_prints(words.iter().chain(&devices));
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&report["written"], &report["refused"]), (&true.into(), &Value::Null), "{report}");
    assert!(report["chunks"][0]["proof"].is_string(), "{report}");
    brindle_prints(with(&["-q", "check", "--check-data-csum"]));
    assert_eq!(brindle_prints(with(&["-q", "ls", "-lR"])), listed);
    brindle_prints(["-q", "rescue", "undo", text(&undo)].iter().chain(&devices));
    assert_eq!(contents(), before, "undone");
}
