//! A pool of single data that has lost a device: the rest of it is read, mounted, copied out and examined.

use super::mount::{can_mount, unmount};
use super::support::{brindle, brindle_fails, brindle_prints, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const FILES: usize = 96;
const FILE_BYTES: usize = 1 << 20;

/// Contents of a file, which no other has.
fn contents(number: usize) -> Vec<u8> {
    vec![number.to_le_bytes()[0] | 0x80; FILE_BYTES]
}

/// Makes a pool of two images with data on both, and takes the second away.
fn lose_a_device(directory: &Path) -> PathBuf {
    let tree = directory.join("tree");
    fs::create_dir(&tree).expect("new");
    for number in 0..FILES {
        fs::write(tree.join(number.to_string()), contents(number)).expect("room");
    }
    let images = ["0.img", "1.img"].map(|name| directory.join(name));
    let options = ["-q", "mkfs", "--size", "256M", "-d", "single", "-m", "raid1", "--rootdir", text(&tree)];
    brindle_prints(options.into_iter().chain(images.iter().map(|image| text(image))));
    let [left, lost] = images;
    fs::remove_file(lost).expect("it is there");
    left
}

/// Number of files of a folder that are there as they were. Of any other the lost parts are holes, or it can't be read.
fn whole_files(folder: &Path) -> usize {
    let is_whole = |number: &usize| match fs::read(folder.join(number.to_string())) {
        Ok(found) => {
            let contents = contents(*number);
            let is_left = |(found, made): (&u8, &u8)| found == made || *found == 0;
            assert!(found.iter().zip(&contents).all(is_left), "file {number}");
            found == contents
        }
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
            false
        }
    };
    (0..FILES).filter(is_whole).count()
}

#[test]
fn the_rest_of_a_pool_is_listed_copied_out_and_examined() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let left = lose_a_device(directory.path());
    let said = brindle_fails(1, ["ls", text(&left)]);
    assert!(
        said.contains(
            "name the other devices of the pool, or go without: everything else can be read with -o degraded"
        ),
        "{said}"
    );
    let listed = brindle(["ls", "-o", "degraded", text(&left)]);
    let warned = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success() && warned.contains("of data, "), "{warned}");
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), FILES);
    let copied = directory.path().join("copied");
    let restore = |words: &[&str]| {
        let common = ["-q", "restore", "--json", "-o", "degraded", text(&left), text(&copied)];
        let restored = brindle([&common, words].concat());
        assert_eq!(restored.status.code(), Some(1));
        serde_json::from_slice::<Value>(&restored.stdout).expect("JSON")
    };
    let foreseen = restore(&["--dry-run"]);
    assert!(!copied.exists());
    let report = restore(&[]);
    assert_eq!(foreseen["failures"], report["failures"]);
    assert!(foreseen["failed"][0]["error"].as_str().is_some_and(|error| error.contains("lie in chunks")));
    let failures =
        report["failures"].as_u64().and_then(|count| usize::try_from(count).ok()).expect("a count");
    // A file with holes is not taken for whole.
    let again = restore(&["--resume"]);
    assert_eq!((&again["failures"], &again["files"]), (&report["failures"], &report["failures"]));
    let whole = whole_files(&copied);
    assert!(whole > 0 && failures > 0 && whole + failures == FILES, "{whole} whole, {report}");
    let examined = brindle(["-q", "check", "-o", "degraded", text(&left)]);
    let found = String::from_utf8_lossy(&examined.stdout);
    assert!(examined.status.success() && found.contains("note: missing devid"), "{found}");
    assert!(found.contains("can't be read whole without") && found.contains("no errors found; "), "{found}");
    assert!(found.ends_with("be read whole without the missing devices\n"), "{found}");
}

#[test]
fn the_rest_of_a_pool_is_mounted_read_only_alone() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let left = lose_a_device(directory.path());
    let place = directory.path().join("place");
    fs::create_dir(&place).expect("new");
    let said = brindle_fails(1, ["mount", "-o", "degraded", text(&left), text(&place)]);
    assert!(said.contains("-o degraded,ro"), "{said}");
    brindle_prints(["-q", "mount", "-o", "degraded,ro", text(&left), text(&place)]);
    let whole = whole_files(&place);
    let refused = brindle(["mount", "-o", "remount,rw", text(&place)]);
    unmount(&place);
    assert!(0 < whole && whole < FILES, "{whole}");
    assert!(!refused.status.success());
}

#[test]
fn a_device_that_was_named_is_not_called_one_to_name() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = ["a.img", "b.img"].map(|name| directory.path().join(name));
    let [first, second] = [0, 1].map(|number: usize| text(&images[number]));
    // Data that is lost without one of them: an empty chunk would not count.
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).expect("new");
    fs::write(tree.join("file"), vec![7; 1 << 20]).expect("room");
    let made = ["-q", "mkfs", "--size", "256M", "-d", "raid0", "-m", "raid1", "--rootdir", text(&tree)];
    brindle_prints([&made[..], &[first, second]].concat());
    let old = directory.path().join("old");
    fs::copy(second, &old).expect("room");
    for _ in 0..2 {
        brindle_prints(["-q", "device", "stats", "-z", first, second]);
        brindle_prints(["-q", "balance", "start", "-dusage=100", "-musage=100", first, second]);
    }
    fs::rename(&old, second).expect("ours");
    let said =
        brindle_fails(1, ["filesystem", "label", "-o", &format!("degraded,device={second}"), first, "new"]);
    assert!(said.contains("missing devid 2") && !said.contains("name all devices of the pool"), "{said}");
}

#[test]
fn a_repair_of_an_incomplete_pool_names_commands_that_go_without() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = ["a.img", "b.img"].map(|name| directory.path().join(name));
    let [first, second] = [0, 1].map(|number: usize| text(&images[number]));
    brindle_prints(["-q", "mkfs", "--size", "256M", "-d", "raid1", "-m", "raid1", first, second]);
    fs::remove_file(second).expect("it is there");
    let said = brindle_fails(1, ["-q", "check", "--repair", "--yes", first]);
    assert!(said.contains("missing devid 2 ") && said.contains("a repair takes all devices"), "{said}");
    assert!(said.contains("`brindle check -o degraded`") && !said.contains("with -o degraded"), "{said}");
    brindle_prints(["-q", "check", "-o", "degraded", first]);
}

#[test]
fn the_label_of_devices_is_shown_and_changed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = ["a.img", "b.img"].map(|name| directory.path().join(name));
    let [first, second] = [0, 1].map(|number: usize| text(&images[number]));
    brindle_prints(["-q", "mkfs", "--size", "256M", "-L", "old", first, second]);
    let label = |words: &[&str]| brindle_prints([&["-q", "filesystem", "label"], words].concat());
    assert_eq!(label(&[second]), "old\n");
    let said = brindle_fails(1, ["filesystem", "label", first, "new"]);
    assert!(said.contains("devid 2 ") && said.contains("name all devices of the pool"), "{said}");
    let other = format!("device={second}");
    label(&["-o", &other, first, "new"]);
    assert_eq!([label(&[first]), label(&[second])], ["new\n", "new\n"]);
    brindle_fails(2, ["filesystem", "label", "-o", &other, first, "a\nb"]);
    brindle_prints(["-q", "check", first, second]);
    let file = directory.path().join("no pool");
    fs::write(&file, "text").expect("room");
    assert!(brindle_fails(1, ["filesystem", "label", text(&file)]).contains("not a btrfs device"));
    brindle_fails(2, ["filesystem", "label", "-o", &other, text(directory.path())]);
}
