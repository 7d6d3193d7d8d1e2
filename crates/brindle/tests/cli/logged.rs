//! Pools with a log of fsyncs after the last commit: its replay, and the warnings about it.

use super::ends::Served;
use super::mount::{can_mount, unmount};
use super::nbd::{Exported, tool};
use super::support::{Image, Loops, brindle_prints, brindle_succeeds, is_root, text};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// A name that the last commit has, and the log takes away.
const COMMITTED: &str = "log/unlinked";
/// A name that only the log has.
const LOGGED: &str = "log/new-inline";

/// Options of a mount that commits neither by itself nor when another program of the machine calls sync(2).
const NO_COMMIT: &str = "commit=3600,noblkdev";

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

/// Contents of the file that only the log has.
const LOGGED_CONTENTS: &str = "new and short";

#[test]
fn commands_that_read_a_pool_show_what_its_log_says_and_leave_it() {
    let image = Image::unpack("log-tree");
    let device = &image.devices[0];
    let before = std::fs::read(device).expect("there");
    let prints = |arguments: &[&str]| {
        let output = brindle_succeeds(arguments.iter().chain(&[text(device)]));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let names = prints(&["ls", "--recursive"]);
    assert!(names.contains("new-inline") && !names.contains("unlinked"), "{names}");
    assert!(prints(&["ls", "--json", "--path", LOGGED]).contains("new-inline"));
    assert_eq!(prints(&["cat", "--path", LOGGED]), LOGGED_CONTENTS);
    assert!(prints(&["stat", "--path", LOGGED]).contains("Size: 13"));
    assert!(prints(&["tier", "where", "--path", "log/new"]).contains("16.00KiB on devices"));
    assert!(prints(&["subvolume", "list"]).contains("gen 9 "));
    let copy = image.beside("copy");
    brindle_prints(["cp", "--path", LOGGED, text(device), text(&copy)]);
    assert_eq!(std::fs::read_to_string(&copy).expect("copied"), LOGGED_CONTENTS);
    assert!(std::fs::read(device).expect("there") == before, "something was written");
}

#[test]
fn commands_that_are_told_to_leave_a_log_show_the_last_commit() {
    let image = Image::unpack("log-tree");
    let device = &image.devices[0];
    let before = std::fs::read(device).expect("there");
    for options in ["nologreplay", "rescue=nologreplay"] {
        assert!(speaks_of_log(&["ls", "-o", options, text(device)]));
        assert!(
            brindle_prints(["ls", "-o", options, "--recursive", text(device)]).contains("unlinked"),
            "{options}"
        );
    }
    if can_mount() {
        let place = image.beside("place");
        std::fs::create_dir(&place).expect("new");
        assert!(look(device, &place, "ro,nologreplay", (COMMITTED, LOGGED)));
    }
    assert!(std::fs::read(device).expect("there") == before, "something was written");
}

#[test]
fn a_repair_tells_of_the_log_and_leaves_it() {
    let image = Image::unpack("log-tree");
    let device = text(&image.devices[0]);
    let undo = image.beside("undo");
    let mut bytes = std::fs::read(device).expect("there");
    let said = brindle_prints(["check", "--repair", "--yes", "--undo", text(&undo), device]);
    assert!(said.contains("log: has what was fsynced after that"), "{said}");
    assert!(said.contains("the log stays as it is\nnothing is to be repaired"), "{said}");
    assert!(std::fs::read(device).expect("there") == bytes, "something was written");
    // A second copy of the superblock that is bad: the first one, with the log, is what it is made of.
    bytes[64 << 20..][..4096].fill(0);
    std::fs::write(device, &bytes).expect("room");
    let said = brindle_prints(["check", "--repair", "--yes", "--undo", text(&undo), device]);
    assert!(said.contains("the log stays as it is\nto be repaired:"), "{said}");
    assert_eq!(brindle_prints(["cat", "--path", LOGGED, device]), LOGGED_CONTENTS);
    let report: Value = serde_json::from_str(&brindle_prints(["check", "--json", device])).expect("JSON");
    assert_eq!(report["has_log"], Value::Bool(true), "{report}");
}

#[test]
fn a_subvolume_of_a_pool_with_a_log_is_sent_and_nothing_is_written() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    served.mount_with(NO_COMMIT);
    let place = served.place();
    brindle_prints(["subvolume", "create", text(&place.join("sub"))]);
    std::fs::write(place.join("sub/file"), "of the snapshot").expect("room");
    brindle_prints(["subvolume", "snapshot", "-r", text(&place.join("sub")), text(&place.join("sent"))]);
    brindle_prints(["filesystem", "sync", text(&place)]);
    let file = std::fs::File::create(place.join("file")).expect("room");
    (&file).write_all(b"fsynced").and_then(|()| file.sync_all()).expect("room");
    drop(file);
    served.kill();
    let (image, stream) = (served.image(), place.with_file_name("stream"));
    let before = std::fs::read(&image).expect("there");
    assert!(speaks_of_log(&["ls", "-o", "nologreplay", text(&image)]));
    let sent = brindle_succeeds(["-v", "send", "-f", text(&stream), text(&image), "--path", "sent"]);
    let said = String::from_utf8_lossy(&sent.stderr);
    assert!(said.contains("the log is replayed in memory"), "{said}");
    let dumped = brindle_prints(["receive", "--dump", "-f", text(&stream)]);
    assert!(dumped.starts_with("subvol          ./sent ") && dumped.ends_with("\nend\n"), "{dumped}");
    assert!(std::fs::read(&image).expect("there") == before, "something was written");
}

#[test]
fn a_file_that_only_the_log_has_is_exported() {
    let image = Image::unpack("log-tree");
    let device = text(&image.devices[0]);
    let before = std::fs::read(device).expect("there");
    let server = Exported::at(&image.beside("socket"), &["--path", LOGGED, device]);
    if let Some(contents) = tool(&["nbdcopy", &server.uri, "-"]) {
        assert_eq!(contents, LOGGED_CONTENTS);
    }
    drop(server);
    assert!(std::fs::read(device).expect("there") == before, "something was written");
}

/// Spoils the checksum of the root of the log root tree.
fn spoil_log(image: &mut [u8]) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let log_root = number(&image[0x1_0060..0x1_0068]);
    assert_ne!(log_root, 0, "there is a log");
    let is_it = |block: &[u8]| number(&block[48..56]) == log_root && number(&block[88..96]) == u64::MAX - 5;
    let blocks: Vec<usize> = (0..image.len()).step_by(4096).filter(|at| is_it(&image[*at..])).collect();
    assert_eq!(blocks.len(), 1, "metadata is single");
    image[blocks[0]] ^= 1;
}

#[test]
fn commands_show_the_last_commit_where_a_log_cannot_be_replayed() {
    let image = Image::unpack("log-tree");
    let device = &image.devices[0];
    let mut bytes = std::fs::read(device).expect("there");
    spoil_log(&mut bytes);
    std::fs::write(device, &bytes).expect("room");
    let output = brindle_succeeds(["ls", "--recursive", text(device)]);
    let (names, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(names.contains("unlinked") && !names.contains("new-inline"), "{names}");
    assert!(said.contains("the log is not replayed: ") && said.contains("the pool has a log"), "{said}");
    assert!(std::fs::read(device).expect("there") == bytes, "something was written");
}

#[test]
fn fsyncs_are_shown_once_the_server_is_gone_and_left_alone_while_it_writes() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    served.mount_with(NO_COMMIT);
    let image = served.image();
    let file = std::fs::File::create(served.place().join("file")).expect("room");
    (&file).write_all(b"fsynced").and_then(|()| file.sync_all()).expect("room");
    drop(file);
    let output = brindle_succeeds(["ls", text(&image)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.stdout.is_empty() && said.contains("another process of brindle has the pool open"),
        "{said}"
    );
    served.kill();
    let before = std::fs::read(&image).expect("there");
    assert_eq!(brindle_prints(["cat", "--path", "file", text(&image)]), "fsynced");
    assert!(std::fs::read(&image).expect("there") == before, "something was written");
    served.mount();
    assert_eq!(std::fs::read(served.place().join("file")).expect("there"), b"fsynced");
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
    assert!(brindle_prints(["ls", "--path", "log", text(&loops.0[0])]).contains("new-inline"));
    assert!(speaks_of_log(&["ls", "-o", "nologreplay", text(&loops.0[0])]));
}
