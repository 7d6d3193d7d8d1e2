//! Decides if a tree is one that a crash may leave.

use super::CrashGuarantees;
use super::history::{History, RecordedOperation};
use crate::manifest::{Entry, Kind, Manifest, Time};
use crate::model::{Model, TreePath};
use crate::operations::Operation;
use std::collections::BTreeSet;

/// The step whose state was found, if it was one as a whole.
pub(super) type Verdict<'h> = Result<Option<&'h Model>, String>;

impl History {
    /// Holds a tree, found after a crash at `point`, against what may be there.
    pub(super) fn judge(&self, point: usize, guarantees: CrashGuarantees, found: &Manifest) -> Verdict<'_> {
        let is_commit = |step: &&RecordedOperation| step.is_commit(guarantees);
        let base = self.steps.iter().rposition(|step| is_commit(&step) && step.is_done(point)).unwrap_or(0);
        let since: Vec<&RecordedOperation> =
            self.steps[base..].iter().take_while(|step| step.is_begun(point)).collect();
        let whole = since.iter().enumerate().filter(|(number, step)| *number == 0 || is_commit(step));
        let (mut differences, mut same) = (Vec::new(), Vec::new());
        for (number, step) in whole {
            match step.expectation().difference(found) {
                None => same.push(&step.model),
                Some(difference) => differences.push((base + number, difference)),
            }
        }
        if let [first, others @ ..] = &same[..] {
            let is_known = others.iter().all(|other| have_same_subvolumes(first, other, found));
            return Ok(is_known.then_some(*first));
        }
        if guarantees.commits_only_when_asked && guarantees.fsync_commits {
            return Err(words(&differences));
        }
        let mixture = Mixture { since: &since, found, point, guarantees };
        mixture.first_difference().map_or(Ok(None), Err)
    }
}

/// A directory and a subvolume that change places look the same, but can't be used alike.
fn have_same_subvolumes(a: &Model, b: &Model, tree: &Manifest) -> bool {
    tree.entries()
        .map(|entry| TreePath::new(&entry.path[..]))
        .all(|path| a.is_subvolume(&path) == b.is_subvolume(&path))
}

fn words(differences: &[(usize, String)]) -> String {
    let each =
        differences.iter().map(|(step, words)| format!("held against the commit of step {step}: {words}"));
    each.collect::<Vec<String>>().join("; ")
}

/// A tree in which each path may be as it was at a time of its own.
struct Mixture<'a> {
    /// From the last commit on.
    since: &'a [&'a RecordedOperation],
    found: &'a Manifest,
    point: usize,
    guarantees: CrashGuarantees,
}

impl Mixture<'_> {
    fn first_difference(&self) -> Option<String> {
        let mut paths: BTreeSet<&[u8]> = self.found.entries().map(|entry| &entry.path[..]).collect();
        for step in self.since {
            paths.extend(step.expectation().manifest().entries().map(|entry| &entry.path[..]));
        }
        paths.into_iter().find_map(|path| self.difference_at(path))
    }

    fn difference_at(&self, path: &[u8]) -> Option<String> {
        let path = TreePath::new(path);
        let synced = |step: &&RecordedOperation| {
            matches!(&step.operation, Operation::SyncFile { path: synced } if *synced == path)
                && step.is_done(self.point)
        };
        // Neither a commit nor an fsync takes back what an fsync made durable.
        let first = self.since.iter().rposition(synced).unwrap_or(0);
        let versions = &self.since[first..];
        let found = self.found.entry(path.bytes());
        let is_one = versions.iter().any(|step| self.is_version(&path, step, found, false));
        let is_rewritten = || {
            // What was not there may have come from elsewhere, with contents that it had there before.
            let entries = versions.iter().map(|step| step.expectation().manifest().entry(path.bytes()));
            let payloads: Vec<_> =
                entries.map(|entry| entry.map(|entry| (&entry.kind, entry.size))).collect();
            !self.guarantees.commits_only_when_asked
                && payloads.windows(2).any(|pair| pair[0] != pair[1])
                && versions.iter().any(|step| self.is_version(&path, step, found, true))
        };
        if is_one || is_rewritten() {
            return None;
        }
        let since = if first == 0 { "commit" } else { "fsync" };
        let found = found.map_or_else(|| "missing".to_owned(), ToString::to_string);
        let expected = self.since[first].expectation().manifest().entry(path.bytes());
        let expected = expected.map_or_else(|| "nothing there".to_owned(), ToString::to_string);
        Some(format!("{path}: was never so since its last {since}: {found}; it was then: {expected}"))
    }

    fn is_version(
        &self,
        path: &TreePath,
        step: &RecordedOperation,
        found: Option<&Entry>,
        ignores_contents: bool,
    ) -> bool {
        let expectation = step.expectation();
        let Some((expected, found)) = expectation.manifest().entry(path.bytes()).zip(found) else {
            return expectation.allows(path.bytes(), found);
        };
        let mut found = found.clone();
        // What other names there are, and with them a directory's size and time, may be of another moment.
        found.same_as.clone_from(&expected.same_as);
        let is_file = matches!((&found.kind, &expected.kind), (Kind::File { .. }, Kind::File { .. }));
        if expected.kind == Kind::Directory || (is_file && ignores_contents) {
            found.size = expected.size;
            found.mtime = expected.mtime;
        }
        if is_file && ignores_contents {
            found.kind = expected.kind.clone();
        }
        if found.mtime == (Time { sec: 0, nsec: 0 }) {
            found.mtime = expected.mtime;
        }
        expectation.allows(path.bytes(), Some(&found))
    }
}
