//! Space on real pools: the kernel's images are written to at random, and examined after every few commits.

mod log_reserve;
mod series;
mod settling;

use super::group::Content;
use super::{DiscardMode, Space};
use crate::error::TreeError;
use crate::options::OpenOptions;
use crate::options::WriterOptions;
use crate::pool::Pool;
use crate::refs::DataRange;
use crate::transaction::{Need, Transaction};
use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::item::{ExtentDataRef, FileExtentHeader, FileExtentRef, InodeFlags, InodeItem};
use brindle_ondisk::{
    Generation, Item, Key, KeyType, Logical, ObjectId, Profile, RootId, Uuid, to_u64, to_usize,
};
use brindle_testing::golden::Golden;
use std::path::Path;
use std::sync::Arc;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const SECTOR: u64 = 4096;
const PREALLOC: u8 = 2;

impl Space {
    /// Checks that all sums agree with their summands.
    pub(crate) fn verify(&self) {
        let state = self.lock();
        let mut sums: super::group::PerContent<super::group::Totals> = Default::default();
        for group in state.groups() {
            sums[Content::of(group.kind)].add(group.totals());
            if let (Some(free), true) = (&group.free, group.writable) {
                let kept = group.log_reserve.as_ref().map_or(0, |reserve| reserve.free.bytes());
                assert_eq!(free.bytes() + kept, group.available(), "free ranges of group {}", group.start);
            }
            let pinned = state.pinned_within(group.interval());
            assert_eq!(
                pinned.iter().map(Interval::length).sum::<u64>(),
                group.pinned,
                "group {}",
                group.start
            );
        }
        for content in Content::ALL {
            assert_eq!(state.totals(content), sums[content], "{content:?}");
        }
    }
}

/// A pool that can be written, and one of its files, which grows and shrinks at its end.
struct World {
    devices: Vec<Arc<SparseDevice>>,
    pool: Pool,
    file: ObjectId,
    /// Offset in the file of our first extent.
    first: u64,
    extents: Vec<Option<DataRange>>,
    random: u64,
    options: WriterOptions,
}

fn open(devices: &[Arc<SparseDevice>], options: &WriterOptions) -> Pool {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    Pool::open_writable(devices, &OpenOptions::default(), options).expect("opens")
}

impl World {
    fn new(name: &str, options: WriterOptions) -> Self {
        let golden = Golden::load(name);
        let copy = |image: &brindle_testing::golden::SparseImage| {
            let device = SparseDevice::new(
                format!("{name}{}", image.devid()),
                image.size_bytes(),
                DeviceClass::Unknown,
            );
            for (offset, block) in image.blocks() {
                device.write_at(offset, block).expect("in memory");
            }
            Arc::new(device)
        };
        let devices: Vec<_> = golden.devices.iter().map(copy).collect();
        let pool = open(&devices, &options);
        let (file, first) = find_file(&pool);
        Self { devices, pool, file, first, extents: Vec::new(), random: 1, options }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % bound
    }

    fn reference(&self, index: usize) -> (Key, ExtentDataRef) {
        let offset = self.first + to_u64(index) * (64 << 20);
        let reference = ExtentDataRef {
            root: RootId::FS_TREE,
            objectid: self.file,
            offset: U64::new(offset),
            count: U32::new(1),
        };
        (Key::new(self.file, KeyType::EXTENT_DATA, offset), reference)
    }

    /// Adds to what the file takes on disk.
    fn account(&self, transaction: &Transaction<'_>, change: i64) {
        let tree = self.pool.tree(RootId::FS_TREE).expect("is there");
        let key = Key::new(self.file, KeyType::INODE_ITEM, 0);
        let change = transaction.update(&tree, &key, |data| {
            let (inode, _) = InodeItem::mut_from_prefix(data).expect("an inode");
            inode.nbytes.set(inode.nbytes.get().checked_add_signed(change).expect("as it was"));
            inode.flags.set(inode.flags.get() | InodeFlags::PREALLOC.bits());
        });
        change.expect("update").expect("the inode is there");
    }

    /// Allocates an extent beyond the end of the file.
    fn grow(&mut self, min: u64, max: u64) -> Result<u64, TreeError> {
        self.pool.reserve_data(max)?;
        let extent = self.pool.reserve_extent(min, max, None).inspect_err(|_| self.pool.release_data(max))?;
        let range = DataRange { start: extent.start, length: extent.length };
        self.pool.release_data(max - range.length);
        let transaction = self.pool.join(Need::items(6))?;
        let (key, reference) = self.reference(self.extents.len());
        let header = FileExtentHeader {
            generation: transaction.generation(),
            ram_bytes: U64::new(range.length),
            compression: 0,
            encryption: 0,
            other_encoding: U16::new(0),
            extent_type: PREALLOC,
        };
        let body = FileExtentRef {
            disk_bytenr: range.start,
            disk_num_bytes: U64::new(range.length),
            offset: U64::new(0),
            num_bytes: U64::new(range.length),
        };
        let tree = self.pool.tree(RootId::FS_TREE).expect("is there");
        transaction.insert(&tree, &key, &[header.as_bytes(), body.as_bytes()].concat())?;
        transaction.references().add_data(range, &reference, true);
        extent.keep();
        self.account(&transaction, range.length as i64);
        drop(transaction);
        self.extents.push(Some(range));
        Ok(range.length)
    }

    fn shrink(&mut self, index: usize) -> Result<(), TreeError> {
        let Some(range) = self.extents[index] else { return Ok(()) };
        let transaction = self.pool.join(Need::freeing(6))?;
        let (key, reference) = self.reference(index);
        let tree = self.pool.tree(RootId::FS_TREE).expect("is there");
        assert!(transaction.remove(&tree, &key)?);
        transaction.references().drop_data(range, &reference);
        self.account(&transaction, -(range.length as i64));
        self.extents[index] = None;
        Ok(())
    }

    fn space(&self) -> &Space {
        &self.pool.changes().expect("writable").space
    }

    fn commit(&self) {
        self.pool.commit().expect("commit");
        self.space().verify();
    }

    /// Examines what is on disk.
    fn check(&self) {
        check(&self.devices);
    }

    /// Leaves the images where other programs can look at them.
    fn dump(&self, name: &str) {
        let Some(directory) = std::env::var_os("BRINDLE_SPACE_DUMP") else { return };
        for (number, device) in (1..).zip(&self.devices) {
            let path = Path::new(&directory).join(format!("{name}.{number}"));
            let file = std::fs::File::create(path).expect("create");
            file.set_len(device.size_bytes()).expect("set length");
            for (offset, bytes) in device.written() {
                std::os::unix::fs::FileExt::write_all_at(&file, &bytes, offset).expect("write");
            }
        }
    }

    fn reopen(&mut self) {
        self.pool = open(&self.devices, &self.options);
    }
}

/// Examines what is on disk.
fn check(devices: &[Arc<SparseDevice>]) {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    let report = brindle_check::check(devices, &CheckOptions::default(), &NoProgress).expect("a pool");
    let findings: Vec<String> =
        report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// A regular file of the top level, and a place behind all of its extents.
fn find_file(pool: &Pool) -> (ObjectId, u64) {
    let tree = pool.tree(RootId::FS_TREE).expect("is there");
    let mut cursor = pool.cursor(&tree, crate::store::cursor::Readahead::None);
    cursor.seek(&Key::MIN).expect("seek");
    while let Some((key, data)) = cursor.item() {
        if let Ok(Item::Inode(inode)) = Item::parse(&key, data) {
            let is_plain = !inode.inode_flags().intersects(InodeFlags::COMPRESS);
            if inode.is_regular()
                && is_plain
                && inode.nlink.get() > 0
                && inode.generation > Generation::new(0)
            {
                let file = key.objectid;
                return (file, inode.size.get().next_multiple_of(64 << 20).max(64 << 20));
            }
        }
        cursor.next().expect("next");
    }
    panic!("no regular file");
}

/// Grows and shrinks a file at random, with commits in between.
fn live(name: &str, steps: u64) {
    let options = WriterOptions { discard: DiscardMode::Async, ..WriterOptions::default() };
    let mut world = World::new(name, options);
    world.check();
    for step in 0..steps {
        let length = SECTOR << world.below(9);
        match world.below(10) {
            0..6 => match world.grow(SECTOR, length) {
                Ok(_) => {}
                Err(TreeError::NoSpace(_)) if !world.extents.is_empty() => {
                    for index in 0..world.extents.len() {
                        world.shrink(index).expect("files can be deleted on a full pool");
                    }
                }
                Err(error) => panic!("{error}"),
            },
            _ if world.extents.is_empty() => {}
            _ => {
                let index = to_usize(world.below(to_u64(world.extents.len())));
                world.shrink(index).expect("shrink");
            }
        }
        if step % 16 == 15 {
            world.commit();
            world.pool.discard_step(1 << 20).expect("discard");
        }
        if step % 128 == 127 {
            world.commit();
            world.check();
            if step % 256 == 255 {
                world.reopen();
            }
        }
    }
    world.commit();
    world.check();
    world.dump(name);
}

#[test]
fn a_long_life_leaves_sound_pools() {
    for name in
        ["single", "dup", "block-group-tree", "mixed-block-groups", "raid1", "raid0", "raid10", "node-4k"]
    {
        live(name, 600);
    }
}

#[test]
fn pools_without_a_free_space_tree_are_served_too() {
    for name in ["no-free-space-tree", "old-features"] {
        live(name, 300);
    }
}

/// Fills a pool until there is no space left; how much of its devices is used then, in percent.
fn fill(name: &str, min: u64, max: u64) -> (World, u64) {
    let mut world = World::new(name, WriterOptions::default());
    let error = loop {
        if let Err(error) = world.grow(min, max) {
            break error;
        }
    };
    assert!(matches!(error, TreeError::NoSpace(_)), "{error}");
    world.commit();
    world.check();
    let summary = world.pool.space_summary().expect("writable");
    let total: u64 = summary.devices.iter().map(|device| device.total_bytes).sum();
    let used: u64 = summary
        .groups
        .iter()
        .map(|group| {
            let attributes = group.kind.profile().expect("one").attributes();
            group.used_bytes * u64::from(attributes.ncopies)
        })
        .sum();
    (world, used * 100 / total)
}

#[test]
fn a_pool_can_be_filled_and_emptied() {
    for (name, least) in [("single", 80), ("mixed-block-groups", 80)] {
        let (mut world, percent) = fill(name, SECTOR, 1 << 20);
        assert!(percent >= least, "{name}: {percent} %");
        for index in 0..world.extents.len() {
            world.shrink(index).expect("files can be deleted on a full pool");
        }
        world.commit();
        world.check();
        let groups = |world: &World| world.space().lock().groups().count();
        let before = groups(&world);
        // What the last commit has freed can be removed by the next one.
        world.grow(1 << 20, 4 << 20).expect("there is room again");
        world.commit();
        world.check();
        assert!(groups(&world) < before, "{name}: empty block groups go back");
        assert_eq!(world.pool.volume().chunks().len(), groups(&world));
        world.dump(&format!("filled-{name}"));
    }
}

#[test]
fn small_extents_fill_a_pool_too() {
    let (mut world, _) = fill("single", SECTOR, SECTOR);
    assert!(world.extents.len() > 8000, "{} extents", world.extents.len());
    for index in (0..world.extents.len()).step_by(2) {
        world.shrink(index).expect("files can be deleted on a full pool");
    }
    world.commit();
    world.check();
    world.dump("holes");
    world.reopen();
    for index in 0..world.extents.len() {
        world.shrink(index).expect("files can be deleted on a full pool");
    }
    world.commit();
    world.check();
}

/// A new pool on large devices.
fn large_devices(count: usize, metadata: Profile) -> Vec<Arc<SparseDevice>> {
    let device = |number| SparseDevice::new(format!("memory{number}"), 16 << 30, DeviceClass::Unknown);
    let devices: Vec<_> = (0..count).map(|number| Arc::new(device(number))).collect();
    let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
    options.metadata = Some(metadata);
    let given: Vec<_> =
        devices.iter().map(|device| NewDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>)).collect();
    mkfs(&given, &options).expect("a pool");
    devices
}

#[test]
fn system_chunks_are_made_until_the_superblock_has_no_room_for_them() {
    for (devices, metadata) in [(1, Profile::Single), (1, Profile::Dup), (4, Profile::Raid10)] {
        let devices = large_devices(devices, metadata);
        let pool = open(&devices, &WriterOptions::default());
        let space = &pool.changes().expect("writable").space;
        let make = |content| space.make_chunk(&pool, &mut space.lock(), content);
        let mut made = 0;
        let error = loop {
            if let Err(error) = make(Content::System) {
                break error;
            }
            made += 1;
            // Some come in one transaction, others each in one of its own.
            if made % 3 == 0 {
                pool.commit().expect("commits");
                check(&devices);
            }
        };
        assert!(matches!(&error, TreeError::NoSpace(why) if why.contains("superblock")), "{error}");
        make(Content::Data).expect("chunks of other kinds go on");
        pool.commit().expect("commits");
        space.verify();
        check(&devices);
        let array = pool.superblock().sys_chunk_array_size.get();
        assert!(made >= 5 && array > 2048 - 300, "{made} chunks, {array} bytes");
        // Opening the pool again finds them all.
        let again = open(&devices, &WriterOptions::default());
        let chunks = again.changes().expect("writable").space.lock().system_chunks.len();
        assert_eq!(chunks, made + 1, "with the one that mkfs has made");
    }
}

#[test]
fn forgotten_free_ranges_are_looked_up_again() {
    let mut world = World::new("single", WriterOptions::default());
    for _ in 0..10 {
        world.space().lock().ranges_max = 0;
        for _ in 0..20 {
            world.grow(SECTOR, 16 * SECTOR).expect("there is room");
        }
        let index = to_usize(world.below(to_u64(world.extents.len())));
        world.shrink(index).expect("shrink");
        world.commit();
        let loaded = world.space().lock().groups().filter(|group| group.free.is_some()).count();
        assert_eq!(loaded, 0);
    }
    world.check();
}

#[test]
fn a_trimmed_pool_is_sound_and_keeps_its_superblocks() {
    for name in ["single", "raid1", "raid10"] {
        let mut world = World::new(name, WriterOptions::default());
        for _ in 0..20 {
            world.grow(SECTOR, 64 * SECTOR).expect("there is room");
        }
        world.commit();
        let all = || Logical::new(0)..Logical::new(u64::MAX);
        assert_eq!(world.pool.trim(all(), SECTOR, &|| false).expect("it is stopped"), 0);
        let bytes = world.pool.trim(all(), SECTOR, &|| true).expect("trims");
        assert!(bytes > 1 << 20, "{bytes}");
        world.space().verify();
        world.check();
        world.grow(SECTOR, 64 * SECTOR).expect("there is room still");
        world.commit();
        world.check();
    }
}

#[test]
fn several_threads_take_space_at_once_and_never_the_same() {
    let world = World::new("raid1", WriterOptions::default());
    let taken = std::sync::Mutex::new(IntervalSet::<u64>::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..200u64 {
                    let most = SECTOR * (1 + round % 32);
                    world.pool.reserve_data(most).expect("there is room");
                    let extent = world.pool.reserve_extent(SECTOR, most, None).expect("as promised");
                    world.pool.release_data(most - extent.length);
                    let span = Interval::new(extent.start.get(), extent.length);
                    let insert = |set: &mut IntervalSet<u64>| {
                        assert!(!set.intersects(span), "{span:?} was taken twice");
                        set.insert(span);
                    };
                    insert(&mut taken.lock().expect("nobody has panicked"));
                    std::thread::yield_now();
                    taken.lock().expect("nobody has panicked").remove(span);
                    drop(extent);
                }
            });
        }
    });
    world.space().verify();
    let summary = world.pool.space_summary().expect("writable");
    assert_eq!(summary.promised_data_bytes, 0);
    assert!(summary.groups.iter().all(|group| group.reserved_bytes == 0));
}

#[test]
fn free_ranges_are_those_that_the_kernel_wrote() {
    for name in brindle_testing::golden::names() {
        let golden = Golden::load(&name);
        let devices: Vec<Arc<dyn Device>> =
            golden.devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
        let options = OpenOptions::default();
        let Ok(pool) = Pool::open(devices, &options) else { continue };
        if pool.tree(RootId::EXTENT_TREE).is_err() {
            continue;
        }
        let space = Space::load(&pool, &WriterOptions::default()).expect("loads");
        let groups: Vec<u64> = space.lock().groups().map(|group| group.start).collect();
        for start in groups {
            space.look_up(&pool, start).expect("looks up");
            let state = space.lock();
            let group = state.group(start).expect("is there");
            let free = group.free.as_ref().expect("looked up").bytes();
            let expected = group.length - group.used - group.excluded.bytes();
            assert_eq!(free, expected, "{name}, group at {}", Logical::new(start));
        }
        assert_eq!(space.bytes_used(), pool.superblock().bytes_used.get(), "{name}");
    }
}
