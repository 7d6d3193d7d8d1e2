//! Logs with fewer copies than other metadata: on one SSD, where metadata lies on this and on disks.

use super::tiers::{Attached, ROUNDS, TWO_OF_EACH, journal, mail, package, prepare, recorded};
use crate::contents::patterns::Program;
use crate::kernel::can_make;
use crate::simulated::{Layout, Pool, commit_until_logs_are_reduced};
use brindle_device::WritableDevice;
use brindle_fs::{Filesystem, LogProfile, Unlogged, WriteBackSettings};
use brindle_ondisk::Profile;
use brindle_sim::{Event, EventKind, Fault, FaultyDevice, Image, LossMode, Random, Recorder};
use brindle_testing::referee::btrfs_check;
use std::ops::Range;
use std::sync::Arc;

/// An SSD and two disks, two copies of everything: metadata has one on the SSD and one on a disk.
const SSD_AND_DISKS: Layout = Layout { devices: 3, fast: 1, ..TWO_OF_EACH };

/// The disks.
const DISKS: Range<usize> = 1..3;

/// Requests on disks among the events since a position: writes, and flushes.
fn of_disks(recorder: &Recorder, since: usize) -> (usize, usize) {
    let recording = recorder.recording();
    let meant = |event: &&Event| DISKS.contains(&event.device);
    let of_disks = recording.events()[since..].iter().filter(meant);
    let flushes = of_disks.clone().filter(|event| matches!(event.kind, EventKind::Flush)).count();
    (of_disks.count() - flushes, flushes)
}

fn names(program: &Program<'_>, directory: &str) -> Vec<String> {
    let mut names = program.names(directory);
    names.sort();
    names
}

/// Devices as a crash leaves them that takes what was not flushed.
fn crashed(recorder: &Recorder) -> Vec<Image> {
    let recording = recorder.recording();
    let end = recording.crash_points().len() - 1;
    recording.state_at(end, LossMode::Everything, &mut Random::new(1)).images()
}

#[test]
fn fsyncs_ask_nothing_of_disks_where_log_and_data_may_lie_on_the_only_ssd() {
    let (recorder, filesystem) = recorded(&SSD_AND_DISKS, 0x7b);
    let waiting = WriteBackSettings { profile: Some(Profile::Single), ..WriteBackSettings::default() };
    filesystem.set_write_back(waiting).expect("stored");
    commit_until_logs_are_reduced(&filesystem, LogProfile::Single).expect("stored");
    prepare(&filesystem);
    let program = Program::new(&filesystem);
    for (name, act) in [("mail", mail as fn(&Program<'_>, u32)), ("package", package), ("journal", journal)] {
        let statistics = || filesystem.pool().commit_statistics();
        let (before, start) = (statistics(), recorder.position());
        (0..ROUNDS).for_each(|round| act(&program, round));
        let after = statistics();
        assert_eq!(after.log.commits, before.log.commits, "{name}: fsyncs that were commits");
        assert!(after.log.syncs - before.log.syncs >= u64::from(ROUNDS), "{name}");
        assert_eq!(of_disks(&recorder, start), (0, 0), "{name}: requests on disks");
        filesystem.sync().expect("commits");
        program.put(&format!("behind {name}"), b"");
    }
}

#[test]
fn a_log_has_all_copies_until_no_earlier_mount_can_have_written_its_transaction() {
    let (recorder, filesystem) = recorded(&SSD_AND_DISKS, 0x7c);
    let program = Program::new(&filesystem);
    let opened = filesystem.pool().volume().opened_generation();
    let (mut in_full, mut reduced) = (0, 0);
    for round in 0..8 {
        filesystem.set_log_profile(LogProfile::Single).expect("stored");
        filesystem.sync().expect("commits");
        let start = recorder.position();
        // Names alone: no data.
        program.put(&format!("name {round}"), b"");
        let generation = filesystem.pool().superblock().generation.get() + 1;
        let asked = of_disks(&recorder, start) != (0, 0);
        // Three transactions may have been written and not published before a crash.
        assert_eq!(asked, generation <= opened.get() + 3, "generation {generation}, opened at {opened}");
        *(if asked { &mut in_full } else { &mut reduced }) += 1;
    }
    assert!(in_full >= 2 && reduced >= 4, "{in_full} {reduced}");
}

#[test]
fn a_log_of_another_profile_begins_with_a_commit() {
    let (recorder, filesystem) = recorded(&SSD_AND_DISKS, 0x7d);
    commit_until_logs_are_reduced(&filesystem, LogProfile::Single).expect("stored");
    let program = Program::new(&filesystem);
    program.put("first", b"");
    assert_eq!(filesystem.log_profile().expect("known"), LogProfile::Single);
    let layouts = || filesystem.pool().commit_statistics().log.commits[Unlogged::Layout as usize];
    let (before, start) = (layouts(), recorder.position());
    filesystem.set_log_profile(LogProfile::Metadata).expect("stored");
    program.put("second", b"");
    assert_eq!(layouts() - before, 1, "the log on the SSD has other blocks than the disks have");
    assert_ne!(of_disks(&recorder, start), (0, 0));
    drop(filesystem);
}

/// Writes before a flush that fails may be lost, and are made again from other copies; the log has none.
#[test]
fn a_flush_that_fails_on_the_only_ssd_makes_the_fsync_a_commit() {
    let plain = Pool::new(&Layout { device_mib: 256, ..SSD_AND_DISKS });
    let ssd = Arc::new(FaultyDevice::new(Arc::clone(&plain.devices[0])));
    let mut pool = plain.clone();
    pool.devices[0] = Arc::clone(&ssd) as Arc<dyn WritableDevice>;
    pool.write.tree_log = true;
    let filesystem = pool.open().expect("opens");
    commit_until_logs_are_reduced(&filesystem, LogProfile::Single).expect("stored");
    let program = Program::new(&filesystem);
    program.put("first", b"");
    let log = || filesystem.pool().commit_statistics().log;
    let before = log();
    ssd.inject(Fault::Flush { number: ssd.counts().flushes });
    program.put("second", b"");
    let after = log();
    assert_eq!(after.syncs, before.syncs, "the log was not written");
    let failed = Unlogged::Devices as usize;
    assert_eq!(after.commits[failed] - before.commits[failed], 1);
    assert_eq!(ssd.counts().faults, 1);
    // Without a last commit.
    drop(filesystem);
    plain.check().expect("whole");
    let filesystem = plain.open().expect("opens");
    let names = names(&Program::new(&filesystem), "");
    assert!(["first", "second"].iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
}

fn with_a_log(uuid: u8) -> (Recorder, Filesystem, Vec<String>) {
    let layout = Layout { device_mib: 256, ..SSD_AND_DISKS };
    let (recorder, filesystem) = recorded(&layout, uuid);
    commit_until_logs_are_reduced(&filesystem, LogProfile::Single).expect("stored");
    prepare(&filesystem);
    let program = Program::new(&filesystem);
    (0..20).for_each(|round| mail(&program, round));
    // Blocks of these transactions are found where the log's copies on disks would be.
    filesystem.sync().expect("commits");
    (0..20).for_each(|round| program.unlink(&format!("mail/{round}")));
    filesystem.sync().expect("commits");
    filesystem.set_log_profile(LogProfile::Single).expect("stored");
    filesystem.sync().expect("commits");
    let committed = names(&program, "mail");
    (30..60).for_each(|round| mail(&program, round));
    let placement = filesystem.pool().log_placement().expect("written").expect("on the SSD");
    assert!(placement.is_reduced && placement.devices == [1]);
    (recorder, filesystem, committed)
}

#[test]
fn the_kernel_finds_a_log_on_one_ssd_by_whatever_device_in_whatever_order() {
    if !can_make() {
        return;
    }
    let (recorder, filesystem, _) = with_a_log(0x7e);
    let expected = names(&Program::new(&filesystem), "mail");
    assert_eq!(expected.len(), 30);
    let images = crashed(&recorder);
    drop(filesystem);
    for order in [[0, 1, 2], [2, 1, 0]] {
        for by in [0, 1, 2] {
            let attached = Attached::new(&images);
            assert_eq!(attached.names(&order, by, "mail"), expected, "told {order:?}, mounted by {by}");
            btrfs_check(&attached.loops[by]).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
        }
    }
}

#[test]
fn the_kernel_finds_the_last_commit_when_the_ssd_of_the_log_is_gone() {
    if !can_make() {
        return;
    }
    let (recorder, filesystem, committed) = with_a_log(0x7f);
    let images = crashed(&recorder);
    drop(filesystem);
    for by in [0, 1] {
        let attached = Attached::new(&images[1..]);
        assert_eq!(attached.names_with("degraded", &[0, 1], by, "mail"), committed, "mounted by {by}");
    }
}
