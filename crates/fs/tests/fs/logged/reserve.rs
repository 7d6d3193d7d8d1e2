//! Requests of a device for an fsync: the blocks of a log lie in one run, whatever has become of the space around it.

use super::tiers::{ONE_OF_EACH, TWO_OF_EACH, recorded};
use crate::contents::patterns::Program;
use crate::simulated::{Layout, Pool, check};
use brindle_device::WritableDevice;
use brindle_fs::Filesystem;
use brindle_ondisk::BlockGroupType;
use brindle_sim::{Drive, EventKind, Image, ModelDevice, Random, Recorder, VirtualTime};
use std::sync::Arc;

/// Fsyncs of each pattern, and between two commits.
const ROUNDS: u32 = 1000;
const ROUNDS_PER_COMMIT: u32 = 250;
/// First superblock of a device.
const SUPERBLOCK: u64 = 64 << 10;

/// Requests while logs are synced.
#[derive(Debug, Default, PartialEq, Eq)]
struct Requests {
    /// Writes of a log.
    syncs: usize,
    /// Writes to metadata block groups on the first device.
    metadata: usize,
    superblocks: usize,
    flushes: usize,
    /// Requests of disks, in a pool that has SSDs.
    of_disks: usize,
}

/// Counts requests while a pool is used, and no commit comes.
fn requests(
    layout: &Layout,
    (recorder, filesystem): (&Recorder, &Filesystem),
    act: impl FnOnce(),
) -> Requests {
    let statistics = || filesystem.pool().commit_statistics();
    let (before, start) = (statistics(), recorder.position());
    act();
    let after = statistics();
    assert_eq!((after.log.commits, after.commits), (before.log.commits, before.commits), "commits");
    let groups = filesystem.pool().block_groups().expect("writable");
    let is_metadata = |at: u64| {
        let metadata = groups.iter().filter(|group| group.kind.contains(BlockGroupType::METADATA));
        let holds = |(start, length): (u64, u64)| (start..start + length).contains(&at);
        let on_first = |devid: u64, start| (devid == 1).then_some(start);
        metadata
            .flat_map(|group| {
                group.stripes.iter().map(|(devid, start)| (devid.get(), *start, group.stripe_bytes))
            })
            .any(|(devid, start, bytes)| on_first(devid, start).is_some_and(|start| holds((start, bytes))))
    };
    let syncs = usize::try_from(after.log.syncs - before.log.syncs).expect("few");
    let mut found = Requests { syncs, ..Requests::default() };
    for event in &recorder.recording().events()[start..] {
        match &event.kind {
            _ if event.device >= layout.fast => found.of_disks += 1,
            _ if event.device > 0 => {}
            EventKind::Flush => found.flushes += 1,
            EventKind::Change(change) if change.offset() == SUPERBLOCK => found.superblocks += 1,
            EventKind::Change(change) if is_metadata(change.offset()) => found.metadata += 1,
            _ => {}
        }
    }
    found
}

/// Name and single round of a program.
type Pattern = (&'static str, fn(&Program<'_>, u32));

fn create(program: &Program<'_>, round: u32) {
    program.put(&format!("files/{round}"), b"created");
}

fn rename(program: &Program<'_>, round: u32) {
    program.put("files/new", &round.to_le_bytes());
    program.rename("files/new", "files/name");
    program.sync_directory("files");
}

fn delete(program: &Program<'_>, round: u32) {
    program.unlink(&format!("files/{round}"));
    program.sync_directory("files");
}

fn write(program: &Program<'_>, path: &str, at: u32, bytes: &[u8]) {
    let file = program.open(path);
    program.write(&file, at.into(), bytes);
    program.sync(&file);
    program.close(file);
}

fn append(program: &Program<'_>, round: u32) {
    write(program, "appended", round * 300, &[5; 300]);
}

fn overwrite(program: &Program<'_>, round: u32) {
    write(program, "overwritten", (round * 7 % 64) << 12, &[6; 4096]);
}

#[test]
fn each_sync_is_one_write_of_each_copy_of_the_log_and_two_flushes() {
    let patterns: [Pattern; 5] = [
        ("create", create),
        ("rename", rename),
        ("append", append),
        ("overwrite", overwrite),
        ("delete", delete),
    ];
    for (layout, copies) in [(ONE_OF_EACH, 2), (TWO_OF_EACH, 1)] {
        let (recorder, filesystem) = recorded(&layout, 0x7b);
        let program = Program::new(&filesystem);
        program.make_directory("files");
        program.put("appended", b"");
        program.put("overwritten", &[1; 256 << 10]);
        // Data of small files has a block group on the SSDs.
        program.put("first", &[1; 12 << 10]);
        filesystem.sync().expect("commits");
        for (name, act) in patterns {
            for first in (0..ROUNDS).step_by(ROUNDS_PER_COMMIT as usize) {
                // What a commit leaves to be flushed, and the first block group of the write-back tier.
                program.put(&format!("{name} from {first}"), &[1; 20 << 10]);
                let rounds = first..first + ROUNDS_PER_COMMIT;
                let found = requests(&layout, (&recorder, &filesystem), || {
                    rounds.for_each(|round| act(&program, round));
                });
                let syncs = found.syncs;
                let expected = Requests {
                    syncs,
                    metadata: copies * syncs,
                    superblocks: syncs,
                    flushes: 2 * syncs,
                    of_disks: 0,
                };
                assert_eq!(found, expected, "{name}, {copies} copies on the device");
                assert!(syncs >= ROUNDS_PER_COMMIT as usize, "{name}: {syncs} syncs");
                filesystem.sync().expect("commits");
            }
        }
    }
}

/// A small pool on a modelled disk that is full of data, so that it has the metadata chunk of mkfs and no other.
const FULL: Layout = Layout { devices: 1, device_mib: 256, nodesize: 4096, fast: 0, ..ONE_OF_EACH };
/// Files that come and go there, of some 1000 bytes in the leaves.
const FILES: usize = 10_200;
const COMMITS: u32 = 120;
const CHANGES_PER_COMMIT: usize = 400;

/// Takes all space for data, but for some that is free.
fn fill(filesystem: &Filesystem) {
    let program = Program::new(filesystem);
    program.put("spare", &[1; 4 << 20]);
    let file = program.create("large");
    let mut at = 0;
    while filesystem.write(&file, at, &vec![1; 1 << 20]).is_ok() {
        at += 1 << 20;
    }
    program.close(file);
    filesystem.sync().expect("commits");
    program.unlink("spare");
    program.make_directory("files");
    program.make_directory("synced");
    filesystem.sync().expect("commits");
}

#[test]
fn metadata_space_that_is_nearly_full_and_in_pieces_has_a_run_for_each_sync() {
    let time = VirtualTime::new();
    let image = Image::new(FULL.device_bytes());
    let device = Arc::new(ModelDevice::new("disk", image, Drive::hard_disk(), &time));
    let devices = vec![Arc::clone(&device) as Arc<dyn WritableDevice>];
    FULL.mkfs(&devices);
    let mut pool = Pool::on(devices.clone(), &FULL);
    pool.write.tree_log = true;
    let filesystem = pool.open().expect("opens");
    fill(&filesystem);
    let program = Program::new(&filesystem);
    let (mut random, mut there) = (Random::new(5), vec![false; FILES]);
    let (mut syncs, mut writes, mut flushes, mut seeks, mut took) = (0, 0, 0, 0, 0);
    for commit in 0..COMMITS {
        for _ in 0..CHANGES_PER_COMMIT {
            let number = random.index(FILES);
            let path = format!("files/{number}");
            if !there[number] {
                let file = program.create(&path);
                program.write(&file, 0, &vec![1; 100 + random.index(1800)]);
                program.close(file);
                there[number] = true;
            } else if random.index(4) == 0 {
                program.unlink(&path);
                there[number] = false;
            }
        }
        filesystem.sync().expect("commits");
        program.put(&format!("synced/behind{commit}"), b"");
        let statistics = || filesystem.pool().commit_statistics().log;
        let (before, begun) = (statistics(), time.now_ns());
        device.reset_counts();
        (0..20).for_each(|round| program.put(&format!("synced/{round}"), &[1; 900]));
        let (after, counts) = (statistics(), device.counts());
        if commit >= COMMITS / 2 {
            assert_eq!(after.commits, before.commits, "commit {commit}: fsyncs that were commits");
            syncs += after.syncs - before.syncs;
            (writes, flushes) = (writes + counts.writes, flushes + counts.flushes);
            (seeks, took) = (seeks + counts.seeks, took + time.now_ns() - begun);
        }
        (0..20).for_each(|round| program.unlink(&format!("synced/{round}")));
    }
    let used: u64 = filesystem
        .pool()
        .block_groups()
        .expect("writable")
        .iter()
        .filter(|group| group.kind.contains(BlockGroupType::METADATA))
        .map(|group| group.used_bytes * 100 / group.length)
        .sum();
    println!(
        "{used} % used; {syncs} syncs: {writes} writes, {flushes} flushes, {seeks} seeks, {} us each",
        took / syncs / 1000
    );
    assert!(used > 75, "{used} % of the metadata chunk are used");
    assert_eq!((writes, flushes), (3 * syncs, 2 * syncs), "two copies of a log, the superblock");
    filesystem.sync().expect("commits");
    drop(filesystem);
    check(&devices).expect("whole");
}
