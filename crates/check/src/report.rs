//! What an examination has found.

use crate::Finding;
use brindle_ondisk::{Generation, Uuid};
use std::time::Duration;

/// What an examination has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pool.
    pub fsid: Uuid,
    /// Its last transaction.
    pub generation: Generation,
    /// Each pass, in order.
    pub passes: Vec<PassReport>,
}

/// What one pass has found.
#[derive(Clone, Debug)]
pub struct PassReport {
    /// The name of the pass.
    pub name: &'static str,
    /// What it looks at, in a sentence.
    pub about: &'static str,
    /// Why it did not run.
    pub skipped: Option<String>,
    /// What is wrong.
    pub errors: Findings,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
    /// How much it has looked at.
    pub statistics: Statistics,
    /// How long it took.
    pub elapsed: Duration,
}

/// The first findings, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The first ones.
    pub list: Vec<Finding>,
    /// How many there are in all.
    pub count: u64,
}

/// How much a pass has looked at.
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
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.error_count() == 0
    }

    /// How many things are wrong.
    pub fn error_count(&self) -> u64 {
        self.passes.iter().map(|pass| pass.errors.count).sum()
    }

    /// Everything that is wrong, as far as it was kept, with the pass that found it.
    pub fn findings(&self) -> impl Iterator<Item = (&'static str, &Finding)> {
        self.passes.iter().flat_map(|pass| pass.errors.list.iter().map(|finding| (pass.name, finding)))
    }

    /// A pass by its name.
    pub fn pass(&self, name: &str) -> Option<&PassReport> {
        self.passes.iter().find(|pass| pass.name == name)
    }
}
