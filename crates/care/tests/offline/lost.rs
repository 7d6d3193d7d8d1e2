//! Devices that are replaced while they are missing, with what lay on them alone.

use super::device::{Members, on_and_on, open, write_more};
use super::replace::{replace_by, target};
use crate::support::{MIB, MadePool, assert_clean, examine, options};
use brindle_care::device::{Leaving, ReplaceOptions, rejoin};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{AllocateMode, FileFlags, Filesystem, NewInode, OpenFile, OpenOptions, WriteOptions};
use brindle_ondisk::{BlockGroupType, Profile};
use std::sync::Arc;

const FORCE: ReplaceOptions = ReplaceOptions { force: true, discard: false, avoid_source: false };

fn create(filesystem: &Filesystem, name: &str) -> OpenFile {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(filesystem.root(), name.as_bytes(), &new).expect("room");
    filesystem.open_file(made.id).expect("there it is")
}

fn write(filesystem: &Filesystem, file: &OpenFile, bytes: usize) {
    assert_eq!(filesystem.write(file, 0, &vec![7; bytes]).expect("room"), bytes);
    filesystem.sync_file(file).expect("room");
}

fn file(filesystem: &Filesystem, name: &str) -> OpenFile {
    let found = filesystem.lookup(filesystem.root(), name.as_bytes()).expect("readable").expect("there");
    filesystem.open_file(found.inode).expect("there it is")
}

fn without(left: &Arc<SparseDevice>) -> Filesystem {
    let mut options = OpenOptions::default();
    (options.pool.volume.degraded, options.pool.volume.accepts_loss) = (true, true);
    let left = vec![Arc::clone(left) as Arc<dyn WritableDevice>];
    Filesystem::open_writable(left, &options, &WriteOptions::default()).expect("opens")
}

/// Regression: preallocated space, and what was cut off, counted as lost; and the error named the last fault of the window.
#[test]
fn data_without_checksums_ends_a_replacement_where_a_file_has_it_alone() {
    let mut made = options();
    (made.data, made.metadata) = (Some(Profile::Single), Some(Profile::Raid1));
    let pool = MadePool::make_of(&[(400 * MIB, DeviceClass::Unknown); 2], &made).expect("made");
    let filesystem = open(&pool.devices, false);
    let journal = create(&filesystem, "journal");
    filesystem.allocate(&journal, AllocateMode::Allocate, 0, 4 * MIB).expect("room");
    write(&filesystem, &journal, 1 << 20);
    filesystem.truncate(&journal, 2 * MIB).expect("shorter");
    let plain = create(&filesystem, "plain");
    filesystem.set_flags(plain.id(), FileFlags::NOCOW).expect("empty");
    write(&filesystem, &plain, 256 << 10);
    write(&filesystem, &create(&filesystem, "behind"), 256 << 10);
    filesystem.shutdown().expect("works");
    let chunks = filesystem.pool().volume().chunks().into_iter();
    let mut of_data = chunks.filter(|chunk| chunk.kind.contains(BlockGroupType::DATA));
    let devid = of_data.next().expect("there is data").stripes[0].devid.get();
    assert!(of_data.next().is_none(), "all of it is in one chunk");
    drop((journal, plain, filesystem));
    let left = &pool.devices[usize::from(devid == 1)];
    let filesystem = without(left);
    let new = target("new", 400 * MIB);
    let refused = replace_by(&filesystem, Leaving::Missing, &new, &FORCE, &mut on_and_on);
    let refused = refused.expect_err("one file has no checksums").to_string();
    assert!(refused.starts_with("64 sectors without checksums can be read nowhere, the first"), "{refused}");
    assert!(refused.contains("(/plain at 0); restore or delete"), "{refused}");
    filesystem.unlink(filesystem.root(), b"plain").expect("there");
    filesystem.sync().expect("metadata is there");
    let ended = replace_by(&filesystem, Leaving::Missing, &new, &FORCE, &mut on_and_on);
    // The rest has checksums, which tell of it.
    assert_eq!(ended.expect("nothing else lacks checksums").progress.left, (256 + 64) as u64);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    let devices = [new, Arc::clone(left)];
    let filesystem = open(&devices, false);
    let (journal, mut bytes) = (file(&filesystem, "journal"), vec![1; 1 << 20]);
    assert!(filesystem.read(&journal, 0, &mut bytes).is_err(), "it is lost");
    assert_eq!(filesystem.read(&journal, MIB, &mut bytes).expect("preallocated"), 1 << 20);
    assert!(bytes.iter().all(|byte| *byte == 0));
    filesystem.close_file(journal).expect("works");
    for lost in [b"journal".as_slice(), b"behind"] {
        filesystem.unlink(filesystem.root(), lost).expect("there");
    }
    write_more(&filesystem);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    let readable = devices.map(|device| device as Arc<dyn Device>).to_vec();
    assert_clean("replaced", &examine(readable));
}

/// Regression: where its successor was not named, the old device was taken in again in place of that.
#[test]
fn a_device_that_was_replaced_while_it_was_away_is_no_device_of_the_pool_again() {
    for forgets in [false, true] {
        let Members { devices, filesystem } = Members::new(2, Profile::Raid1);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let [old, left] = [0, 1].map(|index| Arc::clone(&devices[index]));
        let as_writable = |device: &Arc<SparseDevice>| Arc::clone(device) as Arc<dyn WritableDevice>;
        let new = target("new", 400 * MIB);
        let filesystem = open(&devices[1..], true);
        let ended = replace_by(&filesystem, Leaving::Missing, &new, &FORCE, &mut on_and_on);
        assert_eq!(ended.expect("large enough").progress.left, 0);
        write_more(&filesystem);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let open_with_old = |degraded: bool| {
            let mut options = OpenOptions::default();
            options.pool.volume.degraded = degraded;
            let given = vec![as_writable(&old), as_writable(&left)];
            Filesystem::open_writable(given, &options, &WriteOptions::default())
        };
        let is_told = |told: String| {
            assert!(told.contains("memory0") && told.contains("another device took its place"), "{told}");
        };
        is_told(open_with_old(false).expect_err("it was replaced").to_string());
        if forgets {
            // Marks of the absence of the new device are no word on the old one.
            let filesystem = open_with_old(true).expect("the other one has everything");
            is_told(filesystem.pool().volume().unused_devices()[0].to_string());
            write_more(&filesystem);
            filesystem.shutdown().expect("works");
        }
        let filesystem = open(&[Arc::clone(&left)], true);
        let refused = rejoin(&filesystem, &as_writable(&old), &mut on_and_on).expect_err("it was replaced");
        is_told(refused.to_string());
        let (_, ended) = rejoin(&filesystem, &as_writable(&new), &mut on_and_on).expect("it was away");
        assert_eq!(ended.progress.left, 0);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        // Whatever is left of the old one, it may take a place as any other device.
        let filesystem = open(&[Arc::clone(&left)], true);
        let ended = replace_by(&filesystem, Leaving::Missing, &old, &FORCE, &mut on_and_on);
        assert_eq!(ended.expect("large enough").progress.left, 0);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        let filesystem = open(&[Arc::clone(&old), Arc::clone(&left)], false);
        Members { devices: vec![old, left], filesystem }.prove("replaced again", &[0, 1]);
    }
}
