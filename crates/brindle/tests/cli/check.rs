//! `check`: what it says, and how it ends.

use super::support::{Image, brindle, brindle_fails, brindle_prints, text, with_devices};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

#[test]
fn a_sound_pool_is_called_so() {
    let image = Image::unpack("raid1");
    let text = brindle_prints(with_devices(&["check", "--check-data-csum"], &image.devices));
    assert!(text.starts_with("UUID: ") && text.ends_with("no errors found\n"), "{text}");
    let json = brindle_prints(with_devices(&["check", "--json"], &image.devices));
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&report["clean"], &report["error_count"]), (&true.into(), &0.into()));
}

#[test]
fn a_damaged_superblock_is_found_and_fails() {
    let image = Image::unpack("single");
    let device = fs::File::options().write(true).open(&image.devices[0]).expect("our own copy");
    device.write_all_at(b"damage", (64 << 20) + 500).expect("room");
    let output = brindle(with_devices(&["-q", "check"], &image.devices));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("superblock at offset 67108864") && text.ends_with("1 error found\n"), "{text}");
}

#[test]
fn check_refuses_files_that_are_no_pool() {
    let said = brindle_fails(1, ["check", "/dev/null"]);
    assert!(said.starts_with("brindle: /dev/null is neither"), "{said}");
    let image = Image::unpack("raid0");
    let said = brindle_fails(1, with_devices(&["-q", "check"], &image.devices[..1]));
    assert!(said.contains("missing devid 2"), "{said}");
}

/// Number of damaged files: more than findings are shown.
const DAMAGED: usize = 130;

#[test]
fn all_damaged_files_are_named_and_the_last_line_counts_them() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (tree, image) = (directory.path().join("tree"), directory.path().join("a.img"));
    fs::create_dir(&tree).expect("new");
    let mark = [0xb5; 64];
    for number in 0..DAMAGED {
        let contents = [&mark[..], &number.to_le_bytes(), &[1; 4000]].concat();
        fs::write(tree.join(format!("{number:03}")), contents).expect("room");
    }
    brindle_prints(["-q", "mkfs", "--size", "128M", "--rootdir", text(&tree), text(&image)]);
    let bytes = fs::read(&image).expect("it is there");
    let file = fs::File::options().write(true).open(&image).expect("ours");
    for (sector, _) in bytes.chunks(4096).enumerate().filter(|(_, sector)| sector.starts_with(&mark)) {
        file.write_all_at(b"damage", (sector * 4096 + 200) as u64).expect("room");
    }
    let checked = brindle(["-q", "check", "--check-data-csum", text(&image)]);
    let said = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(
        said.contains("files with bad copies of data (130):\n") && said.contains("  and 30 more: "),
        "{said}"
    );
    assert!(said.ends_with("\n130 errors found; 130 files have lost data\n"), "{said}");
    let list = directory.path().join("list");
    let words = ["-q", "check", "--check-data-csum", "--json", "--damaged-files", text(&list), text(&image)];
    for words in [[&words[..4], &words[6..]].concat(), words.to_vec()] {
        let report: Value = serde_json::from_slice(&brindle(words).stdout).expect("JSON");
        assert_eq!((&report["files_complete"], &report["error_count"]), (&true.into(), &DAMAGED.into()));
        assert_eq!(report["files"].as_array().map(Vec::len), Some(DAMAGED));
        let passes = report["passes"].as_array().expect("a list");
        assert!(passes.iter().all(|pass| pass["errors"].as_array().expect("a list").len() <= 100));
    }
    assert_eq!(fs::read(&list).expect("a list").split(|byte| *byte == 0).count(), DAMAGED + 1);
}
