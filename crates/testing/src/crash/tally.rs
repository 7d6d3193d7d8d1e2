//! Count of the states and operations that the tests of a run went through.
//!
//! Each round of a test appends a line to the file that `BRINDLE_CRASH_TALLY` names: the pool, the states, those that the
//! kernel saw, the operations by kind, and the fingerprint of each state, so that a chore that runs many tests can tell how many
//! different states it has seen.

use super::history::{History, Kinds};
use crate::model::{Inode, Model, RenameRule};
use crate::operations::Operation;
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Content of a line of the tally.
pub(super) struct Line<'a> {
    pub(super) pool: &'a str,
    pub(super) states: usize,
    pub(super) refereed: usize,
    pub(super) kinds: &'a Kinds,
    pub(super) fingerprints: &'a HashSet<u64>,
}

impl Line<'_> {
    /// Appends it to the file that the environment names, if it does.
    pub(super) fn append(&self) {
        let Some(path) = std::env::var_os("BRINDLE_CRASH_TALLY") else { return };
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
        let mut line = format!("{}\t{}\t{}\t{}\t", self.pool, self.states, self.refereed, kinds.join(","));
        for fingerprint in self.fingerprints {
            let _ = write!(line, "{fingerprint:x} ");
        }
        line.push('\n');
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the tally can be written");
    }
}

impl History {
    /// Its operations by kind, but for those that were refused.
    pub(super) fn kinds(&self) -> Kinds {
        let mut kinds = self.counts.clone();
        let mut new_directories = BTreeSet::new();
        for (before, step) in self.steps.iter().zip(&self.steps[1..]) {
            if step.is_refused {
                continue;
            }
            match &step.operation {
                Operation::MakeDirectory { path, .. } => drop(new_directories.insert(path.clone())),
                Operation::Sync | Operation::Remount => new_directories.clear(),
                _ => {}
            }
            let is_in_new = step.operation.path().and_then(|path| path.split());
            let is_in_new = is_in_new.is_some_and(|(parent, _)| new_directories.contains(&parent));
            for kind in kinds_of(&step.operation, &before.model, is_in_new) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        kinds
    }
}

fn kinds_of(operation: &Operation, before: &Model, is_in_new_directory: bool) -> Vec<&'static str> {
    let is_directory = |path| before.inode(path).is_ok_and(Inode::is_directory);
    let either = |is: bool, special, plain| if is { vec![special, plain] } else { vec![plain] };
    match operation {
        Operation::Create { .. } => either(is_in_new_directory, "files in new directories", "files"),
        Operation::MakeDirectory { .. } => vec!["directories"],
        Operation::Symlink { .. } => vec!["symbolic links"],
        Operation::MakeNode { .. } => vec!["special files"],
        Operation::Link { .. } => vec!["links"],
        Operation::Unlink { .. } => vec!["unlinks"],
        Operation::RemoveDirectory { .. } => vec!["removals of directories"],
        Operation::Rename { rule: RenameRule::Exchange, .. } => vec!["exchanges"],
        Operation::Rename { rule: RenameRule::Whiteout, .. } => vec!["whiteouts"],
        Operation::Rename { from, .. } if is_directory(from) => vec!["renames of directories", "renames"],
        Operation::Rename { to, .. } => either(before.is_there(to), "renames over another file", "renames"),
        Operation::Write { .. } => vec!["writes"],
        Operation::Truncate { .. } => vec!["truncations"],
        Operation::Allocate { .. } | Operation::PunchHole { .. } | Operation::ZeroRange { .. } => {
            vec!["allocations and holes"]
        }
        Operation::CloneRange { .. } => vec!["clones"],
        Operation::SetMode { .. } | Operation::SetOwner { .. } | Operation::SetTimes { .. } => {
            vec!["attributes"]
        }
        Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => vec!["xattrs"],
        Operation::CreateSubvolume { .. } => vec!["subvolumes"],
        Operation::Snapshot { .. } => vec!["snapshots"],
        Operation::DeleteSubvolume { .. } => vec!["deletions of subvolumes"],
        Operation::Sync => vec!["commits"],
        Operation::Remount => vec!["remounts"],
        Operation::SyncFile { path } if is_directory(path) => vec!["fsyncs of directories"],
        Operation::SyncFile { path } => {
            let mut kinds =
                either(is_in_new_directory, "fsyncs of files in new directories", "fsyncs of files");
            if before.inode(path).is_ok_and(|inode| inode.nlink > 1) {
                kinds.push("fsyncs of files with several names");
            }
            kinds
        }
    }
}
