//! The model as a manifest, and what it holds against another one.

use super::{Body, Child, Inode, InodePlace, Model, ROOT_INO, TOP, TreePath};
use crate::manifest::{Entry, Kind, Manifest, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Expected tree of another filesystem.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    manifest: Manifest,
    /// Entries whose times the model can't know.
    timeless: BTreeSet<Vec<u8>>,
    /// Empty directories that stand for vanished subvolumes. Whose they are depends on when they were looked at.
    placeholders: BTreeSet<Vec<u8>>,
}

/// One name of the model's tree.
#[derive(Clone, Debug)]
pub struct ModelEntry<'m> {
    /// Its path.
    pub path: TreePath,
    /// `None` for the empty directory where a snapshot's source had a subvolume.
    pub inode: Option<&'m Inode>,
    /// The number of the subvolume that it lies in, or is the root of.
    pub subvolume: u64,
    /// True if it is the root of a subvolume.
    pub is_root: bool,
    /// True if its subvolume can't be written.
    pub is_read_only: bool,
    pub(crate) place: Option<InodePlace>,
}

impl ModelEntry<'_> {
    /// Returns true if the name stands for this inode.
    pub(super) fn is_at(&self, place: InodePlace) -> bool {
        self.place == Some(place)
    }
}

impl Model {
    /// Every name, a directory before what is in it, the top first.
    #[must_use]
    pub fn walk(&self) -> Vec<ModelEntry<'_>> {
        let mut all = vec![self.found(TreePath::top(), Some(InodePlace::TOP), TOP)];
        let mut next = 0;
        while let Some(found) = all.get(next) {
            next += 1;
            let (Some(Body::Directory(children)), Some(place)) =
                (found.inode.map(|inode| &inode.body), found.place)
            else {
                continue;
            };
            let path = found.path.clone();
            let below = |(name, child): (&Vec<u8>, &Child)| {
                self.found(path.join(name), place.below(*child), place.subvolume)
            };
            all.extend(children.iter().map(below));
        }
        all
    }

    /// Expected tree of another filesystem after the same operations.
    #[must_use]
    pub fn expectation(&self) -> Expectation {
        let mut first_names: BTreeMap<InodePlace, Vec<u8>> = BTreeMap::new();
        let mut walk = self.walk();
        walk.sort_by(|a, b| a.path.cmp(&b.path));
        let mut expectation = Expectation::default();
        for found in walk {
            let path = found.path.bytes();
            let Some(inode) = found.inode else {
                expectation.timeless.insert(path.to_vec());
                expectation.placeholders.insert(path.to_vec());
                let entry = Entry { mode: 0o755, ..Entry::new(path, Kind::Directory) };
                expectation.manifest.insert(entry);
                continue;
            };
            let mut entry = entry_of(path, inode);
            if let (Some(place), true) = (found.place, inode.nlink > 1) {
                match first_names.get(&place) {
                    Some(first) => entry.same_as = Some(first.clone()),
                    None => drop(first_names.insert(place, path.to_vec())),
                }
            }
            if inode.mtime.is_none() {
                expectation.timeless.insert(path.to_vec());
            }
            expectation.manifest.insert(entry);
        }
        expectation
    }

    fn found(&self, path: TreePath, place: Option<InodePlace>, holder: u64) -> ModelEntry<'_> {
        let subvolume = place.map_or(holder, |place| place.subvolume);
        ModelEntry {
            path,
            inode: place.map(|place| self.at(place)),
            subvolume,
            is_root: place.is_some_and(|place| place.ino == ROOT_INO),
            is_read_only: self.subvolumes[&subvolume].is_read_only,
            place,
        }
    }
}

impl Expectation {
    /// The tree; times that the model can't know are zero in it.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The first difference that another filesystem shows, with its path.
    #[must_use]
    pub fn difference(&self, found: &Manifest) -> Option<String> {
        let comparable: Manifest = found.entries().map(|entry| self.comparable(entry)).collect();
        self.manifest.diff(&comparable).into_iter().next()
    }

    /// Returns true if one entry is as expected; `None` stands for nothing at that path.
    #[must_use]
    pub fn allows(&self, path: &[u8], found: Option<&Entry>) -> bool {
        match (self.manifest.entry(path), found) {
            (None, None) => true,
            (Some(expected), Some(found)) => {
                let one = |entry: Entry| Manifest::from_iter([entry]);
                one(expected.clone()).diff(&one(self.comparable(found))).is_empty()
            }
            _ => false,
        }
    }

    /// An entry without the times that can't be compared.
    fn comparable(&self, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        entry.flags = None;
        if self.timeless.contains(&entry.path) {
            entry.mtime = UNKNOWN;
        }
        if self.placeholders.contains(&entry.path) {
            (entry.uid, entry.gid) = (0, 0);
        }
        entry
    }
}

const UNKNOWN: Time = Time { sec: 0, nsec: 0 };

fn entry_of(path: &[u8], inode: &Inode) -> Entry {
    let xattrs = inode.xattrs.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone()));
    Entry {
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        size: inode.size(),
        mtime: inode.mtime.unwrap_or(UNKNOWN),
        xattrs: xattrs.collect(),
        ..Entry::new(path, inode.kind())
    }
}
