//! The work of the 73 cases.
//!
//! Small files are opened by the request that comes to them, and kept open by the thread until its next request is for another
//! one. Threads share one sequence of requests, as those of sysbench do. A case ends with its requests or its time; writes
//! with a sync of all.

use super::cases::{Case, Direction, EMPTY_FILES, FileKind, Mode, Order};
use super::phase::{Allowance, Done, Phase, measure};
use super::{RunOptions, small_files};
use brindle_device::Buffer;
use brindle_sim::Random;
use rustix::fs::{Advice, OFlags, fadvise, syncfs};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Length of a small file.
const SMALL_BYTES: u64 = 16 << 10;
/// Requests of a thread between two fsyncs.
const FSYNC_EACH: u64 = 100;
/// Bytes of a write that fills a file.
const PIECE_BYTES: usize = 1 << 20;

/// Files that a case works on.
struct FileSet {
    directory: PathBuf,
    kind: FileKind,
    number: u64,
    file_bytes: u64,
}

impl FileSet {
    fn make(place: &Path, kind: FileKind, options: &RunOptions) -> io::Result<Self> {
        let (directory, number, file_bytes) = match kind {
            FileKind::Small => (place.join("small"), (options.file_bytes / SMALL_BYTES).max(1), SMALL_BYTES),
            FileKind::Large => (place.join("large"), 1, options.file_bytes),
        };
        fs::create_dir(&directory)?;
        let set = Self { directory, kind, number, file_bytes };
        let mut random = Random::new(options.seed).fork(0x5e7);
        let mut piece = vec![0; PIECE_BYTES];
        for number in 0..set.number {
            small_files::make_folder(&set.directory, number)?;
            let mut file = File::create(set.path(number))?;
            let mut left = set.file_bytes;
            while left > 0 {
                let length = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                random.fill(&mut piece[..length]);
                file.write_all(&piece[..length])?;
                left -= length as u64;
            }
        }
        syncfs(File::open(place)?)?;
        Ok(set)
    }

    fn path(&self, number: u64) -> PathBuf {
        small_files::path(&self.directory, number)
    }

    /// File and offset of a block.
    fn locate(&self, block: u64, block_bytes: u64) -> (u64, u64) {
        let blocks = self.file_bytes / block_bytes;
        (block / blocks, block % blocks * block_bytes)
    }

    fn open(&self, number: u64, case: &Case) -> io::Result<File> {
        let flags = if case.mode == Mode::Direct { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = OpenOptions::new();
        options.read(case.direction == Direction::Read).write(case.direction == Direction::Write);
        options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
        options.open(self.path(number))
    }
}

/// Runs all cases.
pub(super) fn cases(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let mut phases = Vec::new();
    for kind in [FileKind::Small, FileKind::Large] {
        let set = FileSet::make(place, kind, options)?;
        for case in Case::all().into_iter().filter(|case| case.files == kind) {
            phases.push(run_case(place, &set, &case, options)?);
        }
        if !options.keeps_files {
            fs::remove_dir_all(&set.directory)?;
        }
    }
    phases.push(empty_files(place, options)?);
    Ok(phases)
}

fn run_case(place: &Path, set: &FileSet, case: &Case, options: &RunOptions) -> io::Result<Phase> {
    let jobs = RunOptions { jobs: case.threads, ..options.clone() };
    if case.direction == Direction::Read {
        options.make_cold()?;
        if set.kind == FileKind::Large {
            fadvise(File::open(set.path(0))?, 0, None, Advice::DontNeed)?;
        }
    }
    let next = AtomicU64::new(0);
    let handle = File::open(place)?;
    let last = || match case.direction {
        Direction::Write => Ok(syncfs(&handle)?),
        Direction::Read => Ok(()),
    };
    let name = case.to_string();
    match measure(&name, &jobs, |job| requests(set, case, options, &next, job), last) {
        Err(error) if case.mode == Mode::Direct && Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Ok(Phase::refused(&name))
        }
        result => result,
    }
}

/// Requests of one thread.
fn requests(
    set: &FileSet,
    case: &Case,
    options: &RunOptions,
    next: &AtomicU64,
    job: u64,
) -> io::Result<Done> {
    let mut random = Random::new(options.seed).fork(job);
    let allowance = Allowance::of(options);
    let block_bytes = case.block_bytes as u64;
    let blocks = set.number * (set.file_bytes / block_bytes);
    let mut buffer = Buffer::new(case.block_bytes);
    random.fill(&mut buffer);
    let mut done = Done::default();
    let mut current: Option<(u64, File)> = None;
    let mut written: Vec<(u64, File)> = Vec::new();
    while allowance.lasts() {
        let request = next.fetch_add(1, Ordering::Relaxed);
        if request >= options.count {
            break;
        }
        let block = match case.order {
            Order::Random => random.below(blocks),
            Order::Sequential => request % blocks,
        };
        let (number, offset) = set.locate(block, block_bytes);
        let begin = Instant::now();
        let file = match current.take() {
            Some((open, file)) if open == number => file,
            _ => set.open(number, case)?,
        };
        match case.direction {
            Direction::Read => file.read_exact_at(&mut buffer, offset)?,
            Direction::Write => file.write_all_at(&buffer, offset)?,
        }
        if case.mode == Mode::Fsync {
            if !written.iter().any(|(open, _)| *open == number) {
                written.push((number, file.try_clone()?));
            }
            if (done.operations + 1) % FSYNC_EACH == 0 {
                written.drain(..).try_for_each(|(_, file)| file.sync_all())?;
            }
        }
        current = Some((number, file));
        done.add(block_bytes, begin);
    }
    Ok(done)
}

fn empty_files(place: &Path, options: &RunOptions) -> io::Result<Phase> {
    let directory = place.join("empty");
    fs::create_dir(&directory)?;
    let handle = File::open(place)?;
    let work = |_: u64| {
        let allowance = Allowance::of(options);
        let mut done = Done::default();
        let mut made = 0;
        while made < options.count && (made == 0 || allowance.lasts()) {
            small_files::make_folder(&directory, made)?;
            File::create(small_files::path(&directory, made))?;
            made += 1;
        }
        (0..made).try_for_each(|number| fs::remove_file(small_files::path(&directory, number)))?;
        done.operations = 2 * made;
        Ok(done)
    };
    measure(EMPTY_FILES, options, work, || Ok(syncfs(&handle)?))
}
