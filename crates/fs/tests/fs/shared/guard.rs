//! Commits look at the superblocks that they are about to replace.

use super::{PAIRS, put, superblocks};
use crate::contents::patterns::Program;
use crate::simulated::{Layout, Pool};
use brindle_device::WritableDevice;
use brindle_fs::Filesystem;
use brindle_ondisk::SUPERBLOCK_OFFSETS;
use brindle_sim::{Drive, Image, ModelDevice, VirtualTime};
use std::sync::Arc;

/// Ends the use of a filesystem that found another writer: it can't write any more, and says so.
fn has_stopped(filesystem: &Filesystem, words: &[&str]) {
    assert!(!filesystem.is_writable());
    let reason = filesystem.pool().read_only_reason().expect("a reason");
    for word in words {
        assert!(reason.contains(word), "{word}: {reason}");
    }
}

#[test]
fn a_pool_that_another_writer_has_committed_to_is_not_published_over() {
    for loser_is_new in [false, true] {
        let pool = Pool::new(&PAIRS);
        let loser = pool.open().expect("opens");
        if !loser_is_new {
            put(&loser, "before");
            loser.sync().expect("alone");
        }
        let winner = pool.open().expect("no claim keeps it out");
        put(&winner, "its own");
        winner.sync().expect("nothing was written since it looked");
        let theirs = superblocks(&pool.devices);
        put(&loser, "lost");
        let error = loser.sync().expect_err("another writer").to_string();
        assert!(error.contains("another system or program writes the pool"), "{error}");
        has_stopped(&loser, &["memory", "found a superblock at 65536 of generation", "expected generation"]);
        assert!(superblocks(&pool.devices) == theirs, "nothing is published");
        assert!(loser.shutdown().is_err());
        drop(loser);
        assert!(superblocks(&pool.devices) == theirs, "nor at the end");
        put(&winner, "goes on");
        winner.sync().expect("nobody else has published anything");
    }
}

#[test]
fn waking_devices_at_the_end_spares_another_writers_superblocks() {
    let pool = Pool::new(&PAIRS);
    let loser = pool.open().expect("opens");
    put(&loser, "one");
    loser.sync().expect("alone");
    let winner = pool.open().expect("no claim keeps it out");
    put(&winner, "its own");
    winner.sync().expect("alone");
    let theirs = superblocks(&pool.devices);
    // It has nothing to commit.
    loser.shutdown().expect_err("another writer");
    has_stopped(&loser, &["another system or program"]);
    assert!(superblocks(&pool.devices) == theirs);
}

#[test]
fn a_torn_superblock_is_written_anew_and_a_wiped_one_is_another_writers() {
    let pool = Pool::new(&PAIRS);
    let filesystem = pool.open().expect("opens");
    put(&filesystem, "one");
    filesystem.sync().expect("alone");
    let whole = superblocks(&pool.devices);
    pool.devices[0].write_at(SUPERBLOCK_OFFSETS[0] + 2048, &[0xff; 512]).expect("in memory");
    assert!(superblocks(&pool.devices) != whole);
    put(&filesystem, "two");
    filesystem.sync().expect("no other writer tears superblocks");
    pool.check().expect("whole");
    pool.devices[1].write_at(SUPERBLOCK_OFFSETS[0], &[0; 4096]).expect("in memory");
    put(&filesystem, "three");
    filesystem.sync().expect_err("it was wiped");
    has_stopped(&filesystem, &["memory1", "no superblock of btrfs"]);
}

/// On modelled disks, exactly: a commit reads the superblock of one device before it writes, and of each device that takes part
/// before its superblocks; an fsync by the log reads none.
#[test]
fn a_commit_reads_a_superblock_of_each_device_and_one_more_and_an_fsync_none() {
    let layout = Layout { devices: 2, fast: 0, ..PAIRS };
    let time = VirtualTime::new();
    let new = |number| {
        let image = Image::new(layout.device_bytes());
        Arc::new(ModelDevice::new(format!("disk{number}"), image, Drive::hard_disk(), &time))
    };
    let models: Vec<Arc<ModelDevice>> = (0..2).map(new).collect();
    let devices: Vec<Arc<dyn WritableDevice>> =
        models.iter().map(|model| Arc::clone(model) as Arc<dyn WritableDevice>).collect();
    layout.mkfs(&devices);
    let mut pool = Pool::on(devices, &layout);
    pool.write.tree_log = true;
    let filesystem = pool.open().expect("opens");
    let program = Program::new(&filesystem);
    let reads = || {
        let reads = models.iter().map(|model| model.counts().reads).collect::<Vec<_>>();
        models.iter().for_each(|model| model.reset_counts());
        reads
    };
    program.put("one", &[1; 4096]);
    filesystem.sync().expect("alone");
    reads();
    program.put("two", &[1; 4096]);
    program.put("three", &[1; 4096]);
    assert_eq!(filesystem.pool().commit_statistics().log.syncs, 2 + 1);
    assert_eq!(reads(), [0, 0], "fsyncs");
    let began = time.now_ns();
    filesystem.sync().expect("alone");
    println!("a commit of two hard disks takes {} us", (time.now_ns() - began) / 1000);
    assert_eq!(reads(), [2, 1], "a commit");
}
