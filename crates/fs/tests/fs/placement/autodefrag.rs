//! Torn files of pools with two classes of devices, laid together as a mount with `autodefrag` does.

use super::MIB;
use super::ground::{MixedPool, put};
use super::writeback::{destage, is_on_flash, pool, read, sync_more, waiting};
use brindle_fs::{Filesystem, InodeId, WriteBackMode};
use std::time::{Duration, Instant};

/// Does all that upkeep would do within the next hour; extents that were written anew so far, and files that wait.
fn keep_up(fs: &Filesystem) -> (u64, u64) {
    let later = Instant::now() + Duration::from_secs(3600);
    while fs.autodefrag_step(later, &|| true).expect("writable") {}
    let done = fs.autodefrag_statistics();
    (done.moved_extents, done.waiting_files)
}

fn tear(fs: &Filesystem, id: InodeId) {
    let file = fs.open_file(id).expect("there it is");
    for sector in (0..64).step_by(2) {
        fs.write(&file, sector * 4096, &[7; 4096]).expect("room");
    }
    fs.close_file(file).expect("closes");
}

fn torn(pool: &MixedPool) -> (Filesystem, InodeId) {
    let fs = pool.open();
    fs.set_autodefrag(true);
    let id = put(&fs, fs.root(), "torn", 64 * 4096).expect("room");
    fs.sync().expect("commits");
    tear(&fs, id);
    (fs, id)
}

#[test]
fn data_that_waits_on_flash_is_left_to_destaging_by_upkeep() {
    let pool = pool(WriteBackMode::Sync);
    let (fs, id) = torn(&pool);
    sync_more(&fs, id, 0, 4096);
    fs.sync().expect("commits");
    let before = waiting(&fs);
    assert!(before > 0);
    assert_eq!(keep_up(&fs).0, 0);
    assert_eq!(waiting(&fs), before);
    destage(&fs);
    pool.close(fs);
}

#[test]
fn no_sleeping_disk_is_woken_to_lay_a_file_together() {
    let pool = pool(WriteBackMode::Off);
    let (fs, id) = torn(&pool);
    fs.sync().expect("commits");
    assert!(!is_on_flash(&fs, id));
    let contents = read(&fs, id);
    // A commit that has nothing for the disks: they sleep from there on.
    let names = |number: u64| format!("empty{number}");
    put(&fs, fs.root(), &names(0), 0).expect("room");
    fs.sync().expect("commits");
    let asleep = || fs.pool().volume().traffic().iter().filter(|device| device.is_asleep).count();
    assert_eq!(asleep(), 2);
    assert_eq!(keep_up(&fs), (0, 1), "it waits");
    put(&fs, fs.root(), &names(1), 0).expect("room");
    fs.sync().expect("commits");
    assert_eq!((keep_up(&fs), asleep()), ((0, 1), 2), "nothing was written there");
    // Other contents have woken its disk.
    put(&fs, fs.root(), "other", MIB).expect("room");
    fs.sync().expect("commits");
    assert_eq!((keep_up(&fs), asleep()), ((64, 0), 1), "it was awake");
    assert_eq!(read(&fs, id), contents);
    fs.sync().expect("commits");
    pool.close(fs);
}
