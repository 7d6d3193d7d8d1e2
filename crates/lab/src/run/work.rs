//! The work of each suite.

use super::RunOptions;
use super::phase::{Done, Phase, measure, nothing};
use brindle_sim::Random;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a small file, and of a random read.
const BLOCK_BYTES: usize = 4096;
/// Bytes of a sequential read or write.
const PIECE_BYTES: usize = 64 << 10;
/// Files of a directory.
const FILES_PER_DIRECTORY: u64 = 10_000;

/// Directory of a job.
pub(super) fn directory_of(place: &Path, job: u64) -> PathBuf {
    place.join(format!("job{job}"))
}

pub(super) fn make_directories(place: &Path, options: &RunOptions) -> io::Result<()> {
    (0..options.jobs).try_for_each(|job| fs::create_dir(directory_of(place, job)))?;
    File::open(place)?.sync_all()
}

pub(super) fn fsync(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    make_directories(place, options)?;
    let put = |job: u64| {
        let directory = directory_of(place, job);
        let mut random = Random::new(options.seed).fork(job);
        let (mut done, mut bytes) = (Done::default(), vec![0; BLOCK_BYTES]);
        let (new, handle) = (directory.join("new"), File::open(&directory)?);
        for number in 0..options.count {
            random.fill(&mut bytes);
            let begin = Instant::now();
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, directory.join(number.to_string()))?;
            handle.sync_all()?;
            done.latencies.push(begin.elapsed());
            done.operations += 1;
            done.bytes += bytes.len() as u64;
        }
        Ok(done)
    };
    Ok(vec![measure("put", options, put, nothing)?])
}

pub(super) fn files(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    make_directories(place, options)?;
    let handle = File::open(place)?;
    let sync = || Ok(rustix::fs::syncfs(&handle)?);
    let folder =
        |job: u64, number: u64| directory_of(place, job).join((number / FILES_PER_DIRECTORY).to_string());
    let each = |job: u64, act: &dyn Fn(&Path, u64) -> io::Result<()>| {
        let numbers = 0..options.count;
        numbers.clone().try_for_each(|number| act(&folder(job, number), number))?;
        Ok(Done { operations: options.count, ..Done::default() })
    };
    let create = |job: u64| {
        each(job, &|folder, number| {
            if number % FILES_PER_DIRECTORY == 0 {
                fs::create_dir(folder)?;
            }
            File::create(folder.join(number.to_string())).map(drop)
        })
    };
    let remove = |job: u64| each(job, &|folder, number| fs::remove_file(folder.join(number.to_string())));
    Ok(vec![
        measure("create", options, create, sync)?,
        measure("remove", options, remove, || Ok(rustix::fs::syncfs(&handle)?))?,
    ])
}

pub(super) fn reads(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let path = place.join("large");
    let length = options.file_bytes - options.file_bytes % PIECE_BYTES as u64;
    let pieces = || (0..length).step_by(PIECE_BYTES);
    let write = |_: u64| {
        let (mut file, mut random) = (File::create(&path)?, Random::new(options.seed));
        let (mut done, mut bytes) = (Done::default(), vec![0; PIECE_BYTES]);
        for _ in pieces() {
            random.fill(&mut bytes);
            file.write_all(&bytes)?;
            (done.operations, done.bytes) = (done.operations + 1, done.bytes + bytes.len() as u64);
        }
        file.sync_all()?;
        Ok(done)
    };
    let one = RunOptions { jobs: 1, ..options.clone() };
    let mut phases = vec![measure("write", &one, write, nothing)?];
    let forget = || {
        options.make_cold()?;
        Ok::<_, io::Error>(fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?)
    };
    let sequential = |_: u64| {
        let (file, mut bytes, mut done) = (File::open(&path)?, vec![0; PIECE_BYTES], Done::default());
        for at in pieces() {
            file.read_exact_at(&mut bytes, at)?;
            (done.operations, done.bytes) = (done.operations + 1, done.bytes + bytes.len() as u64);
        }
        Ok(done)
    };
    let random = |job: u64| {
        let mut random = Random::new(options.seed).fork(job);
        let (file, mut bytes, mut done) = (File::open(&path)?, vec![0; BLOCK_BYTES], Done::default());
        let blocks = length / BLOCK_BYTES as u64;
        for _ in 0..options.count {
            let begin = Instant::now();
            file.read_exact_at(&mut bytes, random.below(blocks) * BLOCK_BYTES as u64)?;
            done.latencies.push(begin.elapsed());
            (done.operations, done.bytes) = (done.operations + 1, done.bytes + bytes.len() as u64);
        }
        Ok(done)
    };
    forget()?;
    phases.push(measure("sequential", options, sequential, nothing)?);
    forget()?;
    phases.push(measure("random", options, random, nothing)?);
    Ok(phases)
}
