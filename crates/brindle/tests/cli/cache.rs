//! `brindle cache`: made, served, changed, stopped, killed; filesystems of the kernel on it.

use super::mount::{can_mount, is_mounted};
use super::support::{brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time of anything here: a test that needs it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A cache of two images, and the directory that it is served in; what is left of it goes when this is dropped.
pub(crate) struct Pair {
    scratch: TempDir,
    pub(crate) device: PathBuf,
}

impl Pair {
    pub(crate) fn new(mode: &str, ssd_mib: u64, disk_mib: u64) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(scratch.path().join("place")).expect("new");
        fs::create_dir(scratch.path().join("files")).expect("new");
        let pair = Self { scratch, device: PathBuf::new() };
        for (name, mib) in [("ssd", ssd_mib), ("disk", disk_mib)] {
            let image = File::create(pair.at(name)).expect("room");
            image.set_len(mib << 20).expect("sparse");
        }
        let words = ["cache", "create", "-v", "-p", mode, "pair"].map(PathBuf::from);
        brindle_succeeds(words.into_iter().chain([pair.at("ssd"), pair.at("disk")]));
        pair
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn load(&mut self, options: &[&str]) {
        let words = ["cache", "load"].iter().chain(options).map(PathBuf::from);
        let said = brindle_prints(words.chain(["ssd", "disk", "place"].map(|name| self.at(name))));
        self.device = PathBuf::from(said.trim_end());
    }

    pub(crate) fn cache(&self, words: &[&str]) -> Vec<PathBuf> {
        ["cache"].iter().chain(words).map(PathBuf::from).chain([self.at("place")]).collect()
    }

    fn number(&self, name: &str) -> u64 {
        let stat: serde_json::Value =
            serde_json::from_str(&brindle_prints(self.cache(&["stat", "--json"]))).expect("JSON");
        stat[name].as_u64().unwrap_or_else(|| panic!("{name} is a number in {stat}"))
    }

    /// Kills the server, and takes away the remains.
    pub(crate) fn kill(&self) {
        let number = i32::try_from(self.number("process")).expect("a process");
        kill_process(Pid::from_raw(number).expect("a process"), Signal::KILL).expect("ours");
        let begin = Instant::now();
        while is_alive(number) {
            assert!(begin.elapsed() < PATIENCE, "the end of the server: not in time");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn clear(&self) {
        let files = self.at("files");
        if is_mounted(&files) {
            run("umount", &[text(&files)]);
        }
        if self.device.starts_with("/dev") {
            run("losetup", &["--detach", text(&self.device)]);
        }
        run("umount", &["-l", text(&self.at("place"))]);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if is_mounted(&self.at("files")) {
            run("umount", &["-l", text(&self.at("files"))]);
        }
        if is_mounted(&self.at("place")) && !brindle(self.cache(&["stop"])).status.success() {
            self.clear();
        }
    }
}

pub(crate) fn is_alive(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Runs a program that may not take for ever; true if it succeeds.
pub(crate) fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &PATIENCE.as_secs().to_string(), program]).args(arguments);
    let output = command.output().expect("coreutils");
    if !output.status.success() {
        println!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

pub(crate) fn write_at(path: &Path, fill: u8, offset: u64) {
    let file = File::options().write(true).open(path).expect("ours");
    file.write_all_at(&[fill; 8192], offset).expect("writes");
    file.sync_all().expect("flushes");
}

pub(crate) fn byte_at(path: &Path, offset: u64) -> u8 {
    let mut bytes = [0; 8192];
    File::open(path).expect("ours").read_exact_at(&mut bytes, offset).expect("reads");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

#[test]
fn cache_that_cannot_be_made_is_refused() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let [ssd, disk] = ["ssd", "disk"].map(|name| scratch.path().join(name));
    for image in [&ssd, &disk] {
        File::create(image).and_then(|image| image.set_len(64 << 20)).expect("room");
    }
    let (ssd, disk) = (text(&ssd), text(&disk));
    let create = |words: &[&str]| -> Vec<String> {
        let all = [&["cache", "create"], words, &["fsdc", ssd, disk]].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    for (code, words, says) in [
        (2, ["-p", "sideways", "-a", "512"], "must be back, thru or around"),
        (2, ["-p", "back", "-b", "4z"], "no size"),
        (2, ["-p", "back", "-m", "4M"], "blocks of 4k"),
        (2, ["-p", "back", "-b", "3k"], "power of two"),
        (2, ["-p", "back", "-a", "500"], "power of two"),
        (1, ["-p", "back", "-s", "1G"], "more than the flash device has"),
        (2, ["-wp", "thru", "-a", "512"], "must be a write-back cache"),
        (2, ["-p", "back", "-d", "100"], "power of two up to 512"),
        (2, ["-p", "back", "-d", "1024"], "power of two up to 512"),
    ] {
        let said = brindle_fails(code, create(&words));
        assert!(said.contains(says), "{words:?}: {said}");
    }
    let said = brindle_fails(2, ["cache", "create", "-p", "back", "", ssd, disk]);
    assert!(said.contains("must have 1 to 64 bytes"), "{said}");
    let said = brindle_fails(1, ["cache", "destroy", ssd]);
    assert!(said.contains("holds no cache"), "{said}");
    brindle_succeeds(create(&["-p", "back"]));
    let said = brindle_fails(1, create(&["-p", "back"]));
    assert!(said.contains("holds the cache fsdc already"), "{said}");
    let image = scratch.path().join("image.qcow2");
    let header =
        File::create(&image).and_then(|image| image.set_len(64 << 20).map(|()| image)).expect("room");
    header.write_all_at(b"QFI\xfb\0\0\0\x03", 0).expect("room");
    for words in [[text(&image), disk], [ssd, text(&image)]] {
        let said = brindle_fails(1, ["cache", "create", "-p", "back", "other"].into_iter().chain(words));
        assert!(said.contains("a qcow2 image"), "{words:?}: {said}");
    }
    brindle_succeeds(create(&["-f", "-p", "back", "-d", "256"]));
    let said = brindle_prints(["cache", "stat", ssd]);
    assert!(said.contains("fsdc") && said.contains("back"), "{said}");
    let said = brindle_fails(2, ["cache", "set", "dirty_thresh_pct=5", "/"]);
    assert!(said.contains("from 10 to 95"), "{said}");
    for (word, why) in
        [("max_pids=50", "no lists of processes"), ("grow=1", "brindle cache grow"), ("do_sync=2", "0 or 1")]
    {
        let said = brindle_fails(2, ["cache", "set", word, "/"]);
        assert!(said.contains(why), "{said}");
    }
    for command in
        [vec!["set", "dirty_thresh_pct=50", "/"], vec!["stat", "/"], vec!["grow", "/"], vec!["stop", "/"]]
    {
        let said = brindle_fails(1, ["cache"].into_iter().chain(command));
        assert!(said.contains("no cache is served there") && said.contains("`brindle cache load`"), "{said}");
    }
}

/// Of an SSD and a disk that are named in the wrong order, the disk is not overwritten.
#[test]
fn an_ssd_that_holds_something_else_is_refused_unless_forced() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let [ssd, disk] = ["ssd", "disk"].map(|name| scratch.path().join(name));
    for image in [&ssd, &disk] {
        File::create(image).and_then(|image| image.set_len(128 << 20)).expect("room");
    }
    let (ssd, disk) = (text(&ssd), text(&disk));
    brindle_succeeds(["mkfs", disk]);
    let create = |words: &[&'static str]| [&["cache", "create", "-p", "back"], words].concat();
    let swapped = brindle_fails(1, create(&["fsdc"]).into_iter().chain([disk, ssd]));
    assert!(swapped.contains("a btrfs filesystem") && swapped.contains("--force"), "{swapped}");
    brindle_succeeds(["check", disk]);
    let twice = brindle_fails(1, create(&["fsdc"]).into_iter().chain([ssd, ssd]));
    assert!(twice.contains("is given twice"), "{twice}");
    brindle_succeeds(create(&["fsdc"]).into_iter().chain([ssd, disk]));
    let of_a_cache = brindle_fails(1, create(&["other"]).into_iter().chain([disk, ssd]));
    assert!(of_a_cache.contains("is the SSD of a cache"), "{of_a_cache}");
    let mirror = brindle_fails(1, ["cache", "mirror", ssd, disk]);
    assert!(mirror.contains("a btrfs filesystem"), "{mirror}");
    brindle_succeeds(["check", disk]);
    brindle_succeeds(["cache", "destroy", ssd]);
    brindle_succeeds(create(&["-f", "fsdc"]).into_iter().chain([disk, ssd]));
}

#[test]
fn cache_is_served_changed_stopped_and_killed() {
    if !can_mount() {
        return;
    }
    let mut pair = Pair::new("back", 16, 64);
    pair.load(&[]);
    assert_eq!(fs::metadata(&pair.device).expect("served").len(), 64 << 20);
    write_at(&pair.device, 7, 1 << 20);
    assert_eq!((byte_at(&pair.device, 1 << 20), byte_at(&pair.at("disk"), 1 << 20)), (7, 0));
    assert_eq!((pair.number("dirty_blocks"), pair.number("writes")), (4, 4), "two of the mark");
    brindle_succeeds(pair.cache(&["set", "skip_seq_thresh_kb=32"]));
    assert_eq!(pair.number("skip_seq_write_kb"), 32);
    let said = brindle_fails(1, ["cache", "destroy", text(&pair.at("ssd"))]);
    assert!(said.contains("in use"), "{said}");
    brindle_succeeds(pair.cache(&["set", "do_sync=1"]));
    assert_eq!((pair.number("dirty_blocks"), byte_at(&pair.at("disk"), 1 << 20)), (2, 7), "the mark stays");
    write_at(&pair.device, 8, 1 << 20);
    pair.kill();
    pair.clear();
    assert_eq!(byte_at(&pair.at("disk"), 1 << 20), 7);
    let said = brindle_fails(1, ["cache", "destroy", text(&pair.at("ssd"))]);
    assert!(said.contains("4 dirty blocks"), "{said}");
    pair.load(&[]);
    assert_eq!((byte_at(&pair.device, 1 << 20), pair.number("dirty_blocks")), (8, 4));
    brindle_succeeds(pair.cache(&["stop"]));
    assert_eq!(byte_at(&pair.at("disk"), 1 << 20), 8);
    brindle_succeeds(["cache", "destroy", text(&pair.at("ssd"))]);
}

#[test]
fn cache_is_loaded_by_its_ssd_and_name_alone() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let name = format!("pair-{}", std::process::id());
    for image in ["ssd", "disk"] {
        File::create(scratch.path().join(image)).and_then(|image| image.set_len(64 << 20)).expect("room");
    }
    let run_here = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        let output =
            command.args(words).current_dir(&scratch).env("XDG_RUNTIME_DIR", scratch.path()).output();
        let output = output.expect("the binary was built");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).expect("text"))
    };
    // The SSD keeps the whole path of the disk.
    assert!(run_here(&["cache", "create", "-p", "back", &name, "ssd", "disk"]).0);
    let (is_fine, said) = run_here(&["cache", "load", "ssd", "other"]);
    assert!(!is_fine && said.contains(&format!("holds the cache {name}, not other")), "{said}");
    for words in [&["cache", "load", "ssd", &name][..], &["cache", "load", "ssd"]] {
        let (is_fine, said) = run_here(words);
        assert!(is_fine, "{said}");
        let device = PathBuf::from(said.trim_end());
        assert!(device.ends_with(format!("brindle/cache/{name}/disk")), "{said}");
        write_at(&device, 5, 1 << 20);
        let place = device.parent().expect("a directory");
        let (is_fine, said) = run_here(&["cache", "stop", text(place)]);
        assert!(is_fine, "{said}");
        fs::remove_dir(place).expect("empty");
    }
    assert_eq!(byte_at(&scratch.path().join("disk"), 1 << 20), 5);
}

/// The kernel's btrfs with verified files, while the server of the cache is killed under load.
#[test]
fn btrfs_of_the_kernel_on_a_cache_is_whole_after_its_server_is_killed_under_load() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let mut pair = Pair::new("back", 64, 600);
    pair.load(&["--attach"]);
    let files = pair.at("files");
    let device = |pair: &Pair| text(&pair.device).to_owned();
    assert!(run("mkfs.btrfs", &["-q", "-f", &device(&pair)]));
    let fio = |name: &str, more: &[&str]| {
        let file = format!("--filename={}", text(&files.join(name)));
        let words = [
            "--name=load",
            &file,
            "--rw=randwrite",
            "--bs=4k-64k",
            "--size=24m",
            "--verify=crc32c",
            "--verify_state_save=0",
        ];
        let mut command = Command::new("fio");
        command.args(words).args(["--thread", "--randseed=7", "--output-format=terse"]).args(more);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    };
    for round in 0..2 {
        assert!(run("mount", &[&device(&pair), text(&files)]), "round {round}");
        let durable = format!("durable{round}");
        let written = fio(&durable, &["--do_verify=0", "--end_fsync=1"]).status().expect("fio");
        assert!(written.success());
        let mut load = fio("load", &["--time_based", "--runtime=600", "--fsync=8"]).spawn().expect("fio");
        let writes = pair.number("writes");
        let begin = Instant::now();
        while pair.number("writes") < writes + 2000 {
            assert!(begin.elapsed() < PATIENCE, "the load: not in time");
            std::thread::sleep(Duration::from_millis(10));
        }
        pair.kill();
        load.kill().expect("ours");
        load.wait().expect("ended");
        pair.clear();
        pair.load(&["--attach"]);
    }
    assert!(run("mount", &[&device(&pair), text(&files)]));
    for round in 0..2 {
        let durable = format!("durable{round}");
        assert!(fio(&durable, &["--verify_only=1"]).status().expect("fio").success(), "round {round}");
    }
    assert!(run("btrfs", &["scrub", "start", "-B", text(&files)]));
    assert!(run("umount", &[text(&files)]));
    assert!(run("btrfs", &["check", "--check-data-csum", &device(&pair)]));
    brindle_succeeds(pair.cache(&["stop"]));
}

#[test]
fn filesystems_on_a_cache_survive_the_death_of_its_server() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    for (make, check) in [("mkfs.ext4 -q -F", "e2fsck -f -n"), ("mkfs.xfs -q -f", "xfs_repair -n")] {
        let mut pair = Pair::new("back", 48, 400);
        pair.load(&["--attach"]);
        let files = pair.at("files");
        let on_device = |words: &str, pair: &Pair| {
            let words: Vec<&str> = words.split(' ').chain([text(&pair.device)]).collect();
            run(words[0], &words[1..])
        };
        assert!(on_device(make, &pair), "{make}");
        for round in 0..3_u8 {
            assert!(run("mount", &[text(&pair.device), text(&files)]), "{make}, round {round}");
            for number in 0..round * 20 {
                let contents = fs::read(files.join(format!("file{number}"))).expect("it was made durable");
                assert!(contents.len() == 100_000 && contents.iter().all(|byte| *byte == number), "{make}");
            }
            for number in round * 20..(round + 1) * 20 {
                let mut file = File::create(files.join(format!("file{number}"))).expect("room");
                file.write_all(&[number; 100_000]).expect("room");
                file.sync_all().expect("flushes");
            }
            fs::write(files.join("unsynced"), [round; 300_000]).expect("room");
            File::open(&files).and_then(|directory| directory.sync_all()).expect("flushes");
            pair.kill();
            pair.clear();
            pair.load(&["--attach"]);
        }
        assert!(run("mount", &[text(&pair.device), text(&files)]), "the log is replayed");
        let said = brindle_fails(1, pair.cache(&["stop"]));
        assert!(said.contains(&format!("is mounted on {}; unmount it first", files.display())), "{said}");
        assert!(run("umount", &[text(&files)]));
        assert!(on_device(check, &pair), "{check}");
        brindle_succeeds(pair.cache(&["stop"]));
    }
}

#[test]
fn cache_that_can_clean_nothing_is_stopped_by_force() {
    if !can_mount() {
        return;
    }
    let pair = Pair::new("back", 8, 64);
    let flash = pair.at("flash");
    fs::create_dir(&flash).expect("new");
    brindle_succeeds(["lab", "disk", "--size", "8M", "ssd-plp", text(&flash)]);
    let (ssd, disk, place) = (flash.join("disk"), pair.at("disk"), pair.at("place"));
    brindle_succeeds(["cache", "create", "-f", "-p", "back", "pair", text(&ssd), text(&disk)]);
    let load = ["cache", "load", text(&ssd), text(&disk), text(&place)];
    brindle_succeeds(load);
    let file = File::options().write(true).open(place.join("disk")).expect("it is served");
    file.write_all_at(&[7; 4096], 1 << 20).expect("it works");
    file.sync_all().expect("it works");
    file.write_all_at(&[8; 4096], 2 << 20).expect("it works");
    brindle_succeeds(["lab", "cut", "--mode", "lost", text(&flash)]);
    file.sync_all().expect_err("the SSD has no power");
    drop(file);
    let said = brindle_fails(1, ["cache", "stop", text(&place)]);
    assert!(said.contains("cannot clean the cache; with --force"), "{said}");
    brindle_succeeds(["cache", "stop", "--force", text(&place)]);
    brindle_succeeds(["lab", "restore", text(&flash)]);
    brindle_succeeds(load);
    let mut found = [0; 4096];
    File::open(place.join("disk"))
        .expect("it is served")
        .read_exact_at(&mut found, 1 << 20)
        .expect("it works");
    assert_eq!(found, [7; 4096]);
    brindle_succeeds(["cache", "stop", text(&place)]);
    brindle_succeeds(["lab", "stop", text(&flash)]);
}

#[test]
fn disk_that_grows_is_shown_at_its_new_size() {
    if !can_mount() {
        return;
    }
    let mut pair = Pair::new("back", 16, 64);
    let is_attached = is_root("a loop device");
    pair.load(if is_attached { &["--attach"] } else { &[] });
    let size = |pair: &Pair| {
        let mut device = File::open(&pair.device).expect("served");
        device.seek(SeekFrom::End(0)).expect("it has an end")
    };
    assert_eq!(size(&pair), 64 << 20);
    File::options()
        .write(true)
        .open(pair.at("disk"))
        .and_then(|disk| disk.set_len(96 << 20))
        .expect("sparse");
    assert_eq!((size(&pair), pair.number("disk_bytes")), (64 << 20, 64 << 20), "not yet");
    brindle_succeeds(pair.cache(&["grow"]));
    assert_eq!((size(&pair), pair.number("disk_bytes")), (96 << 20, 96 << 20));
    write_at(&pair.device, 7, 80 << 20);
    pair.kill();
    pair.clear();
    pair.load(&[]);
    assert_eq!((size(&pair), byte_at(&pair.device, 80 << 20)), (96 << 20, 7));
    File::options()
        .write(true)
        .open(pair.at("disk"))
        .and_then(|disk| disk.set_len(90 << 20))
        .expect("sparse");
    let said = brindle_fails(1, pair.cache(&["grow"]));
    assert!(said.contains("cannot grow the cache"), "{said}");
    File::options()
        .write(true)
        .open(pair.at("disk"))
        .and_then(|disk| disk.set_len(96 << 20))
        .expect("sparse");
    brindle_succeeds(pair.cache(&["grow"]));
    brindle_succeeds(pair.cache(&["stop"]));
    assert_eq!(byte_at(&pair.at("disk"), 80 << 20), 7);
}
