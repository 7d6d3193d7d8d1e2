//! Directories of a damaged pool: listed up to a place that can't be read, and on from behind it.

use crate::attributes::InodeId;
use crate::directory::{Directories, DirectoryEntry};
use crate::error::FsError;
use brindle_ondisk::{Key, KeyType};
use brindle_tree::{Cursor, Readahead, TreeError};

/// Part of a directory that can't be listed.
#[derive(Debug)]
pub struct ListingGap {
    /// The problem.
    pub error: FsError,
    /// Index behind which the listing can go on; `None` if nothing is known to follow.
    pub resume: Option<u64>,
}

impl Directories {
    /// Entries as [`Filesystem::read_directory`] has them, up to the first place that can't be read. More may follow if
    /// there are `limit` of them.
    pub(crate) fn read_damaged_directory(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
    ) -> (Vec<DirectoryEntry>, Option<ListingGap>) {
        let mut entries = Vec::new();
        let gap = self.list_to_gap(directory, after, limit, &mut entries).err();
        (entries, gap)
    }

    fn list_to_gap(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
        entries: &mut Vec<DirectoryEntry>,
    ) -> Result<(), ListingGap> {
        let Some(first) = after.checked_add(1).filter(|_| !directory.is_empty_subvolume()) else {
            return Ok(());
        };
        let lost = |error| ListingGap { error, resume: None };
        let tree = self.core.tree(directory.tree).map_err(lost)?;
        let mut cursor = self.core.pool().cursor(&tree, Readahead::Forward);
        let mut from = directory.key(KeyType::DIR_INDEX, first);
        let moved = cursor.seek(&from);
        moved.map_err(|error| gap_behind(directory, &from, &cursor, error))?;
        while entries.len() < limit {
            let Some((key, data)) = cursor.item() else { break };
            if (key.objectid, key.item_type) != (directory.number, KeyType::DIR_INDEX) {
                break;
            }
            let index = Some(key.offset());
            let entry = self.index_entry(directory, key, data);
            entries.extend(entry.map_err(|error| ListingGap { error, resume: index })?);
            from = key;
            cursor.next().map_err(|error| gap_behind(directory, &from, &cursor, error))?;
        }
        Ok(())
    }
}

/// The gap that a cursor met behind a key.
fn gap_behind(directory: InodeId, from: &Key, cursor: &Cursor<'_>, error: TreeError) -> ListingGap {
    let is_index = |key: &Key| (key.objectid, key.item_type) == (directory.number, KeyType::DIR_INDEX);
    // Only forwards, so that a listing ends.
    let next = cursor.key_behind_failure().filter(|next| next > from && is_index(next));
    let resume = next.and_then(|next| next.offset().checked_sub(1));
    ListingGap { error: error.into(), resume }
}
