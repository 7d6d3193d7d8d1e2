//! Changed names for the log.

use super::Logged;
use super::items::directories_in;
use crate::attributes::InodeId;
use crate::core::name_groups::{EntryChange, NameChanges};
use crate::error::FsError;
use crate::log::FsLog;
use brindle_ondisk::item::DirLogItem;
use brindle_ondisk::{Generation, Key, KeyType, ObjectId};
use brindle_tree::{LogChange, LogRange, Logging, Readahead, Tree, Unlogged};
use brindle_volume::DeviceSet;
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Upper bound on the changes of names of one log entry, two for each new file: nothing else changes while they are logged,
/// and for more a commit keeps others waiting for less time.
const CHANGES_MAX: usize = 1 << 14;

/// Names that an fsync has to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Those of the inode, and what belongs to them.
    Names,
    /// Also all entries of the inode, a directory, and those of directories that have come to be below it.
    Entries,
}

impl FsLog {
    /// Enters changed names into the log: those of an inode, and whatever they need to be found. Nothing else changes
    /// meanwhile.
    pub(super) fn log_names(&self, inode: InodeId, wanted: Wanted) -> Result<Logged<()>, FsError> {
        // Brings the blocks into memory, so that no device is waited for below.
        self.directories_above(inode)?;
        let logging = self.core.pool().begin_logging_alone()?;
        let generation = logging.generation();
        let names = match self.take_names(generation, inode, wanted) {
            Ok(Ok(names)) => names,
            Ok(Err(why)) => {
                // Some may be noted nowhere any more.
                self.core.log_book.give_up_names(generation, why);
                return Ok(Err(why));
            }
            Err(error) => {
                self.core.log_book.give_up_names(generation, Unlogged::Names);
                return Err(error);
            }
        };
        // Another fsync was first, and has logged them.
        if names.count() == 0 {
            return Ok(Ok(()));
        }
        let entered = self.enter_names(&logging, &names);
        if !matches!(entered, Ok(Ok(()))) {
            let why = if let Ok(Err(why)) = &entered { *why } else { Unlogged::Names };
            self.core.log_book.give_up_names(generation, why);
        }
        entered
    }

    /// The changes of the names of an inode, and those that are due, with those of all directories above, and of directories
    /// and inodes that these bring along: a replay of these alone leaves a tree.
    fn take_names(
        &self,
        generation: Generation,
        inode: InodeId,
        wanted: Wanted,
    ) -> Result<Logged<NameChanges>, FsError> {
        let mut all = match self.core.log_book.take_due_names(generation) {
            Ok(due) => due,
            Err(why) => return Ok(Err(why)),
        };
        let mut seen: BTreeSet<(InodeId, bool)> = BTreeSet::new();
        let of_due = all.inodes.iter().chain(all.entries.keys()).map(|inode| (*inode, false));
        let mut next: Vec<(InodeId, bool)> = of_due.collect();
        next.push((inode, wanted == Wanted::Entries));
        while let Some((inode, with_entries)) = next.pop() {
            if !seen.insert((inode, with_entries)) {
                continue;
            }
            let taken = match self.core.log_book.take_names(generation, inode, with_entries) {
                Ok(taken) => taken,
                Err(why) => return Ok(Err(why)),
            };
            let tree = self.core.tree(inode.tree)?;
            let above = self.parents(&tree, inode)?.into_iter().chain(taken.entries.keys().copied());
            next.extend(above.map(|directory| (directory, false)));
            next.extend(taken.inodes.iter().map(|inode| (*inode, with_entries)));
            all.add(taken);
            if all.count() > CHANGES_MAX {
                return Ok(Err(Unlogged::Space));
            }
        }
        Ok(Ok(all))
    }

    /// All directories above an inode, by any of its names.
    pub(super) fn directories_above(&self, inode: InodeId) -> Result<Vec<InodeId>, FsError> {
        let tree = self.core.tree(inode.tree)?;
        let mut seen = BTreeSet::new();
        let mut next = self.parents(&tree, inode)?;
        while let Some(directory) = next.pop() {
            if seen.insert(directory) {
                next.extend(self.parents(&tree, directory)?);
            }
        }
        Ok(seen.into_iter().collect())
    }

    /// Directories in which an inode has names; the root of a subvolume has none.
    fn parents(&self, tree: &Arc<Tree>, inode: InodeId) -> Result<Vec<InodeId>, FsError> {
        let mut found = Vec::new();
        if inode.number == ObjectId::FIRST_FREE {
            return Ok(found);
        }
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek(&inode.key(KeyType::INODE_REF, 0))?;
        while let Some((key, data)) = cursor
            .item()
            .filter(|(key, _)| key.objectid == inode.number && key.item_type <= KeyType::INODE_EXTREF)
        {
            directories_in(&key, data, |number| found.push(InodeId { number, ..inode }));
            cursor.next()?;
        }
        Ok(found)
    }

    fn enter_names(&self, logging: &Logging<'_>, names: &NameChanges) -> Result<Logged<()>, FsError> {
        let (mut changes, mut logged) = (Vec::new(), Vec::new());
        // Directories with their entries: of each the inode is logged as well, for a replay looks for the lost entries then.
        let ids: BTreeSet<InodeId> = names.inodes.iter().chain(names.entries.keys()).copied().collect();
        for id in ids {
            let tree = self.core.tree(id.tree)?;
            let items = match self.items_to_log(&tree, id)? {
                Ok(items) => items,
                Err(why) => return Ok(Err(why)),
            };
            let Some(items) = items else {
                changes.extend(forgotten(logging, id));
                self.core.log_book.is_unlogged(logging.generation(), id);
                continue;
            };
            let mut change = match self.inode_change(logging, &tree, &items)? {
                Ok(change) => change,
                Err(why) => return Ok(Err(why)),
            };
            for (index, kind) in names.entries.get(&id).into_iter().flatten() {
                let entry =
                    self.core.pool().with_item(&tree, &id.key(KeyType::DIR_INDEX, *index), <[u8]>::to_vec)?;
                change.ranges.extend(entry_ranges(id, *index, *kind, entry));
            }
            changes.push(change);
            logged.push(items);
        }
        let entered = self.enter_log(logging, &changes, &logged)?;
        Ok(entered.map(|ticket| self.core.log_book.names_are_logged(logging.generation(), ticket)))
    }
}

/// Ranges of the log that tell that a directory has this entry at an index, or none.
///
/// A directory that comes into memory counts on from the greatest index of its entries, so that a new entry may get the
/// index of one that has gone. The kernel's replay takes the old entry out only where the log says that it is
/// complete; it would put the new one beside it, at the same index, and fail to mount the pool.
fn entry_ranges(
    directory: InodeId,
    index: u64,
    change: EntryChange,
    entry: Option<Vec<u8>>,
) -> Vec<LogRange> {
    let one = |kind, data: Option<Vec<u8>>| {
        let key = directory.key(kind, index);
        LogRange { first: key, last: key, items: data.map(|data| (key, data)).into_iter().collect() }
    };
    // The log is complete from this index to this index.
    let complete = DirLogItem { end: index.into() };
    let has_lost = entry.is_none() || change == EntryChange::Several;
    let entry = one(KeyType::DIR_INDEX, entry);
    if has_lost {
        vec![one(KeyType::DIR_LOG_INDEX, Some(complete.as_bytes().to_vec())), entry]
    } else {
        vec![entry]
    }
}

/// Change that takes an inode out of the log, if its subvolume has one.
fn forgotten(logging: &Logging<'_>, id: InodeId) -> Option<LogChange> {
    logging.log_tree(id.tree)?;
    let range = LogRange {
        first: Key::first_of(id.number, KeyType(0)),
        last: Key::last_of(id.number, KeyType(u8::MAX)),
        items: Vec::new(),
    };
    let (checksums, data_on) = (Vec::new(), DeviceSet::default());
    Some(LogChange { subvolume: id.tree, ranges: vec![range], checksums, data_on })
}
