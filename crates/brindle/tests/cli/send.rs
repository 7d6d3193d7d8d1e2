//! `send`: streams of image files into image files.

use super::support::{brindle, brindle_fails, brindle_prints, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// An empty pool.
fn pool(directory: &TempDir, name: &str) -> PathBuf {
    let image = directory.path().join(name);
    brindle_prints(["mkfs", "-q", "--size", "300M", text(&image)]);
    image
}

/// A pool with the subvolumes `one` and `two` of streams of the kernel.
fn sender(directory: &TempDir) -> PathBuf {
    let image = pool(directory, "sender.img");
    for name in ["full.v1", "incremental.v1"] {
        let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/golden").join(name);
        brindle_prints(["receive", "-f", text(&stream), text(&image)]);
    }
    image
}

#[test]
fn a_stream_goes_through_a_pipe_into_another_pool() {
    let directory = tempfile::tempdir().expect("room");
    let (from, to) = (sender(&directory), pool(&directory, "receiver.img"));
    let mut send = Command::new(env!("CARGO_BIN_EXE_brindle"))
        .args(["-q", "send", "-e", text(&from), "--path", "one", "--path", "two"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let stream = send.stdout.take().expect("piped");
    let receive = Command::new(env!("CARGO_BIN_EXE_brindle"))
        .args(["receive", text(&to)])
        .stdin(Stdio::from(stream))
        .output()
        .expect("runs");
    assert!(send.wait().expect("ends").success());
    assert!(receive.status.success(), "{}", String::from_utf8_lossy(&receive.stderr));
    assert_eq!(String::from_utf8_lossy(&receive.stdout).lines().count(), 2);
    for (file, contents) in [("one/file", "hi\n"), ("two/file", "hi\nmore\n")] {
        assert_eq!(brindle_prints(["cat", text(&to), "--path", file]), contents);
    }
    assert!(brindle(["check", "--check-data-csum", text(&to)]).status.success());
}

#[test]
fn a_difference_is_short_and_data_can_be_left_out() {
    let directory = tempfile::tempdir().expect("room");
    let (from, file) = (sender(&directory), directory.path().join("stream"));
    let dump = |arguments: &[&str]| {
        brindle_prints([&["-q", "send", "-f", text(&file), text(&from), "--path"], arguments].concat());
        brindle_prints(["receive", "--dump", "-f", text(&file)])
    };
    let whole = dump(&["two"]);
    assert!(whole.starts_with("subvol          ./two ") && whole.ends_with("\nend\n"), "{whole}");
    let difference = dump(&["two", "-p", "one"]);
    assert!(difference.starts_with("snapshot        ./two "), "{difference}");
    assert!(difference.lines().count() < whole.lines().count() / 2, "{difference}");
    assert!(!dump(&["two", "--no-data"]).contains("\nwrite "));
}

#[test]
fn refusals_say_what_to_do() {
    let directory = tempfile::tempdir().expect("room");
    let (from, file) = (sender(&directory), directory.path().join("stream"));
    let fails = |code, arguments: &[&str]| {
        brindle_fails(code, [&["send", "-f", text(&file), text(&from), "--path"], arguments].concat())
    };
    // The first command of a stream alone makes a subvolume, and leaves it writable.
    let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/golden/full.v1");
    let cut = directory.path().join("cut");
    std::fs::write(&cut, &std::fs::read(stream).expect("there")[..200]).expect("room");
    let other = pool(&directory, "other.img");
    assert!(brindle_fails(1, ["receive", "-f", text(&cut), text(&other)]).contains("it stays, writable"));
    let from_other = |arguments: &[&str]| {
        brindle_fails(1, [&["send", "-f", text(&file), text(&other), "--path"], arguments].concat())
    };
    assert!(from_other(&["one"]).contains("subvolume one is writable"));
    assert!(fails(1, &["one/file"]).contains("one/file: not a subvolume"));
    assert!(fails(1, &["absent"]).contains("absent"));
    assert!(fails(1, &["/"]).contains("the top level has no name"));
    assert!(fails(2, &["one", "--proto", "1", "--compressed-data"]).contains("--proto 2"));
    brindle_fails(2, ["send", text(&from)]);
    assert!(!brindle_fails(1, ["send", "-f", text(&file), "/", "--path", "x"]).is_empty());
}

#[test]
fn a_reader_that_goes_is_told_in_one_line() {
    let directory = tempfile::tempdir().expect("room");
    let from = sender(&directory);
    let mut send = Command::new(env!("CARGO_BIN_EXE_brindle"))
        .args(["-q", "send", text(&from), "--path", "one"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(send.stdout.take());
    let output = send.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "brindle: the reader of the stream has gone before its end\n");
}
