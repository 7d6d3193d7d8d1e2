//! Our NBD ends before those of others: fio, qemu, nbdkit with its filters.

use super::mount::{can_mount, unmount};
use super::nbd::{Exported, image, tool};
use super::support::{brindle_succeeds, text};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest start of a server.
const PATIENCE: Duration = Duration::from_secs(300);
const SIZE: u64 = 64 << 20;

/// A server of another program at a unix socket; killed when it is dropped.
struct Peer {
    child: Child,
    uri: String,
}

impl Peer {
    /// Starts a program that makes the socket; `None` if it is not installed.
    fn start(socket: &Path, words: &[&str]) -> Option<Self> {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new(words[0]);
        let child = match command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: {}: {error}", words[0]);
                return None;
            }
        };
        let peer = Self { child, uri: format!("nbd+unix:///?socket={}", text(socket)) };
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(begin.elapsed() < PATIENCE, "{words:?}: not in time");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(peer)
    }

    /// nbdkit with a filter before a file or before another server.
    fn nbdkit(socket: &Path, words: &[&str]) -> Option<Self> {
        Self::start(socket, &[&["nbdkit", "-f", "-U", text(socket)], words].concat())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scratch() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(scratch.path(), "disk", SIZE), scratch.path().join("socket"));
    (scratch, disk, socket)
}

#[test]
fn fio_verifies_writes_on_an_export_of_a_file_and_of_a_cache() {
    let (scratch, disk, socket) = scratch();
    let ssd = image(scratch.path(), "ssd", 32 << 20);
    brindle_succeeds(["cache", "create", "-p", "back", "pair", text(&ssd), text(&disk)]);
    for word in [text(&disk).to_owned(), format!("cache:{}:{}", text(&ssd), text(&disk))] {
        let server = Exported::at(&socket, &[&word]);
        let uri = format!("--uri={}", server.uri);
        let words = ["fio", "--name=verified", "--ioengine=nbd", &uri, "--size=24m", "--iodepth=16"];
        let more = [
            "--rw=randwrite",
            "--bs=4k",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--fsync=64",
            "--randseed=3",
        ];
        if tool(&[&words[..], &more].concat()).is_none() {
            return;
        }
        server.end();
    }
}

#[test]
fn qemu_img_converts_compares_and_checks_by_an_export() {
    let (scratch, disk, socket) = scratch();
    let file = std::fs::File::options().write(true).open(&disk).expect("it is there");
    file.write_all_at(&[5; 300_000], 2 << 20).expect("room");
    let server = Exported::at(&socket, &[text(&disk)]);
    let copy = scratch.path().join("copy.qcow2");
    let convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", &server.uri, text(&copy)];
    if tool(&convert).is_none() {
        return;
    }
    let same = ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", &server.uri, text(&copy)];
    assert!(tool(&same).expect("installed").contains("identical"));
    let map = tool(&["qemu-img", "map", "--output=json", "-f", "raw", &server.uri]).expect("installed");
    let map: serde_json::Value = serde_json::from_str(&map).expect("JSON");
    assert!(
        map.as_array().is_some_and(|extents| extents.iter().any(|extent| extent["zero"] == true)),
        "{map}"
    );
    // A qcow2 image within the export, written and checked by qemu.
    assert!(tool(&["qemu-img", "create", "-q", "-f", "qcow2", &server.uri, "16M"]).is_some());
    let write = [
        "qemu-io",
        "-f",
        "qcow2",
        "-c",
        "write -P 7 1M 3M",
        "-c",
        "discard 2M 1M",
        "-c",
        "flush",
        &server.uri,
    ];
    assert!(tool(&write).is_some());
    let read = ["qemu-io", "-f", "qcow2", "-c", "read -P 7 1M 1M", "-c", "read -P 0 2M 1M", &server.uri];
    assert!(!tool(&read).expect("installed").contains("failed"));
    assert!(tool(&["qemu-img", "check", "-f", "qcow2", &server.uri]).is_some());
    server.end();
}

/// A pool on an image in a format of qemu, by its server.
#[test]
fn pool_lies_on_a_qcow2_image_behind_qemu_nbd() {
    if !can_mount() {
        return;
    }
    let (scratch, _, socket) = scratch();
    let qcow = scratch.path().join("disk.qcow2");
    if tool(&["qemu-img", "create", "-q", "-f", "qcow2", text(&qcow), "512M"]).is_none() {
        return;
    }
    let words = [
        "qemu-nbd",
        "--persistent",
        "--shared=4",
        "-f",
        "qcow2",
        "--discard=unmap",
        "-k",
        text(&socket),
        text(&qcow),
    ];
    let server = Peer::start(&socket, &words).expect("installed with qemu-img");
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).expect("room");
    brindle_succeeds(["mkfs", "-q", &server.uri]);
    brindle_succeeds(["-q", "mount", &server.uri, text(&place)]);
    std::fs::write(place.join("file"), vec![8; 5_000_000]).expect("room");
    unmount(&place);
    brindle_succeeds(["check", "--check-data-csum", &server.uri]);
    drop(server);
    assert!(tool(&["qemu-img", "check", "-q", text(&qcow)]).is_some());
}

/// Two mirrors by nbdkit, one of which fails half of all reads, and one that is slow.
#[test]
fn pool_reads_around_a_server_that_injects_errors_and_delays() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| scratch.path().join(name);
    let images = ["one", "two"].map(|name| image(scratch.path(), name, 256 << 20));
    let file = |index: usize| format!("file={}", text(&images[index]));
    let Some(one) =
        Peer::nbdkit(&at("a"), &["--filter=delay", "file", &file(0), "delay-read=2ms", "delay-write=2ms"])
    else {
        return;
    };
    let two = Peer::nbdkit(&at("b"), &["file", &file(1)]).expect("installed");
    brindle_succeeds(["mkfs", "-q", "-d", "raid1", "-m", "raid1", &one.uri, &two.uri]);
    let place = at("place");
    std::fs::create_dir(&place).expect("room");
    brindle_succeeds(["-q", "mount", &one.uri, &two.uri, text(&place)]);
    let contents = |number: u8| vec![number; 300_000];
    (0..20)
        .for_each(|number| std::fs::write(place.join(number.to_string()), contents(number)).expect("room"));
    unmount(&place);
    drop(two);
    let words = ["--filter=error", "file", &file(1), "error-pread=EIO", "error-pread-rate=50%"];
    let trigger = format!("error-file={}", text(&at("fails")));
    let two = Peer::nbdkit(&at("b"), &[&words[..], &[&trigger]].concat()).expect("installed");
    brindle_succeeds(["-q", "mount", "-o", "ro", &one.uri, &two.uri, text(&place)]);
    std::fs::write(at("fails"), "").expect("room");
    for number in 0..20 {
        assert!(std::fs::read(place.join(number.to_string())).expect("one copy is fine") == contents(number));
    }
    std::fs::remove_file(at("fails")).expect("there");
    unmount(&place);
    brindle_succeeds(["check", "--check-data-csum", &one.uri, &two.uri]);
}

/// nbdkit as a client of ours: its writes above the export, and its retries while the server is away.
#[test]
fn nbdkit_retries_and_copies_on_write_above_an_export() {
    let (scratch, disk, socket) = scratch();
    let server = Exported::at(&socket, &[text(&disk)]);
    let ours = format!("uri={}", server.uri);
    let above = scratch.path().join("above");
    let Some(cow) = Peer::nbdkit(&above, &["--filter=cow", "nbd", &ours]) else { return };
    let source = image(scratch.path(), "source", SIZE);
    let file = std::fs::File::options().write(true).open(&source).expect("it is there");
    file.write_all_at(&[3; 1_000_000], 7 << 20).expect("room");
    tool(&["nbdcopy", "--flush", text(&source), &cow.uri]).expect("installed");
    drop(cow);
    assert!(std::fs::read(&disk).expect("there").iter().all(|byte| *byte == 0), "the writes stayed above");
    // 32 Mbit a second: the copy takes seconds, in which the server is killed and started again.
    let words = ["--filter=retry", "--filter=rate", "nbd", &ours, "retry-delay=1", "retries=60", "rate=32M"];
    file.write_all_at(&vec![4; 16 << 20], 16 << 20).expect("room");
    let retrying = Peer::nbdkit(&above, &words).expect("installed");
    let copy = {
        let (source, uri) = (text(&source).to_owned(), retrying.uri.clone());
        std::thread::spawn(move || tool(&["nbdcopy", "--flush", &source, &uri]))
    };
    let begin = Instant::now();
    while std::fs::read(&disk).expect("there")[16 << 20] == 0 {
        assert!(begin.elapsed() < PATIENCE, "the copy: not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(server);
    assert!(!copy.is_finished(), "it waits for the server");
    let server = Exported::at(&socket, &[text(&disk)]);
    copy.join().expect("it was copied").expect("installed");
    drop(retrying);
    server.end();
    assert!(std::fs::read(&source).expect("there") == std::fs::read(&disk).expect("there"));
}
