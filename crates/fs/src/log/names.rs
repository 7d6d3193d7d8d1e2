//! Changed names for the log.

use super::Logged;
use crate::attributes::InodeId;
use crate::core::log_book::EntryChange;
use crate::core::log_book::NameChanges;
use crate::error::FsError;
use crate::log::FsLog;
use brindle_ondisk::item::DirLogItem;
use brindle_ondisk::{Key, KeyType};
use brindle_tree::{LogChange, LogRange, Logging, Unlogged};
use brindle_volume::DeviceSet;
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

impl FsLog {
    /// Enters all changed names into the log, with the inodes that they belong to. Nothing else changes meanwhile.
    pub(super) fn log_names(&self) -> Result<Logged<()>, FsError> {
        let logging = self.core.pool().begin_logging_alone()?;
        let generation = logging.generation();
        let names = match self.core.log_book.take_names(generation) {
            Ok(names) => names,
            Err(why) => return Ok(Err(why)),
        };
        // Another fsync was first, and has logged them.
        if names.is_empty() {
            return Ok(Ok(()));
        }
        let entered = self.enter_names(&logging, &names);
        if !matches!(entered, Ok(Ok(()))) {
            // They are noted nowhere any more.
            let why = if let Ok(Err(why)) = &entered { *why } else { Unlogged::Names };
            self.core.log_book.give_up_names(generation, why);
        }
        entered
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
