//! Crashes at any write and flush, and devices that fail.

mod asleep;
mod cached;
mod common;
mod faults;
mod kernel;
mod logs;
mod referee;
mod replaced;
mod subject;
mod torn;

use crate::simulated::{Layout, REFUSALS};
use brindle_fs::{Compression, WriteBackMode};
use brindle_ondisk::Profile;
use brindle_testing::crash::CrashTest;
use brindle_testing::operations::Mix;
use std::sync::atomic::Ordering;
use subject::{Contents, LibrarySubject};

/// One device, small blocks: trees of several levels.
const ONE: Layout = Layout {
    devices: 1,
    device_mib: 256,
    data: Profile::Single,
    metadata: Profile::Dup,
    nodesize: 4096,
    features: "",
    compression: None,
    fast: 0,
};

/// An SSD and two hard disks.
const COMMON: Layout = Layout { devices: 3, fast: 1, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };

fn crash(name: &str, seed: u64) -> CrashTest {
    let mix = Mix { file_bytes_max: 100 << 10, names_max: 25, xattr_bytes_max: 600, ..Mix::crash() };
    CrashTest::new(&format!("cargo test -p brindle-fs --test fs crash::{name}"), seed).mixed(mix)
}

#[test]
fn one_device() {
    crash("one_device", 1000).of(6, 60, 500).run(&LibrarySubject::new(ONE));
}

#[test]
fn one_copy() {
    let layout = Layout { metadata: Profile::Single, features: "^block-group-tree,^free-space-tree", ..ONE };
    crash("one_copy", 1100).of(4, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn compressed_in_large_blocks() {
    let layout = Layout {
        nodesize: 16384,
        compression: Some(Compression::Zstd),
        features: "^no-holes,^block-group-tree",
        ..ONE
    };
    crash("compressed_in_large_blocks", 1200).of(4, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn two_mirrors() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    crash("two_mirrors", 1300).of(6, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn two_tiers() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    crash("two_tiers", 1350).of(6, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn three_mirrors() {
    let layout = Layout { devices: 3, data: Profile::Raid0, metadata: Profile::Raid1c3, ..ONE };
    crash("three_mirrors", 1400).of(4, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn parity() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    crash("parity", 1500).of(6, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn two_parities() {
    let layout = Layout { devices: 4, data: Profile::Raid10, metadata: Profile::Raid6, ..ONE };
    crash("two_parities", 1600).of(4, 60, 500).run(&LibrarySubject::new(layout));
}

#[test]
fn contents_that_are_written_early() {
    let test = crash("contents_that_are_written_early", 1700);
    let mix = Mix { sync_file: 15, contents: 60, ..test.mix.clone() };
    test.mixed(mix).of(6, 60, 500).run(&LibrarySubject::hasty(ONE));
}

#[test]
fn subvolumes() {
    let test = crash("subvolumes", 1800);
    let mix = Mix { subvolumes: 25, contents: 20, ..test.mix.clone() };
    test.mixed(mix).of(4, 60, 500).run(&LibrarySubject::new(ONE));
}

#[test]
fn simple_quotas() {
    let test = crash("simple_quotas", 1850);
    let mix = Mix { subvolumes: 20, contents: 40, ..test.mix.clone() };
    test.mixed(mix).of(4, 60, 500).run(&LibrarySubject::relocating(ONE).counting());
}

#[test]
fn logged_with_simple_quotas() {
    let test = crash("logged_with_simple_quotas", 1870);
    let mix = Mix { sync_file: 25, subvolumes: 8, contents: 50, ..test.mix.clone() };
    test.mixed(mix).of(4, 60, 500).run(&LibrarySubject::hasty(ONE).logging().counting());
}

#[test]
fn names() {
    let test = crash("names", 1900);
    let mix = Mix { contents: 2, names: 80, ..test.mix.clone() };
    test.mixed(mix).of(4, 100, 500).run(&LibrarySubject::new(ONE));
}

#[test]
fn block_groups_that_move() {
    let test = crash("block_groups_that_move", 5000);
    let mix = Mix { subvolumes: 12, contents: 30, ..test.mix.clone() };
    test.mixed(mix).of(6, 60, 500).run(&LibrarySubject::relocating(ONE));
}

#[test]
fn block_groups_that_move_on_two_mirrors() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    crash("block_groups_that_move_on_two_mirrors", 5100)
        .of(4, 60, 500)
        .run(&LibrarySubject::relocating(layout));
}

#[test]
fn metadata_that_is_defragmented() {
    let test = crash("metadata_that_is_defragmented", 5300);
    let mix = Mix { subvolumes: 12, contents: 30, ..test.mix.clone() };
    test.mixed(mix).of(6, 60, 500).run(&LibrarySubject::defragmenting(ONE));
}

#[test]
fn files_that_are_defragmented() {
    let test = crash("files_that_are_defragmented", 5500);
    let mix = Mix { subvolumes: 12, contents: 50, sync_file: 20, ..test.mix.clone() };
    let test = test.mixed(mix).of(3, 60, 400);
    let subject = LibrarySubject::defragmenting_files;
    test.run(&subject(ONE).logging());
    test.run(&subject(ONE).of(Contents::InPlace).logging());
    test.run(&subject(Layout { devices: 2, fast: 1, ..ONE }).logging());
}

#[test]
fn data_that_moves_between_tiers() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    let test = crash("data_that_moves_between_tiers", 5200);
    let mix = Mix { subvolumes: 12, contents: 30, ..test.mix.clone() };
    let test = test.mixed(mix).of(4, 50, 250);
    test.run(&LibrarySubject::sorting(layout));
    // One copy of small files on the SSD.
    test.of(3, 50, 250).run(&LibrarySubject::sorting(COMMON));
}

#[test]
fn data_in_the_write_back_tier() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    let test = crash("data_in_the_write_back_tier", 5400);
    let mix = Mix { subvolumes: 12, contents: 40, sync_file: 25, ..test.mix.clone() };
    let test = test.mixed(mix).of(5, 60, 400);
    test.run(&LibrarySubject::writing_back(layout, WriteBackMode::All));
    test.run(&LibrarySubject::writing_back(layout, WriteBackMode::All).logging());
    // Data of small files is destaged to where one copy lies on the SSD.
    let subject = LibrarySubject::writing_back(COMMON, WriteBackMode::All).waiting_with_one_copy();
    test.of(3, 60, 400).run(&subject.logging());
}

/// The mode of a mount unless told otherwise.
#[test]
fn synced_data_in_the_write_back_tier() {
    let tiers = Layout { devices: 2, fast: 1, ..ONE };
    let mirrors = Layout { devices: 4, fast: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    for (layout, seed) in [(tiers, 5450), (mirrors, 5470)] {
        let test = crash("synced_data_in_the_write_back_tier", seed);
        let mix = Mix { subvolumes: 8, contents: 45, sync_file: 30, ..test.mix.clone() };
        let test = test.mixed(mix).of(4, 60, 400);
        test.run(&LibrarySubject::writing_back(layout, WriteBackMode::Sync).logging());
    }
}

#[test]
fn data_that_has_no_room_in_its_tier() {
    let layout = Layout { devices: 2, fast: 1, ..ONE };
    let test = crash("data_that_has_no_room_in_its_tier", 5400);
    let mix = Mix { subvolumes: 12, contents: 40, ..test.mix.clone() };
    let test = test.mixed(mix).of(4, 50, 250);
    test.run(&LibrarySubject::sorting_crowded(layout));
    test.of(2, 50, 250).run(&LibrarySubject::sorting_crowded(COMMON));
    assert_ne!(REFUSALS.load(Ordering::Relaxed), 0, "there was always room");
}

#[test]
fn data_that_moves_in_parts() {
    let two_tiers = Layout { devices: 2, fast: 1, ..ONE };
    let test = crash("data_that_moves_in_parts", 5300);
    let mix = Mix { subvolumes: 12, contents: 30, ..test.mix.clone() };
    let test = test.mixed(mix).of(3, 50, 250);
    test.run(&LibrarySubject::sorting(two_tiers).in_parts());
    test.run(&LibrarySubject::relocating(ONE).in_parts());
}

#[test]
fn contents_that_are_overwritten_in_place() {
    let mirrors = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let parity = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    let test = crash("contents_that_are_overwritten_in_place", 2000);
    let mix = Mix { sync_file: 15, contents: 60, ..test.mix.clone() };
    let test = test.mixed(mix).of(2, 60, 500);
    for layout in [ONE, mirrors, parity] {
        test.run(&LibrarySubject::hasty(layout).of(Contents::InPlace));
    }
}
