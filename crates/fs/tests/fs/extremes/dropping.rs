//! A large subvolume and a snapshot that shares much with it are deleted step by step, and the machine crashes
//! somewhere on the way: what is left is sound, goes on being deleted, and the snapshot that stays is whole.

use super::{SMALL, clean_up, file};
use crate::model::pool::NEW_SUBVOLUME;
use crate::simulated::{Pool, findings};
use brindle_check::CheckOptions;
use brindle_device::{DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, InodeId, XattrMode};
use brindle_sim::{Image, ImageDevice, LossMode, Random, Recorder};
use std::sync::Arc;

const FILES: usize = 4_000;
const STATES: usize = 80;

/// The image of a new pool.
fn image() -> Image {
    let device = Arc::new(ImageDevice::new("new", Image::new(SMALL.device_bytes()), DeviceClass::Solid));
    SMALL.mkfs(&[Arc::clone(&device) as Arc<dyn WritableDevice>]);
    device.image()
}

/// A subvolume of many files, a snapshot of it, changes on both sides, and a snapshot that stays.
fn fill(fs: &Filesystem) {
    let id = fs.create_subvolume(fs.root(), b"doomed", &NEW_SUBVOLUME).expect("room");
    let top = InodeId::root_of(id);
    for number in 0..FILES {
        let made = fs.create(top, format!("{number}").as_bytes(), &file()).expect("room");
        fs.set_xattr(made.id, b"user.number", &vec![5; number % 300], XattrMode::Any).expect("room");
        if number % 50 == 0 {
            let open = fs.open_file(made.id).expect("there");
            fs.write(&open, 0, &vec![3; 9000 + number]).expect("room");
        }
    }
    fs.sync().expect("commits");
    fs.snapshot(id, fs.root(), b"sibling", false).expect("room");
    fs.snapshot(id, fs.root(), b"kept", true).expect("room");
    for number in (0..FILES).step_by(7) {
        fs.unlink(top, format!("{number}").as_bytes()).expect("there");
    }
    fs.sync().expect("commits");
}

/// Deletes both, with a commit every few steps.
fn delete(fs: &Filesystem) {
    for (name, steps) in [(b"doomed".as_slice(), 2), (b"sibling", 3)] {
        fs.delete_subvolume(fs.root(), name).expect("there");
        for step in 0..60 {
            fs.background_step().expect("works");
            if step % steps == 0 {
                fs.commit().expect("commits");
            }
        }
    }
    clean_up(fs);
}

/// Checks the conditions that must hold after any crash.
fn examine(devices: &[Arc<dyn WritableDevice>], when: &str) {
    let options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
    // One superblock is enough to open it, and if nothing was left to do the others still lag.
    let check = || findings(devices, &options, |pass, _| pass != "superblocks");
    check().unwrap_or_else(|findings| panic!("{when}: {findings}"));
    let pool = Pool::on(devices.to_vec(), &SMALL);
    let fs = pool.open().unwrap_or_else(|error| panic!("{when}: {error}"));
    clean_up(&fs);
    let kept = fs.lookup(fs.root(), b"kept").expect("read").expect("nobody has deleted it");
    let entries = fs.read_directory(kept.inode, 0, usize::MAX).expect("read");
    assert_eq!(entries.len(), FILES, "{when}");
    for entry in entries.iter().step_by(97) {
        let found = fs.lookup(kept.inode, &entry.name).expect("read").expect("there");
        fs.xattr(found.inode, b"user.number").expect("read").expect("there");
    }
    fs.shutdown().expect("closes");
    let left = fs.subvolumes().expect("listed");
    drop(fs);
    check().unwrap_or_else(|findings| panic!("{when}, afterwards: {findings}"));
    let is_whole = |name: &[u8]| left.iter().any(|found| found.path == name);
    assert!(is_whole(b"kept"), "{when}: {left:?}");
}

#[test]
fn a_deletion_goes_on_after_a_crash() {
    let recorder = Recorder::new();
    let device = recorder.device("memory", image(), DeviceClass::Solid);
    let pool = Pool::on(vec![device as Arc<dyn WritableDevice>], &SMALL);
    let fs = pool.open().expect("opens");
    fill(&fs);
    let begin = recorder.position();
    delete(&fs);
    drop(fs);
    let end = recorder.position();
    assert!(end - begin > 30, "there are many moments to crash at, not {}", end - begin);
    let recording = recorder.recording();
    let mut random = Random::new(7);
    for number in 0..STATES {
        let point = begin + (end - begin) * number / STATES;
        let mode = *random.pick(&LossMode::ALL);
        let state = recording.state_at(point, mode, &mut random);
        examine(&state.writable(), &format!("crash at {point}, {mode:?}"));
    }
}
