//! The write-back tier: what a sync makes durable lies on flash first, and is moved to the disks later.

use super::ground::{Making, MixedPool, append, devices_of_file, directory, mark, names, put};
use super::{DATA, MIB};
use brindle_care::balance;
use brindle_care::job::Control;
use brindle_device::AsDevice;
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{
    Destaged, FileFlags, Filesystem, InodeId, NewInode, OpenOptions, PlacementMode, WriteBackMode,
    WriteBackObstacle, WriteBackSettings, WriteBackWish,
};
use brindle_ondisk::{ObjectId, Profile, RootId};
use brindle_policy::balance::Balance;
use brindle_policy::writeback::{DestageReason, DestageSettings};
use std::collections::BTreeSet;
use std::time::Duration;

/// An SSD and two disks; nothing is a small file.
pub(super) fn pool(mode: WriteBackMode) -> MixedPool {
    let devices = &[(Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Single, Profile::Dup));
    pool.write.write_back = WriteBackWish::Told(mode);
    pool
}

/// A file whose contents were synced.
pub(super) fn synced(fs: &Filesystem, name: &str, bytes: usize) -> InodeId {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let id = fs.create(fs.root(), name.as_bytes(), &new).expect("room").id;
    sync_more(fs, id, 0, bytes);
    id
}

pub(super) fn sync_more(fs: &Filesystem, id: InodeId, offset: u64, bytes: usize) {
    let file = fs.open_file(id).expect("there it is");
    fs.write(&file, offset, &contents(bytes)).expect("room");
    fs.sync_file(&file).expect("syncs");
}

pub(super) fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at % 251).expect("small")).collect()
}

pub(super) fn is_on_flash(fs: &Filesystem, id: InodeId) -> bool {
    let devices = devices_of_file(fs, id);
    assert!(!devices.is_empty(), "it has extents");
    devices == names(&["memory1"])
}

pub(super) fn destage(fs: &Filesystem) {
    let ended = fs.destage(&|| true).expect("room");
    assert!(matches!(ended, Destaged::All(_)), "{ended:?}");
}

pub(super) fn waiting(fs: &Filesystem) -> u64 {
    fs.write_back_status().expect("readable").waiting_bytes
}

pub(super) fn read(fs: &Filesystem, id: InodeId) -> Vec<u8> {
    let file = fs.open_file(id).expect("there it is");
    let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
    let mut at = 0;
    while at < bytes.len() {
        at += fs.read(&file, at as u64, &mut bytes[at..]).expect("reads");
    }
    bytes
}

#[test]
fn synced_data_lies_on_flash_until_it_is_destaged() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let fast = synced(&fs, "synced", 3 * MIB);
    let slow = put(&fs, fs.root(), "not synced", 300 << 10).expect("room");
    assert!(is_on_flash(&fs, fast) && !is_on_flash(&fs, slow));
    let status = fs.write_back_status().expect("readable");
    assert_eq!((status.mode, status.obstacle, status.waiting_bytes), (WriteBackMode::Sync, None, 3 << 20));
    assert!(status.since.is_some() && status.capacity_bytes > status.waiting_bytes, "{status:?}");
    destage(&fs);
    assert!(!is_on_flash(&fs, fast));
    assert_eq!((waiting(&fs), read(&fs, fast)), (0, contents(3 * MIB)));
    assert_eq!(fs.write_back_status().expect("readable").since, None);
    assert_eq!(fs.destage_statistics().bytes, 3 << 20);
    pool.close(fs);
}

#[test]
fn files_that_are_synced_often_are_written_back_to_flash_for_whatever_reason() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let file = synced(&fs, "table", 300 << 10);
    // It is known as long as it is open.
    let held = fs.open_file(file).expect("there it is");
    sync_more(&fs, file, 0, 4096);
    append(&fs, file, 300 << 10, 300 << 10).expect("room");
    assert!(is_on_flash(&fs, file));
    // Much more without a sync is contents as any.
    append(&fs, file, 1 << 20, 70 * MIB).expect("room");
    let before = waiting(&fs);
    append(&fs, file, 80 << 20, MIB).expect("room");
    assert_eq!((waiting(&fs), is_on_flash(&fs, file)), (before, false));
    sync_more(&fs, file, 90 << 20, 4096);
    append(&fs, file, 91 << 20, MIB).expect("room");
    assert!(waiting(&fs) > before + MIB as u64);
    fs.close_file(held).expect("closes");
    pool.close(fs);
}

#[test]
fn a_writer_of_a_file_that_is_synced_does_not_write_back_those_of_others() {
    let mut pool = pool(WriteBackMode::Sync);
    pool.write.dirty_bytes_max = 2 << 20;
    let fs = pool.open();
    let journal = synced(&fs, "journal", 64 << 10);
    let held = fs.open_file(journal).expect("there it is");
    sync_more(&fs, journal, 0, 4096);
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let open =
        |name: &[u8]| fs.open_file(fs.create(fs.root(), name, &new).expect("room").id).expect("there it is");
    let (object, other) = (open(b"object"), open(b"other"));
    fs.write(&object, 0, &contents(MIB + (MIB / 2))).expect("room");
    let is_written = || !devices_of_file(&fs, object.id()).is_empty();
    for part in 1..32 {
        let file = fs.open_file(journal).expect("there it is");
        fs.write(&file, part << 16, &contents(64 << 10)).expect("room");
        if part % 16 == 15 {
            fs.sync_file(&file).expect("syncs");
        }
        fs.close_file(file).expect("closes");
        assert!(!is_written(), "by the writer of the journal");
    }
    assert!(is_on_flash(&fs, journal));
    fs.write(&other, 0, &contents(4096)).expect("room");
    assert!(is_written() && devices_of_file(&fs, object.id()).is_disjoint(&names(&["memory1"])));
    fs.close_file(object).and(fs.close_file(other)).and(fs.close_file(held)).expect("closes");
    pool.close(fs);
}

#[test]
fn with_mode_all_everything_lands_on_flash_and_with_mode_off_nothing() {
    for (mode, expected) in [(WriteBackMode::All, true), (WriteBackMode::Off, false)] {
        let pool = pool(mode);
        let fs = pool.open();
        let file = put(&fs, fs.root(), "file", 300 << 10).expect("room");
        let synced = synced(&fs, "synced", 300 << 10);
        assert_eq!((is_on_flash(&fs, file), is_on_flash(&fs, synced)), (expected, expected), "{mode}");
        pool.close(fs);
    }
}

#[test]
fn marked_small_and_nodatacow_files_lie_where_they_belong_from_the_first() {
    let mut pool = pool(WriteBackMode::All);
    pool.write.small_file_bytes = Some(16 << 10);
    let fs = pool.open();
    let slow = directory(&fs, fs.root(), "slow");
    mark(&fs, slow, "bulk");
    let bulk = put(&fs, slow, "file", 300 << 10).expect("room");
    assert!(!is_on_flash(&fs, bulk));
    let before = waiting(&fs);
    put(&fs, fs.root(), "small", 12 << 10).expect("room");
    assert_eq!(waiting(&fs), before, "a small file stays on flash");
    let in_place = fs.create(fs.root(), b"in place", &NewInode { mode: 0o100_644, ..NewInode::default() });
    let in_place = in_place.expect("room").id;
    fs.set_flags(in_place, FileFlags::NOCOW).expect("it is empty");
    append(&fs, in_place, 0, 300 << 10).expect("room");
    assert!(!is_on_flash(&fs, in_place));
    pool.close(fs);
}

#[test]
fn waiting_data_is_known_after_a_crash_and_to_the_next_mount() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let file = synced(&fs, "file", 2 * MIB);
    let more = synced(&fs, "more", MIB);
    drop(fs);
    // A mount without the tier destages what another one has left.
    let mut off = pool;
    off.write.write_back = WriteBackWish::Told(WriteBackMode::Off);
    let fs = off.open();
    assert_eq!((waiting(&fs), is_on_flash(&fs, file)), (3 << 20, true));
    destage(&fs);
    assert!(!is_on_flash(&fs, file) && !is_on_flash(&fs, more));
    assert_eq!((read(&fs, file), read(&fs, more)), (contents(2 * MIB), contents(MIB)));
    // An empty chunk goes with the next commit that there is a reason for.
    for name in ["a", "b"] {
        directory(&fs, fs.root(), name);
        fs.sync().expect("commits");
    }
    let is_of_tier = |group: &&brindle_tree::GroupStatus| group.is_write_back;
    assert_eq!(
        fs.pool().block_groups().expect("writable").iter().filter(is_of_tier).count(),
        0,
        "its chunks go"
    );
    off.close(fs);
}

#[test]
fn snapshots_and_clones_share_what_is_destaged_as_before() {
    let pool = pool(WriteBackMode::All);
    let fs = pool.open();
    let file = put(&fs, fs.root(), "file", 600 << 10).expect("room");
    let expected = read(&fs, file);
    fs.sync().expect("commits");
    let number = fs.snapshot(RootId::FS_TREE, fs.root(), b"snapshot", false).expect("room");
    let of_snapshot = InodeId { tree: number, number: file.number };
    append(&fs, file, 0, 64 << 10).expect("room");
    fs.sync().expect("commits");
    let used = |fs: &Filesystem| {
        fs.pool()
            .space_summary()
            .expect("writable")
            .groups
            .iter()
            .filter(|group| group.kind.contains(DATA))
            .map(|group| group.used_bytes)
            .sum::<u64>()
    };
    let before = used(&fs);
    destage(&fs);
    assert_eq!((waiting(&fs), used(&fs)), (0, before), "what is shared is moved once");
    assert_eq!(read(&fs, of_snapshot), expected);
    assert!(!is_on_flash(&fs, of_snapshot) && !is_on_flash(&fs, file));
    pool.close(fs);
}

#[test]
fn a_full_tier_is_passed_by_and_no_promise_of_space_is_broken() {
    let devices = &[(Solid, 256), (Rotating, 256)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Single, Profile::Dup));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::All);
    let fs = pool.open();
    let files = super::fill(&fs, 2 * MIB, "file");
    fs.sync().expect("what was accepted can be written");
    let found: BTreeSet<String> = (0..files)
        .flat_map(|number| {
            let id = fs
                .lookup(fs.root(), format!("file{number}").as_bytes())
                .expect("readable")
                .expect("there")
                .inode;
            devices_of_file(&fs, id)
        })
        .collect();
    assert_eq!(found, names(&["memory1", "memory2"]));
    // What waits has its place on the disk.
    assert!(waiting(&fs) > 0);
    destage(&fs);
    assert_eq!(waiting(&fs), 0);
    pool.close(fs);
}

#[test]
fn empty_chunks_of_the_tier_are_given_up_when_all_else_is_full() {
    // Of the profile of other data, which takes them over, and of another one, for which they make way.
    for data in [Profile::Single, Profile::Raid1] {
        let devices = &[(Solid, 512), (Rotating, 512), (Rotating, 512)];
        let mut pool = MixedPool::new(devices, Making::of(data, Profile::Dup));
        pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
        let fs = pool.open();
        let settings = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
        fs.set_write_back(settings).expect("writable");
        let file = synced(&fs, "file", MIB);
        destage(&fs);
        assert!(!is_on_flash(&fs, file));
        let chunks = |fs: &Filesystem| fs.pool().write_back_chunks().expect("readable").len();
        assert!(chunks(&fs) > 0);
        super::fill(&fs, MIB, "more");
        fs.sync().expect("what was accepted can be written");
        assert_eq!(chunks(&fs), 0, "{data}");
        assert!(read(&fs, file) == contents(MIB));
        pool.close(fs);
    }
}

#[test]
fn redundancy_is_not_traded_for_speed_unless_that_is_asked_for() {
    let devices = &[(Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let fs = pool.open();
    let obstacle = fs.write_back_status().expect("readable").obstacle;
    assert_eq!(obstacle, Some(WriteBackObstacle::TooFew { profile: Profile::Raid1, fast: 1, needed: 2 }));
    let file = synced(&fs, "file", MIB);
    assert_eq!(devices_of_file(&fs, file), names(&["memory2", "memory3"]));
    let settings = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
    fs.set_write_back(settings).expect("writable");
    let file = synced(&fs, "another", MIB);
    assert!(is_on_flash(&fs, file));
    fs.shutdown().expect("closes");
    drop(fs);
    // The choice is stored.
    let fs = pool.open();
    assert_eq!(fs.write_back_status().expect("readable").stored, settings);
    destage(&fs);
    assert_eq!(
        devices_of_file(&fs, file),
        names(&["memory2", "memory3"]),
        "both copies, as its profile has it"
    );
    pool.close(fs);
}

#[test]
fn another_profile_counts_from_the_next_write_on() {
    let devices = &[(Solid, 512), (Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let fs = pool.open();
    let choose = |fs: &Filesystem, profile| {
        fs.set_write_back(WriteBackSettings { mode: None, profile }).expect("writable");
    };
    choose(&fs, Some(Profile::Single));
    let file = synced(&fs, "of one copy", MIB);
    assert_eq!(devices_of_file(&fs, file).len(), 1);
    choose(&fs, None);
    for name in ["of two copies", "and another"] {
        let file = synced(&fs, name, MIB);
        assert_eq!(devices_of_file(&fs, file), names(&["memory1", "memory2"]));
        destage(&fs);
    }
    pool.close(fs);
}

#[test]
fn a_spare_chunk_of_one_copy_goes_when_it_is_wanted_no_more() {
    let devices = &[(Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let single = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
    let of_one_copy = |fs: &Filesystem| {
        let chunks = fs.pool().volume().chunks().into_iter();
        chunks.filter(|chunk| chunk.kind.profile() == Some(Profile::Single)).count()
    };
    let told_later = |pool: &mut MixedPool, fs: Filesystem| {
        fs.shutdown().expect("closes");
        drop(fs);
        pool.write.write_back = WriteBackWish::Told(WriteBackMode::Off);
        pool.open()
    };
    for is_stored in [true, false] {
        let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
        pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
        let mut fs = pool.open();
        fs.set_write_back(single).expect("writable");
        synced(&fs, "file", MIB);
        destage(&fs);
        fs.commit().expect("commits");
        assert_eq!(waiting(&fs), 0);
        assert!(of_one_copy(&fs) > 0, "some are kept for what comes");
        if is_stored {
            let off = WriteBackSettings { mode: Some(WriteBackMode::Off), profile: None };
            fs.set_write_back(off).expect("writable");
        } else {
            fs = told_later(&mut pool, fs);
        }
        fs.commit().expect("commits");
        assert_eq!(of_one_copy(&fs), 0);
        pool.close(fs);
        // Without the SSD the pool is written.
        pool.devices.remove(0);
        pool.open.pool.volume.degraded = true;
        let fs = pool.open();
        put(&fs, fs.root(), "without it", MIB).expect("room");
        fs.shutdown().expect("closes");
    }
}

/// Regression: it stayed until the next mount.
#[test]
fn a_chunk_that_is_made_when_write_back_is_switched_off_goes_with_the_commit_after_its_own() {
    let pool = pool(WriteBackMode::All);
    let fs = pool.open();
    let chunks = |fs: &Filesystem| fs.pool().volume().chunks().len();
    // Until the first chunk is nearly full.
    let mut before = 0;
    let is_nearly_full = |number| {
        put(&fs, fs.root(), &format!("file{number}"), 16 * MIB).expect("room");
        before = chunks(&fs);
        fs.pool().make_write_back_room().expect("writable")
    };
    assert!((0..32).any(is_nearly_full));
    assert_eq!(chunks(&fs), before + 1);
    fs.set_write_back(WriteBackSettings { mode: Some(WriteBackMode::Off), profile: None }).expect("writable");
    fs.commit().expect("makes it known");
    assert_eq!(chunks(&fs), before + 1);
    fs.commit().expect("gives it back");
    assert_eq!(chunks(&fs), before);
    let generation = |fs: &Filesystem| fs.pool().superblock().generation;
    let last = generation(&fs);
    fs.commit().expect("nothing to do");
    assert_eq!(generation(&fs), last);
    pool.close(fs);
}

#[test]
fn a_pool_that_lacks_the_device_of_an_empty_chunk_loses_nothing() {
    let devices = &[(Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let single = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
    for waits in [false, true] {
        let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
        pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
        let fs = pool.open();
        fs.set_write_back(single).expect("writable");
        let file = synced(&fs, "file", MIB);
        if !waits {
            destage(&fs);
        }
        pool.close(fs);
        let chunk_of_one_copy = |fs: &Filesystem| {
            let mut chunks = fs.pool().volume().chunks().into_iter();
            chunks.any(|chunk| chunk.kind.profile() == Some(Profile::Single))
        };
        let ssd = pool.devices.remove(0);
        let there = || pool.devices.iter().cloned();
        let refused = |options: &OpenOptions| {
            let fs = Filesystem::open_writable(there().collect(), options, &pool.write);
            fs.expect_err("a device is missing").to_string()
        };
        let said = refused(&pool.open);
        assert_eq!(said.contains("everything can be read with -o degraded"), !waits, "{said}");
        let mut degraded = pool.open.clone();
        degraded.pool.volume.degraded = true;
        let fs =
            Filesystem::open(there().map(AsDevice::share_device).collect(), &degraded).expect("readable");
        let lost = |warning: &String| warning.contains("can't be read whole");
        assert!(chunk_of_one_copy(&fs));
        assert_eq!(fs.warnings().iter().any(lost), waits, "{:?}", fs.warnings());
        drop(fs);
        if waits {
            let said = refused(&degraded);
            assert!(said.contains("1 chunk can't be read without"), "{said}");
            continue;
        }
        pool.open = degraded;
        let fs = pool.open();
        assert_eq!(read(&fs, file), contents(MIB));
        synced(&fs, "without it", MIB);
        assert_eq!(waiting(&fs), 0);
        fs.commit().expect("commits");
        assert!(chunk_of_one_copy(&fs), "its device may come back");
        fs.shutdown().expect("closes");
        drop(fs);
        pool.devices.insert(0, ssd);
        let fs = pool.open();
        assert_eq!(read(&fs, file), contents(MIB));
        fs.shutdown().expect("closes");
    }
}

/// Regression: with a log no chunk counted as empty, so that a pool which was written without its SSD was refused after a crash.
#[test]
fn a_log_that_uses_nothing_of_an_empty_chunk_is_replayed_without_its_device() {
    let devices = &[(Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    for bytes in [0, MIB] {
        let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
        pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
        let fs = pool.open();
        fs.set_write_back(WriteBackSettings { mode: None, profile: Some(Profile::Single) })
            .expect("writable");
        synced(&fs, "file", MIB);
        destage(&fs);
        fs.commit().expect("commits");
        let has_log = |fs: &Filesystem| fs.pool().superblock().log_root.get() != 0;
        synced(&fs, "logged", bytes);
        assert!(has_log(&fs), "no commit");
        drop(fs);
        let ssd = pool.devices.remove(0);
        pool.open.pool.volume.degraded = true;
        if bytes > 0 {
            let opened = Filesystem::open_writable(pool.devices.clone(), &pool.open, &pool.write);
            let said = opened.expect_err("what was synced is on the SSD alone").to_string();
            assert!(said.contains("1 chunk can't be read without"), "{said}");
            continue;
        }
        let is_there =
            |fs: &Filesystem, name: &str| fs.lookup(fs.root(), name.as_bytes()).expect("readable").is_some();
        let fs = pool.open();
        assert!(is_there(&fs, "logged"));
        fs.commit().expect("commits");
        let without = synced(&fs, "without it", MIB);
        assert!(has_log(&fs), "no commit");
        drop(fs);
        let fs = pool.open();
        assert_eq!(read(&fs, without), contents(MIB));
        fs.commit().expect("commits");
        synced(&fs, "later", MIB);
        assert!(has_log(&fs), "no commit");
        drop(fs);
        pool.devices.insert(0, ssd);
        let fs = pool.open();
        assert!(is_there(&fs, "later"));
        fs.shutdown().expect("closes");
    }
}

#[test]
fn nothing_is_destaged_while_a_device_is_missing() {
    let devices = &[(Solid, 512), (Solid, 512), (Rotating, 1024), (Rotating, 1024)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Raid1, Profile::Raid1));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let fs = pool.open();
    synced(&fs, "file", MIB);
    pool.close(fs);
    // Whatever waits is to go.
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Off);
    let reason = |fs: &Filesystem| {
        let reason = fs.reason_to_destage(&DestageSettings::default(), Duration::MAX).expect("readable");
        (waiting(fs), reason)
    };
    let fs = pool.open();
    assert_eq!(reason(&fs), (1 << 20, Some(DestageReason::Off)));
    pool.close(fs);
    pool.devices.remove(3);
    pool.open.pool.volume.degraded = true;
    let fs = pool.open();
    assert_eq!(reason(&fs), (1 << 20, None));
    fs.shutdown().expect("closes");
}

#[test]
fn strict_placement_and_pools_of_one_class_have_no_such_tier() {
    let mut pool = pool(WriteBackMode::All);
    pool.write.placement = PlacementMode::Strict;
    let fs = pool.open();
    assert_eq!(fs.write_back_status().expect("readable").obstacle, Some(WriteBackObstacle::Strict));
    let file = synced(&fs, "file", MIB);
    assert!(!is_on_flash(&fs, file));
    pool.close(fs);
    let one = MixedPool::new(&[(Solid, 512)], Making::of(Profile::Single, Profile::Dup));
    let fs = one.open();
    assert_eq!(fs.write_back_status().expect("readable").obstacle, Some(WriteBackObstacle::OneClass));
    one.close(fs);
}

#[test]
fn a_balance_waits_for_the_batch_under_way_and_moves_what_waits_to_the_disks() {
    let pool = pool(WriteBackMode::All);
    let fs = pool.open();
    let file = put(&fs, fs.root(), "file", 40 * MIB).expect("room");
    fs.sync().expect("commits");
    std::thread::scope(|threads| {
        let balance = threads
            .spawn(|| balance::start(&fs, &Balance::default(), false, &mut |_| Control::Continue).map(drop));
        while !balance.is_finished() {
            // It makes way as soon as it is told, and does not begin while another one runs.
            let ended = fs.destage(&|| true).expect("room");
            assert!(matches!(ended, Destaged::All(_) | Destaged::Stopped(_) | Destaged::Busy));
            std::thread::yield_now();
        }
        balance.join().expect("no panic").expect("it is not refused");
    });
    destage(&fs);
    assert!(!is_on_flash(&fs, file));
    assert_eq!(waiting(&fs), 0);
    pool.close(fs);
}

#[test]
fn destaged_files_lie_in_one_piece_in_the_order_of_their_contents() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let new = |name: &[u8]| {
        fs.create(fs.root(), name, &NewInode { mode: 0o100_644, ..NewInode::default() }).expect("room").id
    };
    let (first, second) = (new(b"first"), new(b"second"));
    // Written in turns, the parts of both lie among each other on flash.
    for part in 0..64 {
        sync_more(&fs, first, part * 8192, 8192);
        sync_more(&fs, second, part * 8192, 8192);
    }
    destage(&fs);
    let expected: Vec<u8> = (0..64).flat_map(|_| contents(8192)).collect();
    for id in [first, second] {
        assert_eq!(places(&fs, id.number).len(), 1, "one extent");
        assert!(read(&fs, id) == expected);
    }
    pool.close(fs);
}

/// Addresses of a file's extents, in its order.
pub(super) fn places(fs: &Filesystem, number: ObjectId) -> Vec<u64> {
    use brindle_ondisk::item::FileExtent;
    use brindle_ondisk::{Item, Key, KeyType};
    let tree = fs.pool().tree(RootId::FS_TREE).expect("there it is");
    let mut cursor = fs.pool().cursor(&tree, brindle_tree::Readahead::None);
    cursor.seek(&Key::new(number, KeyType::EXTENT_DATA, 0)).expect("readable");
    let mut found = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if (key.objectid, key.item_type) != (number, KeyType::EXTENT_DATA) {
            break;
        }
        if let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) = Item::parse(&key, data) {
            found.push(extent.disk_bytenr.get());
        }
        cursor.next().expect("readable");
    }
    found
}
