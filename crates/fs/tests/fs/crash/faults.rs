//! Devices that fail: an error, never a panic, and the last commit is what is on disk.

use super::ONE;
use super::asleep::PAIRS;
use super::logs::SSD_AND_DISKS;
use super::subject::{Contents, LibrarySubject};
use crate::simulated::{Layout, Pool};
use brindle_device::WritableDevice;
use brindle_fs::{FsError, LogProfile, NewInode, TreeError};
use brindle_ondisk::Profile;
use brindle_sim::{Fault, FaultyDevice};
use brindle_testing::crash::{FaultKind, FaultTest};
use brindle_testing::operations::Mix;
use std::sync::Arc;

fn faults(name: &str, seed: u64, rounds: u64) -> FaultTest {
    let command = format!("cargo test -p brindle-fs --test fs crash::faults::{name}");
    let rounds =
        std::env::var("BRINDLE_FAULT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(rounds);
    let mix = Mix { file_bytes_max: 100 << 10, names_max: 25, xattr_bytes_max: 600, ..Mix::crash() };
    FaultTest { mix, ..FaultTest::new(&command, seed, rounds) }
}

#[test]
fn the_only_device_fails() {
    let met = faults("the_only_device_fails", 2000, 60).run(&LibrarySubject::failing(ONE));
    assert!(met > 0 || std::env::var_os("BRINDLE_FAULT_SEED").is_some(), "no run met its fault");
}

#[test]
fn one_of_two_devices_fails() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    faults("one_of_two_devices_fails", 2100, 60).run(&LibrarySubject::failing(layout));
}

#[test]
fn one_of_three_devices_with_parity_fails() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    faults("one_of_three_devices_with_parity_fails", 2200, 60).run(&LibrarySubject::failing(layout));
}

/// Regression: data was lost when a device that had failed to be written was used again.
#[test]
fn a_device_that_failed_once_is_not_trusted_after_a_remount() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    let subject = LibrarySubject::failing(layout);
    for seed in [2355, 2358] {
        faults("one_of_three_devices_with_parity_fails", seed, 1).run(&subject);
    }
}

/// Nothing but the device's superblock tells the right copy.
#[test]
fn one_of_two_devices_fails_and_nothing_has_checksums() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let subject = LibrarySubject::failing(layout).of(Contents::Unsummed);
    faults("one_of_two_devices_fails_and_nothing_has_checksums", 2400, 30).run(&subject);
}

#[test]
fn one_of_two_devices_fails_while_files_are_overwritten_in_place() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let subject = LibrarySubject::failing(layout).of(Contents::InPlace);
    faults("one_of_two_devices_fails_while_files_are_overwritten_in_place", 2500, 30).run(&subject);
}

#[test]
fn one_of_three_devices_with_parity_fails_while_files_are_overwritten_in_place() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    let subject = LibrarySubject::failing(layout).of(Contents::InPlace);
    let name = "one_of_three_devices_with_parity_fails_while_files_are_overwritten_in_place";
    faults(name, 2600, 30).run(&subject);
}

#[test]
fn one_of_four_devices_fails() {
    let layout = Layout { devices: 4, data: Profile::Raid10, metadata: Profile::Raid6, ..ONE };
    let subject = LibrarySubject::failing(layout).of(Contents::Unsummed);
    faults("one_of_four_devices_fails", 2700, 30).run(&subject);
}

#[test]
fn one_of_four_devices_with_two_parities_fails() {
    let layout = Layout { devices: 4, data: Profile::Raid6, metadata: Profile::Raid1c3, ..ONE };
    let subject = LibrarySubject::failing(layout).of(Contents::Unsummed);
    faults("one_of_four_devices_with_two_parities_fails", 2800, 30).run(&subject);
}

#[test]
fn devices_fail_while_fsyncs_are_logged() {
    let test = faults("devices_fail_while_fsyncs_are_logged", 3300, 40);
    let mix = Mix { sync_file: 30, contents: 55, names: 25, ..test.mix.clone() };
    let test = FaultTest { mix, ..test };
    test.run(&LibrarySubject::failing(ONE).logging());
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    test.run(&LibrarySubject::failing(layout).logging());
    test.run(&LibrarySubject::failing(SSD_AND_DISKS).logging_as(LogProfile::Single));
}

/// Any device of a pool in which bulk devices sleep; afterwards the pool is opened with it, and without.
#[test]
fn one_of_two_fast_or_two_bulk_devices_fails() {
    let test = faults("one_of_two_fast_or_two_bulk_devices_fails", 3400, 30);
    let mix = Mix { sync: 12, contents: 35, names: 40, ..test.mix.clone() };
    let test = FaultTest { mix, also_without: true, ..test };
    test.run(&LibrarySubject::failing(PAIRS));
    test.run(&LibrarySubject::failing(PAIRS).of(Contents::Unsummed));
    test.run(&LibrarySubject::failing(PAIRS).of(Contents::Unsummed).logging());
}

/// Regression: the item of a missing device kept counting bytes of chunks that were removed.
#[test]
fn a_pool_without_the_device_that_failed_gives_up_its_chunks() {
    let test = faults("one_of_two_fast_or_two_bulk_devices_fails", 3534, 1);
    let mix = Mix { sync: 12, contents: 35, names: 40, ..test.mix.clone() };
    FaultTest { mix, also_without: true, ..test }.run(&LibrarySubject::failing(PAIRS));
}

#[test]
fn the_only_device_fails_to_be_read() {
    let test = faults("the_only_device_fails_to_be_read", 2900, 40);
    FaultTest { kind: FaultKind::Reading, ..test }.run(&LibrarySubject::failing(ONE));
}

#[test]
fn one_of_two_devices_fails_to_be_read() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let test = faults("one_of_two_devices_fails_to_be_read", 3000, 40);
    FaultTest { kind: FaultKind::ReadingTolerated, ..test }.run(&LibrarySubject::failing(layout));
}

#[test]
fn one_of_three_devices_with_parity_fails_to_be_read() {
    let layout = Layout { devices: 3, data: Profile::Raid5, metadata: Profile::Raid5, ..ONE };
    let test = faults("one_of_three_devices_with_parity_fails_to_be_read", 3100, 40);
    FaultTest { kind: FaultKind::ReadingTolerated, ..test }.run(&LibrarySubject::failing(layout));
}

#[test]
fn a_small_device_is_full_and_fails() {
    let layout = Layout { device_mib: 128, ..ONE };
    let test = faults("a_small_device_is_full_and_fails", 2300, 40);
    let mix = Mix { file_bytes_max: 8 << 20, names_max: 60, contents: 80, ..test.mix.clone() };
    FaultTest { mix, operations: 80, ..test }.run(&LibrarySubject::crowded(layout));
}

/// A pool on a device that can be told to fail.
fn pool_on_faulty_device() -> (Pool, Arc<FaultyDevice>) {
    let plain = Pool::new(&ONE);
    let device = Arc::new(FaultyDevice::new(Arc::clone(&plain.devices[0])));
    let pool = Pool { devices: vec![Arc::clone(&device) as Arc<dyn WritableDevice>], ..plain };
    (pool, device)
}

#[test]
fn contents_that_could_not_be_written_early_are_an_error_of_the_next_sync() {
    let (mut pool, device) = pool_on_faulty_device();
    pool.write.dirty_bytes_max = 64 << 10;
    let fs = pool.open().expect("a new pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = fs.create(fs.root(), b"file", &new).expect("room");
    device.inject(Fault::WritesFrom { number: device.counts().writes });
    let file = fs.open_file(made.id).expect("there");
    fs.write(&file, 0, &[7; 128 << 10]).expect("into memory");
    while fs.is_writable() {
        fs.write(&file, 128 << 10, &[7; 128 << 10]).ok();
    }
    drop(file);
    device.heal();
    let error = fs.sync().expect_err("lost");
    assert!(matches!(error, FsError::WriteBack { file, .. } if file == made.id), "{error}");
    let error = fs.sync().expect_err("nothing is written any more");
    assert!(matches!(error, FsError::Tree(TreeError::ReadOnly(_))), "{error}");
}

#[test]
fn contents_that_a_device_refuses_end_all_writing_and_say_why() {
    let (pool, device) = pool_on_faulty_device();
    let fs = pool.open().expect("a new pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let kept = fs.create(fs.root(), b"kept", &new).expect("room");
    let file = fs.open_file(kept.id).expect("there");
    fs.write(&file, 0, &[1; 64 << 10]).expect("into memory");
    fs.sync_file(&file).expect("works");
    fs.write(&file, 4096, &[2; 32 << 10]).expect("into memory");
    let other = fs.create(fs.root(), b"other", &new).expect("room");
    // One write alone: the device is well again before a commit.
    device.inject(Fault::Write { number: device.counts().writes });
    let error = fs.sync_file(&file).expect_err("refused").to_string();
    device.heal();
    let why = fs.pool().read_only_reason().expect("the pool is read-only");
    assert!(error.contains("contents were lost") && why.contains(&kept.id.to_string()), "{error}, {why}");
    let other = fs.open_file(other.id).expect("there");
    fs.write(&other, 0, &[3; 10]).expect_err("read-only");
    fs.create(fs.root(), b"late", &new).expect_err("read-only");
    fs.sync_file(&other).expect_err("not durable, and never will be");
    drop((fs, file, other));
    pool.check().expect("the last commit is whole");
    let fs = pool.open().expect("once more");
    let mut bytes = vec![0; 64 << 10];
    fs.read(&fs.open_file(kept.id).expect("there"), 0, &mut bytes).expect("read");
    assert!(bytes.iter().all(|byte| *byte == 1), "as of the last commit");
    assert!(fs.lookup(fs.root(), b"other").expect("read").is_none());
}

#[test]
fn contents_that_one_device_of_a_mirror_refuses_are_no_reason_to_stop() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let plain = Pool::new(&layout);
    let device = Arc::new(FaultyDevice::new(Arc::clone(&plain.devices[0])));
    let devices = vec![Arc::clone(&device) as Arc<dyn WritableDevice>, Arc::clone(&plain.devices[1])];
    let pool = Pool { devices, ..plain };
    let fs = pool.open().expect("a new pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = fs.create(fs.root(), b"file", &new).expect("room");
    let file = fs.open_file(made.id).expect("there");
    fs.write(&file, 0, &[1; 64 << 10]).expect("into memory");
    device.inject(Fault::Write { number: device.counts().writes });
    fs.sync_file(&file).expect("the other copy is there");
    assert!(fs.is_writable() && device.counts().faults == 1);
}

#[test]
fn a_failed_commit_ends_all_writing_and_says_why() {
    let (pool, device) = pool_on_faulty_device();
    let fs = pool.open().expect("a new pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    fs.create(fs.root(), b"kept", &new).expect("room");
    fs.sync().expect("works");
    assert_eq!(fs.pool().read_only_reason(), None);
    fs.create(fs.root(), b"lost", &new).expect("room");
    device.inject(Fault::Flush { number: device.counts().flushes });
    let error = fs.sync().expect_err("the flush fails").to_string();
    assert_eq!(fs.pool().read_only_reason().as_deref(), Some(&*error));
    assert!(!fs.is_writable());
    fs.create(fs.root(), b"late", &new).expect_err("read-only");
    assert!(fs.lookup(fs.root(), b"kept").expect("still read").is_some());
    drop(fs);
    pool.check().expect("the last commit is whole");
    let fs = pool.open().expect("once more");
    assert!(fs.lookup(fs.root(), b"kept").expect("read").is_some());
    assert!(fs.lookup(fs.root(), b"lost").expect("read").is_none());
}

#[test]
fn device_errors_are_kept_with_the_pool() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let plain = Pool::new(&layout);
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&plain.devices[1])));
    let devices = vec![Arc::clone(&plain.devices[0]), Arc::clone(&faulty) as Arc<dyn WritableDevice>];
    let pool = Pool { devices, ..plain };
    let counted = |fs: &brindle_fs::Filesystem| -> Vec<[u64; 5]> {
        let all = fs.pool().device_statistics().expect("readable");
        all.into_iter().map(|(_, statistics)| statistics.values()).collect()
    };
    let fs = pool.open().expect("a new pool");
    assert_eq!(counted(&fs), [[0; 5]; 2]);
    faulty.inject(Fault::Write { number: faulty.counts().writes });
    faulty.inject(Fault::Flush { number: faulty.counts().flushes });
    for name in [&b"one"[..], b"two"] {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        fs.create(fs.root(), name, &new).expect("room");
        fs.sync().expect("the other device has it");
    }
    assert_eq!(counted(&fs), [[0; 5], [1, 0, 1, 0, 0]]);
    drop(fs);
    pool.check().expect("it has everything again");
    let fs = pool.open().expect("once more");
    assert_eq!(counted(&fs), [[0; 5], [1, 0, 1, 0, 0]]);
    let before = fs.pool().reset_device_statistics(brindle_ondisk::DevId::new(2)).expect("writable");
    assert_eq!(before.map(|before| before.values()), Some([1, 0, 1, 0, 0]));
    fs.sync().expect("a commit of nothing else");
    assert_eq!(counted(&fs), [[0; 5]; 2]);
    drop(fs);
    assert_eq!(counted(&pool.open().expect("and again")), [[0; 5]; 2]);
}
