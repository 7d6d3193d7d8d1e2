//! `filesystem defragment`, on a mount and on devices.

use super::ends::Served;
use super::mount::{KernelMount, can_mount, unmount};
use super::support::{brindle_fails, brindle_prints, is_root, text};
use brindle_testing::referee::btrfs_check;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const FILES: usize = 3000;

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&brindle_prints(words)).expect("JSON")
}

/// Percentage of the top level's leaves that lie directly after their siblings.
fn adjacent_percent(image: &Path) -> u64 {
    let found = json(&["inspect", "tree-stats", "--json", "-t", "5", text(image)]);
    let siblings = &found["trees"][0]["siblings"];
    let (adjacent, total) = (siblings["adjacent"].as_u64(), siblings["total"].as_u64());
    adjacent.expect("a number") * 100 / total.expect("a number")
}

/// Files that come, and of which some change from commit to commit.
fn live(place: &Path) {
    let file = |number: usize| place.join(format!("a name of some length {number}"));
    for number in 0..FILES {
        std::fs::write(file(number), "some contents".repeat(number % 40)).expect("room");
    }
    for round in 0..12 {
        brindle_prints(["filesystem", "sync", text(place)]);
        for number in (round..FILES).step_by(37) {
            std::fs::write(file(number), "other contents".repeat(number % 50)).expect("room");
        }
    }
    brindle_prints(["filesystem", "sync", text(place)]);
}

/// A file whose sectors are written and synced in disorder.
fn torn(path: &Path) -> Vec<u8> {
    let file = File::create(path).expect("new");
    let mut contents = vec![0; 200 * 4096];
    for number in 0..200_u8 {
        let at = usize::from(number) * 77 % 200 * 4096;
        contents[at..at + 4096].fill(number + 1);
        file.write_all_at(&contents[at..at + 4096], at as u64).expect("room");
        file.sync_data().expect("syncs");
    }
    contents
}

fn contents_are_defragmented(place: &Path) {
    let (torn_one, directory) = (place.join("torn"), place.join("directory"));
    std::fs::create_dir(&directory).expect("new");
    let contents = torn(&torn_one);
    torn(&directory.join("torn"));
    let said = brindle_fails(1, ["filesystem", "defragment", text(&torn_one), text(&directory)]);
    assert!(said.contains("give -r"), "{said}");
    let said = brindle_fails(2, ["filesystem", "defragment", "-czstd:99", text(&torn_one)]);
    assert!(said.contains("levels from -15 to 15"), "{said}");
    let done = json(&["filesystem", "defragment", "--json", text(&torn_one)]);
    assert!(done["files"] == 1 && done["moved"].as_u64() > Some(150) && done["shared"] == 0, "{done}");
    assert_eq!(std::fs::read(&torn_one).expect("reads"), contents);
    let again = json(&["filesystem", "defragment", "--json", text(&torn_one)]);
    assert!(again["moved"] == 0, "{again}");
    brindle_prints(["subvolume", "snapshot", "-r", text(place), text(&place.join("snapshot"))]);
    let inside = text(&directory);
    let stays = brindle_prints(["filesystem", "defragment", "-r", inside]);
    assert!(stays.contains("0 of ") && stays.contains("--unshare"), "{stays}");
    let done = json(&["filesystem", "defragment", "--json", "-r", "--unshare", "-czstd", inside]);
    assert!(done["files"] == 1 && done["moved"].as_u64() > Some(150), "{done}");
    assert_eq!(std::fs::read(directory.join("torn")).expect("reads"), contents);
    let said =
        brindle_fails(1, ["filesystem", "defragment", text(&place.join("snapshot/torn")), "--unshare", "-c"]);
    assert!(said.contains("Read-only"), "{said}");
    brindle_fails(2, ["filesystem", "defragment", "-cbrotli", text(&torn_one)]);
}

/// Value of one of the numbers of `autodefrag`.
fn counted(place: &Path, name: &str) -> u64 {
    let said = brindle_prints(["property", "get", text(place), "autodefrag_statistics"]);
    let numbers = said.trim_end().strip_prefix("autodefrag_statistics=").expect("the property");
    let mut numbers = numbers.split(", ").filter_map(|number| number.split_once(' '));
    numbers.find(|(found, _)| *found == name).expect("a number").1.parse().expect("a number")
}

#[test]
fn a_mount_with_autodefrag_lays_a_torn_file_together_by_itself() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    let place = served.place();
    served.mount_with("autodefrag,commit=1");
    let options = brindle_prints(["property", "get", text(&place), "mount_options"]);
    assert_eq!(options, "mount_options=commit=1,autodefrag\n");
    let contents = torn(&place.join("torn"));
    let end = Instant::now() + Duration::from_secs(300);
    while counted(&place, "moved_extents") == 0 || counted(&place, "waiting_files") > 0 {
        assert!(Instant::now() < end, "the file stays torn");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(counted(&place, "moved_extents") > 150);
    assert_eq!(std::fs::read(place.join("torn")).expect("reads"), contents);
    let again = json(&["filesystem", "defragment", "--json", text(&place.join("torn"))]);
    assert!(again["extents"].as_u64() < Some(8), "{again}");
    unmount(&place);
    served.wait_for_success();
    served.check();
}

#[test]
fn contents_and_metadata_are_defragmented_on_a_mount_of_the_kernel() {
    if !is_root("mounting a pool by the kernel") {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = directory.path().join("image");
    File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("sparse");
    brindle_prints(["-q", "mkfs", text(&image)]);
    let mount = KernelMount::new(&image, directory.path().join("kernel"));
    let file = mount.at.join("torn");
    let contents = torn(&file);
    let said = brindle_fails(1, ["filesystem", "defragment", text(&file)]);
    assert!(said.contains("--unshare"), "{said}");
    let said = brindle_prints(["filesystem", "defragment", "--unshare", "-czstd", text(&file)]);
    assert!(said.starts_with("1 files were given to the kernel"), "{said}");
    assert_eq!(std::fs::read(&file).expect("reads"), contents);
    // Metadata of the subvolume.
    let at = text(&mount.at);
    let said = brindle_prints(["filesystem", "defragment", at]);
    assert_eq!(said, "Done by the kernel, which tells no numbers.\n");
    assert_eq!(json(&["filesystem", "defragment", "--json", at])["is_whole"], true);
    assert!(brindle_fails(1, ["filesystem", "defragment", "--all", at]).contains("defragment all metadata"));
}

#[test]
fn metadata_is_defragmented_on_a_mount_and_on_devices() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: needs /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let [image, place] = ["image", "place"].map(|name| directory.path().join(name));
    File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("sparse");
    std::fs::create_dir(&place).expect("new");
    brindle_prints(["-q", "mkfs", "--nodesize", "4k", text(&image)]);
    // The image is read while it is mounted: no commit is to come then.
    let options = "metadata_defrag,commit=3600";
    brindle_prints(["-q", "mount", "-o", options, text(&image), text(&place)]);
    let mode = brindle_prints(["property", "get", text(&place), "metadata_defrag"]);
    assert_eq!(mode, "metadata_defrag=rotating\n");
    live(&place);
    let before = adjacent_percent(&image);
    let done = json(&["filesystem", "defragment", "--json", text(&place)]);
    assert!(done["moved"].as_u64().expect("a number") > 50 && done["is_whole"] == true, "{done}");
    let after = adjacent_percent(&image);
    assert!(before < 80 && after > 93, "{before} %, then {after} %");
    let all = json(&["filesystem", "defragment", "--all", "--json", text(&place)]);
    assert!(all["leaves"].as_u64() > done["leaves"].as_u64(), "{all}");
    contents_are_defragmented(&place);
    unmount(&place);
    let said = brindle_prints(["filesystem", "defragment", text(&image)]);
    assert!(said.starts_with("Done: "), "{said}");
    brindle_prints(["check", text(&image)]);
    // The kernel's own examiner, where it is there.
    match btrfs_check(&image) {
        Some(said) => said.unwrap_or_else(|said| panic!("{said}")),
        None => println!("skipped: needs btrfs-progs"),
    }
}
