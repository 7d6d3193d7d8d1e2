//! `status`: of devices, of a mount, and of one of the kernel, with exit codes.

use super::mount::{can_mount, unmount};
use super::scrub::kill_server;
use super::support::{brindle_prints, is_root, text};
use super::tier::host::{TierPool, can_mount as kernel_can_mount, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Two disks in raid1 and one SSD, as images, and a mount point.
pub(super) struct Mixed {
    directory: tempfile::TempDir,
    pub(super) images: Vec<PathBuf>,
}

impl Mixed {
    /// A pool with files of two sizes in it.
    pub(super) fn make() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let images: Vec<PathBuf> = ["disk1", "disk2", "ssd"]
            .iter()
            .map(|name| directory.path().join(format!("{name}.img")))
            .collect();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("docs")).expect("new");
        fs::create_dir(directory.path().join("place")).expect("new");
        fs::write(tree.join("docs/small"), [1; 20_000]).expect("room");
        fs::write(tree.join("large"), vec![2; 9_000_000]).expect("room");
        let fast = format!("{}:fast", text(&images[2]));
        let words = ["-q", "mkfs", "-L", "tank", "--size", "512M", "-d", "raid1", "-m", "raid1", "--rootdir"];
        let operands = [text(&tree), text(&images[0]), text(&images[1]), &fast];
        brindle_prints(words.iter().chain(&operands));
        Self { directory, images }
    }

    pub(super) fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    /// The binary with these words and paths; records of scrubs are beside the images.
    pub(super) fn brindle(&self, words: &[&str], operands: &[PathBuf]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.env("BRINDLE_STATE_DIR", self.directory.path().join("state")).env_remove("BRINDLE_LOG");
        command.arg("-q").args(words).args(operands).output().expect("it was built")
    }

    pub(super) fn mount(&self) {
        let operands: Vec<PathBuf> = self.images.iter().cloned().chain([self.place()]).collect();
        let output = self.brindle(&["mount"], &operands);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Exit code, the only pool, and the line.
    fn status(&self, operands: &[PathBuf]) -> (Option<i32>, Value, String) {
        let output = self.brindle(&["status", "--json"], operands);
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (&document["__header"]["version"], document["pools"].as_array().map(Vec::len)),
            (&"1".into(), Some(1))
        );
        let line = self.brindle(&["status"], operands);
        assert_eq!(line.status.code(), output.status.code());
        let line = String::from_utf8(line.stdout).expect("text");
        assert_eq!(line.lines().count(), 1, "one line a pool: {line}");
        (output.status.code(), document["pools"][0].clone(), line)
    }
}

/// Names of findings.
fn names(pool: &Value) -> Vec<&str> {
    let findings = pool["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["name"].as_str().expect("a name")).collect()
}

#[test]
fn a_mount_without_one_of_its_devices_is_degraded() {
    if !can_mount() {
        return;
    }
    let mixed = Mixed::make();
    let left = [mixed.images[0].clone(), mixed.images[2].clone(), mixed.place()];
    let output = mixed.brindle(&["mount", "-o", "degraded"], &left);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (code, pool, line) = mixed.status(&[mixed.place()]);
    unmount(&mixed.place());
    assert_eq!((code, &pool["state"]), (Some(3), &"degraded".into()), "{pool}");
    assert!(line.contains(" is missing"), "{line}");
}

#[test]
fn devices_are_judged_by_state_and_exit_code() {
    let pool = Mixed::make();
    let (code, found, line) = pool.status(&pool.images);
    assert_eq!((code, &found["state"], &found["server"]), (Some(0), &"ok".into(), &"none".into()), "{found}");
    assert!(line.starts_with("tank  ok  not mounted  data "), "{line}");
    assert_eq!(found["devices"][0]["class"], "fast");
    // A scrub is remembered.
    assert_eq!(names(&found), ["never_scrubbed"]);
    assert!(pool.brindle(&["scrub", "start"], &pool.images).status.success());
    assert_eq!(names(&pool.status(&pool.images).1), ["scrubbed"]);
    // Ids count from the SSD.
    let (code, found, line) = pool.status(&pool.images[1..]);
    assert_eq!((code, &found["state"]), (Some(3), &"degraded".into()), "{found}");
    assert_eq!(names(&found)[0], "device_missing");
    assert!(line.contains(" is missing"), "{line}");
    let verbose = pool.brindle(&["status"], &pool.images[1..]);
    assert!(!String::from_utf8_lossy(&verbose.stdout).contains("brindle device replace start 2"));
    let verbose = || {
        let mut verbose = Command::new(env!("CARGO_BIN_EXE_brindle"));
        let verbose = verbose.args(["status", "-v"]).args(&pool.images[1..]).output().expect("it was built");
        String::from_utf8_lossy(&verbose.stdout).into_owned()
    };
    let here = format!("name all devices of the pool: {} as well", text(&pool.images[0]));
    assert!(verbose().contains(&here), "{}", verbose());
    let elsewhere = pool.place().join("disk1.img");
    fs::rename(&pool.images[0], &elsewhere).expect("the same filesystem");
    assert!(verbose().contains("brindle device replace start 2"), "{}", verbose());
    fs::rename(&elsewhere, &pool.images[0]).expect("the same filesystem");
    let (code, found, _) = pool.status(&pool.images[..1]);
    assert_eq!((code, &found["state"]), (Some(3), &"down".into()), "{found}");
    assert_eq!(pool.brindle(&["status"], &[pool.place()]).status.code(), Some(1), "not mounted there");
    let file = pool.place().join("no pool");
    fs::write(&file, [0; 1 << 20]).expect("room");
    let refused = pool.brindle(&["status"], &[file]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no superblock"), "{refused:?}");
}

#[test]
fn a_mount_tells_of_jobs_errors_and_the_end_of_its_server() {
    if !can_mount() {
        return;
    }
    let pool = Mixed::make();
    pool.mount();
    let (code, found, line) = pool.status(&[pool.place()]);
    assert_eq!(
        (code, &found["state"], &found["server"]),
        (Some(0), &"ok".into(), &"brindle".into()),
        "{found}"
    );
    assert!(line.contains(text(&pool.place())), "{line}");
    // A device of a mounted pool is the mount.
    let (_, by_device, _) = pool.status(&pool.images[..1]);
    assert_eq!(by_device["mountpoints"][0], text(&pool.place()));
    // The same pool is among those that are mounted.
    let all = pool.brindle(&["status", "--json"], &[]);
    let all: Value = serde_json::from_slice(&all.stdout).expect("JSON");
    let is_it = |other: &Value| other["uuid"] == found["uuid"];
    assert_eq!(all["pools"].as_array().expect("a list").iter().filter(|pool| is_it(pool)).count(), 1);
    // At this rate it takes weeks.
    assert!(pool.brindle(&["scrub", "start", "--limit", "1"], &[pool.place()]).status.success());
    let (code, found, line) = pool.status(&[pool.place()]);
    assert_eq!((code, names(&found)), (Some(0), vec!["scrub_runs"]));
    assert!(line.contains("a scrub is running, "), "{line}");
    // Another mount of the same server, as of a second subvolume, ends with it.
    let mut places = vec![pool.place()];
    if is_root("a second mount of a pool") {
        places.push(pool.place().with_file_name("other"));
        fs::create_dir(&places[1]).expect("new");
        let devices = [&pool.images[..], &places[1..]].concat();
        assert!(pool.brindle(&["mount"], &devices).status.success());
    }
    kill_server(&pool.place());
    let all: Vec<&str> = places.iter().map(|place| text(place)).collect();
    for place in &places {
        let (code, found, line) = pool.status(std::slice::from_ref(place));
        assert_eq!((code, &found["state"]), (Some(3), &"down".into()), "{found}");
        assert_eq!(found["mountpoints"], serde_json::json!(all), "{found}");
        let remedy = format!("`umount {}`, then mount the pool again", all.join(" "));
        assert_eq!(found["findings"][0]["remedy"], remedy);
        assert!(line.contains("has ended"), "{line}");
    }
    for place in &places[1..] {
        run("umount", &["--lazy", text(place)]);
    }
    run("umount", &["--lazy", text(&pool.place())]);
    pool.mount();
    let (code, found, _) = pool.status(&[pool.place()]);
    assert_eq!((code, names(&found)), (Some(0), vec!["scrub_stopped"]));
    unmount(&pool.place());
}

#[test]
fn a_mount_of_the_kernel_is_judged_with_and_without_a_device() {
    if !kernel_can_mount() {
        return;
    }
    let mut pool = TierPool::made(2, &["-L", "kernels"]);
    let status = |pool: &TierPool| {
        let output = Command::new(env!("CARGO_BIN_EXE_brindle"))
            .args(["-q", "status", "--json", text(&pool.at())])
            .output();
        let output = output.expect("it was built");
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), document["pools"][0].clone())
    };
    let (code, found) = status(&pool);
    assert_eq!(
        (code, &found["state"], &found["server"]),
        (Some(0), &"ok".into(), &"kernel".into()),
        "{found}"
    );
    assert_eq!(found["label"], "kernels");
    let room = found["data"]["room_bytes"].as_u64().expect("a number");
    assert!((4 << 30..5 << 30).contains(&room), "two disks of 4.5 GiB in raid1: {found}");
    let groups = found["groups"].as_array().expect("a list");
    assert!(
        groups.iter().any(|group| group["content"] == "metadata" && group["profile"] == "raid1"),
        "{found}"
    );
    pool.unmount();
    run("btrfs", &["device", "scan", "--forget", &pool.loops()[1]]);
    run("mount", &["-t", "btrfs", "-o", "degraded", &pool.loops()[0], text(&pool.at())]);
    let (code, found) = status(&pool);
    pool.unmount();
    assert_eq!((code, &found["state"]), (Some(3), &"degraded".into()), "{found}");
    assert_eq!(names(&found)[0], "device_missing");
}

/// Writes zeros over a copy of a superblock.
fn wipe_superblock(image: &PathBuf, offset: u64) {
    let file = fs::File::options().write(true).open(image).expect("an image");
    file.write_all_at(&[0; 4096], offset).expect("room");
}

#[test]
fn bad_copies_of_superblocks_are_told_with_the_command_that_writes_them() {
    let pool = Mixed::make();
    wipe_superblock(&pool.images[0], 64 << 20);
    let (code, found, line) = pool.status(&pool.images);
    assert_eq!((code, &found["state"]), (Some(1), &"errors".into()), "{found}");
    assert_eq!(names(&found)[0], "superblock_bad");
    let disk = text(&pool.images[0]);
    assert!(line.contains(&format!("{disk}: superblock at offset 67108864 is bad")), "{line}");
    let remedy = found["findings"][0]["remedy"].as_str().expect("text").to_owned();
    assert!(remedy.starts_with("`brindle rescue super-recover /"), "{remedy}");
    let metrics = pool.brindle(&["metrics"], &pool.images);
    let metrics = String::from_utf8(metrics.stdout).expect("text");
    let bad = metrics.lines().find(|line| line.starts_with("brindle_pool_bad_superblocks{"));
    assert!(bad.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
    let undo = pool.place().join("undo");
    let mended = pool.brindle(&["rescue", "super-recover", "--yes", "--undo", text(&undo)], &pool.images);
    assert!(mended.status.success(), "{mended:?}");
    assert_eq!(pool.status(&pool.images).0, Some(0));
}

#[test]
fn data_that_a_conversion_has_left_with_one_copy_is_at_risk_until_it_has_two() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    fs::create_dir(directory.path().join("place")).expect("new");
    let images: Vec<PathBuf> = ["a", "b"].iter().map(|name| directory.path().join(name)).collect();
    let words = ["-q", "mkfs", "--size", "512M", "-d", "single", "-m", "raid1"];
    brindle_prints(words.iter().copied().chain(images.iter().map(|image| text(image))));
    let pool = Mixed { directory, images };
    pool.mount();
    // More than a chunk holds in a pool of this size.
    fs::write(pool.place().join("large"), vec![2; 150_000_000]).expect("room");
    unmount(&pool.place());
    assert_eq!(pool.status(&pool.images).0, Some(0), "its profile is single");
    let part = pool.brindle(&["balance", "start", "-dconvert=raid1,limit=1"], &pool.images);
    assert!(part.status.success(), "{part:?}");
    let (code, found, line) = pool.status(&pool.images);
    assert_eq!((code, &found["state"]), (Some(3), &"degraded".into()), "{found}");
    assert_eq!(names(&found)[0], "less_redundant");
    assert!(line.contains("of data are single, with less redundancy than raid1"), "{line}");
    let remedy = found["findings"][0]["remedy"].as_str().expect("text").to_owned();
    assert!(remedy.starts_with("`brindle balance start -dconvert=raid1,soft /"), "{remedy}");
    let metrics = pool.brindle(&["metrics"], &pool.images);
    let metrics = String::from_utf8(metrics.stdout).expect("text");
    let is_it =
        |line: &&str| line.starts_with("brindle_pool_less_redundant_bytes{") && line.contains("\"data\"");
    let less = metrics.lines().find(is_it).expect("a sample");
    assert!(!less.ends_with(" 0"), "{less}");
    let rest = pool.brindle(&["balance", "start", "-dconvert=raid1,soft"], &pool.images);
    assert!(rest.status.success(), "{rest:?}");
    assert_eq!(pool.status(&pool.images).0, Some(0));
}

#[test]
fn a_return_that_was_interrupted_is_told_with_the_command_that_goes_on() {
    let pool = Mixed::make();
    let (_, found, _) = pool.status(&pool.images);
    let (away, others) = (&pool.images[0], &pool.images[1..]);
    let device = found["devices"].as_array().expect("a list").iter().find(|it| it["path"] == text(away));
    let device = device.expect("it is there");
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    let (fsid, uuid) = (word(&found["uuid"]), word(&device["uuid"]));
    // As a crash leaves it that comes right after the begin.
    let mark = format!("brindle: to replace a device\nfsid {fsid}\ndevid {}\nuuid {uuid}\n", device["devid"]);
    let file = fs::File::options().write(true).open(away).expect("an image");
    file.write_all_at(mark.as_bytes(), 128 << 10).expect("room");
    [64 << 10, 64 << 20].iter().for_each(|offset| wipe_superblock(away, *offset));
    for named in [others, &pool.images] {
        let (code, found, line) = pool.status(named);
        assert_eq!((code, &found["state"]), (Some(3), &"degraded".into()), "{found}");
        assert_eq!(names(&found)[..2], ["device_missing", "rejoin_interrupted"]);
        assert!(line.contains(&format!("({}) was begun and has not ended", text(away))), "{line}");
        let remedy = word(&found["findings"][1]["remedy"]);
        let begin = format!("`brindle device rejoin {} -o degraded --pool /", text(away));
        assert!(remedy.starts_with(&begin), "{remedy}");
    }
    let mut operands = vec![away.clone(), "-o".into(), "degraded".into(), "--pool".into()];
    operands.extend(others.iter().cloned());
    let rejoined = pool.brindle(&["device", "rejoin"], &operands);
    assert!(rejoined.status.success(), "{rejoined:?}");
    let (code, found, _) = pool.status(&pool.images);
    assert_eq!((code, &found["state"]), (Some(0), &"ok".into()), "{found}");
}
