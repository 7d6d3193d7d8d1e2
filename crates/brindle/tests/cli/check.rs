//! `check`: what it says, and how it ends.

use super::support::{Image, brindle_fails, brindle_prints, with_devices};
use serde_json::Value;
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
    let device = std::fs::File::options().write(true).open(&image.devices[0]).expect("our own copy");
    device.write_all_at(b"damage", (64 << 20) + 500).expect("room");
    let output = super::support::brindle(with_devices(&["-q", "check"], &image.devices));
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
