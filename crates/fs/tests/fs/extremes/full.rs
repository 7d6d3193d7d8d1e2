//! Many threads fill a small pool with metadata. Operations say that there is no space, commits never do; everything
//! can be deleted, and then there is as much room as before.

use super::{SMALL, clean_up, file, is_no_space};
use crate::model::pool::NEW_SUBVOLUME;
use crate::simulated::{Layout, Pool};
use brindle_fs::{Filesystem, FsError, InodeId, XattrMode};
use brindle_ondisk::Profile;
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 8;
/// Number of successive refusals for lack of space after which a thread stops. In between there may be some space,
/// after a commit of another thread.
const REFUSALS: usize = 10;

fn name(thread: usize) -> Vec<u8> {
    format!("thread{thread}").into_bytes()
}

/// Makes files in a thread's subvolume until it is full; returns the number of operations.
fn fill_one(fs: &Filesystem, top: InodeId, thread: usize) -> usize {
    let (mut done, mut refused, mut last) = (0, 0, None);
    for number in 0.. {
        let long = format!("{number}-{}", "x".repeat(number * 7 % 200)).into_bytes();
        let answer = match (number % 4, last) {
            (1, Some(last)) => fs.link(last, top, &long).map(|_| ()),
            (2, Some(last)) => fs.set_xattr(last, b"user.filler", &vec![7; 1900], XattrMode::Any),
            (3, _) if number % 400 == 3 => {
                let name = format!("snapshot-{thread}-{number}");
                fs.snapshot(top.tree, fs.root(), name.as_bytes(), number % 800 == 3).map(|_| ())
            }
            _ => fs.create(top, &long, &file()).map(|made| last = Some(made.id)),
        };
        match answer {
            Ok(()) => done += 1,
            Err(error) if is_no_space(&error) => refused += 1,
            Err(error) => panic!("thread {thread}, operation {number}: {error}"),
        }
        if refused == REFUSALS {
            return done;
        }
        assert!(number < 1_000_000, "a small pool is full at some time");
    }
    unreachable!("numbers do not end")
}

/// Fills the pool, while one more thread commits.
fn fill(fs: &Filesystem) -> usize {
    let tops: Vec<InodeId> = (0..THREADS)
        .map(|thread| {
            InodeId::root_of(fs.create_subvolume(fs.root(), &name(thread), &NEW_SUBVOLUME).expect("room"))
        })
        .collect();
    let running = AtomicUsize::new(THREADS);
    std::thread::scope(|scope| {
        let (running, tops) = (&running, &tops);
        let start = |thread: usize| {
            scope.spawn(move || {
                let done = fill_one(fs, tops[thread], thread);
                running.fetch_sub(1, Ordering::Relaxed);
                done
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        while running.load(Ordering::Relaxed) > 0 && threads.iter().any(|thread| !thread.is_finished()) {
            fs.commit().expect("a commit never runs out of space");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// Deletes every other thread's files one by one, and the rest by deleting subvolumes.
fn empty(fs: &Filesystem) -> Result<(), FsError> {
    std::thread::scope(|scope| {
        let unlink = |thread: usize| {
            scope.spawn(move || {
                let found = fs.lookup(fs.root(), &name(thread))?.expect("it is there");
                for entry in fs.read_directory(found.inode, 0, usize::MAX)? {
                    fs.unlink(found.inode, &entry.name)?;
                }
                Ok::<(), FsError>(())
            })
        };
        let threads: Vec<_> = (0..THREADS).step_by(2).map(unlink).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    for entry in fs.read_directory(fs.root(), 0, usize::MAX)? {
        fs.delete_subvolume(fs.root(), &entry.name)?;
    }
    clean_up(fs);
    Ok(())
}

fn fill_and_empty(layout: &Layout) {
    let pool = Pool::new(layout);
    let mut counts = Vec::new();
    for round in 0..2 {
        let fs = pool.open().expect("opens");
        counts.push(fill(&fs));
        fs.sync().expect("a full pool can be committed");
        pool.check().unwrap_or_else(|findings| panic!("{layout:?}, full, round {round}: {findings}"));
        empty(&fs).unwrap_or_else(|error| panic!("{layout:?}, round {round}: {error}"));
        fs.shutdown().expect("closes");
        drop(fs);
        pool.check().unwrap_or_else(|findings| panic!("{layout:?}, emptied, round {round}: {findings}"));
    }
    println!("{layout:?}: {counts:?} operations");
    let least = counts.iter().min().expect("two");
    // The number depends on the timing of the threads, for snapshots take space that they do not share.
    assert!(*least > 500 && least * 2 > counts[0], "{layout:?}: {counts:?} operations");
}

#[test]
fn of_metadata_by_many_threads() {
    fill_and_empty(&SMALL);
}

#[test]
fn of_metadata_in_large_blocks_by_many_threads() {
    fill_and_empty(&Layout { nodesize: 65536, ..SMALL });
}

#[test]
fn of_metadata_beside_data_by_many_threads() {
    let mixed = Layout { device_mib: 32, metadata: Profile::Single, features: "mixed-bg", ..SMALL };
    fill_and_empty(&mixed);
}

#[test]
fn of_metadata_on_two_devices_by_many_threads() {
    fill_and_empty(&Layout { devices: 2, metadata: Profile::Raid1, data: Profile::Raid0, ..SMALL });
}
