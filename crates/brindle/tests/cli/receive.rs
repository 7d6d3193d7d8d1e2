//! `receive`: streams of the kernel into image files.

use super::support::{brindle, brindle_fails, brindle_prints, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn stream(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/golden").join(name)
}

/// An empty pool.
fn pool(directory: &TempDir) -> PathBuf {
    let image = directory.path().join("pool.img");
    brindle_prints(["mkfs", "-q", "--size", "300M", text(&image)]);
    image
}

#[test]
fn streams_are_received_from_a_file_and_from_standard_input() {
    let directory = tempfile::tempdir().expect("room");
    let image = pool(&directory);
    let said = brindle_prints(["receive", "-f", text(&stream("full.v1")), text(&image)]);
    assert!(said.starts_with("Received subvolume one, id "), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    let input = std::fs::File::open(stream("incremental.v1")).expect("there");
    let output =
        command.args(["receive", "--json", text(&image)]).stdin(Stdio::from(input)).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["received"][0]["name"], &report["error"]), (&Value::from("two"), &Value::Null));
    assert_eq!(brindle_prints(["cat", text(&image), "--path", "two/file"]), "hi\nmore\n");
    assert!(brindle(["check", "--check-data-csum", text(&image)]).status.success());
}

#[test]
fn failures_name_the_place_and_what_is_left() {
    let directory = tempfile::tempdir().expect("room");
    let image = pool(&directory);
    let orphan = brindle_fails(1, ["receive", "-f", text(&stream("incremental.v1")), text(&image)]);
    assert!(
        orphan.contains("at offset 17, snapshot two: the pool has no subvolume that was received as"),
        "{orphan}"
    );
    let whole = std::fs::read(stream("full.v1")).expect("there");
    let cut = directory.path().join("cut");
    std::fs::write(&cut, &whole[..whole.len() - 10]).expect("room");
    let left = brindle_fails(1, ["receive", "-f", text(&cut), text(&image)]);
    assert!(left.contains("it is cut off; the subvolume one is incomplete: it stays, writable"), "{left}");
    let dump = brindle(["receive", "--dump", "-f", text(&cut)]);
    assert!(!dump.status.success() && String::from_utf8_lossy(&dump.stderr).contains("it is cut off"));
    let none = brindle_fails(1, ["receive", "-f", text(&image), text(&image)]);
    assert!(none.contains("it is no stream of btrfs send"), "{none}");
    brindle_fails(2, ["receive", "-f", text(&cut)]);
    let mount = brindle_fails(1, ["receive", "-f", text(&cut), "/"]);
    assert!(!mount.is_empty());
}

#[test]
fn a_dump_lists_the_commands() {
    let said = brindle_prints(["receive", "--dump", "-f", text(&stream("full.v1"))]);
    assert!(said.starts_with("subvol          ./one ") && said.ends_with("\nend\n"), "{said}");
    assert!(said.contains("\nset_xattr       ./file "), "{said}");
}
