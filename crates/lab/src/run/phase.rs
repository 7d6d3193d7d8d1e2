//! A measured part of a run: jobs side by side, their time, and the counts of the disks below.

use super::RunOptions;
use crate::{Activity, Client, LabError, Status};
use brindle_sim::DriveCounts;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// A measured part of a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Name.
    pub name: String,
    /// Operations; none where the filesystem refuses them.
    pub operations: u64,
    /// Bytes that they read or wrote.
    pub bytes: u64,
    /// Time of all.
    pub elapsed: Duration,
    /// Time of each operation, in ascending order; empty where they are not measured one by one.
    pub latencies: Vec<Duration>,
    /// Counts of each disk of the run.
    pub disks: Vec<DriveCounts>,
    /// Times and places of the requests of each disk.
    pub activity: Vec<Activity>,
}

impl Phase {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        count(self.operations) / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Bytes a second.
    pub fn byte_rate(&self) -> f64 {
        count(self.bytes) / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The latency that this share of all operations, in percent, does not exceed.
    pub fn latency(&self, percent: usize) -> Option<Duration> {
        let rank = (self.latencies.len() * percent).div_ceil(100);
        self.latencies.get(rank.saturating_sub(1)).copied()
    }

    /// A phase that the filesystem has refused.
    pub(super) fn refused(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            operations: 0,
            bytes: 0,
            elapsed: Duration::ZERO,
            latencies: Vec::new(),
            disks: Vec::new(),
            activity: Vec::new(),
        }
    }
}

/// Counts of a run are far below 2^53, up to which every whole number is one of these.
#[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}

/// Outcome of a job: operations, bytes, and the time of each operation.
#[derive(Default)]
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) latencies: Vec<Duration>,
}

impl Done {
    /// Adds an operation that began then and has ended now.
    pub(super) fn add(&mut self, bytes: u64, begin: Instant) {
        self.latencies.push(begin.elapsed());
        self.operations += 1;
        self.bytes += bytes;
    }
}

/// Requests that a job may still make.
pub(super) struct Allowance {
    end: Option<Instant>,
}

impl Allowance {
    /// The time of the run, from now on.
    pub(super) fn of(options: &RunOptions) -> Self {
        Self { end: options.time.map(|time| Instant::now() + time) }
    }

    /// Returns true as long as there is time.
    pub(super) fn lasts(&self) -> bool {
        self.end.is_none_or(|end| Instant::now() < end)
    }
}

/// Runs a job for each number side by side, then `last`, and measures both.
pub(super) fn measure(
    name: &str,
    options: &RunOptions,
    job: impl Fn(u64) -> io::Result<Done> + Sync,
    last: impl FnOnce() -> io::Result<()>,
) -> io::Result<Phase> {
    if options.drops_caches {
        drop_caches()?;
    }
    let before = of_disks(options, |disk| disk.observe().and_then(|()| counts(disk)))?;
    let begin = Instant::now();
    let all = std::thread::scope(|scope| {
        let job = &job;
        let jobs: Vec<_> = (0..options.jobs).map(|number| scope.spawn(move || job(number))).collect();
        let join = |job: std::thread::ScopedJoinHandle<'_, io::Result<Done>>| {
            job.join().unwrap_or_else(|_| Err(io::Error::other("a job panicked")))
        };
        // All of them, before any error is told.
        jobs.into_iter().map(join).collect::<Vec<_>>()
    });
    last()?;
    let elapsed = begin.elapsed();
    let mut phase = Phase { elapsed, ..Phase::refused(name) };
    for done in all {
        let done = done?;
        phase.operations += done.operations;
        phase.bytes += done.bytes;
        phase.latencies.extend(done.latencies);
    }
    phase.latencies.sort_unstable();
    phase.disks =
        of_disks(options, counts)?.iter().zip(&before).map(|(after, before)| since(after, before)).collect();
    phase.activity = of_disks(options, Client::activity)?;
    Ok(phase)
}

/// Drops what the host has in memory of any filesystem; for root.
pub(crate) fn drop_caches() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}

fn of_disks<T>(options: &RunOptions, ask: impl Fn(&Client) -> Result<T, LabError>) -> io::Result<Vec<T>> {
    options.disks.iter().map(ask).collect::<Result<_, _>>().map_err(io::Error::other)
}

fn counts(disk: &Client) -> Result<DriveCounts, LabError> {
    disk.status().map(|Status { counts, .. }| counts)
}

fn since(after: &DriveCounts, before: &DriveCounts) -> DriveCounts {
    DriveCounts {
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        writes: after.writes - before.writes,
        written_bytes: after.written_bytes - before.written_bytes,
        flushes: after.flushes - before.flushes,
        discards: after.discards - before.discards,
        discarded_bytes: after.discarded_bytes - before.discarded_bytes,
        seeks: after.seeks - before.seeks,
        wake_ups: after.wake_ups - before.wake_ups,
        bands: after.bands - before.bands,
    }
}

/// A phase needs nothing after its jobs.
pub(super) fn nothing() -> io::Result<()> {
    Ok(())
}
