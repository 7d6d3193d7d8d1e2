//! Writes, and new times, that come while a file is written back.

use super::Arena;
use crate::simulated::{Layout, Pool};
use brindle_device::{Device, SparseDevice, WritableDevice};
use brindle_fs::{AttributeChange, FileFlags, Filesystem, NewInode, NewTime, Timestamp};
use brindle_sim::InterruptedDevice;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Writes a file, and fsyncs it while others write to it; what a crash after the fsync leaves of it.
fn synced(tree_log: bool, meanwhile: &[(u64, usize)]) -> Vec<u8> {
    let layout = Layout::of(0);
    let device = Arc::new(SparseDevice::new("memory".to_owned(), layout.device_bytes(), layout.class(0)));
    layout.mkfs(&[Arc::<SparseDevice>::clone(&device)]);
    let interrupted = Arc::new(InterruptedDevice::new(Arc::<SparseDevice>::clone(&device)));
    let mut pool = Pool::on(vec![Arc::<InterruptedDevice>::clone(&interrupted)], &layout);
    pool.write.tree_log = tree_log;
    let filesystem = Arc::new(pool.open().expect("a new pool"));
    let new = NewInode { mode: 0o100_600, ..NewInode::default() };
    let (made, file) = filesystem.create_open(filesystem.root(), b"file", &new).expect("room");
    filesystem.commit().expect("durable");
    filesystem.write(&file, 0, &[1; LENGTH]).expect("room");
    let (weak, writes): (Weak<Filesystem>, _) = (Arc::downgrade(&filesystem), meanwhile.to_vec());
    interrupted.before_next_write(move || {
        let filesystem = weak.upgrade().expect("it is open");
        let file = filesystem.open_file(made.id).expect("opens");
        for (offset, length) in writes {
            filesystem.write(&file, offset, &vec![2; length]).expect("room");
        }
    });
    filesystem.sync_file(&file).expect("durable");
    let left = SparseDevice::new("left".to_owned(), device.size_bytes(), device.class());
    for (offset, bytes) in device.written() {
        left.write_at(offset, &bytes).expect("room");
    }
    filesystem.close_file(file).expect("closes");
    let left = Pool::on(vec![Arc::new(left)], &layout);
    let filesystem = left.open().expect("a crash leaves a pool");
    let file = filesystem.open_file(made.id).expect("it was durable");
    let mut bytes = vec![0; 100_000];
    let length = filesystem.read(&file, 0, &mut bytes).expect("reads");
    bytes.truncate(length);
    drop((file, filesystem));
    left.check().unwrap_or_else(|findings| panic!("{findings}"));
    bytes
}

/// The length of the file that is synced, in bytes.
const LENGTH: usize = 9000;

#[test]
fn synced_files_are_whole_despite_writes_meanwhile() {
    for tree_log in [false, true] {
        for meanwhile in [
            &[(0, 100)][..],
            &[(0, LENGTH)],
            &[(5000, 10)],
            &[(8999, 500)],
            &[(9000, 5000)],
            &[(60_000, 100)],
            &[(0, 1), (4096, 1), (9000, 1), (12_288, 1)],
        ] {
            let found = synced(tree_log, meanwhile);
            assert!(found.len() >= LENGTH, "{} bytes, written meanwhile: {meanwhile:?}", found.len());
            // What came later is there or not.
            let is_sound = |byte: &u8| *byte == 1 || *byte == 2;
            assert!(found[..LENGTH].iter().all(is_sound), "written meanwhile: {meanwhile:?}");
        }
    }
}

/// Number of times contents are written back, and times are set, at the same time.
const TURNS: i64 = 200_000;
/// Time after which a thread that has not finished is stuck.
const PATIENCE: Duration = Duration::from_secs(240);

#[test]
fn a_writeback_and_new_times_do_not_wait_for_each_other() {
    let arena = Arena::new(0);
    let fs = Arc::clone(&arena.filesystem);
    let new = NewInode { mode: 0o100_600, ..NewInode::default() };
    let id = fs.create(fs.root(), b"file", &new).expect("room").id;
    // So that a writeback looks an attribute up.
    fs.set_flags(id, FileFlags::COMPRESS).expect("set");
    let (done, is_done) = channel();
    let (writer, writer_is_done) = (Arc::clone(&fs), done.clone());
    let writes = std::thread::spawn(move || {
        let file = writer.open_file(id).expect("there");
        for _ in 0..TURNS {
            writer.write(&file, 0, b"contents").expect("room");
            writer.write_back(&file).expect("written");
        }
        writer.close_file(file).expect("closed");
        writer_is_done.send(()).expect("waited for");
    });
    let stamps = std::thread::spawn(move || {
        for seconds in 0..TURNS {
            let time = NewTime::At(Timestamp { seconds, nanoseconds: 0 });
            let change = AttributeChange { modified: Some(time), ..AttributeChange::default() };
            fs.set_attributes(id, &change).expect("there");
        }
        drop(fs);
        done.send(()).expect("waited for");
    });
    for _ in 0..2 {
        is_done.recv_timeout(PATIENCE).expect("neither waits for the other");
    }
    [writes, stamps].into_iter().for_each(|thread| thread.join().expect("no panic"));
    arena.close(&|| "after writebacks beside new times".to_owned());
}
