//! Devices that are named, missing or stale: what is used of a pool, and what the commands say of the rest.

use super::mount::{can_mount, unmount};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use std::fs::{self, File};
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
