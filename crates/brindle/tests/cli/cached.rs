//! Pools of cached disks, `cache:SSD:DISK`: killed, refused with the wrong parts, changed while they are mounted, ended.

use super::mount::{can_mount, is_mounted, unmount};
use super::nbd::{Exported, image};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use brindle_testing::referee::btrfs_check;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const DISK_BYTES: u64 = 512 << 20;
const SSD_BYTES: u64 = 48 << 20;
/// Files that each round writes.
const FILES: u8 = 12;

/// Two disks in raid1, each behind an SSD of its own.
struct Pool {
    scratch: TempDir,
    server: Option<Child>,
}

impl Pool {
    fn make() -> Self {
        let pool = Self { scratch: tempfile::tempdir().expect("temporary directory"), server: None };
        fs::create_dir(pool.at("place")).expect("new");
        for number in [0, 1] {
            let (ssd, disk) = (format!("ssd{number}"), format!("disk{number}"));
            image(pool.scratch.path(), &ssd, SSD_BYTES);
            image(pool.scratch.path(), &disk, DISK_BYTES);
            let name = format!("pair{number}");
            brindle_succeeds([
                "cache",
                "create",
                "-p",
                "back",
                &name,
                text(&pool.at(&ssd)),
                text(&pool.at(&disk)),
            ]);
        }
        let [one, two] = pool.words();
        brindle_succeeds(["mkfs", "-q", "-d", "raid1", "-m", "raid1", &one, &two]);
        pool
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn place(&self) -> PathBuf {
        self.at("place")
    }

    /// Name of a cached disk of some parts.
    fn word(&self, ssd: &str, disk: &str) -> String {
        format!("cache:{}:{}", text(&self.at(ssd)), text(&self.at(disk)))
    }

    fn words(&self) -> [String; 2] {
        [self.word("ssd0", "disk0"), self.word("ssd1", "disk1")]
    }

    fn mount(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(["-q", "mount", "--foreground"]).args(self.words()).arg(self.place());
        let server = self.server.insert(command.stdout(Stdio::null()).spawn().expect("the binary was built"));
        while !is_mounted(&self.scratch.path().join("place")) {
            assert!(server.try_wait().expect("our child").is_none(), "it ended before it mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the server, and removes what is left of its mount.
    fn kill(&mut self) {
        let mut server = self.server.take().expect("it is mounted");
        server.kill().expect("our child");
        server.wait().expect("our child");
        while is_mounted(&self.place()) {
            Command::new("umount").args(["-l", text(&self.place())]).status().expect("umount");
        }
    }

    /// Unmounts, and waits until the caches are closed.
    fn end(&mut self) {
        unmount(&self.place());
        assert!(self.server.take().expect("it was mounted").wait().expect("our child").success());
    }

    /// Message of a mount that is refused.
    fn refusal(&self, words: &[&str]) -> String {
        let place = self.place();
        brindle_fails(1, ["-q", "mount"].iter().copied().chain(words.iter().copied()).chain([text(&place)]))
    }

    fn write(&self, round: u8) {
        for number in 0..FILES {
            let mut file = File::create_new(self.place().join(format!("{round}-{number}"))).expect("room");
            file.write_all(&contents(round, number)).and_then(|()| file.sync_all()).expect("durable");
        }
        fs::write(self.place().join("unsynced"), [round; 300_000]).expect("room");
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let stat = brindle_prints(["cache", "stat", "--json", text(&self.place())]);
        let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
        let caches = stat["caches"].as_array().expect("all caches of the pool");
        caches.iter().map(|cache| cache[name].as_u64().expect("a number")).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
    }
}

fn contents(round: u8, number: u8) -> Vec<u8> {
    let length = 30_000 + usize::from(number) * 17_001;
    (0..length).map(|at| (at * 31 + usize::from(round) * 7 + usize::from(number)).to_le_bytes()[0]).collect()
}

fn assert_all(place: &Path, rounds: u8) {
    for (round, number) in (0..rounds).flat_map(|round| (0..FILES).map(move |number| (round, number))) {
        let found = fs::read(place.join(format!("{round}-{number}"))).expect("it was fsynced");
        assert!(found == contents(round, number), "{round}-{number}");
    }
}

/// Words of a command, as brindle takes them.
fn check(devices: &[&str]) {
    brindle_succeeds(["check", "--check-data-csum"].iter().chain(devices));
}

#[test]
fn pool_of_cached_disks_survives_the_death_of_its_server() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    for round in 0..2 {
        pool.mount();
        assert_all(&pool.place(), round);
        pool.write(round);
        assert!(pool.numbers("dirty_blocks").iter().all(|blocks| *blocks > 100), "on the SSDs alone");
        pool.kill();
        let words = pool.words();
        check(&[&words[0], &words[1]]);
    }
    // The disks bear the marks of the caches, and nothing but their own SSDs makes them whole.
    let [one, two] = pool.words();
    let [disk0, disk1] = ["disk0", "disk1"].map(|name| text(&pool.at(name)).to_owned());
    for words in [vec![disk0.as_str(), &disk1], vec![&disk0, &two], vec![&disk0]] {
        let said = pool.refusal(&words);
        assert!(
            said.contains(&format!("incomplete without: give cache:{}", text(&pool.at("ssd0")))),
            "{said}"
        );
    }
    let said = brindle_fails(1, ["mkfs", "-q", &disk0]);
    assert!(said.contains("disk of the flash cache"), "{said}");
    let swapped = [pool.word("ssd1", "disk0"), pool.word("ssd0", "disk1")];
    let said = pool.refusal(&[&swapped[0], &swapped[1]]);
    assert!(said.contains("the disk of the flash cache pair") && said.contains("is another one"), "{said}");
    let twice = pool.word("ssd0", "disk1");
    let said = pool.refusal(&[&one, &twice]);
    assert!(said.contains("ssd0") && said.contains("in use"), "the same SSD: {said}");
    let same_disk = pool.word("ssd1", "disk0");
    let said = pool.refusal(&[&one, &same_disk]);
    assert!(said.contains("disk0") && said.contains("in use"), "the same disk: {said}");
    // What was opened before the refusal was closed in order, and nothing is lost.
    check(&[&one, &two]);
    pool.mount();
    assert_all(&pool.place(), 2);
    pool.write(2);
    pool.end();
    // Each disk has everything, for brindle and for the kernel.
    check(&[&disk0, &disk1]);
    if is_root("a loop device") {
        let loops = Loops::attach(&[disk0.into(), disk1.into()], &[]);
        if let Some(said) = btrfs_check(&loops.0[0]) {
            said.unwrap_or_else(|said| panic!("{said}"));
        }
        let devices = format!("device={},device={}", text(&loops.0[0]), text(&loops.0[1]));
        let place = pool.place();
        let mut mount = Command::new("mount");
        mount.args(["-t", "btrfs", "-o", &format!("ro,{devices}"), text(&loops.0[0]), text(&place)]);
        assert!(mount.status().expect("mount").success());
        let all = std::panic::catch_unwind(|| assert_all(&place, 3));
        assert!(Command::new("umount").arg(&place).status().expect("umount").success());
        all.expect("the kernel reads all files");
    }
    brindle_succeeds(["cache", "destroy", text(&pool.at("ssd0"))]);
}

#[test]
fn ssd_of_an_earlier_time_is_refused() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    pool.mount();
    pool.write(0);
    pool.kill();
    // One from a crash, one from a clean end.
    fs::copy(pool.at("ssd0"), pool.at("crashed")).expect("room");
    pool.mount();
    pool.end();
    fs::copy(pool.at("ssd0"), pool.at("ended")).expect("room");
    pool.mount();
    pool.write(1);
    pool.kill();
    let two = pool.word("ssd1", "disk1");
    for stale in ["crashed", "ended"] {
        let said = pool.refusal(&[&pool.word(stale, "disk0"), &two]);
        assert!(said.contains("an earlier state of the cache pair0"), "{stale}: {said}");
    }
    pool.mount();
    assert_all(&pool.place(), 2);
    pool.end();
    let said = pool.refusal(&[&pool.word("crashed", "disk0"), &two]);
    assert!(said.contains("was written without the cache"), "{said}");
}

#[test]
fn caches_of_a_mounted_pool_are_shown_and_changed() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    pool.mount();
    pool.write(0);
    let place = pool.place();
    let place = text(&place);
    assert_eq!((pool.numbers("devid"), pool.numbers("blocks").len()), (vec![1, 2], 2));
    let said = brindle_prints(["cache", "stat", place]);
    for line in ["devid 1", "devid 2", "pair0", "pair1", "dirty_blocks"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    brindle_succeeds(["cache", "set", "skip_seq_thresh_kb=32", place]);
    assert_eq!(pool.numbers("skip_seq_write_kb"), [32, 32]);
    let said = brindle_fails(2, ["cache", "set", "dirty_thresh_pct=5", place]);
    assert!(said.contains("from 10 to 95"), "{said}");
    assert!(Command::new("sync").args(["-f", place]).status().expect("coreutils").success());
    brindle_succeeds(["cache", "set", "fallow_delay=0", place]);
    brindle_succeeds(["cache", "set", "do_sync=1", place]);
    let dirty = pool.numbers("dirty_blocks");
    assert!(
        dirty.iter().all(|blocks| (2..200).contains(blocks)),
        "the mark, and what was written since: {dirty:?}"
    );
    assert!(pool.numbers("cleanings").iter().all(|blocks| *blocks > 100));
    let top = brindle_prints(["top", "--json", "-n", "1", "--interval", "0.1", place]);
    let top: serde_json::Value = serde_json::from_str(&top).expect("JSON");
    let caches = top["flash_caches"].as_array().expect("a list");
    assert_eq!(caches.iter().map(|cache| &cache["devid"]).collect::<Vec<_>>(), [1, 2]);
    for cache in caches {
        let of = |name: &str| cache[name].as_u64().expect("a number");
        assert!(of("dirty_bytes") <= of("used_bytes"), "{cache}");
        assert!((1..of("capacity_bytes")).contains(&of("used_bytes")), "{cache}");
    }
    let said = brindle_prints(["top", "-n", "1", "--interval", "0.1", place]);
    assert!(said.contains("\ncache 1     hits ") && said.contains("\ncache 2     hits "), "{said}");
    for ssd in ["ssd0", "ssd1"] {
        let said = brindle_fails(1, ["cache", "destroy", "--force", text(&pool.at(ssd))]);
        assert!(said.contains("in use"), "{said}");
    }
    let said = brindle_fails(1, ["cache", "destroy", "--force", text(&pool.at("disk0"))]);
    assert!(said.contains("in use"), "{said}");
    assert_all(&pool.place(), 1);
    pool.end();
    check(&[text(&pool.at("disk0")), text(&pool.at("disk1"))]);
}

#[test]
fn pool_takes_what_a_cached_disk_has_become_larger_by() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    pool.mount();
    pool.write(0);
    let place = pool.place();
    let disk = File::options().write(true).open(pool.at("disk0")).expect("ours");
    disk.set_len(DISK_BYTES + (256 << 20)).expect("sparse");
    brindle_succeeds(["cache", "grow", text(&place)]);
    assert_eq!(pool.numbers("disk_bytes"), [DISK_BYTES + (256 << 20), DISK_BYTES]);
    brindle_succeeds(["filesystem", "resize", "1:max", text(&place)]);
    pool.write(1);
    pool.end();
    let [disk0, disk1] = ["disk0", "disk1"].map(|name| text(&pool.at(name)).to_owned());
    check(&[&disk0, &disk1]);
    let said = brindle_prints(["inspect", "dump-super", &disk0]);
    let found = said.lines().find(|line| line.starts_with("dev_item.total_bytes")).expect("a field");
    assert!(found.ends_with(&(DISK_BYTES + (256 << 20)).to_string()), "{found}");
}

#[test]
fn destroyed_cache_tells_its_losses_and_the_mirror_has_all() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    pool.mount();
    pool.write(0);
    pool.kill();
    let [ssd, disk] = ["ssd0", "disk0"].map(|name| text(&pool.at(name)).to_owned());
    let said = brindle_fails(1, ["cache", "destroy", &ssd]);
    assert!(said.contains("dirty blocks are not on the disk yet"), "{said}");
    let said = brindle_fails(1, ["cache", "destroy", &disk]);
    assert!(said.contains("is the disk of the cache pair0"), "{said}");
    let said = brindle_fails(1, ["cache", "destroy", "--force", &disk]);
    assert!(said.contains(&format!("needs the blocks that {ssd} has")), "{said}");
    let said = brindle_fails(1, ["cache", "create", "-f", "-p", "back", "new", &ssd, &disk]);
    assert!(said.contains("is the disk of the flash cache pair0"), "{said}");
    let told = |words: &[&str]| {
        let output = brindle(words);
        assert!(output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = told(&["cache", "destroy", "--force", &ssd]);
    assert!(said.contains(&format!("bytes that {disk} lacks are lost")) && said.contains("mark"), "{said}");
    let said = told(&["cache", "destroy", "--force", &disk]);
    assert!(said.contains("the first 4 KiB"), "{said}");
    // The other half of the mirror has everything.
    let two = pool.word("ssd1", "disk1");
    let place = pool.place();
    brindle_succeeds(["-q", "mount", "-o", "degraded", &two, text(&place)]);
    assert_all(&place, 1);
    unmount(&place);
}

#[test]
fn disk_of_a_cache_may_be_an_export() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let (ssd, disk) = (image(scratch.path(), "ssd", SSD_BYTES), image(scratch.path(), "disk", DISK_BYTES));
    let (socket, place) = (scratch.path().join("socket"), scratch.path().join("place"));
    fs::create_dir(&place).expect("new");
    let server = Exported::at(&socket, &[text(&disk)]);
    brindle_succeeds(["cache", "create", "-p", "back", "far", text(&ssd), &server.uri]);
    let word = format!("cache:{}:{}", text(&ssd), server.uri);
    brindle_succeeds(["mkfs", "-q", &word]);
    brindle_succeeds(["-q", "mount", &word, text(&place)]);
    fs::write(place.join("file"), [7; 100_000]).expect("room");
    // The server is killed, and has the mark still when it is back.
    drop(server);
    let server = Exported::at(&socket, &[text(&disk)]);
    File::open(place.join("file")).and_then(|file| file.sync_all()).expect("durable");
    unmount(&place);
    assert!(brindle_prints(["ls", &word]).contains("file"));
    drop(server);
    check(&[text(&disk)]);
}

#[test]
fn unmount_fails_if_blocks_do_not_get_from_an_ssd_to_its_disk() {
    if !can_mount() {
        return;
    }
    let mut pool = Pool::make();
    pool.mount();
    pool.write(0);
    File::options().write(true).open(pool.at("ssd0")).and_then(|ssd| ssd.set_len(0)).expect("ours");
    let said = brindle_fails(1, ["umount", text(&pool.place())]);
    assert!(said.contains(&format!("bytes wait on {} for", text(&pool.at("ssd0")))), "{said}");
    assert_eq!(pool.server.take().expect("it was mounted").wait().expect("our child").code(), Some(1));
}
