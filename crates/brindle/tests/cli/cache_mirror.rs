//! Caches on two SSDs: one is lost, comes back, is replaced.

use super::cache::{PATIENCE, byte_at, is_alive, run, write_at};
use super::mount::{can_mount, is_mounted, unmount};
use super::support::{brindle, brindle_fails, brindle_prints, brindle_succeeds, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Images of two SSDs and a disk with a cache, and a directory.
struct Mirrored {
    scratch: TempDir,
}

impl Mirrored {
    fn new() -> Self {
        let mirrored = Self { scratch: tempfile::tempdir().expect("temporary directory") };
        fs::create_dir(mirrored.path("place")).expect("new");
        for (name, mib) in [("ssd0", 16), ("ssd1", 16), ("new", 16), ("disk", 256)] {
            File::create(mirrored.path(name)).and_then(|image| image.set_len(mib << 20)).expect("sparse");
        }
        let [ssd0, ssd1, disk] = ["ssd0", "ssd1", "disk"].map(|name| mirrored.at(name));
        brindle_succeeds(["cache", "create", "-p", "back", "--mirror", &ssd1, "pair", &ssd0, &disk]);
        mirrored
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }

    fn load_words(&self, ssd: &str, mirror: Option<&str>) -> Vec<String> {
        let option = mirror.map(|mirror| ["--mirror".to_owned(), self.at(mirror)]);
        let words = ["cache", "load"].map(str::to_owned).into_iter().chain(option.into_iter().flatten());
        words.chain([ssd, "disk", "place"].map(|name| self.at(name))).collect()
    }

    /// Serves the cache; path of the device.
    fn load(&self, ssd: &str, mirror: Option<&str>) -> PathBuf {
        PathBuf::from(brindle_prints(self.load_words(ssd, mirror)).trim_end())
    }

    fn stat(&self) -> serde_json::Value {
        let said = brindle_prints(["cache", "stat", "--json", &self.at("place")]);
        serde_json::from_str(&said).expect("JSON")
    }

    fn mirror(&self) -> String {
        self.stat()["mirror"].as_str().expect("a cache on two SSDs").to_owned()
    }

    /// Kills the server, and takes away the remains.
    fn kill(&self) {
        let number = self.stat()["process"].as_i64().and_then(|number| i32::try_from(number).ok());
        let number = number.expect("a process");
        kill_process(Pid::from_raw(number).expect("a process"), Signal::KILL).expect("ours");
        let begin = Instant::now();
        while is_alive(number) {
            assert!(begin.elapsed() < PATIENCE, "the end of the server: not in time");
            std::thread::sleep(Duration::from_millis(10));
        }
        run("umount", &["-l", &self.at("place")]);
    }

    fn stop(&self) {
        brindle_succeeds(["cache", "stop", &self.at("place")]);
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        if is_mounted(&self.path("place")) && !brindle(["cache", "stop", &self.at("place")]).status.success()
        {
            run("umount", &["-l", &self.at("place")]);
        }
    }
}

#[test]
fn mirror_that_cannot_be_is_refused() {
    let mirrored = Mirrored::new();
    let [ssd0, ssd1, new, disk] = ["ssd0", "ssd1", "new", "disk"].map(|name| mirrored.at(name));
    let said = brindle_fails(2, ["cache", "create", "-p", "thru", "--mirror", &new, "other", &ssd0, &disk]);
    assert!(said.contains("must be a write-back cache"), "{said}");
    for (words, says) in [
        (vec!["create", "-p", "back", "--mirror", &ssd1, "other", &new, &disk], "has the cache pair on"),
        (vec!["create", "-p", "back", "--mirror", &new, "other", &new, &disk], "is given twice"),
        (vec!["mirror", &ssd0, &ssd0], "is given twice"),
        (vec!["mirror", &ssd0, &ssd1], "holds the cache pair already"),
        (vec!["mirror", &new, &ssd1], "holds no cache"),
    ] {
        let said = brindle_fails(1, ["cache"].into_iter().chain(words.iter().copied()));
        assert!(said.contains(says), "{words:?}: {said}");
    }
    let said = brindle_prints(["cache", "stat", &ssd1]);
    assert!(said.contains("mirror") && said.contains("in sync"), "{said}");
}

#[test]
fn ssd_that_is_lost_and_comes_back_is_stale_until_it_is_brought_up_to_date() {
    if !can_mount() {
        return;
    }
    let mirrored = Mirrored::new();
    let device = mirrored.load("ssd0", Some("ssd1"));
    write_at(&device, 7, 1 << 20);
    assert_eq!(mirrored.mirror(), "in sync");
    mirrored.kill();
    // The first one is away.
    fs::rename(mirrored.path("ssd0"), mirrored.path("away")).expect("ours");
    let device = mirrored.load("ssd0", Some("ssd1"));
    assert_eq!((byte_at(&device, 1 << 20), mirrored.mirror()), (7, "degraded: one SSD is away".to_owned()));
    write_at(&device, 8, 1 << 20);
    mirrored.kill();
    fs::rename(mirrored.path("away"), mirrored.path("ssd0")).expect("ours");
    let said = brindle_fails(1, mirrored.load_words("ssd0", None));
    assert!(said.contains("an earlier state of the cache pair"), "{said}");
    assert!(brindle_prints(["cache", "stat", &mirrored.at("ssd1")]).contains("alone"));
    let device = mirrored.load("ssd0", Some("ssd1"));
    assert_eq!((byte_at(&device, 1 << 20), mirrored.mirror()), (8, "in sync".to_owned()));
    mirrored.kill();
    // The other one is lost for good, and replaced.
    fs::remove_file(mirrored.path("ssd1")).expect("ours");
    brindle_succeeds(["cache", "mirror", &mirrored.at("ssd0"), &mirrored.at("new")]);
    let said = brindle_fails(1, mirrored.load_words("new", None));
    assert!(said.contains("being brought up to date"), "{said}");
    let device = mirrored.load("new", Some("ssd0"));
    assert_eq!((byte_at(&device, 1 << 20), mirrored.mirror()), (8, "in sync".to_owned()));
    mirrored.stop();
    assert_eq!(byte_at(&mirrored.path("disk"), 1 << 20), 8);
    for half in ["ssd0", "new"] {
        mirrored.load(half, None);
        mirrored.stop();
    }
    let said = brindle_fails(1, mirrored.load_words("ssd0", Some("new")));
    assert!(said.contains("were each used without the other"), "{said}");
    brindle_succeeds(["cache", "mirror", "--force", &mirrored.at("ssd0"), &mirrored.at("new")]);
    mirrored.load("ssd0", Some("new"));
    mirrored.stop();
}

#[test]
fn pool_on_a_mirrored_cache_survives_the_loss_of_an_ssd() {
    if !can_mount() {
        return;
    }
    let mirrored = Mirrored::new();
    let [disk, place] = ["disk", "place"].map(|name| mirrored.at(name));
    let word = format!("cache:{}+{}:{disk}", mirrored.at("ssd0"), mirrored.at("ssd1"));
    brindle_succeeds(["mkfs", "-q", &word]);
    brindle_succeeds(["-q", "mount", &word, &place]);
    let mut file = File::create(mirrored.path("place").join("file")).expect("room");
    file.write_all(&[7; 300_000]).and_then(|()| file.sync_all()).expect("durable");
    drop(file);
    let said = brindle_prints(["cache", "stat", &place]);
    assert!(said.contains("in sync"), "{said}");
    unmount(&mirrored.path("place"));
    fs::remove_file(mirrored.path("ssd1")).expect("ours");
    assert!(brindle_prints(["-q", "ls", &word]).contains("file"));
    brindle_succeeds(["-q", "mount", &word, &place]);
    let status = brindle(["status", &place]);
    unmount(&mirrored.path("place"));
    let said = String::from_utf8_lossy(&status.stdout);
    assert_eq!(status.status.code(), Some(3), "{said}");
    assert!(
        said.contains("degraded") && said.contains("the cache of devid 1 is degraded: one SSD is away"),
        "{said}"
    );
    brindle_succeeds(["check", "--check-data-csum", &word]);
    brindle_succeeds(["check", "--check-data-csum", &disk]);
}

#[test]
fn ssd_of_a_mirror_that_is_destroyed_leaves_everything_on_the_other_one() {
    if !can_mount() {
        return;
    }
    let mirrored = Mirrored::new();
    let device = mirrored.load("ssd0", Some("ssd1"));
    write_at(&device, 7, 1 << 20);
    mirrored.kill();
    let [ssd0, ssd1, disk] = ["ssd0", "ssd1", "disk"].map(|name| mirrored.at(name));
    let said = brindle_fails(1, ["cache", "destroy", "--force", &disk]);
    assert!(said.contains(&format!("{ssd0} and {ssd1} have")), "{said}");
    let output = brindle(["cache", "destroy", "--force", &ssd0]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("the cache goes on with {ssd1}")), "{said}");
    assert!(!said.contains("lost") && !said.contains("--force"), "{said}");
    let said = brindle_fails(1, ["cache", "destroy", "--force", &disk]);
    assert!(said.contains(&format!("{ssd1} has")), "{said}");
    let device = mirrored.load("ssd1", None);
    assert_eq!(byte_at(&device, 1 << 20), 7);
    mirrored.stop();
}
