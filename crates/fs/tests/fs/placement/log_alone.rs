//! The log on the only SSD of a pool (`log_profile=single`), which dies and comes back.

use super::MIB;
use super::ground::MixedPool;
use super::refusing::{is_whole, opened, pool};
use super::writeback::{contents, destage, synced};
use crate::simulated::commit_until_logs_are_reduced;
use brindle_care::device::{DeviceCareError, rejoin};
use brindle_care::job::{Control, Ended};
use brindle_device::{AsDevice, WritableDevice};
use brindle_fs::{Filesystem, LogProfile, NewInode, OpenOptions};
use brindle_ondisk::{DevId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_sim::{Fault, FaultyDevice};
use std::sync::Arc;

/// Addresses of the logs that the superblocks of the devices name.
fn logs(pool: &MixedPool) -> Vec<u64> {
    let log_of = |device: &Arc<dyn WritableDevice>| {
        let (offset, mut bytes) = (SUPERBLOCK_OFFSETS[0], [0; SUPERBLOCK_SIZE]);
        device.read_at(offset, &mut bytes).expect("readable");
        Superblock::parse(&bytes, offset).expect("of the pool").log_root.get()
    };
    pool.devices.iter().map(log_of).collect()
}

/// The pool of [`opened`], of which the SSD alone has the logs from now on.
fn logging(waits: bool) -> (MixedPool, Arc<FaultyDevice>, Filesystem) {
    let (pool, ssd) = pool();
    let fs = opened(&pool);
    if !waits {
        destage(&fs);
    }
    commit_until_logs_are_reduced(&fs, LogProfile::Single).expect("commits");
    (pool, ssd, fs)
}

/// Opens the pool without the SSD, to be written.
fn without_ssd(pool: &mut MixedPool) -> (Arc<dyn WritableDevice>, Filesystem) {
    let ssd = pool.devices.remove(0);
    pool.open.pool.volume.degraded = true;
    pool.open.pool.volume.accepts_loss = true;
    let fs = pool.open();
    (ssd, fs)
}

fn rejoined(fs: &Filesystem, ssd: &Arc<dyn WritableDevice>) -> Result<(DevId, Ended), DeviceCareError> {
    rejoin(fs, ssd, &mut |_| Control::Continue)
}

/// The whole pool has these files.
fn prove(mut pool: MixedPool, ssd: Arc<dyn WritableDevice>, fs: Filesystem, files: &[&str]) {
    fs.shutdown().expect("closes");
    drop(fs);
    pool.devices.insert(0, ssd);
    pool.open = OpenOptions::default();
    let fs = pool.open();
    for name in files {
        assert!(is_whole(&fs, name), "{name}");
    }
    pool.close(fs);
}

/// Regression: no device had a block of the log any more, and it was refused.
#[test]
fn an_ssd_that_dies_with_the_log_on_it_alone_rejoins() {
    for waits in [true, false] {
        let (mut pool, ssd, fs) = logging(waits);
        synced(&fs, "logged", MIB);
        let log = logs(&pool);
        assert!(log[0] != 0 && log[1..] == [0, 0], "{log:?}");
        ssd.vanish();
        synced(&fs, "after", MIB);
        fs.sync().expect("without the SSD");
        for number in 0..40 {
            synced(&fs, &format!("more {number}"), 100);
        }
        fs.sync().expect("without the SSD");
        synced(&fs, "later", MIB);
        drop(fs);
        ssd.heal();
        assert_eq!(logs(&pool)[0], log[0]);
        let (ssd, fs) = without_ssd(&mut pool);
        synced(&fs, "last", MIB);
        let (_, ended) = rejoined(&fs, &ssd).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0));
        prove(pool, ssd, fs, &["before", "logged", "after", "later", "last"]);
    }
}

/// Writes a file, and answers whether it was synced.
fn try_synced(fs: &Filesystem, name: &str, bytes: usize) -> bool {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let Ok(made) = fs.create(fs.root(), name.as_bytes(), &new) else { return false };
    let file = fs.open_file(made.id).expect("there it is");
    fs.write(&file, 0, &contents(bytes)).is_ok() && fs.sync_file(&file).is_ok()
}

/// By the last log that it has taken, or may have. If it fails the flush of what it has just taken, the pool stops, with all that was
/// synced before.
#[test]
fn an_ssd_that_dies_at_any_call_of_fsyncs_and_commits_rejoins_with_all_of_them() {
    let act = |fs: &Filesystem, names: &[&'static str]| {
        let mut done = vec!["before"];
        for (number, name) in names.iter().enumerate() {
            if try_synced(fs, name, MIB) {
                done.push(name);
            }
            if number == 1 {
                let _ = fs.sync();
            }
        }
        done
    };
    let count = |ssd: &FaultyDevice| {
        let counts = ssd.counts();
        counts.reads + counts.writes + counts.flushes
    };
    const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
    let (_, ssd, fs) = logging(true);
    let start = count(&ssd);
    assert_eq!(act(&fs, &NAMES).len(), 5);
    let calls = count(&ssd) - start;
    drop(fs);
    let (mut stopped, mut went_on) = (0, 0);
    for calls in 0..=calls {
        let (mut pool, ssd, fs) = logging(true);
        ssd.inject(Fault::VanishAfter { calls: count(&ssd) + calls });
        let mut done = act(&fs, &NAMES);
        if fs.is_writable() {
            ssd.vanish();
            done.extend(try_synced(&fs, "fifth", MIB).then_some("fifth"));
        }
        if !fs.is_writable() {
            stopped += 1;
            drop(fs);
            ssd.heal();
            let fs = pool.open();
            done.iter().for_each(|name| assert!(is_whole(&fs, name), "{calls}: {name}"));
            pool.close(fs);
            continue;
        }
        went_on += 1;
        fs.sync().expect("on the disks");
        drop(fs);
        ssd.heal();
        let (ssd, fs) = without_ssd(&mut pool);
        let (_, ended) = rejoined(&fs, &ssd).unwrap_or_else(|error| panic!("{calls}: {error}"));
        assert_eq!(ended.progress.left, 0, "{calls}");
        prove(pool, ssd, fs, &done);
    }
    assert!(went_on > stopped && stopped > 0, "{went_on}, {stopped}");
}

/// Files that were fsynced are on the SSD alone then, and in no commit.
#[test]
fn an_ssd_with_a_log_that_no_commit_followed_is_refused_once_the_disks_are_written_without_it() {
    let (mut pool, _, fs) = logging(false);
    synced(&fs, "logged", MIB);
    assert_ne!(logs(&pool)[0], 0);
    drop(fs);
    let (ssd, fs) = without_ssd(&mut pool);
    assert!(fs.lookup(fs.root(), b"logged").expect("readable").is_none());
    synced(&fs, "later", MIB);
    fs.sync().expect("on the disks");
    let refused = rejoined(&fs, &ssd).expect_err("it has what the pool lacks").to_string();
    assert!(refused.contains("names a log, of files that were fsynced after generation"), "{refused}");
    fs.shutdown().expect("closes");
    drop(fs);
    // It is as it was.
    let alone = [Arc::clone(&ssd)].map(AsDevice::share_device).to_vec();
    assert!(Filesystem::open(alone, &pool.open).is_ok());
}
