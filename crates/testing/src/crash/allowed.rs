//! Decides if a tree is one that a crash may leave.

use super::CrashGuarantees;
use super::history::{History, RecordedOperation};
use super::names::Names;
use crate::manifest::{Entry, Kind, Manifest, Time};
use crate::model::{InodePlace, Model, ModelEntry, TreePath};
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
        let may_be_all = |number: usize, step| number == 0 || is_commit(step) || !guarantees.fsyncs_are_kept;
        let whole = since.iter().enumerate().filter(|(number, step)| may_be_all(*number, *step));
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
        let is_commit_of_all = guarantees.commits_only_when_asked && guarantees.fsync_commits;
        if is_commit_of_all || !guarantees.fsyncs_are_kept {
            return Err(words(&differences));
        }
        let walks = since.iter().map(|step| step.model.walk()).collect();
        let mixture = Mixture { since: &since, walks, found, point, guarantees };
        if guarantees.names_follow_operations {
            let was_so = |place: Option<InodePlace>, entry: &Entry| match place {
                Some(place) => mixture.was_so(place, entry),
                None => entry.kind == Kind::Directory,
            };
            return Names::new(&since, &mixture.walks).judge(point, found, was_so).map(|()| None);
        }
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
    /// Names after each.
    walks: Vec<Vec<ModelEntry<'a>>>,
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
        if is_one || is_rewritten() || found.is_some_and(|found| self.was_elsewhere(&path, found)) {
            return None;
        }
        let since = if first == 0 { "commit" } else { "fsync" };
        let found = found.map_or_else(|| "missing".to_owned(), ToString::to_string);
        let expected = self.since[first].expectation().manifest().entry(path.bytes());
        let expected = expected.map_or_else(|| "nothing there".to_owned(), ToString::to_string);
        Some(format!("{path}: was never so since its last {since}: {found}; it was then: {expected}"))
    }

    /// Returns true if an inode that has had this path, and may have it because a directory above it moved, was so since
    /// it was last synced, by whatever path.
    fn was_elsewhere(&self, path: &TreePath, found: &Entry) -> bool {
        let all = self.walks.iter().flatten().filter(|entry| entry.path == *path);
        let holders: BTreeSet<InodePlace> = all.filter_map(|entry| entry.place).collect();
        holders.into_iter().any(|holder| self.was_so(holder, found))
    }

    /// Returns true if an inode was so since it was last synced, by whatever path.
    fn was_so(&self, holder: InodePlace, found: &Entry) -> bool {
        let paths = |number: usize| {
            let all = self.walks[number].iter().filter(move |entry| entry.place == Some(holder));
            all.map(|entry| &entry.path)
        };
        let is_sync = |number: &usize| match &self.since[*number].operation {
            Operation::SyncFile { path } => {
                self.since[*number].is_done(self.point) && paths(*number).any(|holder| holder == path)
            }
            _ => false,
        };
        let first = (0..self.walks.len()).rev().find(is_sync).unwrap_or(0);
        let is_one = |ignores_contents| {
            (first..self.walks.len()).any(|number| {
                paths(number).any(|other| {
                    let found = Entry { path: other.bytes().to_vec(), ..found.clone() };
                    self.is_version(other, self.since[number], Some(&found), ignores_contents)
                })
            })
        };
        let is_rewritten = || {
            let payload = |number: usize| {
                let entry =
                    self.since[number].expectation().manifest().entry(paths(number).next()?.bytes())?;
                Some((&entry.kind, entry.size))
            };
            let payloads: Vec<_> = (first..self.walks.len()).map(payload).collect();
            !self.guarantees.commits_only_when_asked && payloads.windows(2).any(|pair| pair[0] != pair[1])
        };
        is_one(false) || (is_rewritten() && is_one(true))
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
