//! Quota groups: numbers that `btrfs check` counts for itself, and limits.

use super::pool::{NEW_SUBVOLUME, Pool};
use super::rules::{create, directory, file};
use brindle_fs::{AllocateMode, ErrorKind, Filesystem, InodeId, RangePair, Remaining, RootId};
use brindle_ondisk::QgroupId;
use brindle_ondisk::item::{QgroupLimit, QgroupLimitFlags};
use brindle_tree::QuotaSummary;
use zerocopy::FromZeros;

/// Numbers that follow from a seed (xorshift).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn rescan(fs: &Filesystem) {
    while fs.pool().quota_rescan_step().expect("counts").is_some() {}
}

pub(super) fn quotas(fs: &Filesystem) -> QuotaSummary {
    fs.pool().quotas().expect("readable").expect("quotas are on")
}

/// Referenced and exclusive bytes of a group.
pub(super) fn numbers(fs: &Filesystem, id: QgroupId) -> (u64, u64) {
    let found = quotas(fs).groups.into_iter().find(|group| group.id == id);
    let info = found.expect("there is such a group").info;
    (info.rfer.get(), info.excl.get())
}

pub(super) fn has_group(fs: &Filesystem, id: QgroupId) -> bool {
    quotas(fs).groups.iter().any(|group| group.id == id)
}

pub(super) fn write(fs: &Filesystem, id: InodeId, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
    let file = fs.open_file(id).expect("opens");
    let written = fs.write(&file, offset, bytes).map_err(|error| error.kind());
    fs.close_file(file).expect("closes");
    written.map(|_| ())
}

pub(super) fn clean_up(fs: &Filesystem) {
    for _ in 0..3 {
        while fs.background_step().expect("works") == Remaining::More {}
        fs.commit().expect("durable");
    }
}

pub(super) fn named(fs: &Filesystem, directory: InodeId, name: &str) -> Option<InodeId> {
    fs.lookup(directory, name.as_bytes()).expect("readable").map(|found| found.inode)
}

/// Does one thing of many to one of the subvolumes.
fn step(fs: &Filesystem, numbers: &mut Numbers, live: &mut Vec<RootId>, made: &mut u64) {
    let subvolume = live[usize::try_from(numbers.below(live.len() as u64)).expect("few")];
    let root = InodeId::root_of(subvolume);
    let name = format!("file-{}", numbers.below(40));
    let known = named(fs, root, &name);
    match numbers.below(20) {
        0 if live.len() < 8 => {
            *made += 1;
            let name = format!("copy-{made}");
            live.push(fs.snapshot(subvolume, fs.root(), name.as_bytes(), false).expect("made"));
        }
        1 if live.len() > 2 && subvolume != RootId::FS_TREE => {
            fs.delete_subvolume_by_id(subvolume).expect("deleted");
            live.retain(|id| *id != subvolume);
        }
        2 if live.len() < 8 => {
            *made += 1;
            let name = format!("new-{made}");
            live.push(fs.create_subvolume(fs.root(), name.as_bytes(), &NEW_SUBVOLUME).expect("made"));
        }
        3 if known.is_some() => fs.unlink(root, name.as_bytes()).expect("there"),
        4 => {
            *made += 1;
            let below = create(fs, root, &format!("many-{made}"), &directory());
            for number in 0..300 {
                create(fs, below, &number.to_string(), &file());
            }
        }
        5 | 6 => {
            // Data of another subvolume, shared.
            let other = live[usize::try_from(numbers.below(live.len() as u64)).expect("few")];
            let source = named(fs, InodeId::root_of(other), "file-1");
            let target = known.unwrap_or_else(|| create(fs, root, &name, &file()));
            if let Some(source) = source.filter(|source| *source != target) {
                let (from, to) = (fs.open_file(source).expect("opens"), fs.open_file(target).expect("opens"));
                let length = fs.attributes(source).expect("there").size / 4096 * 4096;
                let pair =
                    RangePair { source: &from, source_offset: 0, target: &to, target_offset: 0, length };
                fs.clone_range(&pair).expect("shares");
                fs.close_file(from).expect("closes");
                fs.close_file(to).expect("closes");
            }
        }
        7 => {
            let target = known.unwrap_or_else(|| create(fs, root, &name, &file()));
            let opened = fs.open_file(target).expect("opens");
            fs.truncate(&opened, numbers.below(200_000)).expect("works");
            fs.close_file(opened).expect("closes");
        }
        8 => fs.commit().expect("durable"),
        9 => while fs.background_step().expect("works") == Remaining::More {},
        _ => {
            let target = known.unwrap_or_else(|| create(fs, root, &name, &file()));
            let (offset, length) = (numbers.below(64) * 4096, 1 + numbers.below(100_000));
            let byte = u8::try_from(numbers.below(250)).expect("small");
            write(fs, target, offset, &vec![byte; usize::try_from(length).expect("small")]).expect("room");
        }
    }
}

/// Numbers after random changes are those that `btrfs check` counts.
#[test]
fn numbers_are_those_that_btrfs_counts() {
    for (seed, nodesize) in [(1, 4096), (2, 16384), (3, 4096)] {
        let pool = Pool::with(|options| options.nodesize = Some(nodesize));
        let fs = pool.open();
        create(&fs, fs.root(), "file-1", &file());
        let early = fs.create_subvolume(fs.root(), b"early", &NEW_SUBVOLUME).expect("made");
        fs.pool().enable_quotas().expect("room");
        rescan(&fs);
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_btrfs_check("quotas are on");
        let (mut random, mut live, mut made) = (Numbers(seed * 77), vec![RootId::FS_TREE, early], 0);
        for round in 0..4 {
            let fs = pool.open();
            for _ in 0..60 {
                step(&fs, &mut random, &mut live, &mut made);
            }
            if round == 2 {
                fs.pool().begin_quota_rescan().expect("begins");
                rescan(&fs);
            }
            if round == 3 {
                clean_up(&fs);
            }
            fs.shutdown().expect("closes");
            assert!(!quotas(&fs).is_inconsistent(), "seed {seed}, round {round}");
            drop(fs);
            pool.assert_clean(&format!("seed {seed}, round {round}"));
            pool.assert_btrfs_check(&format!("seed {seed}, round {round}"));
        }
    }
}

#[test]
fn a_limit_is_kept_and_deletion_makes_room() {
    const MIB: u64 = 1 << 20;
    let pool = Pool::new();
    let fs = pool.open();
    fs.pool().enable_quotas().expect("room");
    rescan(&fs);
    let id = fs.create_subvolume(fs.root(), b"small", &NEW_SUBVOLUME).expect("made");
    let (group, above) = (QgroupId::of_subvolume(id), QgroupId::new(1 << 48 | 7));
    fs.pool().create_quota_group(above).expect("room");
    assert!(!fs.pool().assign_quota_group(group, above).expect("there"), "nothing is shared");
    let limit = QgroupLimit {
        flags: QgroupLimitFlags::MAX_RFER.bits().into(),
        max_rfer: (4 * MIB).into(),
        ..QgroupLimit::new_zeroed()
    };
    fs.pool().limit_quota_group(above, limit).expect("there");
    let root = InodeId::root_of(id);
    let full = create(&fs, root, "full", &file());
    let mut written = 0;
    let refused = loop {
        match write(&fs, full, written, &vec![7; 1 << 16]) {
            Ok(()) => written += 1 << 16,
            Err(kind) => break kind,
        }
        assert!(written <= 4 * MIB, "the limit is passed");
    };
    assert_eq!(refused, ErrorKind::QuotaExceeded);
    assert!(written >= 3 * MIB, "{written}");
    fs.sync().expect("durable");
    let used = numbers(&fs, above).0;
    assert!(used <= 4 * MIB, "{used}");
    let other = create(&fs, fs.root(), "other", &file());
    write(&fs, other, 0, &vec![1; 8 << 20]).expect("not in the group");
    fs.unlink(root, b"full").expect("deletion is never refused");
    clean_up(&fs);
    let next = create(&fs, root, "next", &file());
    write(&fs, next, 0, &vec![7; 3 << 20]).expect("there is room again");
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("after the limit");
}

/// Quotas of either kind.
const KINDS: [fn(&Filesystem); 2] = [
    |fs| {
        fs.pool().enable_quotas().expect("room");
        rescan(fs);
    },
    |fs| fs.pool().enable_simple_quotas().expect("room"),
];

/// Lets a group have that many bytes referenced.
fn limit_to(fs: &Filesystem, group: QgroupId, bytes: u64) {
    let limit = QgroupLimit {
        flags: QgroupLimitFlags::MAX_RFER.bits().into(),
        max_rfer: bytes.into(),
        ..QgroupLimit::new_zeroed()
    };
    fs.pool().limit_quota_group(group, limit).expect("there");
}

#[test]
fn room_below_a_limit_comes_from_deletions_since_the_last_commit() {
    for enable in KINDS {
        let pool = Pool::new();
        let fs = pool.open();
        enable(&fs);
        let id = fs.create_subvolume(fs.root(), b"small", &NEW_SUBVOLUME).expect("made");
        let (root, group) = (InodeId::root_of(id), QgroupId::of_subvolume(id));
        limit_to(&fs, group, 4 << 20);
        let contents = vec![7; 3 << 20];
        let full = create(&fs, root, "full", &file());
        write(&fs, full, 0, &contents).expect("room");
        fs.sync().expect("durable");
        let opened = fs.open_file(full).expect("opens");
        fs.truncate(&opened, 0).expect("always");
        fs.close_file(opened).expect("closes");
        write(&fs, full, 0, &contents).expect("a truncation makes room");
        fs.sync().expect("durable");
        fs.unlink(root, b"full").expect("always");
        let next = create(&fs, root, "next", &file());
        write(&fs, next, 0, &contents).expect("a deletion makes room");
        fs.sync().expect("durable");
        let opened = fs.open_file(next).expect("opens");
        fs.allocate(&opened, AllocateMode::PunchHole, 0, 3 << 20).expect("always");
        fs.close_file(opened).expect("closes");
        write(&fs, next, 3 << 20, &contents).expect("a hole makes room");
        fs.sync().expect("durable");
        let refused = write(&fs, next, 8 << 20, &contents[..1 << 20]);
        assert_eq!(refused, Err(ErrorKind::QuotaExceeded));
        let has_room = |id, bytes| fs.has_room(id, bytes).expect("writable");
        assert!(!has_room(next, 1 << 20) && has_room(next, 1 << 16) && has_room(fs.root(), 1 << 20));
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_clean("below the limit");
    }
}

#[test]
fn extents_that_come_and_go_in_a_transaction_are_in_no_number() {
    for enable in KINDS {
        let pool = Pool::new();
        let fs = pool.open();
        enable(&fs);
        let id = fs.create_subvolume(fs.root(), b"one", &NEW_SUBVOLUME).expect("made");
        let (root, group, above) =
            (InodeId::root_of(id), QgroupId::of_subvolume(id), QgroupId::new(1 << 48 | 3));
        fs.sync().expect("durable");
        let before = numbers(&fs, group);
        let gone = create(&fs, root, "gone", &file());
        let opened = fs.open_file(gone).expect("opens");
        fs.write(&opened, 0, &[5; 1 << 18]).expect("room");
        fs.write_back(&opened).expect("room");
        fs.close_file(opened).expect("closes");
        fs.unlink(root, b"gone").expect("there");
        fs.commit().expect("durable");
        assert_eq!(numbers(&fs, group), before);
        let kept = create(&fs, root, "kept", &file());
        write(&fs, kept, 0, &[6; 1 << 18]).expect("room");
        fs.sync().expect("durable");
        let full = numbers(&fs, group);
        assert_eq!(full, (before.0 + (1 << 18), before.1 + (1 << 18)));
        // A group that joins another one brings its bytes, and takes them away again.
        fs.pool().create_quota_group(above).expect("room");
        assert!(!fs.pool().assign_quota_group(group, above).expect("there"), "nothing is shared");
        fs.commit().expect("durable");
        assert_eq!(numbers(&fs, above), full);
        assert!(!fs.pool().unassign_quota_group(group, above).expect("there"), "nothing is shared");
        fs.commit().expect("durable");
        assert_eq!(numbers(&fs, above), (0, 0));
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_clean("in no number");
    }
}

#[test]
fn extents_since_the_last_commit_count_against_a_limit() {
    for enable in KINDS {
        let pool = Pool::new();
        let fs = pool.open();
        enable(&fs);
        let id = fs.create_subvolume(fs.root(), b"small", &NEW_SUBVOLUME).expect("made");
        limit_to(&fs, QgroupId::of_subvolume(id), 4 << 20);
        let full = create(&fs, InodeId::root_of(id), "full", &file());
        let opened = fs.open_file(full).expect("opens");
        let mut size = 0;
        while fs.write(&opened, size, &[7; 1 << 18]).is_ok() {
            fs.write_back(&opened).expect("room");
            size += 1 << 18;
            assert!(size < 4 << 20, "the limit is passed");
        }
        assert!(size >= 3 << 20, "{size}");
        fs.close_file(opened).expect("closes");
    }
}

/// Blocks two levels below a root that a snapshot has too say nothing of it themselves.
#[test]
fn a_change_deep_in_a_tree_with_a_snapshot_is_accounted_for() {
    let pool = Pool::with(|options| options.nodesize = Some(4096));
    let fs = pool.open();
    KINDS[0](&fs);
    let id = fs.create_subvolume(fs.root(), b"deep", &NEW_SUBVOLUME).expect("made");
    let root = InodeId::root_of(id);
    for number in 0..4000 {
        create(&fs, root, &format!("a file of number {number}"), &file());
    }
    fs.sync().expect("durable");
    for round in 0..3 {
        fs.snapshot(id, fs.root(), format!("copy-{round}").as_bytes(), false).expect("made");
        fs.sync().expect("durable");
        for number in (0..4000).step_by(700) {
            let changed = named(&fs, root, &format!("a file of number {}", number + round));
            write(&fs, changed.expect("there"), 0, &[7; 8192]).expect("room");
        }
        fs.sync().expect("durable");
    }
    fs.delete_subvolume_by_id(id).expect("deleted");
    // A part of it goes with each commit.
    for _ in 0..4 {
        fs.background_step().expect("works");
        fs.commit().expect("durable");
    }
    assert!(!quotas(&fs).is_inconsistent());
    clean_up(&fs);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("deep");
    pool.assert_btrfs_check("deep");
}

#[test]
fn a_file_is_cut_off_within_a_sector_at_the_limit() {
    for enable in KINDS {
        let pool = Pool::new();
        let fs = pool.open();
        enable(&fs);
        let id = fs.create_subvolume(fs.root(), b"small", &NEW_SUBVOLUME).expect("made");
        let full = create(&fs, InodeId::root_of(id), "full", &file());
        limit_to(&fs, QgroupId::of_subvolume(id), 1 << 20);
        let mut size = 0;
        while write(&fs, full, size, &[7; 4096]).is_ok() {
            size += 4096;
            assert!(size < 1 << 20, "the limit is passed");
        }
        fs.sync().expect("durable");
        assert_eq!(write(&fs, full, size, &[7; 4096]), Err(ErrorKind::QuotaExceeded));
        let opened = fs.open_file(full).expect("opens");
        fs.truncate(&opened, size - 100).expect("nothing is asked for");
        assert_eq!(opened.size(), size - 100);
        let mut found = vec![0; 8192];
        assert_eq!(fs.read(&opened, size - 200, &mut found).expect("readable"), 100);
        fs.truncate(&opened, 0).expect("nothing is asked for");
        fs.write(&opened, 0, &[8; 100]).expect("there is room by now");
        fs.truncate(&opened, 8192).expect("there is room by now");
        assert_eq!(fs.read(&opened, 0, &mut found).expect("readable"), 8192);
        assert!(found[..100].iter().all(|byte| *byte == 8) && found[100..].iter().all(|byte| *byte == 0));
        fs.close_file(opened).expect("closes");
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_clean("at the limit");
    }
}

#[test]
fn files_of_a_log_are_counted_when_it_is_replayed() {
    for (enable, counts_references) in KINDS.into_iter().zip([true, false]) {
        let pool = Pool::new();
        let fs = pool.open();
        enable(&fs);
        let id = fs.create_subvolume(fs.root(), b"synced", &NEW_SUBVOLUME).expect("made");
        let (root, group) = (InodeId::root_of(id), QgroupId::of_subvolume(id));
        let kept = create(&fs, root, "kept", &file());
        write(&fs, kept, 0, &[5; 1 << 16]).expect("room");
        fs.snapshot(id, fs.root(), b"copy", false).expect("made");
        fs.sync().expect("durable");
        // Of the old extent the snapshot has all, and the file nothing any more.
        let opened = fs.open_file(kept).expect("opens");
        fs.write(&opened, 0, &[6; 1 << 16]).expect("room");
        fs.sync_file(&opened).expect("durable");
        let made = create(&fs, root, "made", &file());
        let opened = fs.open_file(made).expect("opens");
        fs.write(&opened, 0, &[7; 1 << 20]).expect("room");
        fs.sync_file(&opened).expect("durable");
        assert_ne!(fs.pool().superblock().log_root.get(), 0, "nothing but a log has them");
        let before = numbers(&fs, group);
        // A crash.
        drop(opened);
        drop(fs);
        let fs = pool.open();
        fs.sync().expect("durable");
        let after = numbers(&fs, group);
        let (old, new) = (1 << 16, (1 << 16) + (1 << 20));
        let expected = if counts_references { before.0 - old + new } else { before.0 + new };
        assert_eq!(after.0, expected, "{counts_references}");
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_clean("replayed");
        if counts_references {
            pool.assert_btrfs_check("replayed");
        }
    }
}

#[test]
fn a_snapshot_shares_and_its_deletion_gives_back() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = fs.create_subvolume(fs.root(), b"source", &NEW_SUBVOLUME).expect("made");
    let root = InodeId::root_of(id);
    for number in 0..2000 {
        create(&fs, root, &number.to_string(), &file());
    }
    let data = create(&fs, root, "data", &file());
    write(&fs, data, 0, &vec![3; 1 << 20]).expect("room");
    fs.sync().expect("durable");
    fs.pool().enable_quotas().expect("room");
    rescan(&fs);
    let before = numbers(&fs, QgroupId::of_subvolume(id));
    assert_eq!(before.0, before.1, "nothing is shared");
    let copy = fs.snapshot(id, fs.root(), b"copy", false).expect("made");
    let node = u64::from(fs.pool().nodesize());
    for root in [id, copy] {
        assert_eq!(numbers(&fs, QgroupId::of_subvolume(root)), (before.0, node), "the root is its own");
    }
    fs.delete_subvolume_by_id(copy).expect("deleted");
    clean_up(&fs);
    assert_eq!(numbers(&fs, QgroupId::of_subvolume(id)), before);
    assert!(!has_group(&fs, QgroupId::of_subvolume(copy)), "it goes with its subvolume");
    fs.pool().disable_quotas().expect("works");
    assert!(fs.pool().quotas().expect("readable").is_none());
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("quotas are off");
    pool.assert_btrfs_check("quotas are off");
}

/// A snapshot gives up at once the contents of files that its source has open and without a name.
#[test]
fn a_snapshot_is_not_charged_for_files_without_a_name() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = fs.create_subvolume(fs.root(), b"source", &NEW_SUBVOLUME).expect("made");
    let root = InodeId::root_of(id);
    let gone = create(&fs, root, "gone", &file());
    write(&fs, gone, 0, &vec![3; 1 << 20]).expect("room");
    fs.sync().expect("durable");
    fs.pool().enable_quotas().expect("room");
    rescan(&fs);
    let node = u64::from(fs.pool().nodesize());
    let opened = fs.open_file(gone).expect("opens");
    fs.unlink(root, b"gone").expect("there");
    let copy = fs.snapshot(id, fs.root(), b"copy", false).expect("made");
    assert_eq!(numbers(&fs, QgroupId::of_subvolume(copy)), (node, node));
    assert_eq!(numbers(&fs, QgroupId::of_subvolume(id)), (node + (1 << 20), node + (1 << 20)));
    fs.close_file(opened).expect("closes");
    clean_up(&fs);
    assert_eq!(numbers(&fs, QgroupId::of_subvolume(id)), (node, node));
    assert!(!quotas(&fs).is_inconsistent());
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("the file is gone");
    pool.assert_btrfs_check("the file is gone");
}

#[test]
fn subvolumes_made_in_groups_are_counted_there_and_leave_them_when_they_go() {
    let pool = Pool::new();
    let fs = pool.open();
    let group = QgroupId::new(1 << 48 | 1);
    let refused = fs.create_subvolume_in(fs.root(), b"early", &NEW_SUBVOLUME, &[group]);
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::QuotasOff));
    fs.pool().enable_quotas().expect("room");
    rescan(&fs);
    for (group, kind) in [(group, ErrorKind::NotFound), (QgroupId::new(5), ErrorKind::Invalid)] {
        let refused = fs.create_subvolume_in(fs.root(), b"early", &NEW_SUBVOLUME, &[group]);
        assert_eq!(refused.map_err(|error| error.kind()), Err(kind));
    }
    fs.pool().create_quota_group(group).expect("room");
    let id = fs.create_subvolume_in(fs.root(), b"source", &NEW_SUBVOLUME, &[group]).expect("made");
    let limit = QgroupLimit {
        flags: QgroupLimitFlags::MAX_RFER.bits().into(),
        max_rfer: (64 << 20).into(),
        ..QgroupLimit::new_zeroed()
    };
    fs.pool().limit_quota_group(QgroupId::of_subvolume(id), limit).expect("there");
    let data = create(&fs, InodeId::root_of(id), "data", &file());
    write(&fs, data, 0, &vec![3; 1 << 20]).expect("room");
    fs.sync().expect("durable");
    let node = u64::from(fs.pool().nodesize());
    let full = node + (1 << 20);
    assert_eq!(numbers(&fs, group), (full, full));
    let copy = fs.snapshot_in(id, fs.root(), b"copy", false, &[group]).expect("made");
    assert_eq!(numbers(&fs, group), (full + node, full + node), "shared by its members alone");
    let found = quotas(&fs).groups.into_iter().find(|group| group.id == QgroupId::of_subvolume(copy));
    let found = found.expect("it has a group");
    assert_eq!((found.parents, found.limit.max_rfer.get()), (vec![group], 64 << 20));
    fs.delete_subvolume_by_id(id).expect("deleted");
    clean_up(&fs);
    assert!(!has_group(&fs, QgroupId::of_subvolume(id)), "it goes with its subvolume");
    assert_eq!(
        (numbers(&fs, group), numbers(&fs, QgroupId::of_subvolume(copy))),
        ((full, full), (full, full))
    );
    assert!(!quotas(&fs).is_inconsistent());
    fs.snapshot_in(copy, fs.root(), b"outside", false, &[]).expect("made");
    assert!(quotas(&fs).is_inconsistent(), "a part of the group's bytes is not its own any more");
    rescan(&fs);
    fs.pool().begin_quota_rescan().expect("begins");
    rescan(&fs);
    assert_eq!(numbers(&fs, group), (full, node));
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("groups of new subvolumes");
    pool.assert_btrfs_check("groups of new subvolumes");
}
