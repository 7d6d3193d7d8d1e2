//! Files that small writes tear, laid together again as a mount with `autodefrag` does.

use super::bench::{Bench, Setup, create};
use super::patterns::Program;
use brindle_fs::{
    AutodefragStatistics, ContentsWish, Filesystem, InodeFlags, NewInode, OpenFile, QgroupId, QgroupLimit,
    QgroupLimitFlags, RootId,
};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

const SECTOR: u64 = 4096;

/// Writes a file in order, and then each other sector of it, so that no two of its extents lie side by side.
fn tear(program: &Program<'_>, path: &str, sectors: u64) {
    let file = program.create(path);
    program.write(&file, 0, &vec![1; usize::try_from(sectors * SECTOR).expect("small")]);
    program.sync(&file);
    for sector in (0..sectors).step_by(2) {
        program.write(&file, sector * SECTOR, &[2; 4096]);
    }
    program.sync(&file);
    program.close(file);
}

/// Does all that upkeep would do within the next hour, and commits; the work so far.
fn keep_up(filesystem: &Filesystem) -> AutodefragStatistics {
    filesystem.sync().expect("commits");
    let later = Instant::now() + Duration::from_secs(3600);
    while filesystem.autodefrag_step(later, &|| true).expect("writable") {}
    filesystem.sync().expect("commits");
    filesystem.verify();
    filesystem.autodefrag_statistics()
}

/// Number of extents of a file.
fn extents(filesystem: &Filesystem, file: &OpenFile) -> u64 {
    let wish = ContentsWish { run_bytes: 1, ..ContentsWish::default() };
    let found = filesystem.defragment_contents(file, 0, &wish).expect("readable");
    assert_eq!((found.moved, found.next), (0, None), "it only counts");
    found.extents
}

fn extents_at(filesystem: &Filesystem, path: &str) -> u64 {
    let program = Program::new(filesystem);
    let file = program.open(path);
    let count = extents(filesystem, &file);
    program.close(file);
    count
}

#[test]
fn a_file_that_small_writes_have_torn_is_laid_together_by_upkeep() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    filesystem.set_autodefrag(true);
    let program = Program::new(&filesystem);
    tear(&program, "torn", 1000);
    let (before, id) = (program.read("torn"), program.find("torn").expect("there"));
    let times = || {
        let found = filesystem.attributes(id).expect("there");
        (found.modified, found.changed, found.size, found.disk_bytes)
    };
    let shown = times();
    assert_eq!(extents_at(&filesystem, "torn"), 1000);
    assert!(!filesystem.autodefrag_step(Instant::now(), &|| true).expect("writable"), "no commit has it");
    filesystem.sync().expect("commits");
    assert!(!filesystem.autodefrag_step(Instant::now(), &|| true).expect("writable"), "it was just written");
    let later = Instant::now() + Duration::from_secs(3600);
    assert!(!filesystem.autodefrag_step(later, &|| false).expect("writable"), "the mount rests");
    assert_eq!(filesystem.autodefrag_statistics().waiting_files, 1);
    let done = keep_up(&filesystem);
    assert!((done.waiting_files, done.parts, done.shared_extents) == (0, 4, 0), "{done:?}");
    assert!(done.moved_extents > 990 && done.moved_bytes > 990 * SECTOR, "{done:?}");
    let left = extents_at(&filesystem, "torn");
    assert!(left <= 8, "{left} extents");
    assert_eq!((program.read("torn"), times()), (before, shown));
    assert_eq!(keep_up(&filesystem), done, "what it has written itself is not noted");
    filesystem.shutdown().expect("closes");
    bench.assert_clean("laid together");
    bench.assert_btrfs_check("laid together");
}

#[test]
fn places_torn_before_stay_unless_a_small_write_is_beside_them() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let program = Program::new(&filesystem);
    tear(&program, "torn", 1000);
    assert_eq!(keep_up(&filesystem), AutodefragStatistics::default(), "it is off");
    filesystem.set_autodefrag(true);
    let file = program.open("torn");
    program.write(&file, 500 * SECTOR, &[3; 4096]);
    program.close(file);
    let before = program.read("torn");
    let done = keep_up(&filesystem);
    // Three blocks of a quarter of a MiB, less the runs at the ends.
    assert!((100..192).contains(&done.moved_extents), "{done:?}");
    assert_eq!(extents_at(&filesystem, "torn"), 1001 - done.moved_extents);
    assert_eq!(program.read("torn"), before);
    filesystem.set_autodefrag(false);
    let file = program.open("torn");
    program.write(&file, 0, &[4; 4096]);
    program.close(file);
    assert_eq!(keep_up(&filesystem), done);
    filesystem.shutdown().expect("closes");
    bench.assert_clean("laid together in part");
}

#[test]
fn extents_that_a_snapshot_shares_go_on_sharing_under_upkeep() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    filesystem.set_autodefrag(true);
    let program = Program::new(&filesystem);
    tear(&program, "torn", 64);
    filesystem.snapshot(RootId::FS_TREE, filesystem.root(), b"snapshot", true).expect("a snapshot");
    let used = |filesystem: &Filesystem| {
        let groups = filesystem.pool().block_groups().expect("known");
        let data = groups.iter().filter(|group| group.kind.contains(brindle_ondisk::BlockGroupType::DATA));
        data.map(|group| group.used_bytes + group.reserved_bytes).sum::<u64>()
    };
    filesystem.sync().expect("commits");
    let before = used(&filesystem);
    let done = keep_up(&filesystem);
    assert_eq!((done.moved_extents, done.shared_extents, used(&filesystem)), (0, 64, before), "{done:?}");
    // Sectors that the file alone has are laid together, and those that it shares stay beside them.
    let file = program.open("torn");
    for sector in (16..48).rev() {
        program.write(&file, sector * SECTOR, &[5; 4096]);
        program.sync(&file);
    }
    let done = keep_up(&filesystem);
    assert_eq!((done.moved_extents, extents(&filesystem, &file)), (32, 33), "{done:?}");
    program.close(file);
    let mut expected = program.read("snapshot/torn").expect("there");
    expected[16 * 4096..48 * 4096].fill(5);
    assert_eq!(program.read("torn"), Some(expected));
    filesystem.shutdown().expect("closes");
    bench.assert_clean("shared");
    bench.assert_btrfs_check("shared");
}

#[test]
fn files_written_in_place_in_read_only_subvolumes_and_gone_ones_are_left_alone() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    filesystem.set_autodefrag(true);
    let program = Program::new(&filesystem);
    let id = create(&filesystem, 0, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let file = filesystem.open_file(id).expect("opens");
    for sector in (0..64).rev() {
        program.write(&file, sector * SECTOR, &[2; 4096]);
        program.sync(&file);
    }
    program.close(file);
    assert_eq!(filesystem.autodefrag_statistics().waiting_files, 0, "it was to be written in place");
    let new = NewInode { mode: 0o040_755, ..NewInode::default() };
    filesystem.create_subvolume(filesystem.root(), b"subvolume", &new).expect("a subvolume");
    let root = program.find("subvolume").expect("there");
    tear(&program, "subvolume/torn", 64);
    tear(&program, "gone", 64);
    filesystem.set_subvolume_read_only(root.tree, true).expect("none writes");
    program.unlink("gone");
    assert_eq!(filesystem.autodefrag_statistics().waiting_files, 2);
    let done = keep_up(&filesystem);
    assert_eq!((done.waiting_files, done.moved_extents), (0, 0), "{done:?}");
    filesystem.set_subvolume_read_only(root.tree, false).expect("none reads");
    assert_eq!(extents_at(&filesystem, "subvolume/torn"), 64);
    filesystem.shutdown().expect("closes");
    bench.assert_clean("left alone");
}

#[test]
fn upkeep_goes_beyond_no_quota() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    filesystem.set_autodefrag(true);
    let program = Program::new(&filesystem);
    tear(&program, "torn", 256);
    filesystem.sync().expect("commits");
    filesystem.pool().enable_quotas().expect("writable");
    while filesystem.pool().quota_rescan_step().expect("readable").is_some() {}
    let group = QgroupId::of_subvolume(RootId::FS_TREE);
    let limit = |bytes: u64| QgroupLimit {
        flags: QgroupLimitFlags::MAX_RFER.bits().into(),
        max_rfer: bytes.into(),
        ..QgroupLimit::new_zeroed()
    };
    filesystem.pool().limit_quota_group(group, limit(258 * SECTOR + (512 << 10))).expect("there");
    let done = keep_up(&filesystem);
    assert_eq!((done.moved_extents, done.waiting_files), (0, 0), "{done:?}");
    filesystem.pool().limit_quota_group(group, limit(64 << 20)).expect("there");
    let file = program.open("torn");
    program.write(&file, 128 * SECTOR, &[3; 4096]);
    program.close(file);
    let done = keep_up(&filesystem);
    assert!(done.moved_extents > 100, "{done:?}");
    filesystem.shutdown().expect("closes");
    bench.assert_clean("within the limit");
}
