//! `brindle export` of caches and of exports of others, and devices as files of a mount.

use super::cache::{PATIENCE, byte_at, run, write_at};
use super::mount::{can_mount, is_mounted, unmount};
use super::nbd::{Exported, image, tool};
use super::support::{brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: u64 = 64 << 20;

/// A device that is shown as a file; killed and unmounted when it is dropped.
struct ShownFile {
    child: Child,
    mountpoint: PathBuf,
    path: PathBuf,
}

impl ShownFile {
    fn at(mountpoint: &Path, words: &[&str]) -> Self {
        fs::create_dir_all(mountpoint).expect("room");
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(["export", "--mount", text(mountpoint)]).args(words).env_remove("BRINDLE_LOG");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary was built");
        let mut path = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut path).expect("a line");
        assert!(path.starts_with('/'), "{path}");
        Self { child, mountpoint: mountpoint.to_owned(), path: PathBuf::from(path.trim()) }
    }

    /// Asks it to end, and waits.
    fn end(self) {
        self.ask_to_end();
        self.ends();
    }

    fn ask_to_end(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }

    fn ends(mut self) {
        assert!(self.child.wait().expect("it ends").success());
        assert!(!is_mounted(&self.mountpoint));
    }

    fn size(&self) -> u64 {
        fs::metadata(&self.path).expect("served").len()
    }
}

impl Drop for ShownFile {
    fn drop(&mut self) {
        if is_mounted(&self.mountpoint) {
            if self.path.starts_with("/dev") {
                run("losetup", &["--detach", text(&self.path)]);
            }
            let _ = self.child.kill();
            run("umount", &["-l", text(&self.mountpoint)]);
        }
        let _ = self.child.wait();
    }
}

struct Images {
    scratch: tempfile::TempDir,
    ssd: PathBuf,
    disk: PathBuf,
}

impl Images {
    fn of_cache() -> Self {
        Self::of_mode("back")
    }

    fn of_mode(mode: &str) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let [ssd, disk] = ["ssd", "disk"].map(|name| image(scratch.path(), name, SIZE));
        brindle_succeeds(["cache", "create", "-p", mode, "pair", text(&ssd), text(&disk)]);
        Self { scratch, ssd, disk }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn word(&self) -> String {
        format!("cache:{}:{}", text(&self.ssd), text(&self.disk))
    }
}

/// A cache over NBD, that export over NBD once more, and that one as a file.
#[test]
fn cache_and_export_are_exported_and_the_last_is_a_file() {
    if !can_mount() {
        return;
    }
    let images = Images::of_cache();
    let cache = Exported::at(&images.at("one"), &[&images.word()]);
    let further = Exported::at(&images.at("two"), &["--name", "further", &cache.uri]);
    let shown = ShownFile::at(&images.at("place"), &[&further.uri]);
    assert_eq!(shown.size(), SIZE);
    write_at(&shown.path, 7, 1 << 20);
    assert_eq!(byte_at(&images.disk, 1 << 20), 0, "it is on the SSD alone");
    // Both are killed, and the writes of a client that goes on are there.
    drop(further);
    drop(cache);
    let cache = Exported::at(&images.at("one"), &[&images.word()]);
    let further = Exported::at(&images.at("two"), &["--name", "further", &cache.uri]);
    assert_eq!(byte_at(&shown.path, 1 << 20), 7);
    write_at(&shown.path, 8, 2 << 20);
    shown.end();
    further.end();
    cache.end();
    assert_eq!((byte_at(&images.disk, 1 << 20), byte_at(&images.disk, 2 << 20)), (7, 8));
    brindle_succeeds(["cache", "destroy", text(&images.ssd)]);
}

#[test]
fn cache_that_is_shown_as_a_file_tells_its_state_and_takes_settings() {
    if !can_mount() {
        return;
    }
    let images = Images::of_cache();
    let place = images.at("place");
    let shown = ShownFile::at(&place, &[&images.word()]);
    write_at(&shown.path, 3, 1 << 20);
    brindle_succeeds(["cache", "set", "skip_seq_thresh_kb=64", text(&place)]);
    let stat: serde_json::Value =
        serde_json::from_str(&brindle_prints(["cache", "stat", "--json", text(&place)])).expect("JSON");
    assert_eq!((stat["skip_seq_write_kb"].as_u64(), stat["dirty_blocks"].as_u64()), (Some(64), Some(4)));
    let said = brindle_fails(1, ["export", "--socket", text(&images.at("socket")), text(&images.disk)]);
    assert!(said.contains("in use"), "{said}");
    drop(shown);
    let shown = ShownFile::at(&place, &[&images.word()]);
    assert_eq!(byte_at(&shown.path, 1 << 20), 3);
    brindle_succeeds(["cache", "stop", text(&place)]);
    assert!(!is_mounted(&place));
    assert_eq!(byte_at(&images.disk, 1 << 20), 3);
}

#[test]
fn file_that_is_read_only_takes_no_writes() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let (disk, place) = (image(scratch.path(), "disk", SIZE), scratch.path().join("place"));
    write_at(&disk, 9, 0);
    let shown = ShownFile::at(&place, &["--read-only", text(&disk)]);
    assert_eq!(byte_at(&shown.path, 0), 9);
    let file = File::options().write(true).open(&shown.path).expect("it may be asked");
    let refused = file.write_all_at(&[1; 512], 0).and_then(|()| file.sync_all()).expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    drop(file);
    shown.end();
    // A file of a pool.
    let (pool, source) = (scratch.path().join("pool"), scratch.path().join("source"));
    fs::create_dir(&source).expect("room");
    fs::write(source.join("inner"), [4; 100_000]).expect("room");
    brindle_succeeds(["mkfs", "-q", "--size", "256M", "--rootdir", text(&source), text(&pool)]);
    let shown = ShownFile::at(&place, &["--path", "inner", text(&pool)]);
    assert!(fs::read(&shown.path).expect("served") == [4; 100_000]);
    shown.end();
    brindle_fails(2, ["export", "--mount", text(&place), "--name", "x", text(&disk)]);
    brindle_fails(2, ["export", "--attach", "--socket", "x", text(&disk)]);
}

#[test]
fn export_that_grows_is_shown_and_used_at_its_new_size() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| scratch.path().join(name);
    let disk = image(scratch.path(), "disk", 256 << 20);
    let grow = |bytes: u64| {
        File::options().write(true).open(&disk).and_then(|file| file.set_len(bytes)).expect("sparse");
    };
    let server = Exported::at(&at("socket"), &[text(&disk)]);
    let shown = ShownFile::at(&at("place"), &[&server.uri]);
    write_at(&shown.path, 1, 0);
    grow(300 << 20);
    assert_eq!(shown.size(), 256 << 20, "it was not asked for yet");
    brindle_succeeds(["cache", "grow", text(&at("place"))]);
    assert_eq!(shown.size(), 300 << 20);
    write_at(&shown.path, 2, 299 << 20);
    assert_eq!((byte_at(&disk, 0), byte_at(&disk, 299 << 20)), (1, 2));
    shown.end();
    // A pool on it.
    brindle_succeeds(["mkfs", "-q", "-f", &server.uri]);
    brindle_succeeds(["-q", "mount", &server.uri, text(&at("place"))]);
    grow(600 << 20);
    brindle_succeeds(["filesystem", "resize", "max", text(&at("place"))]);
    let shown = brindle_prints(["filesystem", "show", text(&at("place"))]);
    assert!(shown.contains("600.00MiB"), "{shown}");
    fs::write(at("place").join("file"), vec![5; 280 << 20]).expect("there is room now");
    File::open(at("place").join("file")).and_then(|file| file.sync_all()).expect("durable");
    unmount(&at("place"));
    brindle_succeeds(["check", "--check-data-csum", &server.uri]);
    server.end();
}

/// A filesystem of the kernel on the disk of another program, which has no driver of the kernel.
#[test]
fn filesystem_of_the_kernel_lies_on_an_export_by_a_loop_device() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| scratch.path().join(name);
    let disk = image(scratch.path(), "disk", 256 << 20);
    let server = Exported::at(&at("socket"), &[text(&disk)]);
    let shown = ShownFile::at(&at("place"), &["--attach", &server.uri]);
    assert!(shown.path.starts_with("/dev"));
    assert!(run("mkfs.ext4", &["-q", "-F", text(&shown.path)]));
    fs::create_dir(at("files")).expect("new");
    assert!(run("mount", &[text(&shown.path), text(&at("files"))]));
    fs::write(at("files").join("file"), vec![6; 1 << 20]).expect("room");
    // A filesystem that is mounted is served on after a signal; the loop device and the process end with it.
    shown.ask_to_end();
    let begin = Instant::now();
    while is_mounted(&at("place")) {
        assert!(begin.elapsed() < PATIENCE, "the end of the directory: not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(at("files").join("later"), vec![7; 1 << 20]).expect("room");
    assert!(run("umount", &[text(&at("files"))]));
    shown.ends();
    server.end();
    assert!(tool(&["e2fsck", "-f", "-n", text(&disk)]).is_some());
    assert!(!brindle(["export", "--mount", text(&at("nowhere")), text(&disk)]).status.success());
}

/// The disk was written where no sample of it is.
#[test]
fn cache_whose_disk_was_written_alone_shows_and_keeps_what_the_disk_has() {
    if !can_mount() {
        return;
    }
    for mode in ["back", "thru", "around"] {
        let images = Images::of_mode(mode);
        let (place, at) = (images.at("place"), 5 << 20);
        let shown = ShownFile::at(&place, &[&images.word()]);
        write_at(&shown.path, 0x11, at);
        assert_eq!(byte_at(&shown.path, at), 0x11);
        shown.end();
        write_at(&images.disk, 0x22, at);
        let shown = ShownFile::at(&place, &["--read-only", &images.word()]);
        assert_eq!(byte_at(&shown.path, at), 0x22, "{mode}, read-only");
        shown.end();
        let shown = ShownFile::at(&place, &[&images.word()]);
        let file = File::options().write(true).open(&shown.path).expect("served");
        file.write_all_at(&[0x22; 512], at).and_then(|()| file.sync_all()).expect("writes");
        drop(file);
        assert_eq!(byte_at(&shown.path, at), 0x22, "{mode}");
        shown.end();
        assert_eq!(byte_at(&images.disk, at), 0x22, "{mode}: what is around the write");
    }
}

#[test]
fn cache_in_use_is_read_through_its_server_alone() {
    if !can_mount() {
        return;
    }
    let images = Images::of_cache();
    let (place, word) = (images.at("place"), images.word());
    let shown = ShownFile::at(&place, &[&word]);
    write_at(&shown.path, 1, 1 << 20);
    let socket = images.at("socket");
    for words in [vec!["ls", &word], vec!["export", "--read-only", "--socket", text(&socket), &word]] {
        let said = brindle_fails(1, &words);
        assert!(said.contains("is in use: process"), "{words:?}: {said}");
        assert!(said.contains(&format!("are read from {}", shown.path.display())), "{words:?}: {said}");
    }
    shown.end();
    let reader = ShownFile::at(&place, &["--read-only", &word]);
    assert_eq!(byte_at(&reader.path, 1 << 20), 1);
    let writer = ShownFile::at(&images.at("other"), &[&word]);
    write_at(&writer.path, 2, 1 << 20);
    let file = File::open(&reader.path).expect("served");
    file.read_exact_at(&mut [0; 4096], 1 << 20).expect_err("it would be old");
    drop(file);
    writer.end();
    reader.end();
}

#[test]
fn export_of_a_cache_fails_if_blocks_do_not_get_to_the_disk() {
    if !can_mount() {
        return;
    }
    let images = Images::of_cache();
    let mut shown = ShownFile::at(&images.at("place"), &[&images.word()]);
    write_at(&shown.path, 1, 1 << 20);
    File::options().write(true).open(&images.ssd).and_then(|ssd| ssd.set_len(0)).expect("ours");
    shown.ask_to_end();
    assert_eq!(shown.child.wait().expect("it ends").code(), Some(1));
}
