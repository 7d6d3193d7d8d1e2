//! Workloads on a directory of any filesystem, each with its time: what a filesystem makes of the disks below it.
//!
//! A run works in a directory of its own, which it makes and removes. Contents follow from a seed. Writes are measured up to
//! the last sync, reads after the file's pages were dropped.

mod cases;
mod daemon;
mod deb;
mod dpkg;
mod home;
mod large_files;
mod mail;
mod objects;
mod packages;
mod pgbench;
mod phase;
mod program;
mod rados;
mod record;
mod requests;
mod small_files;
mod suite;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use crate::{Client, LabError};
pub use cases::{Case, Direction, EMPTY_FILES, FileKind, Mode, Order, is_poor};
pub use phase::Phase;
pub(crate) use phase::drop_caches;
pub use record::{DiskCounts, DiskRecord, PhaseRecord, RunRecord};
use std::fmt::{self, Debug};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
pub use suite::{Defaults, Suite};

/// Properties of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Directory to work in.
    pub directory: PathBuf,
    /// Directory for the journal of an object store, another filesystem for one; that of the run unless told otherwise.
    pub journal: Option<PathBuf>,
    /// Directory of Debian packages for dpkg; packages of its own unless told otherwise.
    pub packages: Option<PathBuf>,
    /// Operations of each job: files, packages, mails, transactions, random reads or writes.
    pub count: u64,
    /// Jobs that run side by side.
    pub jobs: u64,
    /// Size of the large file, or of the database, in bytes.
    pub file_bytes: u64,
    /// Time after which a phase ends, for suites that have one.
    pub time: Option<Duration>,
    /// Seed of contents and places.
    pub seed: u64,
    /// True if the files of packages are synced, one by one.
    pub syncs: bool,
    /// True if all caches of the host are dropped before each phase; for root.
    pub drops_caches: bool,
    /// Done before each phase that reads what an earlier one has written.
    pub remount: Option<Remount>,
    /// Program of brindle, by which the file of `overwrites` (on btrfs) or the metadata of `cases` (on a mount of brindle) is
    /// defragmented, and read again.
    pub defragmenter: Option<PathBuf>,
    /// True if the files of the run are left.
    pub keeps_files: bool,
    /// Disks whose counts are wanted.
    pub disks: Vec<Client>,
}

/// The filesystem of a run, unmounted and mounted again: nothing of it is in the memory of its server or of the host then.
#[derive(Clone)]
pub struct Remount(pub Arc<dyn Fn() -> io::Result<()> + Send + Sync>);

impl Debug for Remount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remount")
    }
}

impl RunOptions {
    /// The sizes of a suite, for a directory.
    pub fn of(suite: Suite, directory: PathBuf) -> Self {
        let Defaults { count, jobs, file_bytes, time } = suite.defaults();
        Self {
            directory,
            journal: None,
            packages: None,
            count,
            jobs,
            file_bytes,
            time,
            seed: 1,
            syncs: true,
            drops_caches: false,
            remount: None,
            defragmenter: None,
            keeps_files: false,
            disks: Vec::new(),
        }
    }

    /// Forgets the filesystem. No file of it may be open.
    fn make_cold(&self) -> io::Result<()> {
        self.remount.as_ref().map_or(Ok(()), |Remount(remount)| remount())
    }
}

/// Directory of a run.
const DIRECTORY: &str = "brindle-lab-run";

/// Directory of a run, removed with all that is in it.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    is_kept: bool,
}

impl Place {
    fn make(directory: &Path, is_kept: bool) -> io::Result<Self> {
        let path = directory.join(DIRECTORY);
        fs::create_dir(&path)?;
        Ok(Self { path, is_kept })
    }

    fn end(mut self) -> io::Result<()> {
        if self.is_kept {
            return Ok(());
        }
        self.is_kept = true;
        fs::remove_dir_all(&self.path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            // After an error, which is told; a second one would say no more.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Runs a suite.
///
/// # Errors
/// [`LabError::Run`]: those of the filesystem, and EEXIST if another run works there. [`LabError::NoProgram`].
pub fn run(suite: Suite, options: &RunOptions) -> Result<Vec<Phase>, LabError> {
    let jobs = if suite.takes_jobs() { options.jobs } else { 1 };
    let options = &RunOptions { jobs, ..options.clone() };
    if let Some(program) = suite.missing_program() {
        return Err(LabError::NoProgram { suite: suite.name(), program });
    }
    let failed = |source| LabError::Run { path: options.directory.join(DIRECTORY), source };
    let place = Place::make(&options.directory, options.keeps_files).map_err(failed)?;
    let elsewhere = match &options.journal {
        Some(directory) if suite.takes_journal() => {
            let failed = |source| LabError::Run { path: directory.join(DIRECTORY), source };
            Some(Place::make(directory, options.keeps_files).map_err(failed)?)
        }
        _ => None,
    };
    let path = &place.path;
    let journal = elsewhere.as_ref().map_or(path, |journal| &journal.path);
    let phases = match suite {
        Suite::Fsync => work::fsync(path, options),
        Suite::Files => work::files(path, options),
        Suite::Reads => work::reads(path, options),
        Suite::Objects => objects::objects(path, journal, options),
        Suite::Cases => requests::cases(path, options),
        Suite::Upgrade => packages::upgrade(path, options),
        Suite::Dpkg => dpkg::dpkg(path, options),
        Suite::Pgbench => pgbench::pgbench(path, options),
        Suite::Rados => rados::rados(path, journal, options),
        Suite::Untar => tree::untar(path, options),
        Suite::Walk => tree::walk(path, options),
        Suite::Mail => mail::mail(path, options),
        Suite::Home => home::home(path, options, &home::sleep_until),
        Suite::Overwrites => large_files::overwrites(path, options),
        Suite::Threads => large_files::threads(path, options),
    };
    let phases = phases.map_err(failed)?;
    elsewhere.into_iter().chain([place]).try_for_each(Place::end).map_err(failed)?;
    Ok(phases)
}
