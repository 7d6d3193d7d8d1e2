//! Changed names that the log does not have, in groups: what one log entry has to tell together, and nothing else.
//!
//! The members of a group are inodes that came, went, or got or lost a name, what a directory has at an index, and what a
//! name in it stands for. An operation puts all that it changes into one group, with the groups in which some of it was
//! before. So each group has all changes of a name, and all changed names of an inode: a log that is given a group tells
//! of its inodes just the names that they have now, and takes no name from an inode that it does not tell of.
//!
//! A group is *due* if it changes what the log tells already: the names of an inode that it has, or what has left a
//! directory that was synced. It goes along with the next fsync, of whatever file: a program that has synced a file, given it its
//! last name, and syncs another one that refers to it, finds both.
//!
//! The directories above its names, without which a group is not found, are looked for in the trees (`log::names`).

use crate::attributes::InodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Changed names, in groups.
#[derive(Debug, Default)]
pub(crate) struct NameGroups {
    group_of: HashMap<Member, usize>,
    /// Members by group; one that was taken, or joined to another, has none.
    groups: Vec<Vec<Member>>,
    due: HashSet<usize>,
    entries: HashMap<InodeId, BTreeMap<u64, EntryChange>>,
    moved_directories: HashSet<InodeId>,
}

/// Member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Member {
    /// Inode that came, went, or got or lost a name.
    Inode(InodeId),
    /// The entries of a directory at an index.
    Entry(InodeId, u64),
    /// The inodes that names of a hash stand for in a directory.
    Name(InodeId, u64),
}

/// Changes of names for one log entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameChanges {
    /// Indexes of entries that directories have got or lost.
    pub(crate) entries: BTreeMap<InodeId, BTreeMap<u64, EntryChange>>,
    /// Inodes that have come, gone, or got or lost a name.
    pub(crate) inodes: BTreeSet<InodeId>,
}

/// Change of the entries of a directory at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryChange {
    /// An entry has come or gone.
    Once,
    /// Several have: one that has come may have the index of another one that has gone.
    Several,
}

impl NameGroups {
    /// A directory gets or loses an entry, with a name of this hash.
    pub(crate) fn note_entry(&mut self, directory: InodeId, index: u64, name: u64) {
        let entries = self.entries.entry(directory).or_default();
        let change = if entries.contains_key(&index) { EntryChange::Several } else { EntryChange::Once };
        entries.insert(index, change);
        self.join(Member::Name(directory, name), Member::Entry(directory, index));
    }

    /// An inode gets or loses a name of this hash.
    pub(crate) fn note_name(&mut self, directory: InodeId, name: u64, inode: InodeId) {
        self.join(Member::Name(directory, name), Member::Inode(inode));
    }

    /// The log tells otherwise of the inode that a name stands for, or has stood for.
    pub(crate) fn note_due(&mut self, directory: InodeId, name: u64) {
        let group = self.group(Member::Name(directory, name));
        self.due.insert(group);
    }

    /// An inode has lost its last name. Was it a directory, then it may go only with all that has left it.
    pub(crate) fn note_gone(&mut self, inode: InodeId) {
        let indexes: Vec<u64> =
            self.entries.get(&inode).into_iter().flatten().map(|(index, _)| *index).collect();
        for index in indexes {
            self.join(Member::Inode(inode), Member::Entry(inode, index));
        }
    }

    /// A directory gets another name: paths of inodes below it change.
    pub(crate) fn note_moved(&mut self, directory: InodeId) {
        self.moved_directories.insert(directory);
    }

    /// Number of members of all groups.
    pub(crate) fn len(&self) -> usize {
        self.group_of.len()
    }

    /// Returns true if names of an inode have changed.
    pub(crate) fn has(&self, inode: InodeId) -> bool {
        self.group_of.contains_key(&Member::Inode(inode))
    }

    /// Returns true if entries of a directory have changed.
    pub(crate) fn has_entries_in(&self, directory: InodeId) -> bool {
        self.entries.contains_key(&directory)
    }

    /// Returns true if directories have moved.
    pub(crate) fn has_moved_directories(&self) -> bool {
        !self.moved_directories.is_empty()
    }

    /// Returns true if a group changes what the log tells.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes out the groups that change what the log tells.
    pub(crate) fn take_due(&mut self) -> NameChanges {
        let mut taken = NameChanges::default();
        while let Some(member) = self.due.iter().next().and_then(|group| self.groups[*group].first().copied())
        {
            self.take_into(member, &mut taken);
        }
        taken
    }

    /// Takes out the group of an inode.
    pub(crate) fn take(&mut self, inode: InodeId) -> NameChanges {
        let mut taken = NameChanges::default();
        self.take_into(Member::Inode(inode), &mut taken);
        taken
    }

    /// Takes out the groups of all changed entries of a directory.
    pub(crate) fn take_entries_in(&mut self, directory: InodeId) -> NameChanges {
        let mut taken = NameChanges::default();
        while let Some(index) =
            self.entries.get(&directory).and_then(|entries| entries.keys().next().copied())
        {
            self.take_into(Member::Entry(directory, index), &mut taken);
        }
        taken
    }

    fn take_into(&mut self, member: Member, taken: &mut NameChanges) {
        let Some(group) = self.group_of.get(&member).copied() else { return };
        self.due.remove(&group);
        for member in std::mem::take(&mut self.groups[group]) {
            self.group_of.remove(&member);
            match member {
                Member::Inode(inode) => {
                    self.moved_directories.remove(&inode);
                    taken.inodes.insert(inode);
                }
                Member::Entry(directory, index) => {
                    let change = self.take_entry(directory, index);
                    taken.entries.entry(directory).or_default().insert(index, change);
                }
                Member::Name(..) => {}
            }
        }
    }

    fn take_entry(&mut self, directory: InodeId, index: u64) -> EntryChange {
        let entries = self.entries.get_mut(&directory);
        let change = entries.and_then(|entries| entries.remove(&index)).unwrap_or(EntryChange::Several);
        if self.entries.get(&directory).is_some_and(BTreeMap::is_empty) {
            self.entries.remove(&directory);
        }
        change
    }

    /// Makes one group of those of two members.
    fn join(&mut self, a: Member, b: Member) {
        let (a, b) = (self.group(a), self.group(b));
        if a == b {
            return;
        }
        let (into, from) = if self.groups[a].len() < self.groups[b].len() { (b, a) } else { (a, b) };
        let members = std::mem::take(&mut self.groups[from]);
        for member in &members {
            self.group_of.insert(*member, into);
        }
        self.groups[into].extend(members);
        if self.due.remove(&from) {
            self.due.insert(into);
        }
    }

    /// The group of a member: a new one if it was in none.
    fn group(&mut self, member: Member) -> usize {
        let groups = &mut self.groups;
        *self.group_of.entry(member).or_insert_with(|| {
            groups.push(vec![member]);
            groups.len() - 1
        })
    }
}

impl NameChanges {
    /// Number of changes.
    pub(crate) fn count(&self) -> usize {
        self.inodes.len() + self.entries.values().map(BTreeMap::len).sum::<usize>()
    }

    /// Adds others.
    pub(crate) fn add(&mut self, others: Self) {
        self.inodes.extend(others.inodes);
        for (directory, entries) in others.entries {
            self.entries.entry(directory).or_default().extend(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{ObjectId, RootId};
    use proptest::prelude::*;

    const fn inode(number: u64) -> InodeId {
        InodeId { tree: RootId::FS_TREE, number: ObjectId::new(number) }
    }

    const TOP: InodeId = inode(256);

    /// A file is made in a directory.
    fn create(groups: &mut NameGroups, directory: InodeId, name: u64, number: u64) {
        groups.note_entry(directory, number, name);
        groups.note_name(directory, name, inode(number));
    }

    fn numbers(changes: &NameChanges) -> Vec<u64> {
        changes.inodes.iter().map(|inode| inode.number.get()).collect()
    }

    #[test]
    fn new_files_of_a_directory_have_nothing_to_do_with_each_other() {
        let mut groups = NameGroups::default();
        (300..400).for_each(|number| create(&mut groups, TOP, number, number));
        let taken = groups.take(inode(350));
        assert_eq!(numbers(&taken), [350]);
        assert_eq!(taken.entries[&TOP], BTreeMap::from([(350, EntryChange::Once)]));
        assert!(!groups.has(inode(350)) && groups.has(inode(351)));
        assert_eq!(groups.take(inode(350)), NameChanges::default());
        assert_eq!(groups.take_entries_in(TOP).inodes.len(), 99);
        assert_eq!((groups.len(), groups.has_entries_in(TOP)), (0, false));
    }

    #[test]
    fn earlier_owners_of_a_name_belong_to_the_present_one() {
        let mut groups = NameGroups::default();
        create(&mut groups, TOP, 1, 300);
        create(&mut groups, TOP, 2, 301);
        create(&mut groups, TOP, 3, 302);
        // Number 301 is renamed over 300.
        groups.note_entry(TOP, 300, 1);
        groups.note_entry(TOP, 303, 1);
        groups.note_name(TOP, 1, inode(300));
        groups.note_entry(TOP, 301, 2);
        groups.note_name(TOP, 2, inode(301));
        groups.note_name(TOP, 1, inode(301));
        let taken = groups.take(inode(301));
        assert_eq!(numbers(&taken), [300, 301]);
        let entries = &taken.entries[&TOP];
        assert_eq!(entries.keys().copied().collect::<Vec<_>>(), [300, 301, 303]);
        assert_eq!((entries[&300], entries[&303]), (EntryChange::Several, EntryChange::Once));
        assert_eq!(numbers(&groups.take_entries_in(TOP)), [302]);
    }

    #[test]
    fn a_directory_that_goes_takes_along_what_has_left_it() {
        let (mut groups, directory) = (NameGroups::default(), inode(400));
        // Number 300 leaves the directory.
        groups.note_entry(directory, 5, 1);
        groups.note_name(directory, 1, inode(300));
        groups.note_name(TOP, 1, inode(300));
        groups.note_entry(TOP, 9, 2);
        groups.note_name(TOP, 2, directory);
        groups.note_gone(directory);
        assert_eq!(numbers(&groups.take(directory)), [300, 400]);
    }

    #[test]
    fn due_groups_are_taken_with_all_that_belongs_to_them() {
        let mut groups = NameGroups::default();
        create(&mut groups, TOP, 1, 300);
        create(&mut groups, TOP, 2, 301);
        assert!(!groups.has_due());
        groups.note_due(TOP, 1);
        // The due group is the smaller one.
        groups.note_name(TOP, 2, inode(302));
        groups.note_name(TOP, 2, inode(303));
        groups.note_name(TOP, 1, inode(301));
        create(&mut groups, TOP, 4, 310);
        assert!(groups.has_due());
        assert_eq!(numbers(&groups.take_due()), [300, 301, 302, 303]);
        assert!(!groups.has_due() && groups.has(inode(310)));
        assert_eq!(groups.take_due(), NameChanges::default());
    }

    #[test]
    fn moved_directories_are_known_until_they_are_taken() {
        let mut groups = NameGroups::default();
        create(&mut groups, TOP, 1, 300);
        groups.note_moved(inode(300));
        assert!(groups.has_moved_directories());
        groups.take(inode(300));
        assert!(!groups.has_moved_directories());
    }

    proptest! {
        /// Groups are the components of the graph of members that were noted together.
        #[test]
        fn groups_are_components(pairs in proptest::collection::vec((0u64..12, 0u64..12), 1..25)) {
            let mut groups = NameGroups::default();
            let mut component: Vec<u64> = (0..12).collect();
            let mut is_noted = [false; 12];
            for (name, number) in &pairs {
                groups.note_name(TOP, name + 100, inode(*number));
                is_noted[usize::try_from(*number).expect("small")] = true;
            }
            // Two inodes that have had one name, again and again until nothing changes.
            for _ in 0..pairs.len() {
                for (name, number) in &pairs {
                    for (other_name, other) in &pairs {
                        if name == other_name {
                            let [a, b] = [number, other].map(|number| usize::try_from(*number).expect("small"));
                            let least = component[a].min(component[b]);
                            (component[a], component[b]) = (least, least);
                        }
                    }
                }
            }
            for number in 0..12u64 {
                let at = usize::try_from(number).expect("small");
                if groups.has(inode(number)) {
                    let same = |other: &u64| {
                        let other = usize::try_from(*other).expect("small");
                        is_noted[other] && component[other] == component[at]
                    };
                    prop_assert_eq!(numbers(&groups.take(inode(number))), (0..12).filter(same).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(groups.len(), 0);
        }
    }
}
