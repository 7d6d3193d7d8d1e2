//! `send` and `receive` on mounts of brindle.

mod failing;
mod kernel;

use super::mount::{can_mount, unmount};
use super::support::{brindle, brindle_fails, brindle_prints, text};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A pool and its mount.
struct Pool {
    image: PathBuf,
    place: PathBuf,
    is_mounted: bool,
}

impl Pool {
    fn new(directory: &TempDir, name: &str) -> Self {
        let image = directory.path().join(format!("{name}.img"));
        let place = directory.path().join(name);
        std::fs::create_dir(&place).expect("new");
        brindle_prints(["mkfs", "-q", "--size", "400M", text(&image)]);
        let pool = Self { image, place, is_mounted: true };
        brindle_prints(["-q", "mount", text(&pool.image), text(&pool.place)]);
        pool
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.join(path)
    }

    /// Unmounts it, and has it examined.
    fn end(mut self) -> PathBuf {
        unmount(&self.place);
        self.is_mounted = false;
        let examined = brindle(["check", "--check-data-csum", text(&self.image)]);
        assert!(examined.status.success(), "{}", String::from_utf8_lossy(&examined.stdout));
        std::mem::take(&mut self.image)
    }
}

impl Drop for Pool {
    /// After a failure.
    fn drop(&mut self) {
        if self.is_mounted {
            brindle(["umount", "-l", text(&self.place)]);
        }
    }
}

/// A subvolume `live` with files of several kinds, and its snapshots `one` and `two`.
fn sender(directory: &TempDir) -> Pool {
    let pool = Pool::new(directory, "from");
    fill(&pool.place);
    pool
}

fn fill(place: &Path) {
    let at = |name: &str| place.join("live").join(name);
    let snapshot = |name: &str| {
        brindle_prints(["subvolume", "snapshot", "-r", text(&place.join("live")), text(&place.join(name))]);
    };
    brindle_prints(["subvolume", "create", text(&place.join("live"))]);
    std::fs::create_dir_all(at("a/b")).expect("new");
    let noise: Vec<u8> =
        (0..750_000_u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(at("a/large"), &noise).expect("room");
    std::fs::write(at("a/b/small"), b"small").expect("room");
    std::fs::write(at("gone"), b"gone").expect("room");
    symlink("a/large", at("link")).expect("new");
    snapshot("one");
    std::fs::rename(at("a/b"), at("moved")).expect("there");
    std::fs::remove_file(at("gone")).expect("there");
    let mut file = std::fs::OpenOptions::new().append(true).open(at("a/large")).expect("there");
    file.write_all(b"and more").expect("room");
    std::fs::set_permissions(at("a"), PermissionsExt::from_mode(0o700)).expect("own");
    snapshot("two");
}

fn start(arguments: &[&str], input: Stdio, output: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    command.args(arguments).stdin(input).stdout(output).stderr(Stdio::piped()).spawn().expect("runs")
}

/// Each path below a directory, with all that a difference would show.
fn listing(root: &Path) -> Vec<(PathBuf, u32, u64, i64, u64)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let facts = std::fs::symlink_metadata(&path).expect("there");
        let contents = match facts.file_type() {
            kind if kind.is_dir() => {
                let entries = std::fs::read_dir(&path).expect("a directory");
                left.extend(entries.map(|entry| entry.expect("an entry").path()));
                Vec::new()
            }
            kind if kind.is_symlink() => {
                std::fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            }
            _ => std::fs::read(&path).expect("a file"),
        };
        let mut hash = DefaultHasher::new();
        contents.hash(&mut hash);
        let size = if facts.is_dir() { 0 } else { facts.size() };
        let name = path.strip_prefix(root).expect("below").to_owned();
        found.push((name, facts.mode(), size, facts.mtime(), hash.finish()));
    }
    found.sort();
    found
}

#[test]
fn snapshots_go_from_mount_to_mount_whole_and_as_a_difference() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let (from, to) = (sender(&directory), Pool::new(&directory, "to"));
    std::fs::create_dir(to.at("backups")).expect("new");
    let mut send =
        start(&["send", "-e", text(&from.at("one")), text(&from.at("two"))], Stdio::null(), Stdio::piped());
    let stream = send.stdout.take().expect("piped");
    let receive = start(&["receive", text(&to.at("backups"))], stream.into(), Stdio::piped());
    let sent = send.wait_with_output().expect("ends");
    let received = receive.wait_with_output().expect("ends");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(sent.status.success() && received.status.success(), "{}", said(&received.stderr));
    assert_eq!(said(&sent.stderr), "At subvol one\nAt subvol two, the difference from one\n");
    assert_eq!(said(&received.stdout).lines().count(), 2);
    for name in ["one", "two"] {
        assert_eq!(listing(&to.at("backups").join(name)), listing(&from.at(name)), "{name}");
        let refused = std::fs::write(to.at("backups").join(name).join("new"), b"x");
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    // Devices and their mount send the same.
    let (by_mount, by_devices) = (directory.path().join("1"), directory.path().join("2"));
    let at = |name: &str| from.at(name);
    brindle_prints(["-q", "send", "-f", text(&by_mount), "-p", text(&at("one")), text(&at("two"))]);
    to.end();
    let image = from.end();
    brindle_prints(["-q", "send", "-f", text(&by_devices), text(&image), "-p", "one", "--path", "two"]);
    let read = |path| std::fs::read(path).expect("there");
    assert!(read(by_mount) == read(by_devices));
}

#[test]
fn a_subvolume_that_was_seen_half_received_is_seen_whole_afterwards() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let (from, to) = (sender(&directory), Pool::new(&directory, "to"));
    let stream = directory.path().join("stream");
    brindle_prints(["-q", "send", "-f", text(&stream), text(&from.at("one"))]);
    let bytes = std::fs::read(&stream).expect("there");
    assert!(!to.at("one").exists(), "the kernel remembers that");
    let mut receive = start(&["receive", text(&to.place)], Stdio::piped(), Stdio::piped());
    let mut input = receive.stdin.take().expect("piped");
    let (mut held, mut file, mut writer) = (None, None, None);
    let (rest, last) = bytes.split_at(bytes.len() - bytes.len() / 40);
    for part in rest.chunks(bytes.len() / 40) {
        input.write_all(part).expect("it is taken");
        std::thread::sleep(Duration::from_millis(10));
        held = held.or_else(|| std::fs::File::open(to.at("one/a")).ok());
        file = file.or_else(|| std::fs::File::open(to.at("one/a/large")).ok());
        writer = writer.or_else(|| std::fs::OpenOptions::new().append(true).open(to.at("one/a/large")).ok());
        // Whatever is there at this moment.
        let mut left = vec![to.at("one")];
        while let Some(path) = left.pop() {
            let _ = (std::fs::read(&path), std::fs::metadata(&path), path.join("no such").exists());
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path()));
        }
        let _ = (to.at("one/a/large").exists(), to.at("one/a/b/small").exists(), to.at("one/link").exists());
    }
    // The server may be behind with what it has been sent; it waits for the end.
    let begun = Instant::now();
    while held.is_none() || file.is_none() || writer.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{held:?} {file:?} {writer:?}");
        std::thread::sleep(Duration::from_millis(10));
        held = held.or_else(|| std::fs::File::open(to.at("one/a")).ok());
        file = file.or_else(|| std::fs::File::open(to.at("one/a/large")).ok());
        writer = writer.or_else(|| std::fs::OpenOptions::new().append(true).open(to.at("one/a/large")).ok());
    }
    input.write_all(last).expect("it is taken");
    drop(input);
    let received = receive.wait_with_output().expect("ends");
    assert!(received.status.success(), "{}", String::from_utf8_lossy(&received.stderr));
    assert_eq!(listing(&to.at("one")), listing(&from.at("one")));
    // A directory that was open meanwhile is the same one.
    let held = held.expect("it was waited for");
    let names = |path: &Path| std::fs::read_dir(path).expect("it can be listed").count();
    assert_eq!(names(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd()))), names(&from.at("one/a")));
    assert_eq!(held.metadata().expect("it answers").ino(), to.at("one/a").metadata().expect("there").ino());
    // Files that were open go on too: they are read to the end, and take no more.
    let (mut file, mut writer) = (file.expect("it was waited for"), writer.expect("it was waited for"));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("it can be read");
    assert!(bytes == std::fs::read(from.at("one/a/large")).expect("there"), "{} bytes", bytes.len());
    assert_eq!(
        file.metadata().expect("it answers").ino(),
        to.at("one/a/large").metadata().expect("there").ino()
    );
    let refused = writer.write(b"more").expect_err("the subvolume is read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(std::fs::read(to.at("one/a/large")).expect("there") == bytes);
    drop((held, file, writer));
    to.end();
    from.end();
}

#[test]
fn a_client_that_goes_ends_its_stream() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let pool = sender(&directory);
    let one = pool.at("one");
    // It is not read: the pipe is full, and the server waits.
    let mut stalled = start(&["-q", "send", text(&one)], Stdio::null(), Stdio::piped());
    let mut first = [0; 17];
    stalled.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a stream begins");
    let mut waiting = start(&["receive", text(&pool.place)], Stdio::piped(), Stdio::piped());
    waiting.stdin.as_mut().expect("piped").write_all(&first).expect("room");
    let mut killed = start(&["-q", "send", text(&one)], Stdio::null(), Stdio::piped());
    killed.kill().and_then(|()| killed.wait()).expect("it runs");
    assert!(brindle_fails(1, ["umount", text(&pool.place)]).contains("busy"), "clients work in it");
    let in_use = format!("{}: in use: it is being sent", one.display());
    let refused = brindle_fails(1, ["property", "set", text(&one), "ro", "false"]);
    assert!(refused.contains(&in_use), "{refused}");
    drop(stalled.stdout.take());
    let sent = stalled.wait_with_output().expect("ends");
    assert_eq!(sent.status.code(), Some(1), "{}", String::from_utf8_lossy(&sent.stderr));
    drop(waiting.stdin.take());
    let received = waiting.wait_with_output().expect("ends");
    assert_eq!(received.status.code(), Some(1), "{}", String::from_utf8_lossy(&received.stderr));
    pool.end();
}

#[test]
fn refusals_of_mounts_say_what_to_do() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let (pool, other) = (sender(&directory), Pool::new(&directory, "other"));
    let file = directory.path().join("stream");
    let fails = |code, arguments: &[&Path]| {
        brindle_fails(code, [&[Path::new("send"), Path::new("-f"), &file], arguments].concat())
    };
    let live = fails(1, &[&pool.at("live")]);
    assert!(live.contains("subvolume live is writable"), "{live}");
    // It is as free as before.
    for value in ["true", "false"] {
        brindle_prints(["property", "set", text(&pool.at("live")), "ro", value]);
    }
    assert!(fails(1, &[&pool.at("one/a")]).contains("one/a: not a subvolume"));
    assert!(fails(1, &[&pool.place]).contains("the top level has no name"));
    assert!(fails(1, &[&pool.at("one"), &other.place]).contains("other"));
    assert!(
        fails(2, &[&pool.at("one"), Path::new("--path"), Path::new("two")]).contains("--path is for devices")
    );
    assert!(fails(2, &[&pool.at("one"), Path::new("-o"), Path::new("degraded")]).contains("for devices"));
    let cut = directory.path().join("cut");
    brindle_prints(["-q", "send", "-f", text(&cut), text(&pool.at("one"))]);
    let bytes = std::fs::read(&cut).expect("there");
    std::fs::write(&cut, &bytes[..bytes.len() - 10]).expect("room");
    let left = brindle_fails(1, ["receive", "-f", text(&cut), text(&other.place)]);
    assert!(left.contains("it is cut off; the subvolume one is incomplete: it stays, writable"), "{left}");
    std::fs::write(other.at("one/new"), b"x").expect("it is writable");
    let report = brindle(["receive", "--json", "-f", text(&cut), text(&other.place)]);
    assert_eq!(report.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert!(report["error"].as_str().is_some_and(|why| why.contains("one exists already")), "{report}");
    pool.end();
    other.end();
}
