//! `brindle export`, as programs of others see it, and pools on devices of NBD servers.

use super::mount::{can_mount, unmount};
use super::support::{brindle, brindle_fails, brindle_prints, brindle_succeeds, text};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server; killed when it is dropped.
pub(super) struct Exported {
    child: Child,
    pub(super) uri: String,
}

impl Exported {
    /// Serves a device at a unix socket.
    pub(super) fn at(socket: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(["export", "--socket", text(socket)]).args(words).env_remove("BRINDLE_LOG");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary was built");
        let mut uri = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut uri).expect("a line");
        assert!(uri.contains("+unix://"), "{uri}");
        Self { child, uri: uri.trim().to_owned() }
    }

    /// Asks it to end, and waits.
    pub(super) fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of a tool; `None`, with a message, if it is not installed.
pub(super) fn tool(words: &[&str]) -> Option<String> {
    let output = match Command::new(words[0]).args(&words[1..]).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: {}: {error}", words[0]);
            return None;
        }
    };
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) fn image(directory: &Path, name: &str, size: u64) -> PathBuf {
    let path = directory.join(name);
    std::fs::File::create_new(&path).and_then(|file| file.set_len(size)).expect("room");
    path
}

#[test]
fn tools_of_libnbd_read_write_and_map_an_export() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 8 << 20), directory.path().join("socket"));
    let file = std::fs::File::options().write(true).open(&disk).expect("it is there");
    file.write_all_at(&[5; 300_000], 2 << 20).expect("room");
    drop(file);
    let server = Exported::at(&socket, &["--name", "a disk", text(&disk)]);
    let Some(size) = tool(&["nbdinfo", "--size", &server.uri]) else { return };
    assert_eq!(size.trim(), "8388608");
    let told = tool(&["nbdinfo", &server.uri]).expect("installed");
    for line in ["can_multi_conn: true", "can_fast_zero: true", "is_read_only: false", "base:allocation"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let listed = tool(&["nbdinfo", "--list", &server.uri]).expect("installed");
    assert!(listed.contains("export=\"a disk\""), "{listed}");
    let map = tool(&["nbdinfo", "--map", &server.uri]).expect("installed");
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    let copy = directory.path().join("copy");
    tool(&["nbdcopy", &server.uri, text(&copy)]).expect("installed");
    assert!(std::fs::read(&copy).expect("made") == std::fs::read(&disk).expect("there"));
    // Back, from a file with other contents and holes.
    let other = image(directory.path(), "other", 8 << 20);
    let file = std::fs::File::options().write(true).open(&other).expect("it is there");
    file.write_all_at(&[9; 200_000], 5 << 20).expect("room");
    tool(&["nbdcopy", "--flush", text(&other), &server.uri]).expect("installed");
    server.end();
    assert!(!socket.exists());
    assert!(std::fs::read(&other).expect("there") == std::fs::read(&disk).expect("there"));
    let server = Exported::at(&socket, &["--read-only", text(&disk)]);
    let told = tool(&["nbdinfo", &server.uri]).expect("installed");
    assert!(told.contains("is_read_only: true"), "{told}");
}

#[test]
fn export_of_what_is_not_there_is_refused() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 1 << 20), directory.path().join("socket"));
    let (disk, socket) = (text(&disk), text(&socket));
    assert!(brindle_fails(1, ["export", "--socket", socket, "/nowhere"]).contains("/nowhere"));
    brindle_fails(2, ["export", disk]);
    brindle_fails(2, ["export", "--socket", socket, disk, disk]);
    let _server = Exported::at(Path::new(socket), &[disk]);
    assert!(brindle_fails(1, ["export", "--socket", socket, disk]).contains("in use"));
    let said = brindle_fails(1, ["export", "--socket", socket, "--read-only", disk]);
    assert!(said.contains("another server listens there"), "{said}");
}

/// Three devices: an image, and the exports of two more.
struct Pool {
    directory: tempfile::TempDir,
    images: Vec<PathBuf>,
    servers: Vec<Option<Exported>>,
}

impl Pool {
    fn make() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let images = ["fast", "bulk1", "bulk2"].map(|name| image(directory.path(), name, 512 << 20)).to_vec();
        let mut pool = Self { directory, images, servers: vec![None, None, None] };
        (1..3).for_each(|index| pool.serve(index));
        let fast = format!("{}:fast", text(&pool.images[0]));
        let bulk = [1, 2].map(|index| format!("{}:bulk", pool.word(index)));
        brindle_succeeds(["mkfs", "-q", "-d", "raid1", "-m", "raid1", &fast, &bulk[0], &bulk[1]]);
        pool
    }

    fn serve(&mut self, index: usize) {
        let socket = self.directory.path().join(format!("socket{index}"));
        self.servers[index] = Some(Exported::at(&socket, &[text(&self.images[index])]));
    }

    /// Name of a device for commands.
    fn word(&self, index: usize) -> String {
        match &self.servers[index] {
            None => text(&self.images[index]).to_owned(),
            Some(server) => format!("{}&x-timeout=300", server.uri),
        }
    }

    fn mount(&self) -> PathBuf {
        let place = self.directory.path().join("place");
        std::fs::create_dir_all(&place).expect("room");
        let words = [0, 1, 2].map(|index| self.word(index));
        brindle_succeeds(["-q", "mount", &words[0], &words[1], &words[2], text(&place)]);
        place
    }
}

/// Servers are killed and started again, in turn, while files are written and fsynced.
#[test]
fn pool_on_exports_survives_servers_that_are_killed() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    let place = pool.mount();
    let contents =
        |round: u8, number: u8| vec![round.wrapping_mul(31) ^ number; 200_000 + usize::from(number)];
    const ROUNDS: u8 = 6;
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let place = &place;
            let writer = scope.spawn(move || {
                for number in 0..20 {
                    let path = place.join(format!("{round}-{number}"));
                    let mut file = std::fs::File::create_new(path).expect("a new file");
                    file.write_all(&contents(round, number)).and_then(|()| file.sync_all()).expect("durable");
                }
            });
            let index = 1 + usize::from(round) % 2;
            // SIGKILL, while requests are under way.
            pool.servers[index] = None;
            pool.serve(index);
            writer.join().expect("no panic");
        });
    }
    let is_whole = |place: &Path| {
        for (round, number) in (0..ROUNDS).flat_map(|round| (0..20).map(move |number| (round, number))) {
            let found = std::fs::read(place.join(format!("{round}-{number}"))).expect("it was fsynced");
            assert!(found == contents(round, number), "{round}-{number}");
        }
    };
    is_whole(&place);
    let stats = brindle_prints(["device", "stats", text(&place)]);
    assert!(stats.lines().all(|line| line.ends_with(" 0")), "{stats}");
    unmount(&place);
    let place = pool.mount();
    is_whole(&place);
    unmount(&place);
    let words = [0, 1, 2].map(|index| pool.word(index));
    for shown in [&words[..], &words[..1]] {
        let said = brindle_prints(
            [&["filesystem", "show"], &shown.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(),
        );
        assert!(said.contains("Total devices 3") && said.contains(&words[0]), "{said}");
    }
    brindle_succeeds(["check", "--check-data-csum", &words[0], &words[1], &words[2]]);
    // The images themselves are those of the pool.
    pool.servers.clear();
    let mut check = vec!["check", "--check-data-csum"];
    check.extend(pool.images.iter().map(|image| text(image)));
    brindle_succeeds(check);
}

/// A server that stays away is a missing device: the pool goes on by the other copy.
#[test]
fn pool_goes_on_without_a_server_that_stays_away() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    let place = pool.directory.path().join("place");
    std::fs::create_dir_all(&place).expect("room");
    let hasty = pool.word(1).replace("=300", "=5");
    let words = [pool.word(0), hasty, pool.word(2)];
    brindle_succeeds(["-q", "mount", &words[0], &words[1], &words[2], text(&place)]);
    std::fs::write(place.join("before"), vec![1; 1_000_000]).expect("room");
    pool.servers[1] = None;
    let file = std::fs::File::create_new(place.join("after")).expect("a new file");
    file.write_all_at(&[2; 1_000_000], 0).and_then(|()| file.sync_all()).expect("one copy is durable");
    drop(file);
    for (name, fill) in [("before", 1), ("after", 2)] {
        assert!(std::fs::read(place.join(name)).expect("a copy") == vec![fill; 1_000_000], "{name}");
    }
    let _ = brindle(["umount", text(&place)]);
    let seen = brindle_prints(["cat", "-o", "degraded", &words[0], &words[2], "--path", "after"]);
    assert!(seen.as_bytes() == [2; 1_000_000]);
}

/// The server of a mount gets URIs: an export that was away rejoins, a new one takes the place of another, one more joins and leaves.
#[test]
fn exports_join_and_leave_a_mounted_pool() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    let place = pool.mount();
    unmount(&place);
    // The pool is written without the second device.
    let words = [0, 1, 2].map(|index| pool.word(index));
    let [fast, away, present] = words.each_ref().map(String::as_str);
    brindle_succeeds(["-q", "mount", "-o", "degraded", fast, present, text(&place)]);
    std::fs::write(place.join("after"), vec![2; 1_000_000]).expect("room");
    brindle_succeeds(["device", "rejoin", away, text(&place)]);
    // Another export in place of the third.
    pool.images.push(image(pool.directory.path(), "target", 512 << 20));
    pool.servers.push(None);
    pool.serve(3);
    let target = pool.word(3);
    brindle_succeeds(["device", "replace", "start", "3", &target, text(&place)]);
    // The one that was replaced joins as a new device, and leaves by its URI.
    brindle_succeeds(["device", "add", "-f", &format!("{present}:bulk"), text(&place)]);
    let shown = brindle_prints(["device", "usage", text(&place)]);
    assert!([away, &target, present].iter().all(|uri| shown.contains(uri)), "{shown}");
    brindle_succeeds(["device", "remove", present, text(&place)]);
    unmount(&place);
    brindle_succeeds(["check", "--check-data-csum", fast, away, &target]);
    brindle_succeeds(["-q", "mount", "-o", "rw", fast, away, &target, text(&place)]);
    assert!(std::fs::read(place.join("after")).expect("a copy") == vec![2; 1_000_000]);
    unmount(&place);
}

#[test]
fn wrong_words_of_nbd_are_refused_with_the_reason() {
    for (word, why) in [
        ("nbd+unix:///x", "socket=PATH"),
        ("nbds://host/x?tls-psk-file=/keys", "keys that are shared (tls-psk-file) are not supported"),
        ("nbd://host/x?tls-certificates=/c", "write nbds://"),
        ("nbd+unix:///?socket=/nowhere/at/all", "cannot open nbd+unix:///?socket=/nowhere/at/all"),
    ] {
        let said = brindle_fails(1, ["check", word]);
        assert!(said.contains(why), "{said}");
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 512 << 20), directory.path().join("socket"));
    let server = Exported::at(&socket, &["--read-only", text(&disk)]);
    let said = brindle_fails(1, ["mkfs", &server.uri]);
    assert!(said.contains("the server has the export read-only"), "{said}");
    let said = brindle_fails(1, ["mkfs", "--size", "1G", &server.uri]);
    assert!(said.contains("--size is for image files"), "{said}");
}

#[test]
fn clients_that_never_end_their_handshake_keep_no_other_out() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (directory.path().join("disk"), directory.path().join("socket"));
    brindle_succeeds(["mkfs", "-q", "--size", "256M", text(&disk)]);
    let server = Exported::at(&socket, &["--read-only", text(&disk)]);
    // More than there is room for.
    let silent: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(&socket).expect("the server listens")).collect();
    brindle_succeeds(["check", &server.uri]);
    drop(silent);
    server.end();
}
