//! Names that a crash may leave: those of some of the operations, none of them without the earlier ones that it builds on.
//!
//! An operation changes what some names stand for. It builds on each earlier one that
//! - changed one of these names, or a name of an inode that it gives or takes a name,
//! - made or moved a directory above these names, up to the root of their subvolume,
//! - changed a name in a directory that it removes.
//!
//! Those on subvolumes build on all before them. A set of operations that is complete in this sense leaves a tree of its
//! own, whatever the others did. An fsync makes durable all that has changed the names of its inode and of the directories
//! above it in its subvolume, and of a directory all its entries, with what these build on; what else is durable is not said.

use super::history::RecordedOperation;
use crate::manifest::{Entry, Kind, Manifest};
use crate::model::{InodePlace, ModelEntry, TreePath};
use crate::operations::Operation;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Sets of operations that are tried at the most.
const SETS_MAX: usize = 20_000;

/// A name, and the first name of the same inode if that is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    path: TreePath,
    is_directory: bool,
    same_as: Option<TreePath>,
}

/// A name in a directory.
type Slot = (InodePlace, Vec<u8>);

/// Meaning of a name: an inode, unless it is the empty directory in place of a subvolume; true for directories.
type Holder = (Option<InodePlace>, bool);

/// Meanings of all names.
type Slots = BTreeMap<Slot, Holder>;

/// Operations, by number, of which some may be durable.
type Set = BTreeSet<usize>;

/// Changes of names by the operations since a commit.
pub(super) struct Names<'a> {
    /// The first is the commit.
    steps: &'a [&'a RecordedOperation],
    /// Names after each.
    walks: &'a [Vec<ModelEntry<'a>>],
    /// Names after the commit.
    first: Slots,
    /// By operation: each changed name, with its meaning afterwards.
    changes: Vec<Vec<(Slot, Option<Holder>)>>,
    /// By operation: all that it builds on, and itself.
    complete: Vec<Set>,
    /// By operation: the directories above each inode after it.
    above: Vec<HashMap<InodePlace, BTreeSet<InodePlace>>>,
    /// By operation: inodes that it gives or takes a name.
    inodes: Vec<BTreeSet<InodePlace>>,
}

/// The names in a walk, and the directories above each inode in its subvolume.
fn slots(walk: &[ModelEntry<'_>]) -> (Slots, HashMap<InodePlace, BTreeSet<InodePlace>>) {
    let places: HashMap<&TreePath, InodePlace> =
        walk.iter().filter_map(|entry| Some((&entry.path, entry.place?))).collect();
    let (mut slots, mut above) = (Slots::new(), HashMap::<InodePlace, BTreeSet<InodePlace>>::new());
    for entry in walk {
        let Some((directory, name)) = entry.path.split() else { continue };
        let directory = places[&directory];
        let is_directory = entry.inode.is_none_or(|inode| inode.kind() == Kind::Directory);
        slots.insert((directory, name.to_vec()), (entry.place, is_directory));
        let mut these = BTreeSet::new();
        // Where a subvolume lies is told by commits alone.
        if !entry.is_root {
            these.extend(above.get(&directory).into_iter().flatten());
            these.insert(directory);
        }
        above.entry(entry.place.unwrap_or(directory)).or_default().extend(these);
    }
    (slots, above)
}

impl<'a> Names<'a> {
    /// From the operations and the names after each.
    pub(super) fn new(steps: &'a [&'a RecordedOperation], walks: &'a [Vec<ModelEntry<'a>>]) -> Self {
        let mut names = Self {
            steps,
            walks,
            first: Slots::new(),
            changes: Vec::new(),
            complete: Vec::new(),
            above: Vec::new(),
            inodes: Vec::new(),
        };
        let (mut before, mut roots) = (Slots::new(), BTreeSet::new());
        for (number, walk) in walks.iter().enumerate() {
            roots.extend(walk.iter().filter(|entry| entry.is_root).filter_map(|entry| entry.place));
            let (after, above) = slots(walk);
            names.above.push(above);
            if number == 0 {
                names.first = after.clone();
                names.changes.push(Vec::new());
                names.inodes.push(BTreeSet::new());
                names.complete.push(Set::from([0]));
            } else {
                names.add(&before, &after, &roots);
            }
            before = after;
        }
        names
    }

    /// Adds the next operation.
    fn add(&mut self, before: &Slots, after: &Slots, roots: &BTreeSet<InodePlace>) {
        let changed = |slot: &&Slot| before.get(*slot) != after.get(*slot);
        let slots: BTreeSet<&Slot> = before.keys().chain(after.keys()).filter(changed).collect();
        let holders = || slots.iter().flat_map(|slot| [before.get(*slot), after.get(*slot)]).flatten();
        let is_of_subvolumes = holders().any(|(place, _)| place.is_none_or(|place| roots.contains(&place)));
        let inodes: BTreeSet<InodePlace> = holders().filter_map(|(place, _)| *place).collect();
        let number = self.changes.len();
        let mut directories: BTreeSet<InodePlace> = slots.iter().map(|slot| slot.0).collect();
        for directory in directories.clone() {
            let above = |step: usize| self.above[step].get(&directory).into_iter().flatten();
            directories.extend(above(number - 1).chain(above(number)));
        }
        let gone: BTreeSet<&InodePlace> =
            inodes.iter().filter(|inode| !self.above[number].contains_key(inode)).collect();
        let builds_on = |earlier: &usize| {
            let changes = &self.changes[*earlier];
            let others = &self.inodes[*earlier];
            is_of_subvolumes
                || changes.iter().any(|(slot, _)| slots.contains(slot) || gone.contains(&slot.0))
                || others.iter().any(|other| inodes.contains(other) || directories.contains(other))
        };
        let mut complete = Set::from([number]);
        for earlier in (0..number).filter(builds_on) {
            complete.extend(&self.complete[earlier]);
        }
        let changes = slots.iter().map(|slot| ((*slot).clone(), after.get(*slot).copied())).collect();
        self.changes.push(changes);
        self.inodes.push(inodes);
        self.complete.push(complete);
    }

    /// Operations that the fsyncs which had returned at a crash point made durable.
    fn synced(&self, point: usize) -> Set {
        let mut all = Set::from([0]);
        for (number, step) in self.steps.iter().enumerate() {
            let Operation::SyncFile { path } = &step.operation else { continue };
            if step.is_refused || !step.is_done(point) {
                continue;
            }
            let place =
                self.walks[number].iter().find(|entry| entry.path == *path).and_then(|entry| entry.place);
            let Some(place) = place else { continue };
            let above = self.above[number].get(&place);
            let is_named =
                |inode: &InodePlace| *inode == place || above.is_some_and(|above| above.contains(inode));
            for earlier in 0..=number {
                let is_entry = self.changes[earlier].iter().any(|(slot, _)| slot.0 == place);
                if is_entry || self.inodes[earlier].iter().any(is_named) {
                    all.extend(&self.complete[earlier]);
                }
            }
        }
        all
    }

    /// Names that a set of operations leaves.
    fn left_by(&self, set: &Set) -> Slots {
        let mut slots = self.first.clone();
        for (slot, holder) in set.iter().flat_map(|number| &self.changes[*number]) {
            match holder {
                Some(holder) => slots.insert(slot.clone(), *holder),
                None => slots.remove(slot),
            };
        }
        slots
    }

    /// Holds the names of a tree that was found after a crash at `point` against the operations, and the inodes that they
    /// stand for against `was_so`, which tells if an inode may be as an entry shows it.
    pub(super) fn judge(
        &self,
        point: usize,
        tree: &Manifest,
        was_so: impl Fn(Option<InodePlace>, &Entry) -> bool,
    ) -> Result<(), String> {
        let found: BTreeMap<TreePath, Name> = names_found(tree);
        let mut never_so = None;
        let least = self.synced(point);
        let (mut tried, mut next) = (BTreeSet::from([least.clone()]), vec![least.clone()]);
        while let Some(set) = next.pop() {
            let slots = self.left_by(&set);
            let left = names_left(&slots);
            let paths = match difference(&left, &found) {
                Some(paths) => paths,
                None => {
                    let is_wrong = |entry: &&Entry| {
                        let path = TreePath::new(&entry.path[..]);
                        !was_so(holder(&slots, &path), entry)
                    };
                    let Some(entry) = tree.entries().find(is_wrong) else { return Ok(()) };
                    never_so.get_or_insert(entry);
                    vec![TreePath::new(&entry.path[..])]
                }
            };
            // One of the names on the way has to stand for something else: by the next operation that changes it.
            for slot in paths.iter().flat_map(|path| slots_on_the_way(&slots, path)) {
                let changes_it = |number: &usize| {
                    !set.contains(number) && self.changes[*number].iter().any(|(changed, _)| *changed == slot)
                };
                if let Some(number) = (0..self.changes.len()).find(changes_it) {
                    let more: Set = set.union(&self.complete[number]).copied().collect();
                    if tried.insert(more.clone()) {
                        next.push(more);
                    }
                }
            }
            if tried.len() > SETS_MAX {
                return Err("the names found are of more operations than can be tried".to_owned());
            }
        }
        if let Some(entry) = never_so {
            return Err(format!(
                "{}: was never so since its last fsync or commit: {entry}",
                TreePath::new(&entry.path[..])
            ));
        }
        let left = names_left(&self.left_by(&least));
        let names = |names: &BTreeMap<TreePath, Name>| names.values().cloned().collect::<BTreeSet<Name>>();
        let (left, found) = (names(&left), names(&found));
        let words = |name: &Name, what: &str| format!("{what} {}", name.path);
        let missing = left.difference(&found).map(|name| words(name, "missing"));
        let more = found.difference(&left).map(|name| words(name, "more"));
        let differences: Vec<String> = missing.chain(more).collect();
        Err(format!(
            "the names found are those of no operations with all that they build on; held against those of the last fsyncs: {}",
            differences.join(", ")
        ))
    }
}

fn names_found(tree: &Manifest) -> BTreeMap<TreePath, Name> {
    let names = tree.entries().map(|entry| Name {
        path: TreePath::new(&entry.path[..]),
        is_directory: entry.kind == Kind::Directory,
        same_as: entry.same_as.clone().map(TreePath::new),
    });
    names.map(|name| (name.path.clone(), name)).collect()
}

/// The tree that names make.
fn names_left(slots: &Slots) -> BTreeMap<TreePath, Name> {
    let top = Name { path: TreePath::top(), is_directory: true, same_as: None };
    let (mut names, mut next) =
        (BTreeMap::from([(TreePath::top(), top)]), vec![(TreePath::top(), InodePlace::TOP)]);
    let mut paths: BTreeMap<InodePlace, BTreeSet<TreePath>> = BTreeMap::new();
    while let Some((path, directory)) = next.pop() {
        for ((_, name), (place, is_directory)) in below(slots, directory) {
            let path = path.join(name);
            names.insert(
                path.clone(),
                Name { path: path.clone(), is_directory: *is_directory, same_as: None },
            );
            match place {
                Some(place) if *is_directory => next.push((path, *place)),
                Some(place) => drop(paths.entry(*place).or_default().insert(path)),
                None => {}
            }
        }
    }
    for paths in paths.into_values() {
        let first = paths.first().cloned();
        for path in paths.into_iter().skip(1) {
            if let Some(name) = names.get_mut(&path) {
                name.same_as.clone_from(&first);
            }
        }
    }
    names
}

/// The names in a directory.
fn below(slots: &Slots, directory: InodePlace) -> impl Iterator<Item = (&Slot, &Holder)> {
    slots.range((directory, Vec::new())..).take_while(move |(slot, _)| slot.0 == directory)
}

/// The paths that the first difference of two trees is about.
fn difference(left: &BTreeMap<TreePath, Name>, found: &BTreeMap<TreePath, Name>) -> Option<Vec<TreePath>> {
    let paths: BTreeSet<&TreePath> = left.keys().chain(found.keys()).collect();
    let path = paths.into_iter().find(|path| left.get(*path) != found.get(*path))?;
    let others = [left, found].map(|names| names.get(path).and_then(|name| name.same_as.clone()));
    Some(std::iter::once(path.clone()).chain(others.into_iter().flatten()).collect())
}

/// The inode at a path; `None` if it is an empty directory in place of a subvolume.
fn holder(slots: &Slots, path: &TreePath) -> Option<InodePlace> {
    let mut place = InodePlace::TOP;
    for name in path.names() {
        (place, _) = slots.get(&(place, name.to_vec())).and_then(|(place, kind)| Some(((*place)?, *kind)))?;
    }
    Some(place)
}

/// The names from the top to a path, as far as it leads.
fn slots_on_the_way(slots: &Slots, path: &TreePath) -> Vec<Slot> {
    let (mut way, mut directory) = (Vec::new(), InodePlace::TOP);
    for name in path.names() {
        let slot = (directory, name.to_vec());
        let holder = slots.get(&slot).copied();
        way.push(slot);
        match holder {
            Some((Some(place), true)) => directory = place,
            _ => break,
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, RenameRule};

    fn create(path: &str) -> Operation {
        Operation::Create { path: TreePath::new(path), mode: 0o644 }
    }

    fn directory(path: &str) -> Operation {
        Operation::MakeDirectory { path: TreePath::new(path), mode: 0o755 }
    }

    fn rename(from: &str, to: &str) -> Operation {
        Operation::Rename { from: TreePath::new(from), to: TreePath::new(to), rule: RenameRule::Replace }
    }

    fn sync(path: &str) -> Operation {
        Operation::SyncFile { path: TreePath::new(path) }
    }

    fn unlink(path: &str) -> Operation {
        Operation::Unlink { path: TreePath::new(path) }
    }

    /// The verdict on a tree of these names, directories with a slash behind them, after a crash behind all operations of
    /// which the first ones are a commit.
    fn verdict(committed: &[Operation], operations: &[Operation], names: &[&str]) -> Result<(), String> {
        let mut model = Model::new();
        for operation in committed {
            model.apply(operation).expect("it can be done");
        }
        let mut steps = vec![RecordedOperation::new(Operation::Sync, 0, Some(0), model.clone())];
        for operation in operations {
            model.apply(operation).expect("it can be done");
            steps.push(RecordedOperation::new(operation.clone(), 0, Some(0), model.clone()));
        }
        let steps: Vec<&RecordedOperation> = steps.iter().collect();
        let walks: Vec<_> = steps.iter().map(|step| step.model.walk()).collect();
        let entry = |name: &str| match name.strip_suffix('/') {
            Some(name) => Entry::new(name.as_bytes(), Kind::Directory),
            None => Entry::new(name.as_bytes(), Kind::Fifo),
        };
        let found: Manifest = ["/"].iter().chain(names).map(|name| entry(name)).collect();
        Names::new(&steps, &walks).judge(0, &found, |_, _| true)
    }

    #[test]
    fn of_two_new_files_any_may_be_found() {
        let operations = [create("a"), create("b")];
        for names in [&[][..], &["a"], &["b"], &["a", "b"]] {
            assert_eq!(verdict(&[], &operations, names), Ok(()), "{names:?}");
        }
        assert!(verdict(&[], &operations, &["c"]).is_err());
    }

    #[test]
    fn synced_names_are_there_with_those_that_they_build_on() {
        let operations = [directory("d"), create("d/a"), create("d/b"), rename("d", "e"), sync("e/b")];
        assert_eq!(verdict(&[], &operations, &["e/", "e/b"]), Ok(()));
        assert_eq!(verdict(&[], &operations, &["e/", "e/a", "e/b"]), Ok(()));
        for names in [&[][..], &["d/", "d/b"], &["e/", "e/a"]] {
            assert!(verdict(&[], &operations, names).is_err(), "{names:?}");
        }
        let synced = [directory("d"), create("d/a"), create("d/b"), sync("d")];
        assert!(verdict(&[], &synced, &["d/", "d/b"]).is_err());
    }

    #[test]
    fn a_file_has_its_old_name_or_its_new_one() {
        let (committed, operations) = ([create("a"), directory("d")], [rename("a", "d/a"), create("a")]);
        for names in [&["a", "d/"][..], &["d/", "d/a"], &["a", "d/", "d/a"]] {
            assert_eq!(verdict(&committed, &operations, names), Ok(()), "{names:?}");
        }
        assert!(verdict(&committed, &operations, &["d/"]).is_err(), "it has none");
        let operations = [rename("a", "b")];
        assert!(verdict(&committed, &operations, &["a", "b", "d/"]).is_err(), "it has both");
    }

    #[test]
    fn a_directory_goes_only_with_what_has_left_it() {
        let committed = [directory("d"), create("d/a"), create("d/b")];
        let gone = Operation::RemoveDirectory { path: TreePath::new("d") };
        let operations = [rename("d/a", "a"), unlink("d/b"), gone];
        for names in [&["d/", "d/a", "d/b"][..], &["a", "d/", "d/b"], &["d/", "d/a"], &["a"]] {
            assert_eq!(verdict(&committed, &operations, names), Ok(()), "{names:?}");
        }
        assert!(verdict(&committed, &operations, &[]).is_err());
    }
}
