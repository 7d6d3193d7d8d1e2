//! Reads that others overtake: between the lookup of a place and the read of it, what lies there is freed, and the space
//! is used again, or discarded. No device may be blamed for that.

use crate::editor::Verdict;
use crate::options::DiscardMode;
use crate::options::OpenOptions;
use crate::options::WriterOptions;
use crate::pool::Pool;
use crate::store::cursor::Readahead;
use crate::transaction::Need;
use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{Device, DeviceClass, DeviceError, SparseDevice, WritableDevice};
use brindle_ondisk::{BlockGroupType, Key, KeyType, ObjectId, RootId, Uuid};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of a tree block, in bytes.
const NODE_BYTES: u32 = 4096;
/// Items of the tree, and bytes of each, a few to a leaf.
const ITEMS: u64 = 6_000;
const ITEM_BYTES: usize = 500;
/// The memory of the node cache, in bytes: as little as it accepts.
const CACHE_BYTES: usize = 1;

type Hook = Box<dyn FnMut(u64, usize)>;

thread_local! {
    /// Called before each read of this thread, with offset and length.
    static BEFORE_READ: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// A device whose readers can be held up.
#[derive(Debug)]
struct HeldUp(SparseDevice);

impl Device for HeldUp {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        // Taken away meanwhile: the hook may read.
        let hook = BEFORE_READ.with(|hook| hook.borrow_mut().take());
        if let Some(mut act) = hook {
            act(offset, buffer.len());
            BEFORE_READ.with(|hook| *hook.borrow_mut() = Some(act));
        }
        self.0.read_at(offset, buffer)
    }
}

impl WritableDevice for HeldUp {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.0.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.0.set_size(size_bytes)
    }
}

fn new_pool() -> (Arc<HeldUp>, Arc<Pool>) {
    let device = Arc::new(HeldUp(SparseDevice::new("memory", 256 << 20, DeviceClass::Unknown)));
    let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
    options.nodesize = Some(NODE_BYTES);
    mkfs(&[NewDevice::new(Arc::clone(&device) as Arc<dyn WritableDevice>)], &options).expect("a pool");
    let pool = open(&device);
    change(&pool, 1, 0..ITEMS);
    pool.commit().expect("committed");
    drop(pool);
    let pool = open(&device);
    (device, Arc::new(pool))
}

fn open(device: &Arc<HeldUp>) -> Pool {
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::default() };
    let devices = vec![Arc::clone(device) as Arc<dyn WritableDevice>];
    let writer = WriterOptions { discard: DiscardMode::Async, ..WriterOptions::default() };
    Pool::open_writable(devices, &options, &writer).expect("the pool opens")
}

fn key(number: u64) -> Key {
    Key::new(ObjectId::new(1000), KeyType(7), number)
}

/// Writes some items anew.
fn change(pool: &Pool, round: u8, numbers: impl Iterator<Item = u64>) {
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    for number in numbers {
        let transaction = pool.join(Need::items(1)).expect("there is room for an item");
        transaction.replace(&tree, &key(number), &[round; ITEM_BYTES]).expect("the item can be replaced");
    }
}

/// Takes most items away, and puts them back: leaves and nodes come and go.
fn shrink_and_grow(pool: &Pool, round: u8) {
    let tree = pool.tree(RootId::FS_TREE).expect("a tree");
    let transaction = pool.join(Need::freeing(20)).expect("there is room for a removal");
    let choose = |_: &Key, _: &[u8]| Verdict::Remove;
    transaction.remove_range(&tree, &key(1), &key(ITEMS - 1), choose).expect("the items can be removed");
    drop(transaction);
    pool.commit().expect("committed");
    change(pool, round, 1..ITEMS);
    pool.commit().expect("committed");
}

fn assert_blameless(pool: &Pool) {
    for device in pool.volume().devices() {
        assert_eq!(device.counters, Default::default(), "{} was blamed", device.name);
    }
}

/// Calls `act` with the next read of this thread held up: before it, the tree is changed, and what is free then is
/// discarded. True if what was to be read is gone.
fn overtaken<T>(device: &Arc<HeldUp>, pool: &Arc<Pool>, act: impl FnOnce() -> T) -> (T, bool) {
    let (held_up, changed) = (Arc::clone(device), Arc::clone(pool));
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    let mut reads = 0;
    let hook = move |offset, length| {
        reads += 1;
        if reads > 1 {
            return;
        }
        let content = || {
            let mut bytes = vec![0; length];
            held_up.0.read_at(offset, &mut bytes).expect("the range exists");
            bytes
        };
        let before = content();
        shrink_and_grow(&changed, 7);
        changed.discard_step(u64::MAX).expect("the device takes discards");
        is_gone.store(content() != before, Ordering::Relaxed);
    };
    BEFORE_READ.with(|before| *before.borrow_mut() = Some(Box::new(hook)));
    let done = act();
    BEFORE_READ.with(|before| *before.borrow_mut() = None);
    (done, gone.load(Ordering::Relaxed))
}

/// The key found at an item.
fn look_up(pool: &Pool, number: u64) -> Option<Key> {
    let mut cursor = pool.cursor(&pool.tree(RootId::FS_TREE).expect("a tree"), Readahead::None);
    cursor.seek(&key(number)).expect("the tree can be read");
    cursor.key()
}

#[test]
fn a_cursor_that_commits_overtake_blames_no_device() {
    let (device, pool) = new_pool();
    let (found, is_gone) = overtaken(&device, &pool, || look_up(&pool, 10));
    assert_eq!(found, Some(key(10)));
    assert_blameless(&pool);
    assert!(!is_gone, "space that a reader had looked up was discarded");
}

#[test]
fn an_estimate_that_commits_overtake_blames_no_device() {
    let (device, pool) = new_pool();
    let groups = pool.block_groups().expect("a writable pool");
    let group = groups.iter().find(|group| group.kind.contains(BlockGroupType::METADATA));
    let group = group.expect("there is metadata");
    let batch = relocator(&pool)
        .next_batch(group, group.start, super::BLOCKS_MAX, None)
        .expect("the trees can be read");
    assert!(!batch.shared.is_empty());
    // The blocks of the batch leave the cache.
    (0..ITEMS).step_by(5).for_each(|number| assert!(look_up(&pool, number).is_some()));
    let (estimated, is_gone) = overtaken(&device, &pool, || relocator(&pool).estimate(&batch.shared, &[]));
    assert_blameless(&pool);
    assert!(!is_gone, "space that a plan had looked up was discarded");
    estimated.expect("the trees of the last commit hold together");
}

#[test]
fn an_estimate_beside_a_commit_reads_nothing_that_is_not_written() {
    let (_, pool) = new_pool();
    let groups = pool.block_groups().expect("a writable pool");
    let group = groups.iter().find(|group| group.kind.contains(BlockGroupType::METADATA));
    let group = group.expect("there is metadata");
    let batch = relocator(&pool)
        .next_batch(group, group.start, super::BLOCKS_MAX, None)
        .expect("the trees can be read");
    change(&pool, 1, (0..ITEMS).step_by(100));
    // As in the middle of a commit: blocks have addresses, the extent tree has them, and they are in memory only.
    let estimated = pool.exclusively(|editor| {
        editor.changes.space.prepare(&pool, editor.load())?;
        crate::transaction::placer::Placer::of(editor).assign(&*pool.tree(RootId::FS_TREE)?)?;
        crate::extent_tree::ExtentTree::of(editor).apply(usize::MAX)?;
        Ok(relocator(&pool).estimate(&batch.shared, &[]))
    });
    assert_blameless(&pool);
    estimated.expect("nobody stands in the way").expect("the trees of the last commit hold together");
}

fn relocator(pool: &Pool) -> super::Relocator<'_> {
    super::Relocator::of(pool.transactions().expect("writable"))
}
