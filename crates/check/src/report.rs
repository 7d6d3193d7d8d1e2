//! Results of a check.

use crate::Finding;
use brindle_ondisk::{Generation, Uuid};
use std::time::Duration;

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pool.
    pub fsid: Uuid,
    /// Its last transaction.
    pub generation: Generation,
    /// The pool has a log of fsyncs after that transaction, which the next mount replays.
    pub has_log: bool,
    /// Number of chunks that can't be read whole without devices that are missing.
    pub lost_chunks: u64,
    /// Each pass, in order.
    pub passes: Vec<PassReport>,
}

/// Result of one pass.
#[derive(Clone, Debug)]
pub struct PassReport {
    /// The name of the pass.
    pub name: &'static str,
    /// Subject, in a sentence.
    pub about: &'static str,
    /// Reason for not running.
    pub skipped: Option<String>,
    /// Errors.
    pub errors: Findings,
    /// Remarks that are no errors.
    pub notes: Vec<String>,
    /// Amount looked at.
    pub statistics: Statistics,
    /// Duration.
    pub elapsed: Duration,
}

/// The first findings, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The first ones.
    pub list: Vec<Finding>,
    /// Number of all findings.
    pub count: u64,
}

/// Amount that a pass has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Tree blocks.
    pub blocks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Items, or what else the pass counts.
    pub items: u64,
}

impl Report {
    /// Returns true if there is no error.
    pub fn is_clean(&self) -> bool {
        self.error_count() == 0
    }

    /// Number of errors.
    pub fn error_count(&self) -> u64 {
        self.passes.iter().map(|pass| pass.errors.count).sum()
    }

    /// Kept errors, with the pass that found each.
    pub fn findings(&self) -> impl Iterator<Item = (&'static str, &Finding)> {
        self.passes.iter().flat_map(|pass| pass.errors.list.iter().map(|finding| (pass.name, finding)))
    }

    /// A pass by its name.
    pub fn pass(&self, name: &str) -> Option<&PassReport> {
        self.passes.iter().find(|pass| pass.name == name)
    }
}
