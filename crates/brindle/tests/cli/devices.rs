//! `device add`, `device remove` and `filesystem resize`: offline, on a mount, and on one of the kernel.

use super::cache::{PATIENCE, is_alive};
use super::mount::{can_mount, unmount};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, is_root, moments, number, text};
use super::tier::host::{TierPool, can_mount as kernel_can_mount, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Images of a pool, and one that is empty.
struct Pool {
    directory: tempfile::TempDir,
    /// The last one is not of the pool.
    images: Vec<PathBuf>,
}

impl Pool {
    fn make(members: usize, profile: &str) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let images: Vec<PathBuf> =
            (0..=members).map(|number| directory.path().join(format!("{number}.img"))).collect();
        std::fs::create_dir(directory.path().join("place")).expect("new");
        let mut words = vec!["-q", "mkfs", "--size", "512M", "-d", profile, "-m", profile];
        words.extend(images[..members].iter().map(|image| text(image)));
        assert_eq!(brindle_prints(words), "", "it is to be quiet");
        let spare = std::fs::File::create(&images[members]).expect("room");
        spare.set_len(512 << 20).expect("sparse");
        Self { directory, images }
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    fn image(&self, number: usize) -> &str {
        text(&self.images[number])
    }

    fn mount(&self, numbers: &[usize]) {
        let place = self.place();
        let mut words = vec!["-q", "mount"];
        words.extend(numbers.iter().map(|number| self.image(*number)));
        words.push(text(&place));
        brindle_prints(words);
    }

    fn check(&self, numbers: &[usize]) {
        let mut words = vec!["-q", "check", "--check-data-csum"];
        words.extend(numbers.iter().map(|number| self.image(*number)));
        brindle_prints(words);
    }

    /// Ids and sizes, by the superblocks.
    fn members(&self, numbers: &[usize]) -> Vec<(u64, u64)> {
        let mut words = vec!["-q", "filesystem", "show", "--json"];
        words.extend(numbers.iter().map(|number| self.image(*number)));
        let shown: Value = serde_json::from_str(&brindle_prints(words)).expect("JSON");
        let devices = find(&shown, "devices").and_then(Value::as_array).expect("devices");
        let number = |device: &Value, name: &str| device[name].as_u64().expect("a number");
        let mut found: Vec<(u64, u64)> =
            devices.iter().map(|device| (number(device, "devid"), number(device, "total_bytes"))).collect();
        found.sort_unstable();
        found
    }
}

/// The first value of this name, wherever it is.
fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => map.get(name).or_else(|| map.values().find_map(|value| find(value, name))),
        Value::Array(array) => array.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn a_device_of_no_pool_is_named_beside_those_of_one() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    let place = pool.place();
    let blank = format!("{}: not a btrfs device", pool.image(2));
    let said = brindle_fails(1, ["mount", pool.image(0), pool.image(2), text(&place)]);
    assert!(said.contains("missing devid 2") && said.contains(&blank), "{said}");
    let output = brindle(["mount", pool.image(0), pool.image(1), pool.image(2), text(&place)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("{blank} (no superblock magic")), "{said}");
    unmount(&place);
}

#[test]
fn refusals_of_a_read_only_mount_give_its_reason() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    let place = pool.place();
    brindle_prints(["-q", "mount", "-o", "degraded", pool.image(0), text(&place)]);
    std::fs::write(place.join("file"), "x").expect("room");
    unmount(&place);
    pool.mount(&[0, 1]);
    let said = brindle_fails(1, ["device", "add", pool.image(2), text(&place)]);
    let why = format!("read-only: cannot be written: {} (devid 2) is stale", pool.image(1));
    assert!(said.contains(&why), "{said}");
    assert!(brindle_prints(["property", "get", text(&place)]).contains("read_policy="));
    unmount(&place);
}

#[test]
fn devices_of_an_unmounted_pool_join_leave_and_change_their_size() {
    let pool = Pool::make(2, "raid1");
    let [first, second, third] = [0, 1, 2].map(|number| pool.image(number));
    let said = brindle_fails(1, ["device", "remove", "1", "--pool", first, second]);
    assert!(said.contains("raid1 needs at least 2 devices, and 1 would be left"), "{said}");
    let fast = format!("{third}:fast");
    let said = brindle_prints(["-q", "device", "add", &fast, "--pool", first, second]);
    assert_eq!(said, format!("Added: {third} is devid 3.\n"));
    let again = brindle_fails(1, ["device", "add", third, "--pool", first, second, third]);
    assert!(again.contains("is a device of this pool, devid 3"), "{again}");
    pool.check(&[0, 1, 2]);
    let hint = brindle_prints(["property", "get", third, "allocation_hint"]);
    assert!(hint.contains("METADATA_PREFERRED"), "{hint}");
    let said = brindle_prints(["-q", "device", "remove", "--json", first, "--pool", first, second, third]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&said["changes"][0]["state"], &said["changes"][0]["devid"]), (&"done".into(), &1.into()));
    assert!(said["changes"][0]["done"].as_u64() > Some(0), "{said}");
    pool.check(&[1, 2]);
    let said = brindle_fails(1, ["ls", first]);
    assert!(said.contains("not a btrfs device"), "{said}");
    let said = brindle_prints(["-q", "filesystem", "resize", "3:-100M", second, third]);
    assert!(said.starts_with("Resized: devid 3"), "{said}");
    pool.check(&[1, 2]);
    assert_eq!(pool.members(&[1, 2]), [(2, 512 * MIB), (3, 412 * MIB)]);
    let said = brindle_fails(1, ["filesystem", "resize", "3:+1G", second, third]);
    assert!(said.contains("has only 512 MiB"), "{said}");
    brindle_prints(["-q", "filesystem", "resize", "3:max", second, third]);
    assert_eq!(pool.members(&[1, 2]), [(2, 512 * MIB), (3, 512 * MIB)]);
}

/// Names of the classes of devices 1 to 3.
fn class_names(pool: &[&str]) -> [String; 3] {
    let words = [&["tier", "class", "list", "--json"], pool].concat();
    let listed: Value = serde_json::from_str(&brindle_prints(words)).expect("JSON");
    let classes = listed["classes"].as_array().expect("a list");
    [1, 2, 3].map(|devid| {
        let has =
            |class: &&Value| class["devids"].as_array().is_some_and(|devids| devids.contains(&devid.into()));
        let class = classes.iter().find(has).unwrap_or_else(|| panic!("no class of devid {devid}: {listed}"));
        class["name"].as_str().expect("a name").to_owned()
    })
}

#[test]
fn a_device_joins_a_class_that_the_pool_lists() {
    let pool = Pool::make(2, "single");
    let images = [0, 1, 2].map(|number| pool.image(number));
    let [first, second, third] = images;
    let named = format!("{third}:smr");
    let said = brindle_fails(2, ["device", "add", &named, "--pool", first, second]);
    assert!(said.contains("neither fast nor bulk") && !said.contains("listed"), "{said}");
    let [one, two] = ["1=ssd", "2=disk"];
    let words = ["--fast", "ssd", "--bulk", "disk,smr", "--device", one, "--device", two];
    brindle_prints([&["tier", "class", "set"], &words[..], &[first, second]].concat());
    let unknown = format!("{third}:tape");
    let said = brindle_fails(2, ["device", "add", &unknown, "--pool", first, second]);
    assert!(said.contains("nor a class that is listed: ssd, disk, smr"), "{said}");
    assert_eq!(pool.members(&[0, 1]).len(), 2, "it was refused before anything was done");
    let said = brindle_prints(["-q", "device", "add", &named, "--pool", first, second]);
    assert_eq!(said, format!("Added: {third} is devid 3.\n"));
    assert_eq!(class_names(&images), ["ssd", "disk", "smr"]);
    let hint = brindle_prints(["property", "get", third, "allocation_hint"]);
    assert!(hint.contains("DATA_PREFERRED"), "{hint}");
    pool.check(&[0, 1, 2]);
}

#[test]
fn a_device_of_a_mount_joins_a_class_that_the_pool_lists() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "single");
    let (images, place) = ([0, 1, 2].map(|number| pool.image(number)), pool.place());
    pool.mount(&[0, 1]);
    let words = ["--fast", "ssd,nvme", "--bulk", "disk", "--device", "1=ssd", "--device", "2=disk"];
    brindle_prints([&["tier", "class", "set"], &words[..], &[text(&place)]].concat());
    let said = brindle_prints(["device", "add", &format!("{}:nvme", images[2]), text(&place)]);
    assert!(said.ends_with("is devid 3.\n"), "{said}");
    assert_eq!(class_names(&[text(&place)]), ["ssd", "disk", "nvme"]);
    unmount(&place);
    assert_eq!(class_names(&images), ["ssd", "disk", "nvme"]);
    pool.check(&[0, 1, 2]);
}

#[test]
fn a_missing_device_is_replaced_by_hand() {
    let pool = Pool::make(2, "raid1");
    let [first, second, third] = [0, 1, 2].map(|number| pool.image(number));
    let said = brindle_fails(1, ["device", "add", third, "--pool", second]);
    assert!(said.contains(&format!("missing devid 1 ({first}): name all devices")), "{said}");
    std::fs::remove_file(first).expect("it is there");
    let said = brindle_fails(1, ["device", "add", third, "--pool", second]);
    assert!(said.contains("-o degraded"), "{said}");
    brindle_prints(["-q", "device", "add", third, "-o", "degraded", "--pool", second]);
    brindle_prints(["-q", "device", "remove", "missing", "-o", "degraded", "--pool", second, third]);
    pool.check(&[1, 2]);
    assert_eq!(pool.members(&[1, 2]), [(2, 512 * MIB), (3, 512 * MIB)]);
}

#[test]
fn wrong_words_are_refused() {
    let pool = Pool::make(1, "single");
    let [first, spare] = [0, 1].map(|number| pool.image(number));
    for size in ["", "1X", "x:1G", "1:"] {
        assert!(brindle_fails(2, ["filesystem", "resize", size, first]).contains("is no "), "{size}");
    }
    let said = brindle_fails(1, ["device", "remove", spare, "--pool", first]);
    assert!(said.contains("not a device of this pool"), "{said}");
    let said = brindle_fails(1, ["device", "remove", "1", "--pool", first]);
    assert!(said.contains("the only writable device"), "{said}");
    brindle_fails(2, ["device", "add"]);
    brindle_fails(2, ["device", "add", spare]);
}

/// Writes files until it is told to stop; how many.
fn write_on(place: &Path, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Relaxed) && count < 300 {
        std::fs::write(place.join(format!("beside{count}")), contents(count)).expect("room");
        count += 1;
    }
    count
}

fn contents(number: usize) -> Vec<u8> {
    format!("{number} ").repeat(20_000).into_bytes()
}

#[test]
fn devices_of_a_mount_join_and_leave_while_it_is_used() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(3, "raid1");
    pool.mount(&[0, 1, 2]);
    let place = pool.place();
    let is_over = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(&place, &is_over));
        let said = brindle_prints(["device", "add", pool.image(3), text(&place)]);
        assert!(said.ends_with("is devid 4.\n"), "{said}");
        let said = brindle_prints(["device", "remove", pool.image(0), "2", text(&place)]);
        assert!(said.contains("Removed: devid 1") && said.contains("Removed: devid 2"), "{said}");
        let said = brindle_prints(["filesystem", "resize", "4:-64M", text(&place)]);
        assert!(said.starts_with("Resized: devid 4"), "{said}");
        is_over.store(true, Relaxed);
        writer.join().expect("it ends well")
    });
    let said = brindle_fails(1, ["device", "remove", "4", text(&place)]);
    assert!(said.contains("raid1 needs at least 2 devices"), "{said}");
    let said = brindle_fails(1, ["device", "add", pool.image(2), text(&place)]);
    assert!(said.contains("is a device of this pool, devid 3"), "{said}");
    // A removed device belongs to no pool.
    brindle_prints(["device", "add", pool.image(0), text(&place)]);
    unmount(&place);
    pool.check(&[0, 2, 3]);
    assert_eq!(pool.members(&[0, 2, 3]), [(3, 512 * MIB), (4, 448 * MIB), (5, 512 * MIB)]);
    pool.mount(&[0, 2, 3]);
    for number in 0..count {
        let found = std::fs::read(place.join(format!("beside{number}"))).expect("there");
        assert!(found == contents(number), "beside{number}");
    }
    unmount(&place);
}

/// Kills the server of a mount, and waits for its end.
fn kill_server(mounted: brindle_admin::Mounted) {
    let process = mounted.server().expect("it answers").process;
    drop(mounted);
    run("kill", &["-9", &process.to_string()]);
    let process = i32::try_from(process).expect("a process");
    let begin = Instant::now();
    while is_alive(process) {
        assert!(begin.elapsed() < PATIENCE, "the end of the server: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills the server of a mount as soon as a change of its devices has moved something, or has ended.
fn kill_server_during(place: &Path, words: &[&str]) {
    let changing = Command::new(env!("CARGO_BIN_EXE_brindle")).args(words).spawn();
    let mut changing = changing.expect("the binary was built");
    let mounted = brindle_admin::Mounted::open(place).expect("it is served");
    let how_far = || mounted.device_report().expect("it answers");
    while how_far().work.moved_bytes == 0 && how_far().work.ended == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_server(mounted);
    changing.wait().expect("it ends, one way or the other");
    brindle(["umount", text(place)]);
}

/// Output of a command on images that a killed server may have open for a moment.
fn once_free(words: &[&str]) -> Output {
    let is_open = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("is in use");
    let begin = Instant::now();
    let mut output = brindle(words);
    while is_open(&output) && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
        output = brindle(words);
    }
    output
}

#[test]
fn a_server_is_killed_while_a_device_leaves() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(3, "raid0");
    pool.mount(&[0, 1, 2]);
    let place = pool.place();
    for number in 0..200 {
        std::fs::write(place.join(format!("beside{number}")), contents(number)).expect("room");
    }
    brindle_prints(["filesystem", "sync", text(&place)]);
    kill_server_during(&place, &["-q", "device", "remove", "1", text(&place)]);
    // With the device, if it is a member still, or without.
    let words = ["-q", "device", "remove", "1", "--pool", pool.image(0), pool.image(1), pool.image(2)];
    let output = once_free(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("no device with the id 1"), "{said}");
    pool.check(&[1, 2]);
    pool.mount(&[1, 2]);
    for number in 0..200 {
        let found = std::fs::read(place.join(format!("beside{number}"))).expect("there");
        assert!(found == contents(number), "beside{number}");
    }
    unmount(&place);
}

#[test]
fn the_kernel_is_asked_for_pools_that_it_has_mounted() {
    if !kernel_can_mount() {
        return;
    }
    let pool = TierPool::made(2, &[]);
    let at = pool.at();
    let [_, second, third, _] = pool.loops() else { unreachable!("four devices") };
    std::fs::write(at.join("file"), contents(7)).expect("room");
    let said = brindle_fails(1, ["device", "add", &format!("{third}:fast"), text(&at)]);
    assert!(said.contains("the kernel keeps no classes"), "{said}");
    let said = brindle_fails(2, ["device", "add", &format!("{third}:smr"), text(&at)]);
    assert!(said.contains("neither fast nor bulk"), "{said}");
    brindle_prints(["device", "add", third, text(&at)]);
    let said = brindle_fails(1, ["device", "add", third, text(&at)]);
    assert!(said.contains("is a device of this pool, devid 3"), "{said}");
    brindle_prints(["device", "remove", second, text(&at)]);
    brindle_prints(["filesystem", "resize", "3:-100M", text(&at)]);
    let said = brindle_fails(1, ["device", "remove", "1", text(&at)]);
    assert!(said.contains("too few would be left"), "{said}");
    let shown = run("btrfs", &["filesystem", "show", "--raw", text(&at)]);
    assert!(shown.contains(&format!("size {}", (2560 - 100) * MIB)), "{shown}");
    assert!(!shown.contains(second.as_str()), "{shown}");
    assert!(std::fs::read(at.join("file")).expect("there") == contents(7));
}

#[test]
fn the_kernel_replaces_devices_of_pools_that_it_has_mounted() {
    if !kernel_can_mount() {
        return;
    }
    let pool = TierPool::made(2, &[]);
    let at = pool.at();
    let [_, second, third, fourth] = pool.loops() else { unreachable!("four devices") };
    std::fs::write(at.join("file"), contents(7)).expect("room");
    assert_eq!(brindle_prints(["replace", "status", text(&at)]), "Never started\n");
    brindle_fails(2, ["replace", "cancel", text(&at)]);
    let said = brindle_fails(1, ["replace", "start", "9", third, text(&at)]);
    assert!(said.contains("has no device with the id 9"), "{said}");
    let said = brindle_fails(1, ["replace", "start", "missing", third, text(&at)]);
    assert!(said.contains("no device of the pool is missing"), "{said}");
    let said = brindle_fails(1, ["replace", "start", "2", third, text(&at)]);
    assert!(said.contains("devid 2 is used up to 4831838208: make that smaller first"), "{said}");
    brindle_prints(["filesystem", "resize", "2:2G", text(&at)]);
    let said = brindle_prints(["-q", "replace", "start", "-r", second, third, text(&at)]);
    assert!(said.starts_with(&format!("Replaced: devid 2 is {third}, ")), "{said}");
    let status = brindle_prints(["replace", "status", "--json", text(&at)]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!((&status["state"], &status["devid"]), (&"finished".into(), &Value::Null));
    let said = brindle_fails(1, ["device", "rejoin", fourth, text(&at)]);
    assert!(said.contains("takes no device back"), "{said}");
    let shown = run("btrfs", &["filesystem", "show", "--raw", text(&at)]);
    assert!(shown.contains(third.as_str()) && !shown.contains(second.as_str()), "{shown}");
    assert!(std::fs::read(at.join("file")).expect("there") == contents(7));
}

#[test]
fn a_server_is_killed_while_a_device_is_replaced() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    let place = pool.place();
    pool.mount(&[0, 1]);
    for number in 0..20 {
        std::fs::write(place.join(number.to_string()), contents(number)).expect("room");
    }
    brindle_prints(["filesystem", "sync", text(&place)]);
    kill_server_during(&place, &["-q", "replace", "start", "1", pool.image(2), text(&place)]);
    let words = ["-q", "replace", "start", "1", pool.image(2), "--pool", pool.image(0), pool.image(1)];
    let output = once_free(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    // It may have ended before: then the first image is of no pool, or the third one is its device 1.
    let has_ended = said.contains(pool.image(0)) || said.contains("is a device of this pool, devid 1");
    assert!(output.status.success() || has_ended, "{said}");
    pool.check(&[1, 2]);
    pool.mount(&[1, 2]);
    for number in 0..20 {
        assert!(std::fs::read(place.join(number.to_string())).expect("there") == contents(number));
    }
    unmount(&place);
}

/// `BRINDLE_REPLACE_KILLS` asks for more moments than a dozen.
#[test]
fn a_server_that_is_killed_at_any_moment_of_a_replacement_loses_nothing_and_the_next_attempt_works() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    let (place, mut here, mut spare) = (pool.place(), 0, 2);
    pool.mount(&[here, 1]);
    let write = |number| std::fs::write(place.join(format!("{number}")), contents(number)).expect("room");
    (0..60).for_each(write);
    let renew = |number: usize| {
        std::fs::remove_file(pool.image(number)).expect("there");
        std::fs::File::create(pool.image(number)).and_then(|image| image.set_len(512 << 20)).expect("sparse");
    };
    let replace =
        |by: usize| ["-q", "replace", "start", "1", pool.image(by), text(&place)].map(str::to_owned);
    let begin = Instant::now();
    brindle_prints(replace(spare));
    let whole = begin.elapsed();
    (here, spare) = (spare, here);
    renew(spare);
    for (round, moment) in
        moments(whole, number("BRINDLE_REPLACE_KILLS", 12), number("BRINDLE_SEED", 1)).into_iter().enumerate()
    {
        let told = format!("killed after {moment:?} of {whole:?}");
        let mut client = Command::new(env!("CARGO_BIN_EXE_brindle"));
        let client = client
            .args(replace(spare))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        std::thread::sleep(moment);
        write(60 + round);
        let mounted = brindle_admin::Mounted::open(&place).expect("it is served");
        kill_server(mounted);
        let client = client.wait_with_output().expect("it ends, one way or the other");
        let said = String::from_utf8_lossy(&client.stderr).into_owned();
        assert!(!said.contains("panicked"), "{told}: {said}");
        brindle(["umount", text(&place)]);
        // By the superblocks it has ended, or is as if it had never begun.
        let found = once_free(&["-q", "filesystem", "show", "--json", pool.image(spare), pool.image(1)]);
        let has_ended = !String::from_utf8_lossy(&found.stdout).contains("\"missing\": true");
        assert!(has_ended || !client.status.success(), "{told}: {said}");
        if has_ended {
            (here, spare) = (spare, here);
        }
        renew(spare);
        pool.check(&[here, 1]);
        pool.mount(&[here, 1]);
        brindle_prints(replace(spare));
        (here, spare) = (spare, here);
        renew(spare);
        for number in 0..60 {
            assert!(
                std::fs::read(place.join(number.to_string())).expect("there") == contents(number),
                "{told}"
            );
        }
    }
    unmount(&place);
    once_free(&["-q", "check", "--check-data-csum", pool.image(here), pool.image(1)]);
    pool.check(&[here, 1]);
}

#[test]
fn a_device_of_an_unmounted_pool_is_replaced_and_one_that_was_away_comes_back() {
    let pool = Pool::make(2, "raid1");
    let [first, second, third] = [0, 1, 2].map(|number| pool.image(number));
    let status = || brindle_prints(["device", "replace", "status", second, third]);
    assert_eq!(brindle_prints(["device", "replace", "status", first, second]), "Never started\n");
    brindle_fails(2, ["device", "replace", "start", "1", "--pool", first, second]);
    let said = brindle_fails(1, ["device", "replace", "start", "1", second, "--pool", first, second]);
    assert!(said.contains("is a device of this pool, devid 2"), "{said}");
    let said =
        brindle_prints(["-q", "device", "replace", "start", "-f", "1", third, "--pool", first, second]);
    assert!(said.starts_with(&format!("Replaced: devid 1 is {third}, ")), "{said}");
    assert!(status().contains(", finished on "), "{}", status());
    pool.check(&[1, 2]);
    assert_eq!(pool.members(&[1, 2]), [(1, 512 * MIB), (2, 512 * MIB)]);
    brindle_fails(1, ["ls", first]);
    let said = brindle_fails(1, ["device", "rejoin", first, "-o", "degraded", "--pool", second]);
    assert!(said.contains("none of the pool's missing devices"), "{said}");
    let words = ["-q", "device", "rejoin", "--json", third, "-o", "degraded", "--pool", second];
    let said = brindle_prints(words);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&said["changes"][0]["state"], &said["changes"][0]["devid"]), (&"done".into(), &1.into()));
    pool.check(&[1, 2]);
}

#[test]
fn a_device_that_has_left_does_not_stand_for_the_one_that_has_its_id_now() {
    let pool = Pool::make(2, "single");
    let left = pool.directory.path().join("left.img");
    std::fs::copy(pool.image(1), &left).expect("room");
    let on = |numbers: [usize; 2]| ["--pool", pool.image(numbers[0]), pool.image(numbers[1])];
    brindle_prints(["device", "remove", "2"].into_iter().chain(on([0, 1])));
    brindle_prints(["device", "add", pool.image(2), "--pool", pool.image(0)]);
    assert_eq!(pool.members(&[0, 2]).iter().map(|member| member.0).collect::<Vec<_>>(), [1, 2]);
    let said = brindle_fails(1, ["device", "remove", text(&left)].into_iter().chain(on([0, 2])));
    assert!(said.contains("no device of this pool any more: it was devid 2"), "{said}");
    let words = ["device", "replace", "start", text(&left), pool.image(1)];
    let said = brindle_fails(1, words.into_iter().chain(on([0, 2])));
    assert!(said.contains("no device of this pool any more"), "{said}");
    if is_root("a loop device") {
        // Among block devices the one of the pool is found.
        let loops = Loops::attach(&[pool.images[0].clone(), pool.images[2].clone(), left], &[]);
        let said = brindle_prints(["filesystem", "resize", "2:-16M", text(&loops.0[0])]);
        assert!(said.contains("Resized: devid 2"), "{said}");
    }
    brindle_prints(["device", "remove", pool.image(2)].into_iter().chain(on([0, 2])));
}

#[test]
fn a_device_of_a_mounted_pool_is_replaced_while_files_are_written() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(2, "raid1");
    let place = pool.place();
    pool.mount(&[0, 1]);
    std::fs::write(place.join("before"), vec![1; 3 << 20]).expect("room");
    assert_eq!(brindle_prints(["replace", "status", text(&place)]), "Never started\n");
    brindle_fails(2, ["device", "replace", "cancel", text(&place)]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Relaxed) {
                std::fs::write(place.join("meanwhile"), vec![number; 1 << 20]).expect("room");
                number = number.wrapping_add(1);
            }
        });
        let said =
            brindle_prints(["-q", "replace", "start", "-B", pool.image(0), pool.image(2), text(&place)]);
        is_over.store(true, Relaxed);
        assert!(said.starts_with("Replaced: devid 1 is "), "{said}");
    });
    let status = brindle_prints(["device", "replace", "status", "--json", text(&place)]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!((&status["state"], &status["devid"]), (&"finished".into(), &1.into()));
    unmount(&place);
    pool.check(&[1, 2]);
    pool.mount(&[1, 2]);
    assert_eq!(std::fs::read(place.join("before")).expect("there"), vec![1; 3 << 20]);
    unmount(&place);
}
