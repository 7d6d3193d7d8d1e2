//! A pool that is full, in which not even the files can be deleted that a snapshot has as well: devices can be added, grown and
//! replaced, a balance can be given up, and the snapshot can be deleted, and each of these makes room again or changes nothing.

use super::device::{on_and_on, open};
use crate::support::{MIB, MadePool, assert_clean, devices, examine, options};
use brindle_care::balance;
use brindle_care::device::{AddOptions, Leaving, NewSize, Newcomer, ReplaceOptions, add, replace, resize};
use brindle_care::job::{Control, Progress};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{ErrorKind, Filesystem, FsError, InodeId, NewInode, Remaining, XattrMode};
use brindle_ondisk::{DevId, Profile, Uuid};
use brindle_policy::balance::Balance;
use std::sync::Arc;

const FILES: usize = 1500;
/// Number of successive refusals for lack of space after which a pool is full.
const REFUSALS: usize = 5;
const DEVICE_BYTES: u64 = 64 * MIB;

/// A pool that is full.
struct Full {
    devices: Vec<Arc<SparseDevice>>,
    filesystem: Filesystem,
}

impl Full {
    /// A new one, with a balance that is paused.
    fn new() -> Self {
        let mut options = options();
        (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Single));
        let pool = MadePool::make_of(&[(DEVICE_BYTES, DeviceClass::Unknown)], &options).expect("made");
        let filesystem = open(&pool.devices, false);
        let origin = make_subvolume(&filesystem, b"origin");
        for number in 0..FILES {
            make_file(&filesystem, origin, number, 3200).expect("room");
        }
        filesystem.snapshot(origin.tree, filesystem.root(), b"snapshot", true).expect("room");
        let pause = &mut |_: &Progress| Control::Pause;
        balance::start(&filesystem, &Balance::full(), false, pause).expect("it begins");
        let filler = make_subvolume(&filesystem, b"filler");
        let (mut number, mut refused) = (0, 0);
        while refused < REFUSALS {
            match make_file(&filesystem, filler, number, 8000) {
                Err(error) if error.kind() == ErrorKind::NoSpace => refused += 1,
                done => done.expect("room"),
            }
            number += 1;
        }
        // Files of different leaves, until there is no space for their copies.
        let mut files = (0..5).flat_map(|first| (first..FILES).step_by(5));
        let refused = files.find_map(|number| filesystem.unlink(origin, &name(number)).err());
        assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::NoSpace));
        Self { devices: pool.devices, filesystem }
    }

    fn reopen(self) -> Self {
        let Self { devices, filesystem } = self;
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = open(&devices, false);
        Self { devices, filesystem }
    }

    /// A balance can be given up, and a device replaced by one that is no larger.
    fn change_without_room(&mut self) {
        let pool = self.filesystem.pool();
        assert!(balance::forget(pool).expect("a balance can be given up"), "one was begun");
        let target = Arc::new(SparseDevice::new("target", DEVICE_BYTES, DeviceClass::Unknown));
        let given = Arc::clone(&target) as Arc<dyn WritableDevice>;
        let first = Leaving::Id(DevId::new(1));
        let options = ReplaceOptions::default();
        replace(&self.filesystem, first, &given, &options, &mut on_and_on).expect("a device can be replaced");
        self.devices = vec![target];
    }

    fn add_device(&mut self) {
        let device = Arc::clone(&devices(&[(DEVICE_BYTES, DeviceClass::Unknown)])[0]);
        self.devices.push(Arc::clone(&device));
        let new = Newcomer { device, uuid: Uuid([0x77; 16]), class: None };
        add(self.filesystem.pool(), &[new], &AddOptions::default()).expect("a device can be added");
    }

    fn grow_device(&self) {
        balance::forget(self.filesystem.pool()).expect("a balance can be given up");
        self.devices[0].set_size(2 * DEVICE_BYTES).expect("memory");
        let first = DevId::new(1);
        resize(self.filesystem.pool(), first, NewSize::Max, &mut on_and_on).expect("a device can grow");
    }

    fn delete_snapshot(&self) {
        self.filesystem.delete_subvolume(self.filesystem.root(), b"snapshot").expect("it can be deleted");
        clean_up(&self.filesystem);
    }

    /// Deletes all files, and examines what is left.
    fn empty(self) {
        let Self { devices, filesystem } = self;
        for directory in [b"origin".as_slice(), b"filler"] {
            let found = filesystem.lookup(filesystem.root(), directory).expect("read").expect("there");
            for entry in filesystem.read_directory(found.inode, 0, usize::MAX).expect("read") {
                filesystem.unlink(found.inode, &entry.name).expect("files can be deleted again");
            }
        }
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
        assert_clean("emptied", &examine(devices));
    }
}

fn name(number: usize) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

fn make_subvolume(filesystem: &Filesystem, name: &[u8]) -> InodeId {
    let new = NewInode { mode: 0o040_755, ..NewInode::default() };
    let made = filesystem.create_subvolume(filesystem.root(), name, &new).expect("room");
    InodeId::root_of(made)
}

fn make_file(filesystem: &Filesystem, parent: InodeId, number: usize, bytes: usize) -> Result<(), FsError> {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(parent, &name(number), &new)?;
    filesystem.set_xattr(made.id, b"user.filler", &vec![7; bytes], XattrMode::Any)
}

/// Runs the background work until nothing of it is left.
fn clean_up(filesystem: &Filesystem) {
    loop {
        while filesystem.background_step().expect("what frees space is always possible") == Remaining::More {}
        filesystem.sync().expect("a commit is always possible");
        if filesystem.background_step().expect("what frees space is always possible") == Remaining::Nothing {
            return;
        }
    }
}

#[test]
fn the_snapshot_of_a_full_pool_can_be_deleted() {
    for reopens in [false, true] {
        let mut pool = Full::new();
        if reopens {
            pool = pool.reopen();
        }
        pool.change_without_room();
        pool.delete_snapshot();
        pool.empty();
    }
}

#[test]
fn devices_of_a_full_pool_can_be_added_and_grown() {
    let mut pool = Full::new();
    pool.add_device();
    pool.empty();
    let mut pool = Full::new().reopen();
    pool.add_device();
    pool.empty();
    let pool = Full::new().reopen();
    pool.grow_device();
    pool.empty();
}
