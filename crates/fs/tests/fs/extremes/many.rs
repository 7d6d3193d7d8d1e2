//! A file of very many extents, and a subvolume of very many files: they go in steps, each within what was promised
//! to it, also where no space is left for anything else.

use super::{SMALL, clean_up, file, is_no_space};
use crate::model::pool::NEW_SUBVOLUME;
use crate::simulated::{Layout, Pool};
use brindle_fs::{AllocateMode, Filesystem, InodeId, XattrMode};

const EXTENTS: u64 = 50_000;
const FILES: usize = 30_000;

/// Makes metadata until there is no space.
fn fill(fs: &Filesystem, directory: InodeId) {
    for number in 0.. {
        let name = format!("filler{number}").into_bytes();
        let made = fs.create(directory, &name, &file());
        let filled = made.and_then(|made| fs.set_xattr(made.id, b"user.filler", &[1; 3000], XattrMode::Any));
        match filled {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn extents_of_one_file() {
    let layout = Layout { device_mib: 400, ..SMALL };
    let pool = Pool::new(&layout);
    let fs = pool.open().expect("opens");
    let made = fs.create(fs.root(), b"fragments", &file()).expect("room");
    let open = fs.open_file(made.id).expect("there");
    for number in 0..EXTENTS {
        fs.allocate(&open, AllocateMode::Allocate, number * 8192, 4096).expect("room");
    }
    fs.sync().expect("commits");
    fill(&fs, fs.root());
    let used = fs.space().expect("said");
    fs.truncate(&open, 4096).expect("a file can be cut off on a full pool");
    fs.sync().expect("commits");
    let left = fs.space().expect("said");
    assert!(left.free_bytes > used.free_bytes + 150 * (1 << 20), "{used:?}, then {left:?}");
    assert_eq!(fs.attributes(made.id).expect("there").disk_bytes, 4096);
    drop(open);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.check().unwrap_or_else(|findings| panic!("{findings}"));
}

#[test]
fn files_of_one_subvolume() {
    let layout = Layout { device_mib: 300, ..SMALL };
    let pool = Pool::new(&layout);
    let fs = pool.open().expect("opens");
    let id = fs.create_subvolume(fs.root(), b"crowd", &NEW_SUBVOLUME).expect("room");
    let top = InodeId::root_of(id);
    for number in 0..FILES {
        fs.create(top, format!("{number}").as_bytes(), &file()).expect("room");
    }
    fs.snapshot(id, fs.root(), b"again", false).expect("room");
    fill(&fs, fs.root());
    fs.delete_subvolume(fs.root(), b"crowd").expect("a subvolume can be deleted on a full pool");
    fs.delete_subvolume(fs.root(), b"again").expect("a snapshot too");
    clean_up(&fs);
    assert_eq!(fs.subvolumes().expect("listed").len(), 1, "only the top level is left");
    fs.create(fs.root(), b"room again", &file()).expect("room again");
    fs.shutdown().expect("closes");
    drop(fs);
    pool.check().unwrap_or_else(|findings| panic!("{findings}"));
}
