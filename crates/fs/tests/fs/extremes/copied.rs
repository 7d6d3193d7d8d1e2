//! A full pool in which files are deleted that a snapshot has as well: each deletion copies a leaf, and frees nothing. At some
//! time there is no more space for that, and the snapshot can be deleted all the same, and then everything.

use super::{SMALL, clean_up, file, is_no_space};
use crate::model::pool::NEW_SUBVOLUME;
use crate::simulated::{Layout, Pool};
use brindle_fs::{AttributeChange, Filesystem, InodeId, NewTime, Timestamp, XattrMode};
use brindle_ondisk::Profile;

const FILES: usize = 2400;
/// Attributes of a file that can't go at once in a full pool.
const RICH_ATTRIBUTES: usize = 30;
/// Number of successive refusals for lack of space after which a pool is full.
const REFUSALS: usize = 10;

fn name(number: usize) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

/// Makes files that take a fourth of a leaf each.
pub(super) fn make(fs: &Filesystem, top: InodeId, nodesize: u32) {
    let filler = vec![7; nodesize as usize / 5];
    for number in 0..FILES {
        let made = fs.create(top, &name(number), &file()).expect("room");
        fs.set_xattr(made.id, b"user.filler", &filler, XattrMode::Any).expect("room");
    }
}

/// Fills the pool with metadata.
pub(super) fn fill(fs: &Filesystem, nodesize: u32) {
    let top = InodeId::root_of(fs.create_subvolume(fs.root(), b"filler", &NEW_SUBVOLUME).expect("room"));
    let filler = vec![7; nodesize as usize / 2];
    let mut refused = 0;
    for number in 0.. {
        let made = fs.create(top, &name(number), &file());
        let done = made.and_then(|made| fs.set_xattr(made.id, b"user.filler", &filler, XattrMode::Any));
        match done {
            Ok(()) => refused = 0,
            Err(error) if is_no_space(&error) => refused += 1,
            Err(error) => panic!("file {number}: {error}"),
        }
        if refused == REFUSALS {
            return;
        }
    }
}

/// Deletes files of different leaves until there is no space for that; returns the number.
pub(super) fn delete_until_refused(fs: &Filesystem, top: InodeId) -> usize {
    let numbers: Vec<usize> = (0..4).flat_map(|first| (first..FILES).step_by(4)).collect();
    let mut done = 0;
    for number in numbers {
        if fs.lookup(top, &name(number)).expect("read").is_none() {
            continue;
        }
        match fs.unlink(top, &name(number)) {
            Ok(()) => done += 1,
            Err(error) if is_no_space(&error) => return done,
            Err(error) => panic!("file {number}: {error}"),
        }
    }
    panic!("there is not space for copies of all leaves");
}

/// Deletes a file of a subvolume of which there is no snapshot, which costs nothing. The kernel tells its times when it has no
/// name any more.
fn delete_open_file(fs: &Filesystem) {
    let filler = fs.lookup(fs.root(), b"filler").expect("read").expect("there").inode;
    let told = Timestamp { seconds: 7, nanoseconds: 0 };
    let change = AttributeChange {
        modified: Some(NewTime::At(told)),
        changed: Some(told),
        ..AttributeChange::default()
    };
    let id = fs.lookup(filler, &name(0)).expect("read").expect("there").inode;
    let open = fs.open_file(id).expect("there");
    let refused = fs.set_attributes(id, &change).expect_err("there is no space");
    assert!(is_no_space(&refused), "{refused}");
    fs.unlink(filler, &name(0)).expect("what frees space is always possible");
    fs.set_attributes(id, &change).expect("a file without a name needs no times");
    drop(open);
    fs.sync().expect("a full pool can be committed");
}

/// Makes files of which the attributes take many leaves, in a subvolume of which there is no snapshot.
fn make_rich(fs: &Filesystem, nodesize: u32) {
    let top = InodeId::root_of(fs.create_subvolume(fs.root(), b"rich", &NEW_SUBVOLUME).expect("room"));
    let filler = vec![7; nodesize as usize / 3];
    for number in 0..2 {
        let made = fs.create(top, &name(number), &file()).expect("room");
        for attribute in 0..RICH_ATTRIBUTES {
            let attribute = format!("user.{attribute}");
            fs.set_xattr(made.id, attribute.as_bytes(), &filler, XattrMode::Any).expect("room");
        }
    }
}

/// Deletes one of these files, which may be open until it has no name any more.
fn delete_rich_file(fs: &Filesystem, number: usize, is_open: bool) {
    let top = fs.lookup(fs.root(), b"rich").expect("read").expect("there").inode;
    let id = fs.lookup(top, &name(number)).expect("read").expect("there").inode;
    let held = is_open.then(|| fs.acquire(id).expect("there"));
    fs.unlink(top, &name(number)).expect("what frees space is always possible");
    if let Some(held) = held {
        assert_eq!(fs.attributes(id).expect("it is open").nlink, 0);
        fs.release(held).expect("what frees space is always possible");
    }
    fs.attributes(id).expect_err("it is gone");
}

/// Deletes everything.
fn empty(fs: &Filesystem) {
    for top in fs.read_directory(fs.root(), 0, usize::MAX).expect("read") {
        let found = fs.lookup(fs.root(), &top.name).expect("read").expect("there");
        for entry in fs.read_directory(found.inode, 0, usize::MAX).expect("read") {
            fs.unlink(found.inode, &entry.name).expect("files can be deleted again");
        }
        fs.delete_subvolume(fs.root(), &top.name).expect("it can be deleted");
        clean_up(fs);
    }
}

fn copy_and_empty(layout: &Layout, reopens: bool) {
    let pool = Pool::new(layout);
    let mut fs = pool.open().expect("opens");
    let id = fs.create_subvolume(fs.root(), b"origin", &NEW_SUBVOLUME).expect("room");
    make(&fs, InodeId::root_of(id), layout.nodesize);
    make_rich(&fs, layout.nodesize);
    fs.snapshot(id, fs.root(), b"snapshot", true).expect("room");
    fill(&fs, layout.nodesize);
    fs.sync().expect("a full pool can be committed");
    let done = delete_until_refused(&fs, InodeId::root_of(id));
    println!("{layout:?}: {done} files deleted");
    fs.sync().expect("a full pool can be committed");
    if reopens {
        fs.shutdown().expect("closes");
        drop(fs);
        pool.check().unwrap_or_else(|findings| panic!("{layout:?}, full: {findings}"));
        fs = pool.open().expect("opens");
        delete_until_refused(&fs, InodeId::root_of(id));
    }
    for (number, is_open) in [(0, true), (1, false)] {
        delete_rich_file(&fs, number, is_open);
        delete_until_refused(&fs, InodeId::root_of(id));
    }
    delete_open_file(&fs);
    fs.delete_subvolume(fs.root(), b"snapshot").expect("a snapshot of a full pool can be deleted");
    clean_up(&fs);
    empty(&fs);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.check().unwrap_or_else(|findings| panic!("{layout:?}, emptied: {findings}"));
}

pub(super) const LARGE_BLOCKS: Layout = Layout { nodesize: 16384, metadata: Profile::Single, ..SMALL };

#[test]
fn files_that_a_snapshot_has_as_well() {
    copy_and_empty(&LARGE_BLOCKS, false);
}

#[test]
fn files_that_a_snapshot_has_as_well_after_a_remount() {
    copy_and_empty(&LARGE_BLOCKS, true);
}

#[test]
fn files_that_a_snapshot_has_as_well_in_mixed_block_groups() {
    let mixed = Layout { device_mib: 32, metadata: Profile::Single, features: "mixed-bg", ..SMALL };
    copy_and_empty(&mixed, true);
}
