//! Simple quotas: numbers of a plain model, in which an extent is of the subvolume that wrote it first.

use super::pool::{NEW_SUBVOLUME, Pool};
use super::quotas::{Numbers, clean_up, has_group, named, numbers, quotas, write};
use super::rules::{create, file};
use brindle_fs::{ErrorKind, Filesystem, InodeId, RangePair, RootId};
use brindle_ondisk::item::{BackRef, ExtentFlags, QgroupLimit, QgroupLimitFlags, QgroupStatusFlags};
use brindle_ondisk::{Generation, Item, Key, KeyType, ObjectId, QgroupId};
use brindle_tree::Readahead;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use zerocopy::FromZeros;

const BLOCK: u64 = 4096;
const FILES: u64 = 6;
/// Blocks of a file.
const BLOCKS: u64 = 16;
/// Size at which the tree of a subvolume is one block.
const NODESIZE: u32 = 65536;
const GROUP: QgroupId = QgroupId::new(1 << 48 | 1);

/// An extent: the subvolume that wrote it, and its length.
#[derive(Clone, Copy)]
struct Written {
    by: RootId,
    bytes: u64,
}

/// Contents of a file: the number of the extent that each of its blocks is in.
type Contents = BTreeMap<u64, usize>;

/// A subvolume.
#[derive(Clone, Default)]
struct Subvolume {
    files: BTreeMap<u64, Contents>,
    is_member: bool,
}

/// Subvolumes, and all extents that were ever written.
#[derive(Default)]
struct Model {
    subvolumes: BTreeMap<RootId, Subvolume>,
    extents: Vec<Written>,
    /// Subvolumes that are gone, and were in the group.
    gone: BTreeMap<RootId, bool>,
}

impl Model {
    /// Bytes of data and of roots that a subvolume wrote and something refers to.
    fn bytes(&self, subvolume: RootId) -> u64 {
        let files = self.subvolumes.values().flat_map(|subvolume| subvolume.files.values());
        let live: BTreeSet<usize> = files.flat_map(|contents| contents.values().copied()).collect();
        let written = live.into_iter().filter_map(|number| self.extents.get(number));
        let data: u64 = written.filter(|extent| extent.by == subvolume).map(|extent| extent.bytes).sum();
        let has_root = self.subvolumes.contains_key(&subvolume);
        data + if has_root { u64::from(NODESIZE) } else { 0 }
    }

    fn is_member(&self, subvolume: RootId) -> bool {
        let alive = self.subvolumes.get(&subvolume).map(|subvolume| subvolume.is_member);
        alive.or_else(|| self.gone.get(&subvolume).copied()).unwrap_or(false)
    }

    fn compare(&self, fs: &Filesystem, when: &str) {
        let all: BTreeSet<RootId> = self.subvolumes.keys().chain(self.gone.keys()).copied().collect();
        let mut of_group = 0;
        for subvolume in all {
            let (id, expected) = (QgroupId::of_subvolume(subvolume), self.bytes(subvolume));
            of_group += if self.is_member(subvolume) { expected } else { 0 };
            if !has_group(fs, id) {
                assert!(self.gone.contains_key(&subvolume) && expected == 0, "{when}: {id} is not there");
                continue;
            }
            assert_eq!(numbers(fs, id), (expected, expected), "{when}: {id}");
        }
        assert_eq!(numbers(fs, GROUP), (of_group, of_group), "{when}: the group");
    }
}

/// A pool, its model, and what is drawn.
struct Play<'f> {
    fs: &'f Filesystem,
    model: Model,
    draw: Numbers,
    made: u64,
}

impl Play<'_> {
    fn some(&mut self) -> RootId {
        let live: Vec<RootId> = self.model.subvolumes.keys().copied().collect();
        live[usize::try_from(self.draw.below(live.len() as u64)).expect("few")]
    }

    /// A file of a subvolume, made if it is not there.
    fn file(&mut self, subvolume: RootId, number: u64) -> InodeId {
        let (root, name) = (InodeId::root_of(subvolume), format!("file-{number}"));
        let files = &mut self.model.subvolumes.get_mut(&subvolume).expect("alive").files;
        files.entry(number).or_default();
        named(self.fs, root, &name).unwrap_or_else(|| create(self.fs, root, &name, &file()))
    }

    fn contents(&mut self, subvolume: RootId, number: u64) -> &mut Contents {
        let files = &mut self.model.subvolumes.get_mut(&subvolume).expect("alive").files;
        files.get_mut(&number).expect("made")
    }

    fn step(&mut self) {
        let (subvolume, number) = (self.some(), self.draw.below(FILES));
        match self.draw.below(16) {
            0 if self.model.subvolumes.len() < 7 => self.snapshot(subvolume),
            1 if self.model.subvolumes.len() < 7 => self.create(),
            2 | 3 if subvolume != RootId::FS_TREE && self.model.subvolumes.len() > 3 => {
                self.delete(subvolume);
            }
            4 | 5 => {
                let name = format!("file-{number}");
                let files = &mut self.model.subvolumes.get_mut(&subvolume).expect("alive").files;
                if files.remove(&number).is_some() {
                    self.fs.unlink(InodeId::root_of(subvolume), name.as_bytes()).expect("there");
                }
            }
            6 => {
                let (file, blocks) = (self.file(subvolume, number), self.draw.below(BLOCKS));
                let opened = self.fs.open_file(file).expect("opens");
                self.fs.truncate(&opened, blocks * BLOCK).expect("works");
                self.fs.close_file(opened).expect("closes");
                self.contents(subvolume, number).retain(|block, _| *block < blocks);
            }
            7..=9 => self.share(subvolume, number),
            _ => self.write(subvolume, number),
        }
    }

    fn write(&mut self, subvolume: RootId, number: u64) {
        let (first, count) = (self.draw.below(BLOCKS / 2), 1 + self.draw.below(BLOCKS / 2));
        let (file, byte) = (self.file(subvolume, number), u8::try_from(self.draw.below(250)).expect("small"));
        let bytes = vec![byte; usize::try_from(count * BLOCK).expect("small")];
        write(self.fs, file, first * BLOCK, &bytes).expect("room");
        let extent = self.model.extents.len();
        self.model.extents.push(Written { by: subvolume, bytes: count * BLOCK });
        self.contents(subvolume, number).extend((first..first + count).map(|block| (block, extent)));
    }

    /// A file gets all that another one has.
    fn share(&mut self, subvolume: RootId, number: u64) {
        let (from, other) = (self.some(), self.draw.below(FILES));
        let known = self.model.subvolumes.get(&from).and_then(|it| it.files.get(&other)).cloned();
        let Some(known) = known.filter(|_| (from, other) != (subvolume, number)) else { return };
        let (source, target) = (self.file(from, other), self.file(subvolume, number));
        let length = self.fs.attributes(source).expect("there").size / BLOCK * BLOCK;
        if length == 0 {
            return;
        }
        let (from, to) =
            (self.fs.open_file(source).expect("opens"), self.fs.open_file(target).expect("opens"));
        let pair = RangePair { source: &from, source_offset: 0, target: &to, target_offset: 0, length };
        self.fs.clone_range(&pair).expect("shares");
        self.fs.close_file(from).expect("closes");
        self.fs.close_file(to).expect("closes");
        let contents = self.contents(subvolume, number);
        contents.retain(|block, _| block * BLOCK >= length);
        contents.extend(known.into_iter().filter(|(block, _)| block * BLOCK < length));
    }

    fn snapshot(&mut self, of: RootId) {
        self.made += 1;
        let name = format!("copy-{}", self.made);
        let id = self.fs.snapshot(of, self.fs.root(), name.as_bytes(), false).expect("made");
        let files = self.model.subvolumes.get(&of).expect("alive").files.clone();
        self.model.subvolumes.insert(id, Subvolume { files, is_member: false });
    }

    /// A new subvolume: in the group, or in a member, so that it becomes one, or outside.
    fn create(&mut self) {
        self.made += 1;
        let (name, is_member) = (format!("new-{}", self.made), self.draw.below(2) == 0);
        let groups: &[QgroupId] = if is_member { &[GROUP] } else { &[] };
        let made = self.fs.create_subvolume_in(self.fs.root(), name.as_bytes(), &NEW_SUBVOLUME, groups);
        self.model.subvolumes.insert(made.expect("made"), Subvolume { is_member, ..Subvolume::default() });
    }

    fn delete(&mut self, subvolume: RootId) {
        self.fs.delete_subvolume_by_id(subvolume).expect("deleted");
        clean_up(self.fs);
        let is_member = self.model.is_member(subvolume);
        self.model.subvolumes.remove(&subvolume);
        self.model.gone.insert(subvolume, is_member);
    }
}

fn settle(fs: &Filesystem) {
    fs.sync().expect("durable");
    clean_up(fs);
}

#[test]
fn numbers_are_those_of_the_first_writers() {
    for seed in 1..4 {
        let pool = Pool::with(|options| options.nodesize = Some(NODESIZE));
        let fs = pool.open();
        let before = create(&fs, fs.root(), "before", &file());
        write(&fs, before, 0, &vec![1; 1 << 20]).expect("room");
        fs.sync().expect("durable");
        fs.pool().enable_simple_quotas().expect("room");
        fs.pool().create_quota_group(GROUP).expect("room");
        let mut play = Play { fs: &fs, model: Model::default(), draw: Numbers(seed * 77), made: 0 };
        play.model.subvolumes.insert(RootId::FS_TREE, Subvolume::default());
        play.create();
        settle(&fs);
        play.model.compare(&fs, "to begin with");
        for number in 0..150 {
            play.step();
            settle(&fs);
            play.model.compare(&fs, &format!("seed {seed}, step {number}"));
            if number % 30 == 20 {
                relocate_all(&fs);
                play.model.compare(&fs, &format!("seed {seed}, moved after step {number}"));
            }
            if number == 75 {
                fs.unlink(fs.root(), b"before").expect("there");
            }
        }
        let model = play.model;
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_clean(&format!("seed {seed}"));
        let fs = pool.open();
        model.compare(&fs, &format!("seed {seed}, opened again"));
    }
}

#[test]
fn a_limit_of_simple_quotas_is_kept_and_deletion_makes_room() {
    const MIB: u64 = 1 << 20;
    let pool = Pool::new();
    let fs = pool.open();
    fs.pool().enable_simple_quotas().expect("room");
    fs.pool().create_quota_group(GROUP).expect("room");
    let id = fs.create_subvolume_in(fs.root(), b"small", &NEW_SUBVOLUME, &[GROUP]).expect("made");
    let limit = QgroupLimit {
        flags: QgroupLimitFlags::MAX_RFER.bits().into(),
        max_rfer: (4 * MIB).into(),
        ..QgroupLimit::new_zeroed()
    };
    fs.pool().limit_quota_group(GROUP, limit).expect("there");
    fs.pool().limit_quota_group(QgroupId::of_subvolume(id), limit).expect("there");
    let root = InodeId::root_of(id);
    for round in 0..3 {
        let full = create(&fs, root, "full", &file());
        let mut written = 0;
        let refused = loop {
            match write(&fs, full, written, &vec![7; 1 << 16]) {
                Ok(()) => written += 1 << 16,
                Err(kind) => break kind,
            }
            assert!(written <= 4 * MIB, "round {round}: the limit is passed");
        };
        assert_eq!(refused, ErrorKind::QuotaExceeded, "round {round}");
        assert!(written >= 3 * MIB, "round {round}: {written}");
        fs.sync().expect("durable");
        let used = numbers(&fs, GROUP).0;
        assert!((written..=4 * MIB).contains(&used), "round {round}: {used}");
        fs.unlink(root, b"full").expect("deletion is never refused");
        clean_up(&fs);
    }
    let copy = fs.snapshot(id, InodeId::root_of(id), b"copy", false).expect("made");
    let found = quotas(&fs).groups.into_iter().find(|group| group.id == QgroupId::of_subvolume(copy));
    let found = found.expect("it has a group");
    assert_eq!(found.parents, [GROUP], "those of the subvolume that it lies in");
    assert_eq!(found.limit.flags.get(), 0, "a snapshot has no limit");
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("after the limit");
}

#[test]
fn writers_side_by_side_do_not_pass_a_limit_together() {
    const LIMIT: u64 = 4 << 20;
    let pool = Pool::with(|options| options.nodesize = Some(4096));
    let fs = pool.open();
    fs.pool().enable_simple_quotas().expect("room");
    let id = fs.create_subvolume(fs.root(), b"small", &NEW_SUBVOLUME).expect("made");
    let (group, root) = (QgroupId::of_subvolume(id), InodeId::root_of(id));
    let limit = QgroupLimit {
        flags: QgroupLimitFlags::MAX_RFER.bits().into(),
        max_rfer: LIMIT.into(),
        ..QgroupLimit::new_zeroed()
    };
    fs.pool().limit_quota_group(group, limit).expect("there");
    let names: Vec<String> = (0..8).map(|number| format!("file-{number}")).collect();
    let files: Vec<InodeId> = names.iter().map(|name| create(&fs, root, name, &file())).collect();
    settle(&fs);
    for round in 0..10 {
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(|| (0..64).find(|part| write(&fs, *file, part << 18, &[3; 1 << 18]).is_err()));
            }
        });
        fs.sync().expect("durable");
        let used = numbers(&fs, group).0;
        assert!((LIMIT * 3 / 4..=LIMIT).contains(&used), "round {round}: {used}");
        for file in &files {
            let opened = fs.open_file(*file).expect("opens");
            fs.truncate(&opened, 0).expect("always");
            fs.close_file(opened).expect("closes");
        }
        clean_up(&fs);
    }
    examined(&pool, fs, "after ten rounds");
}

#[test]
fn extents_from_before_simple_quotas_were_turned_on_again_do_not_count() {
    let pool = Pool::new();
    let fs = pool.open();
    fs.pool().enable_simple_quotas().expect("room");
    let id = fs.create_subvolume(fs.root(), b"one", &NEW_SUBVOLUME).expect("made");
    let (root, group, node) =
        (InodeId::root_of(id), QgroupId::of_subvolume(id), u64::from(fs.pool().nodesize()));
    let early = create(&fs, root, "early", &file());
    write(&fs, early, 0, &vec![3; 1 << 20]).expect("room");
    settle(&fs);
    assert_eq!(numbers(&fs, group), (node + (1 << 20), node + (1 << 20)));
    let found = quotas(&fs).groups.into_iter().find(|found| found.id == group).expect("there").info;
    assert_eq!((found.rfer_cmpr.get(), found.excl_cmpr.get()), (0, 0), "as the kernel leaves them");
    let kind = |refused: Result<(), brindle_tree::TreeError>| {
        brindle_fs::FsError::from(refused.expect_err("refused")).kind()
    };
    assert_eq!(kind(fs.pool().enable_quotas()), ErrorKind::Invalid, "of the other mode");
    assert_eq!(kind(fs.pool().begin_quota_rescan()), ErrorKind::Invalid, "never counted anew");
    fs.pool().disable_quotas().expect("works");
    assert!(fs.pool().quotas().expect("readable").is_none());
    let between = create(&fs, root, "between", &file());
    write(&fs, between, 0, &vec![4; 1 << 20]).expect("room");
    settle(&fs);
    let durable = fs.pool().superblock().generation;
    fs.pool().enable_simple_quotas().expect("room");
    assert_eq!(quotas(&fs).flags, QgroupStatusFlags::ON | QgroupStatusFlags::SIMPLE);
    let first = quotas(&fs).enable_gen.expect("they are simple");
    assert!(first.get() > durable.get() + 1, "not the transaction that was running: {first}");
    let late = create(&fs, root, "late", &file());
    write(&fs, late, 0, &vec![5; 1 << 16]).expect("room");
    settle(&fs);
    assert_eq!(numbers(&fs, group), (node + (1 << 16), node + (1 << 16)));
    for name in ["early", "between"] {
        fs.unlink(root, name.as_bytes()).expect("there");
        settle(&fs);
        assert_eq!(numbers(&fs, group), (node + (1 << 16), node + (1 << 16)), "{name}");
    }
    let copy = fs.snapshot(id, fs.root(), b"copy", false).expect("made");
    fs.delete_subvolume_by_id(id).expect("deleted");
    settle(&fs);
    assert_eq!(numbers(&fs, group), (1 << 16, 1 << 16), "its data is left");
    let refused = kind(fs.pool().destroy_quota_group(group));
    assert_eq!(refused, ErrorKind::Busy, "there are extents");
    fs.unlink(InodeId::root_of(copy), b"late").expect("there");
    settle(&fs);
    assert_eq!(numbers(&fs, group), (0, 0));
    fs.pool().destroy_quota_group(group).expect("nothing of it is left");
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("turned on again");
}

/// Moves everything.
fn relocate_all(fs: &Filesystem) {
    let pool = fs.pool();
    let alone = pool.begin_exclusive("a test").expect("nothing else runs");
    for group in pool.block_groups().expect("writable") {
        pool.relocate(&alone, group.start, &mut |_| ControlFlow::Continue(())).expect("room");
    }
    drop(alone);
    settle(fs);
}

/// Closes a pool, examines it, and opens it again.
fn examined(pool: &Pool, fs: Filesystem, when: &str) -> Filesystem {
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean(when);
    pool.open()
}

fn has_limit_item(fs: &Filesystem, group: QgroupId) -> bool {
    let key = Key::new(ObjectId::new(0), KeyType::QGROUP_LIMIT, group.get());
    let mut cursor = fs.pool().cursor(&fs.pool().tree(RootId::QUOTA_TREE).expect("there"), Readahead::None);
    cursor.seek(&key).expect("readable");
    cursor.key() == Some(key)
}

/// Generation and noted first writer of extents of data.
fn noted(fs: &Filesystem) -> BTreeSet<(Generation, Option<RootId>)> {
    let tree = fs.pool().tree(RootId::EXTENT_TREE).expect("there");
    let mut cursor = fs.pool().cursor(&tree, Readahead::Forward);
    cursor.seek(&Key::MIN).expect("readable");
    let mut noted = BTreeSet::new();
    while let Some((key, data)) = cursor.item() {
        if let Ok(Item::Extent(extent)) = Item::parse(&key, data) {
            if extent.flags().contains(ExtentFlags::DATA) {
                let owner =
                    |reference| if let Ok(BackRef::Owner(root)) = reference { Some(root) } else { None };
                noted.insert((extent.header.generation, extent.inline_refs.clone().find_map(owner)));
            }
        }
        cursor.next().expect("readable");
    }
    noted
}

/// A subvolume, and at the top level a file that shares its only extent.
fn shared_extent(fs: &Filesystem, bytes: usize) -> RootId {
    let id = fs.create_subvolume(fs.root(), b"writer", &NEW_SUBVOLUME).expect("made");
    let source = create(fs, InodeId::root_of(id), "source", &file());
    write(fs, source, 0, &vec![6; bytes]).expect("room");
    let target = create(fs, fs.root(), "target", &file());
    let (from, to) = (fs.open_file(source).expect("opens"), fs.open_file(target).expect("opens"));
    let length = u64::try_from(bytes).expect("small");
    let pair = RangePair { source: &from, source_offset: 0, target: &to, target_offset: 0, length };
    fs.clone_range(&pair).expect("shares");
    fs.close_file(from).expect("closes");
    fs.close_file(to).expect("closes");
    id
}

/// Linux 6.18 ends all writing when a block goes that counts for a subvolume without a group.
#[test]
fn blocks_of_a_subvolume_that_is_gone_have_a_group_once_they_have_moved() {
    let pool = Pool::with(|options| options.nodesize = Some(4096));
    let fs = pool.open();
    let gone = fs.create_subvolume(fs.root(), b"gone", &NEW_SUBVOLUME).expect("made");
    for number in 0..100 {
        create(&fs, InodeId::root_of(gone), &format!("file-{number}"), &file());
    }
    settle(&fs);
    let copy = fs.snapshot(gone, fs.root(), b"copy", false).expect("made");
    fs.delete_subvolume_by_id(gone).expect("deleted");
    settle(&fs);
    fs.pool().enable_simple_quotas().expect("room");
    let group = QgroupId::of_subvolume(gone);
    assert!(!has_group(&fs, group), "nothing counts for it");
    relocate_all(&fs);
    assert!(numbers(&fs, group).0 > 0, "its blocks are as young as the quotas");
    assert!(has_limit_item(&fs, group), "the kernel removes no group without one");
    let fs = examined(&pool, fs, "moved");
    fs.delete_subvolume_by_id(copy).expect("deleted");
    settle(&fs);
    assert_eq!(numbers(&fs, group), (0, 0));
    fs.pool().destroy_quota_group(group).expect("nothing of it is left");
    examined(&pool, fs, "without both");
}

/// Linux 6.18 can't move an extent whose first writer has no group.
#[test]
fn notes_of_first_writers_from_earlier_quotas_go_when_data_moves() {
    let pool = Pool::new();
    let fs = pool.open();
    fs.pool().enable_simple_quotas().expect("room");
    let gone = shared_extent(&fs, 1 << 16);
    settle(&fs);
    fs.pool().disable_quotas().expect("works");
    fs.pool().enable_simple_quotas().expect("room");
    fs.delete_subvolume_by_id(gone).expect("deleted");
    let late = create(&fs, fs.root(), "late", &file());
    write(&fs, late, 0, &vec![5; 1 << 16]).expect("room");
    settle(&fs);
    let before = noted(&fs);
    let owners: Vec<Option<RootId>> = before.iter().map(|(_, owner)| *owner).collect();
    assert_eq!(owners, [Some(gone), Some(RootId::FS_TREE)]);
    relocate_all(&fs);
    let is_of_one_there = |owner: RootId| (owner != gone).then_some(owner);
    let expected = before.into_iter().map(|(age, owner)| (age, owner.and_then(is_of_one_there)));
    assert_eq!(noted(&fs), expected.collect(), "each is as old as it was");
    assert!(!has_group(&fs, QgroupId::of_subvolume(gone)));
    assert!(numbers(&fs, QgroupId::of_subvolume(RootId::FS_TREE)).0 > 1 << 16);
    examined(&pool, fs, "moved");
}

#[test]
fn a_new_subvolume_does_not_take_over_the_extents_of_one_that_is_gone() {
    let pool = Pool::with(|options| options.nodesize = Some(NODESIZE));
    let fs = pool.open();
    fs.pool().enable_simple_quotas().expect("room");
    let gone = shared_extent(&fs, 1 << 16);
    fs.delete_subvolume_by_id(gone).expect("deleted");
    settle(&fs);
    let fs = examined(&pool, fs, "without the subvolume");
    let new = fs.create_subvolume(fs.root(), b"new", &NEW_SUBVOLUME).expect("made");
    settle(&fs);
    assert!(new > gone, "its id is in use: {gone}");
    let of = |id| numbers(&fs, QgroupId::of_subvolume(id));
    assert_eq!([of(gone), of(new)], [(1 << 16, 1 << 16), (NODESIZE.into(), NODESIZE.into())]);
}
