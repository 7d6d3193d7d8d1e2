//! Streams that end early: `kill -9` of the server, and room that ends. `BRINDLE_STREAM_KILLS` asks for more moments than a dozen,
//! `BRINDLE_STREAM_ROOMS` for more sizes, `BRINDLE_SEED` for others.

use super::{Pool, fill, listing, sender, start};
use crate::ends::Served;
use crate::failing::Small;
use crate::mount::can_mount;
use crate::support::{brindle, brindle_prints, is_root, moments, number, text};
use brindle_testing::referee::btrfs_check;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// Bytes of the files of the stream that are no small ones.
const LARGE_BYTES: u64 = 3_000_000;

/// A stream of a subvolume `one`, and the subvolume.
fn sent(directory: &TempDir) -> (PathBuf, Pool) {
    let (from, stream) = (sender(directory), directory.path().join("stream"));
    brindle_prints(["-q", "send", "-f", text(&stream), text(&from.at("one"))]);
    (stream, from)
}

fn receive(stream: &Path, place: &Path) -> Output {
    brindle(["receive", "-f", text(stream), text(place)])
}

/// Asserts that a subvolume which is marked as received is whole, and deletes it. Returns true if there was one that is marked.
fn take_away(place: &Path, expected: &Path, told: &str) -> bool {
    let one = place.join("one");
    if !one.exists() {
        return false;
    }
    let shown = brindle_prints(["subvolume", "show", text(&one)]);
    let line = shown.lines().find(|line| line.contains("Received UUID")).expect("a line");
    let is_marked = !line.trim_end().ends_with('-');
    if is_marked {
        assert_eq!(listing(&one), listing(expected), "{told}");
    }
    brindle_prints(["-q", "subvolume", "delete", "--commit", text(&one)]);
    is_marked
}

/// Asserts that a stream is received, and takes it away again.
fn assert_received(stream: &Path, place: &Path, expected: &Path, told: &str) {
    let received = receive(stream, place);
    assert!(received.status.success(), "{told}: {}", String::from_utf8_lossy(&received.stderr));
    assert!(take_away(place, expected, told), "{told}");
}

#[test]
fn a_server_that_is_killed_at_any_moment_of_a_receive_has_marked_nothing_that_is_not_whole() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let (stream, from) = sent(&directory);
    let mut to = Served::make();
    to.mount();
    let begin = Instant::now();
    assert!(receive(&stream, &to.place()).status.success());
    let whole = begin.elapsed();
    assert!(take_away(&to.place(), &from.at("one"), "unharmed"));
    for moment in moments(whole, number("BRINDLE_STREAM_KILLS", 12), number("BRINDLE_SEED", 1)) {
        let told = format!("killed after {moment:?} of {whole:?}");
        let client =
            start(&["receive", "-f", text(&stream), text(&to.place())], Stdio::null(), Stdio::null());
        std::thread::sleep(moment);
        to.kill();
        let received = client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&received.stderr).into_owned();
        assert!(!said.contains("panicked"), "{told}: {said}");
        to.check();
        to.mount();
        let is_marked = take_away(&to.place(), &from.at("one"), &told);
        assert!(is_marked || !received.status.success(), "{told}: {said}");
        assert_received(&stream, &to.place(), &from.at("one"), &told);
    }
    to.kill();
    from.end();
}

#[test]
fn a_server_that_is_killed_at_any_moment_of_a_send_leaves_a_stream_that_marks_nothing() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let mut from = Served::make();
    from.mount();
    fill(&from.place());
    let (one, to) = (from.place().join("one"), Pool::new(&directory, "to"));
    let [whole, part] = ["whole", "part"].map(|name| directory.path().join(name));
    let begin = Instant::now();
    brindle_prints(["-q", "send", "-f", text(&whole), text(&one)]);
    let (elapsed, whole) = (begin.elapsed(), fs::read(&whole).expect("there"));
    for moment in moments(elapsed, number("BRINDLE_STREAM_KILLS", 12), number("BRINDLE_SEED", 1)) {
        let told = format!("killed after {moment:?} of {elapsed:?}");
        let mut client =
            start(&["-q", "send", text(&one)], Stdio::null(), File::create(&part).expect("room").into());
        std::thread::sleep(moment);
        let has_ended = client.try_wait().expect("our child").is_some();
        from.kill();
        let sent = client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&sent.stderr).into_owned();
        assert!(!said.contains("panicked"), "{told}: {said}");
        let bytes = fs::read(&part).expect("there");
        assert_eq!(sent.status.success(), bytes == whole, "{told}, {has_ended}: {said}");
        assert!(whole.starts_with(&bytes), "{told}: a part of the stream");
        let received = receive(&part, &to.place);
        assert!(sent.status.success() || !received.status.success(), "{told}");
        from.check();
        from.mount();
        let is_marked = take_away(&to.place, &one, &told);
        assert_eq!(is_marked, received.status.success(), "{told}");
        brindle_prints(["-q", "send", "-f", text(&part), text(&one)]);
        assert!(fs::read(&part).expect("there") == whole, "{told}: another stream");
    }
    from.kill();
    to.end();
}

/// Bytes that end at each part of what a stream takes.
fn rooms(whole: u64) -> impl Iterator<Item = u64> {
    let count = u64::from(number("BRINDLE_STREAM_ROOMS", 12));
    (0..count).map(move |part| whole * part / count)
}

/// Takes all room that a pool has for data, but for some bytes.
fn leave_room(filler: &Path, room: u64) {
    let file = File::create(filler).expect("room for a name");
    let mut length = 0;
    for step in [64 << 20, 1 << 20, 64 << 10, 4 << 10] {
        while rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), length, step).is_ok() {
            length += step;
        }
    }
    file.set_len(length - room / 4096 * 4096).expect("shorter");
}

#[test]
fn a_pool_that_fills_up_at_any_step_of_a_receive_takes_the_stream_once_there_is_room() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let (stream, from) = sent(&directory);
    let mut to = Served::make();
    to.mount();
    let mut refused = 0;
    for room in rooms(LARGE_BYTES * 3 / 2) {
        let told = format!("with room for {room} bytes");
        let (place, filler) = (to.place(), to.place().join("filler"));
        leave_room(&filler, room);
        brindle_prints(["-q", "filesystem", "sync", text(&place)]);
        let received = receive(&stream, &place);
        let said = String::from_utf8_lossy(&received.stderr).into_owned();
        assert!(!said.contains("panicked"), "{told}: {said}");
        refused += u32::from(!received.status.success());
        let is_marked = take_away(&place, &from.at("one"), &told);
        assert_eq!(is_marked, received.status.success(), "{told}: {said}");
        fs::remove_file(&filler).expect("there");
        assert_received(&stream, &place, &from.at("one"), &told);
        to.kill();
        to.check();
        to.mount();
    }
    assert!(refused > 3, "{refused}");
    to.kill();
    from.end();
}

#[test]
fn a_device_that_fills_up_at_any_step_of_a_receive_leaves_a_sound_pool_that_takes_the_stream() {
    const WHOLE: u64 = 64 << 20;
    if !can_mount() || !is_root("a filesystem without room for a device") {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let (stream, from) = sent(&directory);
    let small = Small::mount(directory.path().join("small"), "64M");
    let (image, place) = (small.0.join("pool.img"), directory.path().join("place"));
    fs::create_dir(&place).expect("new");
    let mut refused = 0;
    for room in rooms(LARGE_BYTES * 3) {
        let told = format!("with {room} bytes more on the device");
        small.resize(WHOLE);
        brindle_prints(["-q", "mkfs", "-f", "--size", "400M", text(&image)]);
        brindle_prints(["-q", "mount", text(&image), text(&place)]);
        let space = rustix::fs::statvfs(&small.0).expect("statvfs");
        small.resize((space.f_blocks - space.f_bfree) * space.f_frsize + room.max(4096));
        let received = receive(&stream, &place);
        let said = String::from_utf8_lossy(&received.stderr).into_owned();
        assert!(!said.contains("panicked"), "{told}: {said}");
        refused += u32::from(!received.status.success());
        small.resize(WHOLE);
        crate::mount::unmount(&place);
        wait_until_free(&image);
        brindle_prints(["-q", "check", "--check-data-csum", text(&image)]);
        btrfs_check(&image).expect("btrfs-progs").unwrap_or_else(|said| panic!("{told}: {said}"));
        brindle_prints(["-q", "mount", text(&image), text(&place)]);
        let is_marked = take_away(&place, &from.at("one"), &told);
        assert!(is_marked || !received.status.success(), "{told}: {said}");
        assert_received(&stream, &place, &from.at("one"), &told);
        crate::mount::unmount(&place);
        wait_until_free(&image);
        fs::remove_file(&image).expect("there");
    }
    assert!(refused > 3, "{refused}");
    from.end();
}

/// Waits for the server of a mount that is gone.
fn wait_until_free(image: &Path) {
    while !brindle(["device", "stats", text(image)]).stderr.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
