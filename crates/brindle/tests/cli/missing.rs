//! Devices that are named, missing or stale: what is used of a pool, and what the commands say of the rest.

use super::mount::{can_mount, unmount};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use brindle_testing::referee::btrfs_check;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Output;

/// A pool on image files, and a mount point.
struct Pool {
    directory: tempfile::TempDir,
    images: Vec<PathBuf>,
}

impl Pool {
    fn make(names: &[&str], words: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let images: Vec<PathBuf> = names.iter().map(|name| directory.path().join(name)).collect();
        for image in &images {
            File::create(image).and_then(|image| image.set_len(300 << 20)).expect("sparse");
        }
        fs::create_dir(directory.path().join("place")).expect("new");
        let mkfs = ["-q", "mkfs"].iter().chain(words).copied();
        brindle_prints(mkfs.chain(images.iter().map(|image| text(image))));
        Self { directory, images }
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    fn image(&self, number: usize) -> &str {
        text(&self.images[number])
    }
}

fn warnings(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Mounts by these words, writes a file, and unmounts. Returns the warnings.
fn write_once(pool: &Pool, words: &[&str], name: &str) -> String {
    let place = pool.place();
    let mounted = brindle_succeeds(["mount"].iter().chain(words).copied().chain([text(&place)]));
    fs::write(place.join(name), name).expect("room");
    unmount(&place);
    warnings(&mounted)
}

#[test]
fn a_degraded_pool_has_all_block_devices_that_are_to_be_found() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    // No other pool has this label.
    let label = format!("degraded-{}", std::process::id());
    let pool = Pool::make(&["a.img", "b.img"], &["-L", &label, "-m", "raid1", "-d", "raid1"]);
    let loops = Loops::attach(&pool.images, &[]);
    let (tag, place) = (format!("LABEL={label}"), pool.place());
    let [first, second] = [0, 1].map(|number: usize| text(&loops.0[number]));
    for name in [&tag, first, second] {
        assert_eq!(write_once(&pool, &["-o", "degraded", name], "file"), "", "{name}");
        for words in [&["ls"][..], &["check"], &["scrub", "start", "-r"]] {
            let done = brindle_succeeds(words.iter().copied().chain(["-o", "degraded", name]));
            let said = String::from_utf8_lossy(&done.stdout).into_owned() + &warnings(&done);
            assert!(!said.contains("missing") && !said.contains("not there"), "{words:?}: {said}");
        }
    }
    assert_eq!(write_once(&pool, &[&tag], "all"), "", "no device is stale");
    // The named one alone, if that is what is said: the other one misses what is written.
    for stale in [second, first] {
        let used = if stale == second { first } else { second };
        let said = write_once(&pool, &["-o", "degraded=named", used], "alone");
        assert!(said.contains(" is missing"), "{said}");
        // A device that is stale is found, left out whatever is named, and taken in again.
        let rejoin = format!("`brindle device rejoin {stale} {}`", text(&place));
        for name in [stale, used, &tag] {
            let said = brindle_succeeds(["mount", "-o", "degraded", name, text(&place)]);
            assert!(warnings(&said).contains(&format!("{stale} (devid ")), "{said:?}");
            assert!(!warnings(&said).contains(" is missing"), "it is told of once: {said:?}");
            let status = brindle(["status", "-v", text(&place)]);
            let shown = String::from_utf8_lossy(&status.stdout).into_owned();
            assert!(shown.contains(&rejoin), "{shown}");
            if *name == *tag {
                brindle_prints(["-q", "device", "rejoin", stale, text(&place)]);
            }
            unmount(&place);
        }
    }
    // The device that is to rejoin is not taken for one of the pool.
    write_once(&pool, &["-o", "degraded=named", second], "alone");
    brindle_prints(["-q", "device", "rejoin", first, "-o", "degraded", "--pool", second]);
    brindle_prints(["-q", "check", "--check-data-csum", &tag]);
}

#[test]
fn image_files_that_are_not_named_are_missing_and_told_of() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["a.img", "b.img"], &["-m", "raid1", "-d", "raid1"]);
    let (place, [first, second]) = (pool.place(), [0, 1].map(|number| pool.image(number)));
    let here = format!("device 2 is missing: it was not named, and is here: {second}");
    let said = write_once(&pool, &["-o", "degraded", first], "file");
    assert!(said.contains(&here), "{said}");
    let listed = brindle_succeeds(["ls", "-o", "degraded", first]);
    assert!(warnings(&listed).contains(&here), "{listed:?}");
    // It has missed that: the advice is what mends it.
    let said = warnings(&brindle_succeeds(["mount", first, second, text(&place)]));
    assert!(said.contains("`brindle device rejoin` takes it in again"), "{said}");
    unmount(&place);
    brindle_succeeds(["-q", "mount", "-o", "degraded", second, first, text(&place)]);
    let status = brindle(["status", "-v", text(&place)]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains(&format!("`brindle device rejoin {second} {}`", text(&place))), "{status}");
    for shown in [text(&place), first] {
        let shown = brindle_succeeds(["filesystem", "show", shown]);
        let list = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(list.contains(" MISSING\n\t*** Some devices missing\n"), "{list}");
        assert!(!list.contains("(missing)") && warnings(&shown).is_empty(), "{shown:?}");
    }
    let counters = brindle_prints(["device", "stats", text(&place)]);
    assert!(counters.contains("\n[devid:2].write_io_errs    0\n"), "{counters}");
    brindle_prints(["-q", "device", "rejoin", second, text(&place)]);
    unmount(&place);
    brindle_prints(["-q", "check", "--check-data-csum", first, second]);
    let counters = brindle_prints(["-q", "device", "stats", second]);
    assert!(counters.contains("[devid:1].write_io_errs    0\n"), "{counters}");
}

#[test]
fn no_copy_of_a_missing_device_is_given_out_for_it() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["a.img", "b.img"], &["-m", "raid1", "-d", "raid1"]);
    let (place, [first, second]) = (pool.place(), [0, 1].map(|number| pool.image(number)));
    let backup = pool.directory.path().join("a backup of b.img");
    brindle_prints(["-q", "mount", "-o", "degraded", first, text(&place)]);
    let status = || String::from_utf8_lossy(&brindle(["status", "-v", text(&place)]).stdout).into_owned();
    let alone = status();
    fs::copy(second, &backup).expect("room");
    let beside = status();
    unmount(&place);
    let rejoin = format!("`brindle device rejoin {second} {}`, which writes to {second}", text(&place));
    assert!(alone.contains(&rejoin), "{alone}");
    let rejoin = format!("`brindle device rejoin DEVICE {}`, which writes to DEVICE", text(&place));
    let copies = format!("{} and {second} may be it, and are copies of each other", text(&backup));
    assert!(beside.contains(&format!("{rejoin}: {copies}")), "{beside}");
}

#[test]
fn a_device_of_a_mounted_pool_stands_for_all_of_it() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["a.img", "b.img"], &["-m", "raid1", "-d", "raid0"]);
    let place = pool.place();
    brindle_prints(["-q", "mount", pool.image(0), pool.image(1), text(&place)]);
    let shown = [text(&place), pool.image(1)].map(|name| brindle_succeeds(["filesystem", "show", name]));
    unmount(&place);
    assert_eq!(String::from_utf8_lossy(&shown[0].stdout), String::from_utf8_lossy(&shown[1].stdout));
    assert_eq!(warnings(&shown[1]), "");
}

#[test]
fn one_device_of_a_pool_is_answered_alike_by_all_commands() {
    // Metadata lies on two devices of the three, the chunk tree on two others.
    let pool = Pool::make(&["a.img", "b.img", "c.img"], &["-m", "raid1", "-d", "raid0"]);
    let mut lost = 0;
    for (number, image) in pool.images.iter().enumerate() {
        let others = (0..3).filter(|other| *other != number);
        let others: Vec<String> =
            others.map(|other| format!("devid {} ({})", other + 1, pool.image(other))).collect();
        let expected = format!("missing {}: name all devices of the pool", others.join(", "));
        let readable = brindle(["ls", "-o", "degraded", text(image)]);
        if readable.status.success() {
            continue;
        }
        lost += 1;
        for words in [
            &["ls"][..],
            &["ls", "-o", "degraded"],
            &["tier", "plan"],
            &["tier", "apply"],
            &["filesystem", "usage"],
            &["filesystem", "df"],
            &["balance", "start", "-dusage=0"],
            &["filesystem", "resize", "1:200M"],
            &["device", "stats"],
            &["scrub", "start", "-o", "degraded", "-r"],
        ] {
            let said = brindle_fails(1, words.iter().copied().chain([text(image)]));
            // Warnings come before.
            let last = said.lines().last().unwrap_or_default();
            assert_eq!(last, format!("brindle: {expected}"), "{words:?}");
        }
        let status = brindle(["-q", "status", text(image)]);
        assert_eq!(status.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&status.stdout).contains(&expected), "{status:?}");
        let shown = brindle_succeeds(["filesystem", "show", text(image)]);
        assert!(!warnings(&shown).contains("unknown"), "{shown:?}");
    }
    assert!(lost > 0, "no device lacks metadata");
}

#[test]
fn a_mount_whose_devices_are_gone_is_no_news_where_another_pool_is_meant() {
    if !can_mount() {
        return;
    }
    let label = format!("gone-{}", std::process::id());
    let pool = Pool::make(&["a.img", "b.img"], &["-L", &label, "-m", "raid1", "-d", "raid1"]);
    let place = pool.place();
    brindle_prints(["-q", "mount", pool.image(0), pool.image(1), text(&place)]);
    pool.images.iter().for_each(|image| fs::remove_file(image).expect("it is there"));
    let other = brindle_fails(1, ["filesystem", "show", "no pool has this label"]);
    let meant = brindle_fails(1, ["filesystem", "show", &label]);
    unmount(&place);
    assert!(!other.contains(pool.image(0)) && other.contains("no pool of this label"), "{other}");
    let told = format!("brindle: {}: cannot open {}", text(&place), pool.image(0));
    assert!(meant.contains(&told) && !meant.contains(pool.image(1)), "{meant}");
}

/// Superblock fields of a device, by its image: generation, and the number of devices of the pool.
fn superblock(image: &str) -> (u64, u64) {
    let mut bytes = [0; 4096];
    File::open(image).and_then(|image| image.read_exact_at(&mut bytes, 64 << 10)).expect("a superblock");
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (number(0x48), number(0x88))
}

/// A pool of which `a.img` has missed that `c.img` came, attached to loop devices in the order of their letters, behind `others`.
fn pool_with_a_stale_device() -> (Pool, Loops) {
    let pool = Pool::make(&["a.img", "b.img"], &["-m", "raid1", "-d", "raid1"]);
    let new = pool.directory.path().join("c.img");
    File::create(&new).and_then(|image| image.set_len(300 << 20)).expect("sparse");
    let images = [pool.images.clone(), vec![new]].concat();
    let pool = Pool { images, ..pool };
    brindle_prints(["-q", "device", "add", pool.image(2), "-o", "degraded", "--pool", pool.image(1)]);
    assert_eq!([0, 1, 2].map(|number| superblock(pool.image(number)).1), [2, 3, 3]);
    let loops = Loops::attach(&pool.images, &[]);
    (pool, loops)
}

/// Mounts devices, and sees that devices of the pool that were not named are written, and those that are named.
fn expect_all_written(pool: &Pool, names: &[&str], written: &[usize], name: &str) {
    let before = written.iter().map(|number| superblock(pool.image(*number)).0).max();
    let said = write_once(pool, &[&["-o", "degraded"], names].concat(), name);
    assert!(!said.contains("is missing"), "{names:?}: {said}");
    let after: Vec<u64> = written.iter().map(|number| superblock(pool.image(*number)).0).collect();
    assert!(after.iter().all(|it| Some(*it) > before && *it == after[0]), "{names:?}: {before:?}, {after:?}");
}

/// Commands that read find all devices: nothing is said of one that is missing. `check` fails for what is wrong with those named.
fn expect_all_found(options: &[&str], names: &[&str]) {
    for command in ["ls", "check"] {
        let done = brindle([command].iter().chain(options).chain(names).copied());
        assert!(done.status.success() || command == "check", "{command} {options:?} {names:?}: {done:?}");
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &warnings(&done);
        assert!(!said.contains("missing"), "{command} {options:?} {names:?}: {said}");
    }
}

#[test]
fn a_device_that_is_not_named_is_found_whatever_a_stale_one_says() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let (pool, loops) = pool_with_a_stale_device();
    let [first, second, third] = [0, 1, 2].map(|number: usize| text(&loops.0[number]));
    for names in [&[first, second][..], &[second, first], &[first]] {
        expect_all_written(&pool, names, &[1, 2], "stale");
        expect_all_found(&["-o", "degraded"], names);
    }
    // A device that has left the pool, and was not there then, knows nothing of that.
    brindle_prints(["-q", "device", "remove", "missing", "-o", "degraded=named", "--pool", second, third]);
    for names in [&[first, second][..], &[second, first]] {
        expect_all_written(&pool, names, &[1, 2], "left");
        expect_all_found(&["-o", "degraded"], names);
        expect_all_found(&[], names);
    }
    // None is taken for one of the pool where it is about to come anew, with a class or without.
    for word in [format!("{third}:fast"), first.to_owned()] {
        brindle_prints(["-q", "device", "add", "-f", &word, "-o", "degraded", "--pool", second]);
    }
    brindle_prints(["-q", "device", "remove", "missing", "-o", "degraded", "--pool", second]);
    brindle_prints(["-q", "check", "--check-data-csum", first, second, third]);
    expect_sound(&loops);
}

#[test]
fn devices_are_found_beside_one_that_can_not_be_identified() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let pool = Pool::make(&["a.img", "b.img", "c.img"], &["-m", "raid1c3", "-d", "raid1c3"]);
    let blank = pool.directory.path().join("blank.img");
    File::create(&blank).and_then(|image| image.set_len(300 << 20)).expect("sparse");
    let loops = Loops::attach(&[&pool.images[..], std::slice::from_ref(&blank)].concat(), &[]);
    let [first, second, _, fourth] = [0, 1, 2, 3].map(|number: usize| text(&loops.0[number]));
    for name in ["blank", "dead"] {
        for names in [&[fourth, second][..], &[second, fourth]] {
            expect_all_written(&pool, names, &[0, 1, 2], name);
            expect_all_found(&["-o", "degraded"], names);
        }
        // From now on each read of it fails.
        File::options().write(true).open(&blank).and_then(|image| image.set_len(0)).expect("shorter");
    }
    for (number, names) in [&[first][..], &[first, second], &[second, first]].into_iter().enumerate() {
        let device = File::options().write(true).open(first).expect("a loop device");
        device.write_all_at(&[0; 4096], 64 << 10).and_then(|()| device.sync_all()).expect("room");
        drop(device);
        expect_all_found(&[], names);
        expect_all_found(&["-o", "degraded"], names);
        expect_all_written(&pool, names, &[1, 2], &format!("torn{number}"));
    }
    // The first superblock is made anew by a scrub.
    brindle_succeeds(["-q", "scrub", "start", "-o", "degraded", first, second]);
    brindle_prints(["-q", "check", "--check-data-csum", first]);
    expect_sound(&loops);
}

#[test]
fn devices_are_found_beside_a_cached_one() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = ["ssd", "a.img", "b.img"].map(|name| directory.path().join(name));
    for (image, mib) in images.iter().zip([48, 300, 300]) {
        File::create(image).and_then(|image| image.set_len(mib << 20)).expect("sparse");
    }
    fs::create_dir(directory.path().join("place")).expect("new");
    let loops = Loops::attach(&images, &[]);
    let [ssd, disk, other] = [0, 1, 2].map(|number: usize| text(&loops.0[number]));
    brindle_prints(["-q", "cache", "create", "-p", "around", "found", ssd, disk]);
    let word = format!("cache:{ssd}:{disk}");
    brindle_prints(["-q", "mkfs", "-m", "raid1", "-d", "raid1", &word, other]);
    let pool = Pool { directory, images: images[1..].to_vec() };
    expect_all_written(&pool, &[&word], &[0, 1], "file");
    expect_all_found(&["-o", "degraded"], &[&word]);
    brindle_prints(["-q", "check", "--check-data-csum", &word, other]);
}

fn expect_sound(loops: &Loops) {
    match btrfs_check(&loops.0[1]) {
        Some(said) => said.unwrap_or_else(|said| panic!("{said}")),
        None => println!("skipped: btrfs check is not installed"),
    }
}

#[test]
fn a_found_device_that_is_write_protected_is_named_and_done_without_if_that_is_asked_for() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let pool = Pool::make(&["a.img", "b.img"], &["-m", "raid1", "-d", "raid1"]);
    let place = pool.place();
    {
        let writable = Loops::attach(&pool.images[..1], &[]);
        let protected = Loops::attach(&pool.images[1..], &["--read-only"]);
        let [first, second] = [&writable, &protected].map(|loops| text(&loops.0[0]));
        let refusal = format!("cannot open {second}: Read-only file system");
        let said = warnings(&brindle_succeeds(["mount", first, text(&place)]));
        assert!(said.contains(&format!("mounting read-only: {refusal}")), "{said}");
        assert!(said.contains("with -o degraded the pool is written without it"), "{said}");
        fs::write(place.join("refused"), "x").expect_err("it is only read");
        unmount(&place);
        let said = brindle_fails(1, ["mount", "-o", "rw", first, text(&place)]);
        assert!(said.contains(&refusal) && said.contains("with -o degraded"), "{said}");
        // One that is named is meant to be used.
        let said = brindle_fails(1, ["mount", "-o", "rw,degraded", first, second, text(&place)]);
        assert!(said.contains(&refusal) && !said.contains("with -o degraded"), "{said}");
        let said = write_once(&pool, &["-o", "rw,degraded", first], "without it");
        assert!(said.contains(&refusal) && said.contains("brindle device rejoin"), "{said}");
        assert_eq!(said.matches(second).count(), 1, "{said}");
    }
    let loops = Loops::attach(&pool.images, &[]);
    let [first, second] = [0, 1].map(|number: usize| text(&loops.0[number]));
    brindle_succeeds(["mount", "-o", "degraded", first, text(&place)]);
    assert_eq!(fs::read_to_string(place.join("without it")).expect("it is there"), "without it");
    brindle_succeeds(["device", "rejoin", second, text(&place)]);
    unmount(&place);
    assert_eq!(write_once(&pool, &[first], "both"), "");
}

#[test]
fn a_pool_that_can_not_do_without_a_write_protected_device_is_only_read() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let pool = Pool::make(&["a.img", "b.img"], &["-m", "raid1", "-d", "raid0"]);
    let (place, contents) = (pool.place(), vec![7; 1 << 20]);
    brindle_succeeds(["mount", pool.image(0), pool.image(1), text(&place)]);
    fs::write(place.join("file"), &contents).expect("room");
    unmount(&place);
    let writable = Loops::attach(&pool.images[..1], &[]);
    let protected = Loops::attach(&pool.images[1..], &["--read-only"]);
    let said = warnings(&brindle_succeeds(["mount", "-o", "degraded", text(&writable.0[0]), text(&place)]));
    assert!(said.contains(&format!("mounting read-only: cannot open {}", text(&protected.0[0]))), "{said}");
    assert!(fs::read(place.join("file")).expect("nothing is missing") == contents);
    unmount(&place);
}
