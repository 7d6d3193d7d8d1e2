//! Workloads on a directory of any filesystem, each with its time: what a filesystem makes of the disks below it.
//!
//! A run works in a directory of its own, which it makes and removes. Contents follow from a seed. Writes are measured up to
//! the last sync, reads after the file's pages were dropped.

mod objects;
mod work;

use crate::LabError;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Small files that are made durable and renamed, one after the other, as mail servers and package managers do.
    Fsync,
    /// Empty files, made and removed.
    Files,
    /// A large file, written, and read by several jobs: each all of it in order, then blocks anywhere.
    Reads,
    /// Objects of 512 KiB, with the journal, the logs and the states that an object store writes beside them.
    Objects,
}

/// Properties of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Directory to work in.
    pub directory: PathBuf,
    /// Directory for the journal of the objects, another filesystem for one; that of the run unless told otherwise.
    pub journal: Option<PathBuf>,
    /// Files, or random reads of each job.
    pub count: u64,
    /// Jobs that run side by side.
    pub jobs: u64,
    /// Size of the large file, in bytes.
    pub file_bytes: u64,
    /// Seed of contents and places.
    pub seed: u64,
    /// True if all caches of the host are dropped before each phase; for root.
    pub drops_caches: bool,
}

/// A measured part of a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Name.
    pub name: &'static str,
    /// Operations.
    pub operations: u64,
    /// Bytes that they read or wrote.
    pub bytes: u64,
    /// Time of all.
    pub elapsed: Duration,
    /// Time of each operation, in ascending order; empty where they are not measured one by one.
    pub latencies: Vec<Duration>,
}

/// Directory of a run.
const DIRECTORY: &str = "brindle-lab-run";

impl Suite {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Fsync, "fsync"), (Self::Files, "files"), (Self::Reads, "reads"), (Self::Objects, "objects")];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(suite, _)| *suite == self).map_or("", |(_, name)| name)
    }
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let suite = Self::ALL.iter().find(|(_, name)| *name == word);
        suite
            .map(|(suite, _)| *suite)
            .ok_or_else(|| "a suite is one of fsync, files, reads, objects".to_owned())
    }
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
}

/// Counts of a run are far below 2^53, up to which every whole number is one of these.
#[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Directory of a run, removed with all that is in it.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    fn make(directory: &Path) -> io::Result<Self> {
        let path = directory.join(DIRECTORY);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After an error, which is told; a second one would say no more.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a suite.
///
/// # Errors
/// [`LabError::Run`]: those of the filesystem, and EEXIST if another run works there.
pub fn run(suite: Suite, options: &RunOptions) -> Result<Vec<Phase>, LabError> {
    let failed = |source| LabError::Run { path: options.directory.join(DIRECTORY), source };
    let place = Place::make(&options.directory).map_err(failed)?;
    let elsewhere = match &options.journal {
        Some(directory) if suite == Suite::Objects => {
            let failed = |source| LabError::Run { path: directory.join(DIRECTORY), source };
            Some(Place::make(directory).map_err(failed)?)
        }
        _ => None,
    };
    let phases = match suite {
        Suite::Fsync => work::fsync(&place.0, options),
        Suite::Files => work::files(&place.0, options),
        Suite::Reads => work::reads(&place.0, options),
        Suite::Objects => {
            objects::objects(&place.0, elsewhere.as_ref().map_or(&place.0, |journal| &journal.0), options)
        }
    };
    let phases = phases.map_err(failed)?;
    elsewhere.into_iter().chain([place]).try_for_each(Place::remove).map_err(failed)?;
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &Path) -> RunOptions {
        let directory = directory.to_owned();
        RunOptions {
            directory,
            journal: None,
            count: 25,
            jobs: 3,
            file_bytes: 3 << 20,
            seed: 1,
            drops_caches: false,
        }
    }

    #[test]
    fn suites_do_all_that_is_asked_and_leave_nothing() {
        let scratch = tempfile::tempdir().expect("room");
        let of = |suite| {
            let phases = run(suite, &options(scratch.path())).expect("room");
            let left = fs::read_dir(scratch.path()).expect("ours").count();
            assert_eq!(left, 0, "{suite}");
            phases
                .into_iter()
                .map(|phase| {
                    assert!(phase.rate() > 0.0 && phase.latencies.is_sorted(), "{phase:?}");
                    (phase.name, phase.operations, phase.bytes, phase.latencies.len())
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Suite::Fsync), [("put", 75, 75 * 4096, 75)]);
        assert_eq!(of(Suite::Files), [("create", 75, 0, 0), ("remove", 75, 0, 0)]);
        let pieces = (3 << 20) / (64 << 10);
        let expected = [
            ("write", pieces, 3 << 20, 0),
            ("sequential", 3 * pieces, 9 << 20, 0),
            ("random", 75, 75 * 4096, 75),
        ];
        assert_eq!(of(Suite::Reads), expected);
        assert_eq!(of(Suite::Objects), [("put", 75, 75 * (512 << 10), 75)]);
    }

    #[test]
    fn a_journal_may_lie_elsewhere_and_is_removed() {
        let (scratch, other) = (tempfile::tempdir().expect("room"), tempfile::tempdir().expect("room"));
        let options =
            RunOptions { journal: Some(other.path().to_owned()), count: 2, ..options(scratch.path()) };
        run(Suite::Objects, &options).expect("room");
        for directory in [&scratch, &other] {
            assert_eq!(fs::read_dir(directory.path()).expect("ours").count(), 0);
        }
        let missing = other.path().join("missing");
        let error = run(Suite::Objects, &RunOptions { journal: Some(missing.clone()), ..options });
        assert!(error.expect_err("no directory").to_string().contains("missing"));
        assert_eq!(fs::read_dir(scratch.path()).expect("ours").count(), 0);
    }

    #[test]
    fn a_run_touches_nothing_of_another_one() {
        let scratch = tempfile::tempdir().expect("room");
        let theirs = scratch.path().join(DIRECTORY);
        fs::create_dir(&theirs).expect("new");
        fs::write(theirs.join("file"), "theirs").expect("room");
        let error = run(Suite::Files, &options(scratch.path())).expect_err("it is in use");
        assert!(
            matches!(&error, LabError::Run { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
        );
        assert!(error.to_string().contains(DIRECTORY), "{error}");
        assert_eq!(fs::read_to_string(theirs.join("file")).expect("theirs"), "theirs");
        run(Suite::Files, &options(&scratch.path().join("missing"))).expect_err("no directory");
    }

    #[test]
    fn latencies_are_told_by_their_rank() {
        let latencies: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        let elapsed = Duration::from_secs(2);
        let phase = Phase { name: "any", operations: 200, bytes: 4000, elapsed, latencies };
        let told = [1, 50, 99, 100].map(|percent| phase.latency(percent).expect("some").as_millis());
        assert_eq!(told, [2, 100, 198, 200]);
        assert_eq!((phase.rate(), phase.byte_rate()), (100.0, 2000.0));
        assert_eq!(Phase { latencies: Vec::new(), ..phase }.latency(50), None);
    }
}
