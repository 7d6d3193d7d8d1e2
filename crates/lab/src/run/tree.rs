//! A tree of small files: unpacked as by tar, and walked.

use super::RunOptions;
use super::phase::{Done, Phase, measure, nothing};
use brindle_sim::Random;
use rustix::fs::syncfs;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files of a directory, on the average those of the sources of a kernel.
const FILES_PER_DIRECTORY: u64 = 16;
/// Directories of a directory.
const DIRECTORIES_PER_DIRECTORY: u64 = 8;
/// Lengths of files: from 2^9 to 2^16 bytes, any power as likely as another.
const LENGTH_BITS: [u64; 2] = [9, 16];
/// Random bytes that contents are taken from.
const POOL_BYTES: usize = 1 << 20;

/// Path of the directory with a number: directory 0 is the root, and each directory has up to eight of the next ones.
fn directory(root: &Path, number: u64) -> PathBuf {
    if number == 0 {
        return root.to_owned();
    }
    directory(root, (number - 1) / DIRECTORIES_PER_DIRECTORY).join(format!("d{number}"))
}

/// Writes a tree, in the order of an archive: each directory before its files.
fn unpack(root: &Path, options: &RunOptions) -> io::Result<Done> {
    let mut random = Random::new(options.seed).fork(0x7a4);
    let mut contents = vec![0; POOL_BYTES];
    random.fill(&mut contents);
    let mut done = Done::default();
    let mut folder = root.to_owned();
    for number in 0..options.count {
        if number % FILES_PER_DIRECTORY == 0 {
            folder = directory(root, number / FILES_PER_DIRECTORY);
            fs::create_dir(&folder)?;
        }
        let low = 1usize << (LENGTH_BITS[0] + random.below(LENGTH_BITS[1] - LENGTH_BITS[0]));
        let length = low + random.index(low);
        let start = random.index(POOL_BYTES - length);
        let begin = Instant::now();
        fs::write(folder.join(format!("f{number}")), &contents[start..start + length])?;
        done.add(length as u64, begin);
    }
    Ok(done)
}

pub(super) fn untar(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let handle = File::open(place)?;
    let unpack = |_: u64| unpack(&place.join("tree"), options);
    Ok(vec![measure("unpack", options, unpack, || Ok(syncfs(&handle)?))?])
}

pub(super) fn walk(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let root = place.join("tree");
    unpack(&root, options)?;
    syncfs(File::open(place)?)?;
    options.make_cold()?;
    let walk = |_: u64| {
        let (mut done, mut left) = (Done::default(), vec![root.clone()]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory)? {
                let (entry, begin) = (entry?, Instant::now());
                if entry.metadata()?.is_dir() {
                    left.push(entry.path());
                }
                done.add(0, begin);
            }
        }
        Ok(done)
    };
    Ok(vec![measure("walk", options, walk, nothing)?])
}
