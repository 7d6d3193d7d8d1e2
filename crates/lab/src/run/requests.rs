//! The work of the 73 cases.
//!
//! Small files are opened by the request that comes to them, and kept open by the thread until its next request is for another
//! one. Threads share one sequence of requests, as those of sysbench 0.4 do: after each hundred requests of all of them, the
//! files that were written are synced, each by the thread that comes next. A case ends with its requests or its time; writes
//! with a sync of all. Latencies are those of requests, without syncs.

use super::cases::{Case, Direction, EMPTY_FILES, FileKind, Mode, Order};
use super::phase::{Allowance, Done, Phase, measure};
use super::{RunOptions, program, small_files};
use brindle_device::Buffer;
use brindle_sim::Random;
use rustix::fs::{Advice, OFlags, fadvise, syncfs};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Length of a small file.
const SMALL_BYTES: u64 = 16 << 10;
/// Requests of all threads after which what was written is synced.
const FSYNC_EACH: u64 = 100;
/// Bytes of a write that fills a file.
const PIECE_BYTES: usize = 1 << 20;

/// Tasks that the threads of a case have still to do.
#[derive(Debug)]
struct Agenda {
    next: u64,
    count: u64,
    /// Files that were written since the last hundredth request, each once, by number.
    written: BTreeMap<u64, File>,
    unsynced: Vec<File>,
}

/// The next thing for a thread to do.
#[derive(Debug)]
enum Task {
    /// A request, by its number.
    Request(u64),
    Sync(File),
}

impl Agenda {
    fn new(count: u64) -> Self {
        Self { next: 0, count, written: BTreeMap::new(), unsynced: Vec::new() }
    }

    /// Takes the next task; `None` if there is none.
    fn take(&mut self) -> Option<Task> {
        if let Some(file) = self.unsynced.pop() {
            return Some(Task::Sync(file));
        }
        let request = self.next;
        self.next += 1;
        (request < self.count).then_some(Task::Request(request))
    }

    /// A request has written to a file.
    fn note_written(&mut self, request: u64, number: u64, file: &File) -> io::Result<()> {
        if let Entry::Vacant(new) = self.written.entry(number) {
            new.insert(file.try_clone()?);
        }
        if (request + 1) % FSYNC_EACH == 0 {
            self.unsynced.extend(std::mem::take(&mut self.written).into_values());
        }
        Ok(())
    }
}

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
            phases.push(run_case(place, &set, &case, &case.to_string(), options)?);
        }
        if kind == FileKind::Small {
            phases.extend(defragmented(place, &set, options)?);
        }
        if !options.keeps_files {
            fs::remove_dir_all(&set.directory)?;
        }
    }
    phases.push(empty_files(place, options)?);
    Ok(phases)
}

/// Small files read in order after all that was written, and again after their metadata was defragmented.
fn defragmented(place: &Path, set: &FileSet, options: &RunOptions) -> io::Result<Vec<Phase>> {
    let Some(brindle) = &options.defragmenter else { return Ok(Vec::new()) };
    let is_read_in_order = |case: &Case| {
        (case.files, case.direction, case.order) == (set.kind, Direction::Read, Order::Sequential)
    };
    let cases: Vec<Case> = Case::all().into_iter().filter(is_read_in_order).collect();
    let read = |when: &str| -> io::Result<Vec<Phase>> {
        cases.iter().map(|case| run_case(place, set, case, &format!("{case}, {when}"), options)).collect()
    };
    let mut phases = read("written")?;
    let defragment = |_: u64| {
        program::output(Command::new(brindle).args(["filesystem", "defragment"]).arg(place))?;
        Ok(Done { operations: 1, ..Done::default() })
    };
    let handle = File::open(place)?;
    phases.push(measure("defragment", options, defragment, || Ok(syncfs(&handle)?))?);
    drop(handle);
    phases.extend(read("defragmented")?);
    Ok(phases)
}

fn run_case(place: &Path, set: &FileSet, case: &Case, name: &str, options: &RunOptions) -> io::Result<Phase> {
    let jobs = RunOptions { jobs: case.threads, ..options.clone() };
    if case.direction == Direction::Read {
        options.make_cold()?;
        if set.kind == FileKind::Large {
            fadvise(File::open(set.path(0))?, 0, None, Advice::DontNeed)?;
        }
    }
    let agenda = Mutex::new(Agenda::new(options.count));
    let handle = File::open(place)?;
    let last = || match case.direction {
        Direction::Write => Ok(syncfs(&handle)?),
        Direction::Read => Ok(()),
    };
    match measure(name, &jobs, |job| requests(set, case, options, &agenda, job), last) {
        Err(error) if case.mode == Mode::Direct && Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Ok(Phase::refused(name))
        }
        result => result,
    }
}

/// Requests of one thread.
fn requests(
    set: &FileSet,
    case: &Case,
    options: &RunOptions,
    agenda: &Mutex<Agenda>,
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
    let lock = || agenda.lock().unwrap_or_else(PoisonError::into_inner);
    while allowance.lasts() {
        let task = lock().take();
        let request = match task {
            Some(Task::Request(request)) => request,
            Some(Task::Sync(file)) => {
                file.sync_all()?;
                continue;
            }
            None => break,
        };
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
            lock().note_written(request, number, &file)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hundredth_request_has_the_written_files_synced_once_each_before_others_go_on() {
        let (mut agenda, file) = (Agenda::new(150), tempfile::tempfile().expect("a file"));
        let mut tasks = Vec::new();
        while let Some(task) = agenda.take() {
            if let Task::Request(request) = task {
                agenda.note_written(request, request % 3, &file).expect("a descriptor");
            }
            tasks.push(matches!(task, Task::Sync(_)));
        }
        assert_eq!((tasks.len(), tasks.iter().filter(|is_sync| **is_sync).count()), (153, 3));
        assert!(tasks[100..103].iter().all(|is_sync| *is_sync));
    }
}
