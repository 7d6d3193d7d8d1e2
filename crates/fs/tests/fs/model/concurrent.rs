//! Many threads at once, with commits and background work in between. Their answers depend on their order; the result
//! must be sound.

use super::pool::Pool;
use super::rules::{create, directory, file};
use brindle_fs::{Filesystem, FsError, InodeId, NewInode, RenameMode};
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: u64 = 6;
const OPERATIONS: u64 = 3000;

/// A sequence of numbers that a seed makes.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Refusals that a race explains.
fn is_explained(error: &FsError) -> bool {
    matches!(
        error,
        FsError::NotFound(_)
            | FsError::NoInode(_)
            | FsError::Exists(_)
            | FsError::NotEmpty(_)
            | FsError::IsADirectory(_)
            | FsError::NotADirectory(_)
            | FsError::Invalid { .. }
            | FsError::CrossSubvolume(_)
            | FsError::NestedSubvolume(..)
            | FsError::NoSubvolume(_)
            | FsError::DeletedSubvolume(_)
            | FsError::NotASubvolume(_)
            | FsError::NotPermitted { .. }
    )
}

/// A directory that is there, some way down.
fn somewhere(fs: &Filesystem, numbers: &mut Numbers) -> InodeId {
    let mut at = fs.root();
    for _ in 0..numbers.below(4) {
        let name = numbers.below(4).to_string();
        match fs.lookup(at, name.as_bytes()) {
            Ok(Some(entry)) if entry.kind == brindle_fs::FileType::Directory => at = entry.inode,
            _ => break,
        }
    }
    at
}

fn act(fs: &Filesystem, numbers: &mut Numbers, with_subvolumes: bool) -> Result<(), FsError> {
    let (parent, other) = (somewhere(fs, numbers), somewhere(fs, numbers));
    let (name, to) = (numbers.below(4).to_string(), numbers.below(4).to_string());
    let (name, to) = (name.as_bytes(), to.as_bytes());
    match numbers.below(if with_subvolumes { 14 } else { 12 }) {
        0..3 => fs.create(parent, name, &directory()).map(|_| ()),
        3 | 4 => fs.create(parent, name, &file()).map(|_| ()),
        5 => {
            let new = NewInode { target: Some(b"somewhere"), mode: 0o120_777, ..NewInode::default() };
            fs.create(parent, name, &new).map(|_| ())
        }
        6 => fs.unlink(parent, name),
        7 => fs.remove_directory(parent, name),
        8 => fs.rename(parent, name, other, to, RenameMode::Replace),
        9 => fs.rename(parent, name, other, to, RenameMode::Exchange),
        10 => {
            let Some(entry) = fs.lookup(parent, name)? else { return Ok(()) };
            fs.link(entry.inode, other, to).map(|_| ())
        }
        11 => {
            let Some(entry) = fs.lookup(parent, name)? else { return Ok(()) };
            let inode = fs.acquire(entry.inode)?;
            let unlinked = fs.unlink(parent, name);
            let _ = fs.attributes(entry.inode)?;
            fs.release(inode)?;
            unlinked
        }
        12 => fs.snapshot(fs.root().tree, parent, name, false).map(|_| ()),
        _ => fs.delete_subvolume(parent, name),
    }
}

fn live(with_subvolumes: bool, operations: u64) {
    let pool = Pool::new();
    let fs = pool.open();
    for number in 0..4 {
        create(&fs, fs.root(), &number.to_string(), &directory());
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|seed| {
                let fs = &fs;
                scope.spawn(move || {
                    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    for _ in 0..operations {
                        match act(fs, &mut numbers, with_subvolumes) {
                            Err(error) if !is_explained(&error) => panic!("{error}"),
                            _ => {}
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs.sync().expect("durable");
                fs.background_step().expect("works");
            }
        });
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.expect("no worker fails"));
    });
    fs.shutdown().expect("closes");
    pool.assert_clean("after all");
    pool.assert_btrfs_check("after all");
}

#[test]
fn names_change_at_many_places_at_once() {
    live(false, OPERATIONS);
}

#[test]
fn subvolumes_come_and_go_meanwhile() {
    live(true, OPERATIONS / 10);
}
