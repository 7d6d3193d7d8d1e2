//! Comparisons: works on configurations, in turns, each on disks and a filesystem of its own that is checked afterwards.
//!
//! A step makes modelled disks with loop devices, a filesystem on them, mounts it, drops what the host has in memory, does its work, notes
//! the counts of the disks, unmounts, and lets the filesystem's own programs examine it, with the files of the work still there.
//! A check that finds anything voids the figures of its step. [`results`] keeps a line for each step; steps that are there are not
//! done again. A step that failed (a program, the filesystem) is written down with its error, and tried again by the next
//! start. [`Plan`] and [`Configuration`] only decide; `stand` runs programs.
//!
//! Whatever ends a step early, its mount, its loop devices and its disks go, as far as they let themselves.

mod configuration;
mod plan;
mod results;
mod stand;
#[cfg(test)]
pub(crate) mod tests;

use crate::{LabError, RunRecord, Status, run as run_suite};
pub use configuration::{CONFIGURATIONS, CommandLine, Configuration, DiskKind, Filesystem, Setup};
pub use plan::{Plan, Step, Work};
use results::ResultsFile;
pub use results::{CheckRecord, Head, Results, StepRecord};
use stand::{Journal, Stand};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// A comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Program of brindle.
    pub brindle: PathBuf,
    /// File of the results.
    pub results: PathBuf,
    /// Directory for mounts.
    pub scratch: PathBuf,
    /// Model line of hard disks.
    pub hdd: String,
    /// Model line of SSDs.
    pub ssd: String,
    /// Seed of contents and places.
    pub seed: u64,
    /// Version of brindle.
    pub version: String,
    /// Commit of its sources, if it is known.
    pub commit: Option<String>,
}

/// Reason for which a comparison, or a step of it, has ended.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The file of results.
    #[error("{path}: {source}")]
    Results {
        /// The path.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A line that is not one of results.
    #[error("{path}: line {number} is not one of results: {why}")]
    Line {
        /// The path.
        path: PathBuf,
        /// Number of the line, from 1 on.
        number: usize,
        /// The reason.
        why: String,
    },
    /// Results of another comparison.
    #[error(
        "{0}: holds results of another plan, seed, model, kernel or version of brindle; give another file"
    )]
    OtherPlan(PathBuf),
    /// No directory to work in.
    #[error("cannot work in {0}: {1}")]
    Scratch(PathBuf, io::Error),
    /// A program that is not there.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The host's reason.
        source: io::Error,
    },
    /// A program that failed.
    #[error("{command} failed: {output}")]
    Program {
        /// The program with its arguments.
        command: String,
        /// The end of its output.
        output: String,
    },
    /// The disks or the work.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl CompareError {
    fn results(path: &Path, source: io::Error) -> Self {
        Self::Results { path: path.to_owned(), source }
    }
}

/// An observer of a comparison.
pub trait Observer {
    /// A step begins, with the number of steps that are done, of all, and the time that is left, if it is known.
    fn begins(&mut self, step: &Step<'_>, done: usize, all: usize, left: Option<Duration>);

    /// A step has ended.
    fn ended(&mut self, record: &StepRecord);

    /// Returns true if the comparison is to end before the next step.
    fn stops(&self) -> bool;
}

/// Outcome of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Steps of the plan that are done.
    pub done: usize,
    /// Steps of the plan.
    pub all: usize,
    /// Of those done now, steps whose filesystem was found wrong.
    pub void: usize,
    /// Steps that ended with an error now.
    pub failed: usize,
}

impl DiskKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::Ssd => "ssd",
        }
    }
}

impl Comparison {
    fn model(&self, kind: DiskKind) -> &str {
        match kind {
            DiskKind::Hdd => &self.hdd,
            DiskKind::Ssd => &self.ssd,
        }
    }

    /// The plan and this machine.
    fn head(&self, plan: &Plan) -> Head {
        let system = rustix::system::uname();
        let memory = rustix::system::sysinfo();
        let disk =
            |kind: DiskKind| (kind.name().to_owned(), (self.model(kind).to_owned(), plan.disk_bytes(kind)));
        Head {
            plan: plan.name.to_owned(),
            rounds: plan.rounds,
            seed: self.seed,
            works: plan.works.iter().map(|work| (work.name.to_owned(), work.words(self.seed))).collect(),
            disks: [DiskKind::Hdd, DiskKind::Ssd].map(disk).into(),
            version: self.version.clone(),
            commit: self.commit.clone(),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            processors: std::thread::available_parallelism().map_or(1, |number| number.get() as u64),
            memory_bytes: u64::from(memory.mem_unit) * memory.totalram,
        }
    }

    /// Does the steps of a plan that are not done yet.
    ///
    /// # Errors
    /// Those of the file of results. Errors of steps are written down there.
    pub fn run(&self, plan: &Plan, observer: &mut dyn Observer) -> Result<Outcome, CompareError> {
        let mut results = ResultsFile::open(&self.results, &self.head(plan))?;
        let (all, left) = (plan.steps().len(), results.left(plan));
        let mut outcome = Outcome { done: all - left.len(), all, ..Outcome::default() };
        for (index, step) in left.iter().enumerate() {
            if observer.stops() {
                break;
            }
            observer.begins(step, outcome.done + outcome.failed, all, results.time_left(&left[index..]));
            let record = self.step(plan, step);
            if record.error.is_some() && observer.stops() {
                // A signal has ended its programs: this says nothing of the step.
                break;
            }
            results.add(&self.results, &record)?;
            observer.ended(&record);
            outcome.done += usize::from(record.is_done());
            outcome.failed += usize::from(!record.is_done());
            outcome.void += usize::from(record.is_done() && !record.is_valid());
        }
        Ok(outcome)
    }

    /// Fails if the file of results is there and holds those of another comparison.
    ///
    /// # Errors
    /// Those of the file, and [`CompareError::OtherPlan`].
    pub fn verify_results(&self, plan: &Plan) -> Result<(), CompareError> {
        ResultsFile::read(&self.results, &self.head(plan)).map(drop)
    }

    fn step(&self, plan: &Plan, step: &Step<'_>) -> StepRecord {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let (begin, journal) = (Instant::now(), Journal::default());
        let result = self.measure(plan, step, &journal);
        let commands = std::mem::take(&mut *journal.lock().unwrap_or_else(PoisonError::into_inner));
        let elapsed_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (run, checks, error) = match result {
            Ok((run, checks)) => (Some(run), checks, None),
            Err(error) => (None, Vec::new(), Some(error.to_string())),
        };
        StepRecord {
            work: step.work.name.to_owned(),
            configuration: step.configuration.name.to_owned(),
            round: step.round,
            began,
            elapsed_ns,
            load: load(),
            commands,
            run,
            checks,
            error,
        }
    }

    fn measure(
        &self,
        plan: &Plan,
        step: &Step<'_>,
        journal: &Journal,
    ) -> Result<(RunRecord, Vec<CheckRecord>), CompareError> {
        let mut stand = Stand::set_up(self, step.configuration, plan, journal)?;
        let mut options = step.work.options(stand.mountpoint(), self.seed);
        options.drops_caches = true;
        options.keeps_files = true;
        options.defragmenter = step.work.defragments.then(|| self.brindle.clone());
        options.remount = Some(stand.remount());
        options.disks.clone_from(&stand.disks);
        journal.lock().unwrap_or_else(PoisonError::into_inner).push(step.work.words(self.seed));
        stand.disks.iter().try_for_each(crate::Client::reset)?;
        let mut phases = run_suite(step.work.suite, &options)?;
        if step.round > 1 {
            // A picture of one round is enough.
            phases.iter_mut().for_each(|phase| phase.activity.clear());
        }
        let statuses = stand.disks.iter().map(crate::Client::status).collect::<Result<Vec<Status>, _>>()?;
        let kind = step.configuration.filesystem.name();
        let run = RunRecord::new(step.work.suite, kind, &options, &phases, &statuses);
        // The mount of the run is in use as long as its options are there.
        drop(options);
        Ok((run, stand.check()?))
    }
}

impl Filesystem {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Brindle => "brindle",
        }
    }
}

/// The average load of a minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
