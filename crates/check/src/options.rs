//! Options of a check, and its progress.

use crate::PassReport;
use brindle_volume::OpenOptions;

/// Options of a check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The pool, the superblock to use, and whether devices may be missing.
    pub volume: OpenOptions,
    /// Read every copy of every tree block, not only one that is good.
    pub all_copies: bool,
    /// Read all data that has checksums, every copy of it.
    pub check_data_csum: bool,
    /// Number of threads; `None` for the number of cores.
    pub threads: Option<usize>,
    /// Number of findings of one pass that are kept; all are counted.
    pub max_findings: usize,
    /// Number of findings of the contents of files that are kept; all are counted.
    pub max_data_findings: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            volume: OpenOptions::default(),
            all_copies: false,
            check_data_csum: false,
            threads: None,
            max_findings: 100,
            max_data_findings: 100,
        }
    }
}

impl CheckOptions {
    pub(crate) fn worker_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores).clamp(1, 64)
    }
}

/// Observer of the progress of a check; called by any thread.
pub trait Progress: Sync {
    /// A pass begins.
    fn begin(&self, _pass: &'static str) {}

    /// The pass that runs has found out how much it has to do: tree blocks, or for `data` bytes.
    fn total(&self, _units: u64) {}

    /// More units are done.
    fn advance(&self, _units: u64) {}

    /// A pass is done.
    fn end(&self, _report: &PassReport) {}
}

/// Progress that goes nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
