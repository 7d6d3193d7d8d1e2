//! Changes of the running transaction that the log does not have: ranges of files, and names.

use crate::attributes::InodeId;
use crate::core::name_groups::{NameChanges, NameGroups};
use brindle_interval::IntervalSet;
use brindle_ondisk::Generation;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use brindle_tree::{LogTicket, Unlogged};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Upper bound on remembered ranges of a file.
const RANGES_MAX: usize = 4096;
/// Upper bound on remembered ranges of all files together.
const ALL_RANGES_MAX: usize = 1 << 18;
/// Upper bound on remembered changes of names, three for each new file: some 35 MiB.
const NAMES_MAX: usize = 1 << 18;

/// Changes of the running transaction that the log does not have.
#[derive(Debug, Default)]
pub(crate) struct LogBook(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// The transaction that all of this is about.
    generation: Generation,
    files: HashMap<InodeId, Changes>,
    ranges: usize,
    names: NameGroups,
    /// Reason for which no log can tell the names of this transaction.
    names_unlogged: Option<Unlogged>,
    /// Sync of the last entry of each inode that the log has.
    logged: HashMap<InodeId, LogTicket>,
    /// Directories whose fsync the log has.
    synced_directories: HashSet<InodeId>,
    /// Sync of the last entry of names.
    names_logged: Option<LogTicket>,
}

/// Changes of a file.
#[derive(Debug)]
enum Changes {
    /// Changed ranges.
    Ranges(IntervalSet<u64>),
    /// Too many ranges to track: the file cannot be logged.
    Unknown,
}

impl Ranked for Book {
    const RANK: Rank = Rank::LogBook;
}

impl LogBook {
    /// A range of a file has changed.
    pub(crate) fn note(&self, generation: Generation, file: InodeId, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut book = self.of(generation);
        let is_full = book.ranges >= ALL_RANGES_MAX;
        let changes = book.files.entry(file).or_insert_with(|| Changes::Ranges(IntervalSet::default()));
        let Changes::Ranges(ranges) = changes else { return };
        let before = ranges.len();
        ranges.insert(range);
        let after = ranges.len();
        if is_full || after > RANGES_MAX {
            *changes = Changes::Unknown;
            book.ranges -= before;
        } else {
            book.ranges = book.ranges + after - before;
        }
    }

    /// A directory gets an entry with a name of this hash: to be called before the tree changes.
    pub(crate) fn note_entry(&self, generation: Generation, directory: InodeId, index: u64, name: u64) {
        self.of(generation).note_names(|names| names.note_entry(directory, index, name));
    }

    /// A directory loses an entry: to be called before the tree changes.
    pub(crate) fn note_lost_entry(&self, generation: Generation, directory: InodeId, index: u64, name: u64) {
        let mut book = self.of(generation);
        let is_due = book.synced_directories.contains(&directory);
        book.note_names(|names| {
            names.note_entry(directory, index, name);
            if is_due {
                names.note_due(directory, name);
            }
        });
    }

    /// An inode gets or loses a name of this hash: to be called before the tree changes.
    pub(crate) fn note_name(&self, generation: Generation, directory: InodeId, name: u64, inode: InodeId) {
        let mut book = self.of(generation);
        let is_due = book.logged.contains_key(&inode);
        book.note_names(|names| {
            names.note_name(directory, name, inode);
            if is_due {
                names.note_due(directory, name);
            }
        });
    }

    /// An inode loses its last name: to be called before the tree changes.
    pub(crate) fn note_gone(&self, generation: Generation, inode: InodeId) {
        self.of(generation).note_names(|names| names.note_gone(inode));
    }

    /// A directory moves: to be called before the tree changes.
    pub(crate) fn note_moved(&self, generation: Generation, directory: InodeId) {
        self.of(generation).note_names(|names| names.note_moved(directory));
    }

    /// Names change in a way that no log tells.
    pub(crate) fn give_up_names(&self, generation: Generation, why: Unlogged) {
        let mut book = self.of(generation);
        (book.names_unlogged, book.names) = (Some(why), NameGroups::default());
    }

    /// Returns true if the log does not have the names of one of these inodes as they are.
    pub(crate) fn has_new_names(&self, generation: Generation, inodes: &[InodeId]) -> bool {
        let book = self.of(generation);
        book.names_unlogged.is_some() || inodes.iter().any(|inode| book.names.has(*inode))
    }

    /// Returns true if the log does not have all entries of a directory.
    pub(crate) fn has_new_entries(&self, generation: Generation, directory: InodeId) -> bool {
        let book = self.of(generation);
        book.names_unlogged.is_some() || book.names.has_entries_in(directory)
    }

    /// Returns true if names have changed that the log tells otherwise.
    pub(crate) fn has_due_names(&self, generation: Generation) -> bool {
        self.of(generation).names.has_due()
    }

    /// Returns true if directories have moved that the log has elsewhere: paths of inodes below them have changed.
    pub(crate) fn has_moved_directories(&self, generation: Generation) -> bool {
        self.of(generation).names.has_moved_directories()
    }

    /// The changes of names that belong to those of an inode, and of all entries of it if wanted, which the log is about to
    /// get: should it not, it is of no use any more.
    pub(crate) fn take_names(
        &self,
        generation: Generation,
        inode: InodeId,
        with_entries: bool,
    ) -> Result<NameChanges, Unlogged> {
        let mut book = self.of(generation);
        if let Some(why) = book.names_unlogged {
            return Err(why);
        }
        let mut taken = book.names.take(inode);
        if with_entries {
            taken.add(book.names.take_entries_in(inode));
        }
        Ok(taken)
    }

    /// The changes of names that the log tells otherwise, with what belongs to them; as [`take_names`](Self::take_names) does.
    pub(crate) fn take_due_names(&self, generation: Generation) -> Result<NameChanges, Unlogged> {
        let mut book = self.of(generation);
        book.names_unlogged.map_or_else(|| Ok(book.names.take_due()), Err)
    }

    /// An fsync of a directory logs its entries.
    pub(crate) fn note_synced_directory(&self, generation: Generation, directory: InodeId) {
        self.of(generation).synced_directories.insert(directory);
    }

    /// Sync of the last entry of an inode, if the log has the inode.
    pub(crate) fn ticket_of(&self, generation: Generation, inode: InodeId) -> Option<LogTicket> {
        self.of(generation).logged.get(&inode).copied()
    }

    /// Sync of the last entry of names, if the log has any.
    pub(crate) fn names_ticket(&self, generation: Generation) -> Option<LogTicket> {
        self.of(generation).names_logged
    }

    /// The log has the names that were taken.
    pub(crate) fn names_are_logged(&self, generation: Generation, ticket: LogTicket) {
        self.of(generation).names_logged = Some(ticket);
    }

    /// The log has an inode now.
    pub(crate) fn is_logged(&self, generation: Generation, inode: InodeId, ticket: LogTicket) {
        self.of(generation).logged.insert(inode, ticket);
    }

    /// The log does not have an inode any more, for it has no name. If it gets one again, its changes are unknown.
    pub(crate) fn is_unlogged(&self, generation: Generation, inode: InodeId) {
        let was_logged = self.of(generation).logged.remove(&inode).is_some();
        if was_logged {
            self.give_up(generation, inode);
        }
    }

    /// Marks the changes of a file as unknown.
    pub(crate) fn give_up(&self, generation: Generation, file: InodeId) {
        let mut book = self.of(generation);
        if let Some(Changes::Ranges(ranges)) = book.files.insert(file, Changes::Unknown) {
            book.ranges -= ranges.len();
        }
    }

    /// Changed ranges of a file that the log does not have, in order; `None` if they are unknown.
    pub(crate) fn changes(&self, generation: Generation, file: InodeId) -> Option<Vec<Range<u64>>> {
        match self.of(generation).files.get(&file) {
            None => Some(Vec::new()),
            Some(Changes::Ranges(ranges)) => Some(ranges.iter().map(Range::from).collect()),
            Some(Changes::Unknown) => None,
        }
    }

    /// The log has all that has changed of a file before its end. It does not say what has gone behind that, which a
    /// replay cuts off: should the file grow again, it must.
    pub(crate) fn forget_before(&self, generation: Generation, file: InodeId, end: u64) {
        let mut book = self.of(generation);
        let Some(Changes::Ranges(mut ranges)) = book.files.remove(&file) else { return };
        book.ranges -= ranges.len();
        ranges.remove(0..end);
        if !ranges.is_empty() {
            book.ranges += ranges.len();
            book.files.insert(file, Changes::Ranges(ranges));
        }
    }

    /// Book of a transaction. The caller is part of it, so there is none before it any more.
    fn of(&self, generation: Generation) -> MutexGuard<'_, Book> {
        let mut book = self.0.lock();
        if book.generation != generation {
            *book = Book { generation, ..Book::default() };
        }
        book
    }
}

impl Book {
    fn note_names(&mut self, note: impl FnOnce(&mut NameGroups)) {
        if self.names_unlogged.is_some() {
            return;
        }
        note(&mut self.names);
        if self.names.len() > NAMES_MAX {
            (self.names_unlogged, self.names) = (Some(Unlogged::Space), NameGroups::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{ObjectId, RootId, to_usize};
    use proptest::prelude::*;

    const FILE: InodeId = InodeId { tree: RootId::FS_TREE, number: ObjectId::new(300) };
    const NOW: Generation = Generation::new(7);

    fn only(range: Range<u64>) -> Option<Vec<Range<u64>>> {
        Some(std::iter::once(range).collect())
    }

    #[test]
    fn another_transaction_begins_with_nothing() {
        let book = LogBook::default();
        book.note(NOW, FILE, 0..10);
        assert_eq!(book.changes(NOW, FILE), only(0..10));
        let next = Generation::new(8);
        assert_eq!(book.changes(next, FILE), Some(Vec::new()));
        book.give_up(next, FILE);
        book.note(next, FILE, 0..10);
        assert_eq!(book.changes(next, FILE), None);
    }

    #[test]
    fn truncated_ends_are_remembered() {
        let book = LogBook::default();
        for range in [0..10, 20..u64::MAX] {
            book.note(NOW, FILE, range);
        }
        book.forget_before(NOW, FILE, 30);
        assert_eq!(book.changes(NOW, FILE), only(30..u64::MAX));
        book.forget_before(NOW, FILE, 30);
        assert_eq!(book.changes(NOW, FILE), only(30..u64::MAX));
        book.note(NOW, FILE, 5..7);
        book.note(NOW, FILE, 12..30);
        book.forget_before(NOW, FILE, 40);
        assert_eq!(book.changes(NOW, FILE), only(40..u64::MAX));
        book.forget_before(NOW, FILE, u64::MAX);
        assert_eq!((book.changes(NOW, FILE), book.of(NOW).ranges), (Some(Vec::new()), 0));
    }

    #[test]
    fn too_many_ranges_are_not_known() {
        let book = LogBook::default();
        for number in 0..=RANGES_MAX as u64 {
            assert!(book.changes(NOW, FILE).is_some());
            book.note(NOW, FILE, number * 10..number * 10 + 1);
        }
        assert_eq!(book.changes(NOW, FILE), None);
        assert_eq!(book.of(NOW).ranges, 0);
    }

    proptest! {
        #[test]
        fn ranges_are_what_was_noted(noted in proptest::collection::vec((0u64..60, 1u64..12), 1..30)) {
            let book = LogBook::default();
            let mut plain = [false; 80];
            for (start, length) in noted {
                book.note(NOW, FILE, start..start + length);
                (start..start + length).for_each(|at| plain[to_usize(at)] = true);
            }
            let ranges = book.changes(NOW, FILE).expect("few");
            let mut found = [false; 80];
            ranges.iter().cloned().flatten().for_each(|at| found[to_usize(at)] = true);
            prop_assert_eq!(found, plain);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(book.of(NOW).ranges, ranges.len());
        }
    }
}
