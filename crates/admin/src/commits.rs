//! Commits of a mounted pool.

use crate::control::{ControlError, Mounted};
use crate::{call, sysfs};
use brindle_ondisk::Uuid;
use brindle_uapi::message::CommitsReport;
use brindle_uapi::verb;

/// Counters that the kernel keeps of commits since a pool was mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCommits {
    /// Number of commits.
    pub commits: u64,
    /// Duration of the last one, in milliseconds.
    pub last_ms: u64,
    /// Duration of the longest one, in milliseconds.
    pub longest_ms: u64,
    /// Duration of all, in milliseconds.
    pub total_ms: u64,
}

impl Mounted {
    /// Commits since it was mounted; of a mount of ours.
    ///
    /// # Errors
    /// A mount of the kernel.
    pub fn commits(&self) -> Result<CommitsReport, ControlError> {
        let what = "what commits did";
        self.only_ours(what)?;
        self.explain(what, call::get::<verb::ReportCommits>(&self.file))
    }

    /// Commits since it was mounted, of a mount of the kernel.
    ///
    /// # Errors
    /// A kernel before 6.0, which does not count them.
    pub fn commits_of_kernel(&self) -> Result<KernelCommits, ControlError> {
        let counters = sysfs::commits(&Uuid(self.filesystem()?.fsid));
        let none = || ControlError::KernelMount { path: self.path.clone(), what: "what commits did" };
        let [commits, last_ms, longest_ms, total_ms] = counters.ok_or_else(none)?;
        Ok(KernelCommits { commits, last_ms, longest_ms, total_ms })
    }
}
