//! The only SSD of a pool, on which data waits with one copy by the owner's choice, fails to be written: the pool goes on with the
//! disks.

use super::MIB;
use super::ground::{Making, MixedPool, devices_of_file, names, put};
use super::writeback::{contents, destage, is_on_flash, read, synced, waiting};
use brindle_care::device::rejoin;
use brindle_care::job::Control;
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_device::{AsDevice, WritableDevice};
use brindle_fs::{
    Filesystem, OpenOptions, WriteBackMode, WriteBackObstacle, WriteBackSettings, WriteBackWish,
};
use brindle_ondisk::Profile;
use brindle_policy::writeback::{DestageReason, DestageSettings};
use brindle_sim::{Fault, FaultyDevice};
use std::sync::Arc;
use std::time::Duration;

/// Two disks in raid1, and an SSD that can be told to fail, on which data waits.
pub(super) fn pool() -> (MixedPool, Arc<FaultyDevice>) {
    let devices = &[(Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let ssd = Arc::new(FaultyDevice::new(Arc::clone(&pool.devices[0])));
    pool.devices[0] = Arc::clone(&ssd) as Arc<dyn WritableDevice>;
    (pool, ssd)
}

/// The pool with a file of 1 MiB that waits on the SSD.
pub(super) fn opened(pool: &MixedPool) -> Filesystem {
    let fs = pool.open();
    let single = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
    fs.set_write_back(single).expect("writable");
    let file = synced(&fs, "before", MIB);
    assert!(is_on_flash(&fs, file));
    fs.commit().expect("commits");
    fs
}

pub(super) fn is_whole(fs: &Filesystem, name: &str) -> bool {
    let found = fs.lookup(fs.root(), name.as_bytes()).expect("readable").expect("it was synced");
    let file = fs.open_file(found.inode).expect("there it is");
    let (mut bytes, expected) = (vec![0; MIB], contents(MIB));
    let mut at = 0;
    while at < bytes.len() {
        match fs.read(&file, at as u64, &mut bytes[at..]) {
            Ok(0) | Err(_) => return false,
            Ok(count) => at += count,
        }
    }
    bytes == expected
}

/// Regression: the pool stopped.
#[test]
fn data_that_an_ssd_refuses_goes_to_the_disks_in_the_same_sync() {
    let (pool, ssd) = pool();
    let fs = opened(&pool);
    ssd.inject(Fault::Write { number: ssd.counts().writes });
    let refused = synced(&fs, "refused", MIB);
    assert_eq!((ssd.counts().faults, devices_of_file(&fs, refused)), (1, names(&["memory2", "memory3"])));
    let status = fs.write_back_status().expect("readable");
    assert_eq!((status.obstacle, status.waiting_bytes), (Some(WriteBackObstacle::Refused), 1 << 20));
    let reason = fs.reason_to_destage(&DestageSettings::default(), Duration::MAX);
    assert_eq!(reason.expect("readable"), Some(DestageReason::Off), "it moves away from there");
    destage(&fs);
    assert_eq!(waiting(&fs), 0);
    let next = synced(&fs, "next", MIB);
    assert_eq!(devices_of_file(&fs, next), names(&["memory2", "memory3"]));
    for name in ["before", "refused", "next"] {
        assert!(is_whole(&fs, name), "{name}");
    }
    pool.close(fs);
    // A mount begins anew.
    let fs = pool.open();
    let file = synced(&fs, "later", MIB);
    assert!(is_on_flash(&fs, file));
    pool.close(fs);
}

/// Regression: the pool stopped.
#[test]
fn a_pool_goes_on_when_its_ssd_is_gone_and_holds_after_a_crash_what_was_synced_since() {
    for waits in [false, true] {
        let (mut pool, ssd) = pool();
        let fs = opened(&pool);
        if !waits {
            destage(&fs);
            fs.commit().expect("commits");
        }
        ssd.vanish();
        for number in 0..4 {
            synced(&fs, &format!("after{number}"), MIB);
        }
        put(&fs, fs.root(), "not synced", 300 << 10).expect("room");
        fs.sync().expect("without the SSD");
        synced(&fs, "after4", MIB);
        assert!(fs.is_writable() && is_whole(&fs, "after0"));
        assert_eq!(is_whole(&fs, "before"), !waits);
        // A crash.
        drop(fs);
        pool.devices.remove(0);
        pool.open.pool.volume.degraded = true;
        let opened = Filesystem::open_writable(pool.devices.clone(), &pool.open, &pool.write);
        let fs = match waits {
            false => opened.unwrap_or_else(|error| panic!("{error}")),
            true => {
                let said = opened.expect_err("what waited is lost").to_string();
                assert!(said.contains("1 chunk can't be read without"), "{said}");
                let there = pool.devices.iter().cloned().map(AsDevice::share_device);
                Filesystem::open(there.collect(), &pool.open).expect("readable")
            }
        };
        for number in 0..5 {
            assert!(is_whole(&fs, &format!("after{number}")), "{number}");
        }
        assert_eq!(is_whole(&fs, "before"), !waits);
    }
}

/// After a restart, an SSD often answers again.
#[test]
fn an_ssd_that_the_pool_went_on_without_rejoins_with_what_waits_on_it() {
    let (mut pool, ssd) = pool();
    let fs = opened(&pool);
    ssd.vanish();
    synced(&fs, "after", MIB);
    fs.sync().expect("without the SSD");
    synced(&fs, "later", MIB);
    drop(fs);
    ssd.heal();
    let opened = Filesystem::open_writable(pool.devices.clone(), &pool.open, &pool.write);
    let said = opened.expect_err("it has missed commits").to_string();
    assert!(said.contains("stale"), "{said}");
    let ssd = pool.devices.remove(0);
    pool.open.pool.volume.degraded = true;
    let opened = Filesystem::open_writable(pool.devices.clone(), &pool.open, &pool.write);
    let said = opened.expect_err("something waits on it").to_string();
    assert!(said.contains("`brindle device rejoin` takes a device in"), "{said}");
    pool.open.pool.volume.accepts_loss = true;
    let fs = pool.open();
    let rejoined = rejoin(&fs, &ssd, &mut |_| Control::Continue);
    let (_, ended) = rejoined.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0));
    fs.shutdown().expect("closes");
    drop(fs);
    pool.devices.insert(0, ssd);
    pool.open = OpenOptions::default();
    let fs = pool.open();
    for name in ["before", "after", "later"] {
        assert!(is_whole(&fs, name), "{name}");
    }
    pool.close(fs);
}

#[test]
fn an_ssd_that_was_away_for_a_while_is_whole_with_the_next_commit() {
    let (pool, ssd) = pool();
    let fs = opened(&pool);
    ssd.vanish();
    synced(&fs, "without it", MIB);
    fs.sync().expect("without the SSD");
    ssd.heal();
    synced(&fs, "with it", MIB);
    fs.sync().expect("with the SSD");
    for name in ["before", "without it", "with it"] {
        assert!(is_whole(&fs, name), "{name}");
    }
    pool.close(fs);
    let fs = pool.open();
    assert!(is_whole(&fs, "before") && is_whole(&fs, "without it"));
    pool.close(fs);
}

/// Data that the SSD has taken, and no flush has covered, is nowhere else.
#[test]
fn a_flush_that_loses_what_waits_ends_all_writing_as_of_the_last_commit() {
    let (pool, ssd) = pool();
    let fs = opened(&pool);
    ssd.inject(Fault::FlushesFrom { number: ssd.counts().flushes });
    let new = brindle_fs::NewInode { mode: 0o100_644, ..Default::default() };
    let made = fs.create(fs.root(), b"lost", &new).expect("room");
    let file = fs.open_file(made.id).expect("there it is");
    fs.write(&file, 0, &contents(MIB)).expect("into memory");
    fs.sync_file(&file).expect_err("its data is not durable");
    let why = fs.pool().read_only_reason().expect("the pool is read-only");
    assert!(why.contains("memory1"), "{why}");
    drop((file, fs));
    ssd.heal();
    let fs = pool.open();
    assert!(is_whole(&fs, "before"));
    assert!(fs.lookup(fs.root(), b"lost").expect("readable").is_none());
    assert!(
        read(&fs, fs.lookup(fs.root(), b"before").expect("readable").expect("there").inode) == contents(MIB)
    );
    pool.close(fs);
}
