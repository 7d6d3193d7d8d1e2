//! Places of what one sync writes to a hard disk whose free space has holes: few ranges, for the disk seeks for each.

use super::modelled::{Modelled, ONE_OF_EACH};
use crate::contents::patterns::Program;
use crate::simulated::{Layout, Pool, check};
use brindle_device::WritableDevice;
use brindle_fs::{FsError, OpenFile, WriteBackMode};
use brindle_ondisk::item::Compression;
use brindle_ondisk::{Profile, to_usize};
use brindle_sim::{Drive, DriveCounts, ModelDevice, Random};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Length of a file that is written at random, in blocks; writes of a sync; syncs of a run.
const BLOCKS: u64 = 8192;
const WRITES: u64 = 100;
const SYNCS: u64 = 10;
/// Number of files, of which every other one is removed, and their length: longer than what is kept in an item.
const FILES: u64 = 3000;
const FILE_BYTES: u64 = 2 * BLOCK;

const DISK: Layout = Layout { devices: 1, fast: 0, ..ONE_OF_EACH };

fn writable(devices: &[Arc<ModelDevice>]) -> Vec<Arc<dyn WritableDevice>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect()
}

/// Closes the pool and opens it, so that no allocation goes on behind the last one.
fn reopen(pool: Modelled, layout: &Layout) -> Modelled {
    let Modelled { time, devices, filesystem } = pool;
    filesystem.shutdown().expect("closes");
    drop(filesystem);
    let again = Pool::on(writable(&devices), layout);
    Modelled { filesystem: again.open().expect("opens"), time, devices }
}

/// A pool with a file to be written at random, and holes of the length of two blocks before the free space.
fn with_holes(layout: &Layout, drives: Vec<Drive>, mode: WriteBackMode) -> Modelled {
    let pool = Modelled::writing_back(layout, drives, mode, 0);
    let program = Program::new(&pool.filesystem);
    let image = program.create("image");
    (0..BLOCKS * BLOCK / MIB).for_each(|number| program.write(&image, number * MIB, &vec![5; 1 << 20]));
    program.close(image);
    program.make_directory("files");
    for number in 0..FILES {
        let file = program.create(&format!("files/{number}"));
        program.write(&file, 0, &contents(number, FILE_BYTES));
        program.close(file);
    }
    pool.filesystem.sync().expect("commits");
    (0..FILES).step_by(2).for_each(|number| program.unlink(&format!("files/{number}")));
    pool.filesystem.sync().expect("commits");
    reopen(pool, layout)
}

/// Contents that differ by their number, half of which can be compressed.
fn contents(number: u64, length: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let byte = |at: u64| if at % BLOCK < BLOCK / 2 { random.number().to_le_bytes()[0] } else { 7 };
    (0..length).map(byte).collect()
}

/// Writes blocks at random, with a sync after each hundred, and compares them with what is read; the counts of the writes.
fn write_at_random(pool: &Modelled) -> Vec<DriveCounts> {
    let program = Program::new(&pool.filesystem);
    let image = program.open("image");
    // The first sync after a commit writes more of the log.
    program.write(&image, 0, &contents(1, BLOCK));
    program.sync(&image);
    pool.devices.iter().for_each(|device| device.reset_counts());
    let mut random = Random::new(3);
    let mut last = std::collections::BTreeMap::new();
    for number in 0..SYNCS * WRITES {
        let at = random.below(BLOCKS) * BLOCK;
        program.write(&image, at, &contents(number, BLOCK));
        last.insert(at, number);
        if number % WRITES == WRITES - 1 {
            program.sync(&image);
        }
    }
    let counts = pool.counts();
    verify(pool, &image, &last);
    program.close(image);
    counts
}

fn verify(pool: &Modelled, image: &OpenFile, last: &std::collections::BTreeMap<u64, u64>) {
    for (at, number) in last {
        let mut found = vec![0; to_usize(BLOCK)];
        pool.filesystem.read(image, *at, &mut found).expect("reads");
        assert!(found == contents(*number, BLOCK), "block at {at}");
    }
}

fn end(pool: Modelled) {
    pool.filesystem.shutdown().expect("closes");
    drop(pool.filesystem);
    check(&writable(&pool.devices)).expect("whole");
}

#[test]
fn blocks_of_one_sync_lie_side_by_side_on_a_disk_with_holes() {
    let pool = with_holes(&DISK, vec![Drive::hard_disk()], WriteBackMode::Off);
    let counts = write_at_random(&pool)[0];
    println!("{counts:#?}");
    assert!(counts.writes <= 7 * SYNCS && counts.seeks <= 7 * SYNCS, "{counts:?}");
    end(pool);
}

#[test]
fn mirrored_blocks_of_one_sync_lie_side_by_side_on_each_disk() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..DISK };
    let pool = with_holes(&layout, vec![Drive::hard_disk(), Drive::hard_disk()], WriteBackMode::Off);
    for counts in write_at_random(&pool) {
        println!("{counts:#?}");
        assert!(counts.writes <= 7 * SYNCS && counts.seeks <= 7 * SYNCS, "{counts:?}");
    }
    end(pool);
}

#[test]
fn files_of_one_commit_lie_side_by_side_on_a_disk_with_holes() {
    const NEW: u64 = 500;
    // The first just fit into holes, and so do the second when they are compressed.
    for (compression, length) in [(None, 2 * BLOCK), (Some(Compression::Zstd), 3 * BLOCK)] {
        let layout = Layout { compression, ..DISK };
        let pool = with_holes(&layout, vec![Drive::hard_disk()], WriteBackMode::Off);
        let program = Program::new(&pool.filesystem);
        program.make_directory("new");
        pool.filesystem.sync().expect("commits");
        pool.devices[0].reset_counts();
        for number in 0..NEW {
            let file = program.create(&format!("new/{number}"));
            program.write(&file, 0, &contents(number, length));
            program.close(file);
        }
        // Some files at a time.
        (0..NEW).step_by(50).for_each(|_| pool.filesystem.write_back_some(0));
        let counts = pool.counts()[0];
        println!("{compression:?}: {counts:#?}");
        assert!(counts.seeks <= NEW / 20, "{counts:?}");
        for number in 0..NEW {
            let found = program.read(&format!("new/{number}")).expect("there");
            assert!(found == contents(number, length), "file {number}");
        }
        end(pool);
    }
}

/// Small holes are taken when there are no others, down to the last.
#[test]
fn a_pool_that_has_only_small_holes_left_takes_writes_until_it_is_full() {
    let layout = Layout { device_mib: 256, ..DISK };
    let pool = with_holes(&layout, vec![Drive::hard_disk()], WriteBackMode::Off);
    let program = Program::new(&pool.filesystem);
    // All of the rest is taken.
    let filler = program.create("filler");
    let mut filled = 0;
    while let Ok(written) = pool.filesystem.write(&filler, filled, &[9; 1 << 16]) {
        filled += brindle_ondisk::to_u64(written);
    }
    program.close(filler);
    pool.filesystem.sync().expect("commits");
    let holes: Vec<u64> = (1..FILES).step_by(2).step_by(2).collect();
    holes.iter().for_each(|number| program.unlink(&format!("files/{number}")));
    pool.filesystem.sync().expect("commits");
    pool.filesystem.sync().expect("commits");
    let file = program.create("scattered");
    let mut taken = 0;
    let full = loop {
        // Every other block, so that each is an extent of its own.
        match pool.filesystem.write(&file, 2 * taken * BLOCK, &contents(taken, BLOCK)) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        if taken % WRITES == 0 {
            program.sync(&file);
        }
    };
    assert!(matches!(full, FsError::Tree(brindle_tree::TreeError::NoSpace(_))), "{full}");
    program.sync(&file);
    let freed = brindle_ondisk::to_u64(holes.len()) * FILE_BYTES;
    println!("{} of {freed} bytes", taken * BLOCK);
    assert!(taken * BLOCK >= freed, "{} of {freed} bytes", taken * BLOCK);
    for number in 0..taken {
        let mut found = vec![0; to_usize(BLOCK)];
        pool.filesystem.read(&file, 2 * number * BLOCK, &mut found).expect("reads");
        assert!(found == contents(number, BLOCK), "block {number}");
    }
    program.close(file);
    end(pool);
}
