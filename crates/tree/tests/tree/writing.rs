//! Changes to a pool in memory, against a map: extended attributes of the root directory, as many as it takes
//! to make trees grow and shrink. After each commit, `check` has nothing to say.

use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, mkfs};
use brindle_check::{CheckOptions, NoProgress, check};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_ondisk::item::{DirEntryHeader, FileType};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, Profile, RootId, Uuid, name_hash};
use brindle_tree::{Need, OpenOptions, Pool, Readahead, TreeError, TreeKind, WriterOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Devices in memory that carry a pool.
pub(crate) struct Bench {
    devices: Vec<Arc<SparseDevice>>,
}

impl Bench {
    pub(crate) fn new(devices: usize, size_mib: u64, change: impl FnOnce(&mut MkfsOptions)) -> Self {
        let device = |number| {
            Arc::new(SparseDevice::new(format!("memory{number}"), size_mib << 20, DeviceClass::Unknown))
        };
        let devices: Vec<_> = (0..devices).map(device).collect();
        let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        change(&mut options);
        let new = |device: &Arc<SparseDevice>| NewDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>);
        let given: Vec<_> = devices.iter().map(new).collect();
        mkfs(&given, &options).expect("a pool");
        Self { devices }
    }

    pub(crate) fn open(&self, cache_bytes: usize) -> Pool {
        let devices = self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
        Pool::open_writable(devices.collect(), &options, &WriterOptions::default()).expect("opens")
    }

    pub(crate) fn assert_clean(&self, when: &str) {
        let devices = self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>);
        let options = CheckOptions { all_copies: true, ..CheckOptions::default() };
        let report = check(devices.collect(), &options, &NoProgress).expect("the pool opens");
        let findings: Vec<String> =
            report.findings().take(60).map(|(pass, finding)| format!("{pass}: {finding}")).collect();
        assert!(findings.is_empty(), "{when}:\n{}", findings.join("\n"));
    }
}

pub(crate) type Model = BTreeMap<u64, Vec<u8>>;

fn name(number: u32) -> Vec<u8> {
    format!("user.attribute-{number}").into_bytes()
}

pub(crate) fn key(number: u32) -> Key {
    Key::new(ObjectId::FIRST_FREE, KeyType::XATTR_ITEM, name_hash(&name(number)))
}

pub(crate) fn attribute(number: u32, value: &[u8]) -> Vec<u8> {
    let name = name(number);
    let mut header = DirEntryHeader::new_zeroed();
    header.file_type = FileType::Xattr as u8;
    header.name_len.set(u16::try_from(name.len()).expect("short"));
    header.data_len.set(u16::try_from(value.len()).expect("short"));
    [header.as_bytes(), &name, value].concat()
}

pub(crate) fn set(pool: &Pool, model: &mut Model, number: u32, length: usize) {
    let data = attribute(number, &vec![number.to_le_bytes()[0]; length]);
    let transaction = pool.join(Need::items(1)).expect("room");
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    transaction.replace(&tree, &key(number), &data).expect("replaced");
    model.insert(key(number).offset(), data);
}

fn remove(pool: &Pool, model: &mut Model, number: u32) {
    let transaction = pool.join(Need::freeing(1)).expect("room");
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    let was_there = transaction.remove(&tree, &key(number)).expect("removed");
    assert_eq!(was_there, model.remove(&key(number).offset()).is_some());
}

pub(crate) fn found(pool: &Pool) -> Model {
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    let mut cursor = pool.cursor(&tree, Readahead::Forward);
    cursor.seek(&Key::first_of(ObjectId::FIRST_FREE, KeyType::XATTR_ITEM)).expect("seek");
    let mut found = Model::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.item_type == KeyType::XATTR_ITEM) {
        assert!(matches!(Item::parse(&key, data), Ok(Item::Xattr(_))));
        found.insert(key.offset(), data.to_vec());
        cursor.next().expect("next");
    }
    found
}

#[test]
fn a_commit_with_nothing_to_do_writes_nothing() {
    let bench = Bench::new(1, 256, |_| ());
    let pool = bench.open(1 << 20);
    let before = pool.superblock().generation;
    pool.commit().expect("nothing to do");
    assert_eq!(pool.superblock().generation, before);
    bench.assert_clean("untouched");
}

#[test]
fn one_change_is_durable() {
    let bench = Bench::new(1, 256, |_| ());
    let mut model = Model::new();
    {
        let pool = bench.open(1 << 20);
        let before = pool.superblock().generation.get();
        set(&pool, &mut model, 7, 100);
        assert_eq!(found(&pool), model, "before the commit");
        pool.commit().expect("committed");
        assert_eq!(pool.superblock().generation.get(), before + 1);
        assert_eq!(found(&pool), model, "after the commit");
        let done = pool.commit_statistics();
        assert_eq!((done.commits, done.last), (1, done.total));
        let blocks = |kind: TreeKind| done.last.blocks[kind as usize];
        // One leaf, the root; of the tree of roots the same, and nothing of trees that have not changed.
        assert_eq!((blocks(TreeKind::Files)[0], blocks(TreeKind::Roots)[0]), (1, 1));
        assert_eq!((blocks(TreeKind::Checksums), blocks(TreeKind::Chunks)), ([0; 8], [0; 8]));
        assert_eq!(done.last.metadata_bytes, done.last.block_count() * u64::from(pool.nodesize()));
        assert!(done.last.references >= 2 * done.last.block_count() && done.last.rounds > 1, "{done:?}");
        assert!(done.longest >= done.last.time() && done.last.phases.iter().all(|time| !time.is_zero()));
    }
    bench.assert_clean("one change");
    assert_eq!(found(&bench.open(1 << 20)), model, "opened again");
}

#[test]
fn uncommitted_changes_are_gone_after_a_crash() {
    let bench = Bench::new(1, 256, |_| ());
    set(&bench.open(1 << 20), &mut Model::new(), 7, 100);
    bench.assert_clean("nothing was written");
    assert!(found(&bench.open(1 << 20)).is_empty());
}

#[test]
fn trees_grow_and_shrink() {
    for nodesize in [4096, 16384, 65536] {
        let bench = Bench::new(1, 512, |options| options.nodesize = Some(nodesize));
        let mut model = Model::new();
        let pool = bench.open(1 << 20);
        for number in 0..20_000 {
            set(&pool, &mut model, number, usize::try_from(number % 97).expect("small"));
            if number % 6_000 == 0 {
                pool.commit().expect("committed");
            }
        }
        pool.commit().expect("committed");
        bench.assert_clean("grown");
        assert_eq!(found(&pool), model);
        for number in 0..19_990 {
            remove(&pool, &mut model, number);
            if number % 7_000 == 0 {
                pool.commit().expect("committed");
            }
        }
        pool.commit().expect("committed");
        bench.assert_clean("shrunk");
        assert_eq!(found(&pool), model);
        assert_eq!(pool.tree(RootId::FS_TREE).expect("a tree").root().level, 0, "back to one leaf");
    }
}

#[test]
fn writers_and_committers_at_once() {
    let bench = Bench::new(2, 512, |options| options.nodesize = Some(4096));
    let pool = bench.open(4 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let pool = &pool;
            scope.spawn(move || {
                let mut model = Model::new();
                for number in 0..3_000 {
                    set(pool, &mut model, thread * 1_000_000 + number, 50);
                    if number % 500 == 499 {
                        pool.commit().expect("committed");
                    }
                    if number % 3 == 0 {
                        remove(pool, &mut model, thread * 1_000_000 + number);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                let found = found(&pool);
                assert!(found.len() <= 12_000);
            }
        });
    });
    pool.commit().expect("committed");
    assert_eq!(found(&pool).len(), 8_000);
    bench.assert_clean("after four writers");
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    let bench = Bench::new(1, 128, |options| {
        options.features = Features::default() | Features::MIXED_BG;
    });
    let pool = bench.open(4 << 20);
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    let mut count = 0;
    let full = loop {
        let transaction = match pool.join(Need::items(1)) {
            Ok(transaction) => transaction,
            Err(error) => break error,
        };
        let data = attribute(count, &[1; 3000]);
        transaction.replace(&tree, &key(count), &data).expect("there was room");
        count += 1;
        assert!(count < 100_000, "128 MiB are full at some time");
    };
    assert!(matches!(full, TreeError::NoSpace(_)), "{full}");
    assert!(count > 10_000, "most of 128 MiB is of use, not {count} times 3000 bytes");
    pool.commit().expect("a full pool can be committed");
    bench.assert_clean("full");
    for number in 0..count {
        let transaction = pool.join(Need::freeing(1)).expect("deleting is always possible");
        assert!(transaction.remove(&tree, &key(number)).expect("removed"));
    }
    pool.commit().expect("committed");
    bench.assert_clean("emptied");
    drop(pool.join(Need::items(1)).expect("room again"));
}

/// One step of a random life.
#[derive(Clone, Debug)]
enum Step {
    Set { number: u32, length: usize },
    Remove { number: u32 },
    Commit,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (0u32..3000, 0usize..1500).prop_map(|(number, length)| Step::Set { number, length }),
        35 => (0u32..3000).prop_map(|number| Step::Remove { number }),
        4 => Just(Step::Commit),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_random_life_is_that_of_a_map(
        steps in prop::collection::vec(step(), 1..1500),
        (devices, profile) in prop::sample::select(vec![
            (1, Profile::Single), (1, Profile::Dup), (2, Profile::Raid1), (3, Profile::Raid0),
            (4, Profile::Raid10), (3, Profile::Raid5), (4, Profile::Raid6),
        ]),
        old_features in any::<bool>(),
    ) {
        let bench = Bench::new(devices, 256, |options| {
            options.metadata = Some(profile);
            options.nodesize = Some(4096);
            if old_features {
                options.features = Features::empty();
            }
        });
        let mut model = Model::new();
        let mut pool = bench.open(1 << 20);
        for step in steps {
            match step {
                Step::Set { number, length } => set(&pool, &mut model, number, length),
                Step::Remove { number } => remove(&pool, &mut model, number),
                Step::Commit => {
                    pool.commit().expect("committed");
                    bench.assert_clean("committed");
                }
                Step::Reopen => {
                    pool.commit().expect("committed");
                    drop(pool);
                    pool = bench.open(1 << 20);
                    assert_eq!(found(&pool), model, "opened again");
                }
            }
        }
        pool.commit().expect("committed");
        bench.assert_clean("at the end");
        assert_eq!(found(&pool), model);
    }
}
