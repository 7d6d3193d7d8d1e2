//! Pools with a log of fsyncs after the last commit: its replay, and the warnings about it.

use super::mount::{can_mount, unmount};
use super::support::{Image, Loops, brindle_prints, brindle_succeeds, is_root, text};
use std::path::Path;

/// A name that the last commit has, and the log takes away.
const COMMITTED: &str = "log/unlinked";
/// A name that only the log has.
const LOGGED: &str = "log/new-inline";

/// Runs it, and expects a single word about the log, if any.
fn speaks_of_log(arguments: &[&str]) -> bool {
    let said = brindle_succeeds(arguments).stderr;
    let said = String::from_utf8_lossy(&said);
    let lines = said.lines().filter(|line| line.contains("the pool has a log")).count();
    assert!(lines <= 1, "{said}");
    lines == 1
}

/// Mounts it read-only, and looks; whether the log is said to be there.
fn look(device: &Path, place: &Path, options: &str, (there, not_there): (&str, &str)) -> bool {
    let warned = speaks_of_log(&["mount", "-o", options, text(device), text(place)]);
    assert!(place.join(there).exists() && !place.join(not_there).exists(), "{options}");
    std::fs::write(place.join("new"), b"x").expect_err("read-only");
    unmount(place);
    warned
}

#[test]
fn reading_a_pool_warns_of_its_log_and_leaves_it() {
    let image = Image::unpack("log-tree");
    let device = &image.devices[0];
    let before = std::fs::read(device).expect("there");
    assert!(speaks_of_log(&["ls", text(device)]));
    assert!(brindle_prints(["ls", "--recursive", text(device)]).contains("unlinked"));
    if can_mount() {
        let place = image.beside("place");
        std::fs::create_dir(&place).expect("new");
        assert!(look(device, &place, "ro,nologreplay", (COMMITTED, LOGGED)));
    }
    assert!(std::fs::read(device).expect("there") == before, "something was written");
}

#[test]
fn a_mount_that_only_reads_replays_a_log_first() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("log-tree");
    let place = image.beside("place");
    std::fs::create_dir(&place).expect("new");
    assert!(!look(&image.devices[0], &place, "ro", (LOGGED, COMMITTED)));
    assert!(!speaks_of_log(&["ls", text(&image.devices[0])]));
    brindle_prints(["check", text(&image.devices[0])]);
}

#[test]
fn a_log_on_write_protected_devices_is_replayed_in_memory_and_stays() {
    if !can_mount() || !is_root("making a loop device") {
        return;
    }
    let image = Image::unpack("log-tree");
    let place = image.beside("place");
    std::fs::create_dir(&place).expect("new");
    let loops = Loops::attach(&image.devices, &["--read-only"]);
    for options in ["ro", "noatime"] {
        assert!(!look(&loops.0[0], &place, options, (LOGGED, COMMITTED)));
    }
    assert!(look(&loops.0[0], &place, "ro,nologreplay", (COMMITTED, LOGGED)));
    assert!(speaks_of_log(&["ls", text(&loops.0[0])]));
}
