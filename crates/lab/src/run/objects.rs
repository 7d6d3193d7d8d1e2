//! Writes of an object store that journals: of each object a record in the journal, durable before the write is acknowledged; then,
//! for the filesystem to write when it likes, the object, a line at the end of its group's log, and the state of the
//! group overwritten. The filesystem is synced every few seconds and whenever the journal is full, which begins anew then.

use super::RunOptions;
use super::phase::{Done, Phase, measure};
use super::work::{directory_of, make_directories};
use brindle_sim::Random;
use rustix::fs::{FallocateFlags, fallocate, syncfs};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of an object.
const OBJECT_BYTES: usize = 512 << 10;
/// Bytes appended to the log of a group for each object.
const LOG_BYTES: usize = 147;
/// Bytes of the state of a group.
const INFO_BYTES: usize = 496;
/// Bytes of a record of the journal: all three, a header, and what fills the last block.
const RECORD_BYTES: usize = OBJECT_BYTES + 4096;
/// Bytes of the journal.
const JOURNAL_BYTES: u64 = 256 << 20;
/// Time between two syncs of the filesystem.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// A journal that several jobs write: those that come together share a write and a sync.
struct Journal<'a> {
    file: File,
    store: &'a File,
    waiting: Mutex<Waiting>,
    turn: Mutex<Turn>,
}

/// Records that no write has taken yet.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Number of records ever added.
    added: u64,
}

/// State of the one that writes.
#[derive(Default)]
struct Turn {
    /// Number of records that are durable.
    durable: u64,
    /// Offset of the next record.
    at: u64,
}

impl<'a> Journal<'a> {
    fn make(place: &Path, store: &'a File) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(place.join("journal"))?;
        fallocate(&file, FallocateFlags::empty(), 0, JOURNAL_BYTES)?;
        file.sync_all()?;
        Ok(Self { file, store, waiting: Mutex::default(), turn: Mutex::default() })
    }

    /// Returns when a record is durable.
    fn add(&self, record: &[u8]) -> io::Result<()> {
        let number = {
            let mut waiting = lock(&self.waiting);
            waiting.bytes.extend_from_slice(record);
            waiting.added += 1;
            waiting.added
        };
        let mut turn = lock(&self.turn);
        if turn.durable >= number {
            return Ok(());
        }
        let (bytes, added) = {
            let mut waiting = lock(&self.waiting);
            (std::mem::take(&mut waiting.bytes), waiting.added)
        };
        if turn.at + bytes.len() as u64 > JOURNAL_BYTES {
            syncfs(self.store)?;
            turn.at = 0;
        }
        self.file.write_all_at(&bytes, turn.at)?;
        self.file.sync_data()?;
        turn.at += bytes.len() as u64;
        turn.durable = added;
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn objects(place: &Path, journal: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    make_directories(place, options)?;
    let store = File::open(place)?;
    let journal = Journal::make(journal, &store)?;
    let put = |job: u64| put(&directory_of(place, job), &journal, options, job);
    std::thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let syncer = scope.spawn(|| {
            let ended = ended;
            while ended.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                syncfs(&store)?;
            }
            Ok::<_, io::Error>(())
        });
        let phase = measure("put", options, put, || Ok(syncfs(&store)?));
        drop(end);
        syncer.join().unwrap_or_else(|_| Err(io::Error::other("the syncs panicked")))?;
        Ok(vec![phase?])
    })
}

/// Writes the objects of a job, which is a group of its own.
fn put(group: &Path, journal: &Journal<'_>, options: &RunOptions, job: u64) -> io::Result<Done> {
    let mut random = Random::new(options.seed).fork(job);
    let (mut done, mut record) = (Done::default(), vec![0; RECORD_BYTES]);
    let mut log = File::create(group.join("log"))?;
    let info = File::create(group.join("info"))?;
    for number in 0..options.count {
        random.fill(&mut record[..OBJECT_BYTES + LOG_BYTES + INFO_BYTES]);
        let begin = Instant::now();
        journal.add(&record)?;
        done.latencies.push(begin.elapsed());
        let (object, rest) = record.split_at(OBJECT_BYTES);
        let (line, rest) = rest.split_at(LOG_BYTES);
        File::create(group.join(number.to_string()))?.write_all(object)?;
        log.write_all(line)?;
        info.write_all_at(&rest[..INFO_BYTES], 0)?;
        done.operations += 1;
        done.bytes += OBJECT_BYTES as u64;
    }
    Ok(done)
}
