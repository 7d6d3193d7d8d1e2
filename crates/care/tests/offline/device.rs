//! Devices of pools in memory that join, leave, and change their size.

use crate::support::files::{assert_filled, fill};
use crate::support::{MIB, MadePool, assert_clean, devices, examine, options};
use brindle_care::balance::{self, BalanceError};
use brindle_care::device::{AddOptions, DeviceCareError, Leaving, NewSize, Newcomer, add, remove, resize};
use brindle_care::job::{Control, Progress};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{DevId, Profile, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, Uuid};
use brindle_policy::balance::Balance;
use brindle_policy::placement::{AllocationHint, PlacementClass};
use brindle_tree::TreeError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(super) const FILES: usize = 12;
pub(super) const FILE_BYTES: usize = 300_000;

/// The devices that a pool has in the course of a test.
pub(super) struct Members {
    pub(super) devices: Vec<Arc<SparseDevice>>,
    pub(super) filesystem: Filesystem,
}

impl Members {
    /// A pool with something in it.
    pub(super) fn new(count: usize, profile: Profile) -> Self {
        let mut options = options();
        (options.data, options.metadata) = (Some(profile), Some(profile));
        let pool =
            MadePool::make_of(&vec![(400 * MIB, DeviceClass::Unknown); count], &options).expect("made");
        let filesystem = open(&pool.devices, false);
        fill(&filesystem, FILES, FILE_BYTES);
        Self { devices: pool.devices, filesystem }
    }

    fn add(&mut self, class: Option<PlacementClass>) -> DevId {
        let device = Arc::clone(&devices(&[(400 * MIB, DeviceClass::Unknown)])[0]);
        self.devices.push(Arc::clone(&device));
        let new = newcomer(&device, self.devices.len(), class);
        let added = add(self.filesystem.pool(), &[new], &AddOptions::default()).expect("it is empty");
        added[0]
    }

    fn remove(&mut self, devid: u64) -> Result<Control, DeviceCareError> {
        let which = Leaving::Id(DevId::new(devid));
        remove(self.filesystem.pool(), which, &mut on_and_on).map(|ended| ended.control)
    }

    fn resize(&self, devid: u64, size: &str) -> Result<Control, DeviceCareError> {
        let size: NewSize = size.parse().expect("a size");
        resize(self.filesystem.pool(), DevId::new(devid), size, &mut on_and_on).map(|ended| ended.control)
    }

    /// Closes it, examines it, and opens it again: everything is there.
    pub(super) fn prove(self, what: &str, left: &[usize]) -> Self {
        let Self { devices, filesystem } = self;
        assert_filled(&filesystem, FILES, FILE_BYTES);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let devices: Vec<_> = left.iter().map(|index| Arc::clone(&devices[*index])).collect();
        let readable: Vec<_> = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
        assert_clean(what, &examine(readable));
        let filesystem = open(&devices, false);
        assert_filled(&filesystem, FILES, FILE_BYTES);
        let superblock = filesystem.pool().superblock();
        assert_eq!(superblock.num_devices.get(), devices.len() as u64, "{what}");
        let total: u64 = filesystem.pool().volume().devices().iter().map(|device| device.total_bytes).sum();
        assert_eq!(superblock.total_bytes.get(), total, "{what}");
        Self { devices, filesystem }
    }
}

pub(super) fn open(devices: &[Arc<SparseDevice>], degraded: bool) -> Filesystem {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = degraded;
    Filesystem::open_writable(devices, &options, &WriteOptions::default()).expect("opens")
}

/// The first bytes of the file `plain`.
pub(super) fn plain(filesystem: &Filesystem) -> Vec<u8> {
    let entry = filesystem.lookup(filesystem.root(), b"plain").expect("readable").expect("there");
    let file = filesystem.open_file(entry.inode).expect("opens");
    let mut found = vec![0; 1 << 20];
    assert_eq!(filesystem.read(&file, 0, &mut found).expect("readable"), found.len());
    found
}

/// Writes them, in place and without checksums: nothing but the pool's own word tells old contents from new ones.
pub(super) fn write_plain(devices: &[Arc<SparseDevice>], is_first: bool, byte: u8) {
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let mut options = OpenOptions::default();
    options.pool.volume.degraded = true;
    let write = WriteOptions { nodatacow: true, ..WriteOptions::default() };
    let filesystem = Filesystem::open_writable(writable, &options, &write).expect("opens");
    let root = filesystem.root();
    let id = if is_first {
        filesystem.create(root, b"plain", &new_file()).expect("room").id
    } else {
        filesystem.lookup(root, b"plain").expect("readable").expect("there").inode
    };
    let file = filesystem.open_file(id).expect("there");
    filesystem.write(&file, 0, &vec![byte; 1 << 20]).expect("room");
    drop(file);
    filesystem.shutdown().expect("works");
}

#[test]
fn a_device_that_missed_something_is_left_out_until_it_is_added_anew() {
    let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    write_plain(&devices, true, 1);
    for byte in 2..5 {
        write_plain(&devices[1..], false, byte);
    }
    let all = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let refused = Filesystem::open_writable(all, &OpenOptions::default(), &WriteOptions::default());
    let refused = refused.expect_err("one device is old").to_string();
    assert!(refused.contains("is stale") && refused.contains("-o degraded"), "{refused}");
    // Read only, the old copy is the last choice; written, it is none.
    let readable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    assert!(plain(&Filesystem::open(readable, &OpenOptions::default()).expect("opens")) == vec![4; 1 << 20]);
    let filesystem = open(&devices, true);
    assert_eq!(filesystem.pool().volume().unused_devices().len(), 1);
    assert!(plain(&filesystem) == vec![4; 1 << 20]);
    let forced = AddOptions { force: true, discard: false };
    add(filesystem.pool(), &[newcomer(&devices[0], 3, None)], &forced).expect("forced");
    remove(filesystem.pool(), Leaving::Missing, &mut on_and_on).expect("there is room");
    let pool = Members { devices, filesystem }.prove("added anew", &[0, 1]);
    let Members { devices, filesystem } = pool;
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert!(plain(&open(&devices[..1], true)) == vec![4; 1 << 20], "it has caught up");
}

fn newcomer(device: &Arc<SparseDevice>, number: usize, class: Option<PlacementClass>) -> Newcomer {
    let uuid = Uuid([u8::try_from(number).expect("few") | 0x40; 16]);
    Newcomer { device: Arc::clone(device) as Arc<dyn WritableDevice>, uuid, class }
}

fn new_file() -> NewInode<'static> {
    NewInode { mode: 0o100_644, ..NewInode::default() }
}

/// Writes a file anew.
pub(super) fn write_more(filesystem: &Filesystem) {
    let root = filesystem.root();
    if filesystem.lookup(root, b"more").expect("readable").is_some() {
        filesystem.unlink(root, b"more").expect("works");
    }
    let made = filesystem.create(root, b"more", &new_file()).expect("room");
    let file = filesystem.open_file(made.id).expect("there");
    filesystem.write(&file, 0, &vec![9; 20 << 20]).expect("room");
    filesystem.sync().expect("works");
}

pub(super) fn on_and_on(_: &Progress) -> Control {
    Control::Continue
}

pub(super) fn superblock(device: &SparseDevice) -> Option<Box<Superblock>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("memory");
    Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).ok()
}

#[test]
fn of_every_profile_one_device_takes_the_place_of_another() {
    for row in &Profile::TABLE {
        let count = usize::from(row.devs_min.max(row.nparity * 2 + 1));
        let mut pool = Members::new(count, row.profile);
        let devid = pool.add(None);
        assert_eq!(devid.get(), count as u64 + 1);
        // It is in use at once.
        write_more(&pool.filesystem);
        assert_eq!(pool.remove(1).expect("there is room"), Control::Continue, "{}", row.name);
        assert!(superblock(&pool.devices[0]).is_none(), "nobody takes it for a member");
        let left: Vec<usize> = (1..=count).collect();
        let pool = pool.prove(row.name, &left);
        let volume = pool.filesystem.pool().volume();
        assert!(
            volume.chunks().iter().all(|chunk| chunk.kind.profile() == Some(row.profile)),
            "{}",
            row.name
        );
    }
}

#[test]
fn a_missing_device_is_removed_when_another_has_come() {
    let pool = Members::new(2, Profile::Raid1);
    let Members { devices, filesystem } = pool;
    filesystem.shutdown().expect("works");
    drop(filesystem);
    let filesystem = open(&devices[1..], true);
    let mut pool = Members { devices, filesystem };
    assert_eq!(
        pool.remove(1).expect_err("one is not enough for raid1").to_string(),
        "raid1 needs at least 2 devices, and 1 would be left: add one first, or balance to another profile"
    );
    pool.add(None);
    remove(pool.filesystem.pool(), Leaving::Missing, &mut on_and_on).expect("there is room");
    let none = remove(pool.filesystem.pool(), Leaving::Missing, &mut on_and_on);
    assert!(matches!(none, Err(DeviceCareError::NoneMissing)));
    pool.prove("without the missing one", &[1, 2]);
}

#[test]
fn a_device_gets_smaller_and_larger() {
    let pool = Members::new(2, Profile::Raid1);
    // Something lies at the end.
    balance::start(&pool.filesystem, &Balance::full(), false, &mut on_and_on).expect("there is room");
    let ends = |pool: &Members| {
        let groups = pool.filesystem.pool().block_groups().expect("writable");
        let on_first = |group: &brindle_tree::GroupStatus| {
            let here = group.stripes.iter().find(|(devid, _)| devid.get() == 1);
            here.map(|(_, at)| at + group.stripe_bytes)
        };
        groups.iter().filter_map(on_first).max().expect("something is there")
    };
    assert_eq!(pool.resize(1, "-100M").expect("there is room"), Control::Continue);
    assert!(ends(&pool) <= 300 * MIB);
    let pool = pool.prove("shrunk", &[0, 1]);
    assert_eq!(superblock(&pool.devices[0]).expect("a member").dev_item.total_bytes.get(), 300 * MIB);
    assert_eq!(pool.resize(1, "+50M").expect("it is that long"), Control::Continue);
    assert_eq!(pool.resize(2, "256M").expect("there is room"), Control::Continue);
    let pool = pool.prove("grown", &[0, 1]);
    pool.devices[0].set_size(600 * MIB).expect("memory");
    assert_eq!(pool.resize(1, "max").expect("it is longer now"), Control::Continue);
    write_more(&pool.filesystem);
    let pool = pool.prove("grown to its end", &[0, 1]);
    let sizes: Vec<u64> =
        pool.filesystem.pool().volume().devices().iter().map(|device| device.total_bytes).collect();
    assert_eq!(sizes, [600 * MIB, 256 * MIB]);
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let mut pool = Members::new(2, Profile::Raid1);
    let refused = |result: Result<Control, DeviceCareError>| result.expect_err("refused").to_string();
    let few =
        "raid1 needs at least 2 devices, and 1 would be left: add one first, or balance to another profile";
    assert_eq!(refused(pool.remove(2)), few);
    assert_eq!(refused(pool.remove(7)), "the pool has no device with the id 7");
    assert_eq!(refused(pool.resize(7, "max")), "the pool has no device with the id 7");
    // Less than a sector is nothing.
    assert_eq!(pool.resize(1, "-0").expect("nothing to do"), Control::Continue);
    pool.prove("refused", &[0, 1]);
}

#[test]
fn sizes_and_devices_that_do_not_fit_are_refused() {
    let pool = Members::new(1, Profile::Dup);
    let refused = |result: Result<Control, DeviceCareError>| result.expect_err("refused").to_string();
    let error = refused(pool.resize(1, "401M"));
    assert_eq!(error, "memory0 has only 400 MiB, and 401 MiB are wanted");
    let error = refused(pool.resize(1, "200M"));
    assert_eq!(error, "200 MiB are less than the 256 MiB that a device is shrunk to");
    let adding = |device: &Arc<SparseDevice>| {
        let new = newcomer(device, 9, None);
        let added = add(pool.filesystem.pool(), &[new], &AddOptions::default());
        added.expect_err("refused").to_string()
    };
    let tiny = Arc::new(SparseDevice::new("tiny", 4 * MIB, DeviceClass::Unknown));
    assert_eq!(adding(&tiny), "tiny has 4194304 bytes, a device of a pool has at least 8388608");
    let other = MadePool::make(1, &options()).expect("made");
    assert_eq!(adding(&other.devices[0]), "memory0 holds a btrfs filesystem; use -f to overwrite it");
    assert!(superblock(&other.devices[0]).is_some());
    let mut pool = pool;
    assert_eq!(refused(pool.remove(1)), "it is the only writable device");
    let forced = AddOptions { force: true, discard: true };
    add(pool.filesystem.pool(), &[newcomer(&other.devices[0], 9, None)], &forced).expect("forced");
    pool.devices.push(Arc::clone(&other.devices[0]));
    pool.prove("forced", &[0, 1]);
}

#[test]
fn one_such_operation_runs_at_a_time_and_an_interrupted_balance_comes_first() {
    let mut pool = Members::new(3, Profile::Raid1);
    let other = {
        let _running = pool.filesystem.pool().begin_exclusive("device remove").expect("the first");
        let balanced = balance::start(&pool.filesystem, &Balance::full(), false, &mut on_and_on);
        assert!(matches!(balanced, Err(BalanceError::Tree(TreeError::Busy { running: "device remove" }))));
        pool.resize(1, "-10M").expect_err("busy")
    };
    assert_eq!(
        other.to_string(),
        "another operation is under way on this pool, a device remove: wait for its end, or end it"
    );
    let pause =
        &mut |progress: &Progress| if progress.moved_bytes > 0 { Control::Pause } else { Control::Continue };
    balance::start(&pool.filesystem, &Balance::full(), false, pause).expect("there is room");
    assert!(matches!(pool.remove(1), Err(DeviceCareError::BalanceUnderWay)));
    assert!(matches!(pool.resize(1, "-10M"), Err(DeviceCareError::BalanceUnderWay)));
    // More room may be just what it lacks.
    pool.add(None);
    balance::forget(pool.filesystem.pool()).expect("works");
    pool.remove(1).expect("there is room");
    pool.prove("one at a time", &[1, 2, 3]);
}

#[test]
fn a_stopped_change_goes_on_at_the_next_request() {
    let mut pool = Members::new(3, Profile::Raid1);
    let stop = &mut |progress: &Progress| if progress.done > 0 { Control::Cancel } else { Control::Continue };
    let which = Leaving::Id(DevId::new(2));
    let ended = remove(pool.filesystem.pool(), which, stop).expect("there is room");
    assert_eq!((ended.control, ended.progress.done), (Control::Cancel, 1));
    let mut pool = {
        // It is a member as before, also for new chunks.
        pool = pool.prove("stopped", &[0, 1, 2]);
        let summary = pool.filesystem.pool().space_summary().expect("writable");
        assert!(summary.devices.iter().all(|device| device.unallocated_bytes > 0));
        pool
    };
    assert_eq!(pool.remove(2).expect("there is room"), Control::Continue);
    pool.prove("gone on with", &[0, 2]);
}

#[test]
fn without_room_elsewhere_the_device_stays_and_is_used() {
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Raid1));
    let pool = MadePool::make_of(&[(300 * MIB, DeviceClass::Unknown); 3], &options).expect("made");
    let filesystem = open(&pool.devices, false);
    let made = filesystem.create(filesystem.root(), b"large", &new_file()).expect("room");
    let file = filesystem.open_file(made.id).expect("there");
    let megabyte = vec![5; 1 << 20];
    for number in 0..400 {
        filesystem.write(&file, number << 20, &megabyte).expect("room");
    }
    filesystem.sync().expect("works");
    let refused = remove(filesystem.pool(), Leaving::Id(DevId::new(1)), &mut on_and_on);
    assert!(matches!(refused, Err(DeviceCareError::NoSpace(_))), "{refused:?}");
    for number in 400..600 {
        filesystem.write(&file, number << 20, &megabyte).expect("the device is used again");
    }
    filesystem.sync().expect("works");
    drop(file);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert_clean("without room", &pool.examine());
}

#[test]
fn a_device_leaves_while_files_are_written_and_read() {
    let mut pool = Members::new(4, Profile::Raid1);
    let is_over = AtomicBool::new(false);
    let filesystem = &pool.filesystem;
    let names = std::thread::scope(|scope| {
        let writer = |thread: usize| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut names = Vec::new();
                while !is_over.load(Relaxed) && names.len() < 400 {
                    let name = format!("beside{thread}-{}", names.len());
                    let made = filesystem.create(filesystem.root(), name.as_bytes(), &new_file());
                    let file = filesystem.open_file(made.expect("room").id).expect("there");
                    filesystem.write(&file, 0, name.repeat(5000).as_bytes()).expect("room");
                    if names.len() % 7 == 0 {
                        filesystem.sync().expect("works");
                    }
                    names.push(name);
                }
                names
            })
        };
        let writers = [writer(0), writer(1)];
        for devid in [2, 3] {
            let which = Leaving::Id(DevId::new(devid));
            remove(filesystem.pool(), which, &mut on_and_on).expect("there is room");
        }
        is_over.store(true, Relaxed);
        writers.map(|thread| thread.join().expect("a writer ends well")).concat()
    });
    filesystem.sync().expect("works");
    pool = pool.prove("beside writers", &[0, 3]);
    for name in names {
        let entry = pool.filesystem.lookup(pool.filesystem.root(), name.as_bytes()).expect("read");
        let file = pool.filesystem.open_file(entry.expect("there").inode).expect("opens");
        let mut found = vec![0; name.len() * 5000];
        assert_eq!(pool.filesystem.read(&file, 0, &mut found).expect("read"), found.len());
        assert!(found == name.repeat(5000).as_bytes(), "{name}");
    }
}

#[test]
fn a_class_that_is_said_becomes_a_hint_and_the_others_stay_what_they_were() {
    let of = [(400 * MIB, DeviceClass::Solid), (400 * MIB, DeviceClass::Rotating)];
    let mut options = options();
    options.metadata = Some(Profile::Single);
    let made = MadePool::make_of(&of, &options).expect("made");
    let filesystem = open(&made.devices, false);
    fill(&filesystem, FILES, FILE_BYTES);
    let mut pool = Members { devices: made.devices, filesystem };
    let bulk = pool.add(Some(PlacementClass::Bulk));
    let fast = pool.add(Some(PlacementClass::Fast));
    let pool = pool.prove("classes", &[0, 1, 2, 3]);
    let summary = pool.filesystem.pool().space_summary().expect("writable");
    let of = |devid: DevId| {
        let device = summary.devices.iter().find(|device| device.devid == devid).expect("a member");
        (device.class, device.hint)
    };
    assert_eq!(of(DevId::new(1)), (PlacementClass::Fast, AllocationHint::MetadataPreferred));
    assert_eq!(of(DevId::new(2)), (PlacementClass::Bulk, AllocationHint::DataPreferred));
    assert_eq!(of(bulk), (PlacementClass::Bulk, AllocationHint::DataPreferred));
    assert_eq!(of(fast), (PlacementClass::Fast, AllocationHint::MetadataPreferred));
}
