//! Replay of the logs that a crash left.
//!
//! Neither the blocks of a log nor the data that only it knows are in the extent tree: to the space that the last commit
//! tells of, they are free. So a replay first has its blocks kept ([`LogReplay::keep_log`]), and takes each
//! extent of data that only the log knows ([`LogReplay::claim_data`]). All of it belongs to one transaction, whose
//! superblock points to no log; until [`Pool::log_is_replayed`] is called, nothing is committed.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::refs::DataRange;
use crate::refs::delayed::Extent;
use crate::root::TreeRoot;
use crate::store::Store;
use crate::store::cursor::Readahead;
use crate::store::logs::{LogTree, blocks_of};
use brindle_ondisk::{BlockGroupType, Key, KeyType, Logical, ObjectId, to_u64, to_usize};

/// Puts what logs have into the running transaction, with their blocks and data.
#[derive(Clone, Copy, Debug)]
pub struct LogReplay<'p> {
    editor: Editor<'p>,
}

impl<'p> LogReplay<'p> {
    /// A replay by means of an editor.
    pub fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Sees to it that no block of the log is overwritten before this transaction is durable.
    ///
    /// # Errors
    /// [`TreeError::Space`] if a block of the log lies where the last commit has something; logs that can't be read.
    pub fn keep_log(&self) -> Result<(), TreeError> {
        let mut roots: Vec<TreeRoot> =
            LogTree::all(self.editor.store)?.iter().map(|log| log.tree.root()).collect();
        roots.extend(TreeRoot::log_root_tree(&self.editor.store.superblock()));
        for root in roots {
            for block in blocks_of(self.editor.store, root)? {
                let length = self.editor.store.nodesize().into();
                self.claim(BlockGroupType::METADATA, block, length)?;
                self.editor.changes.space.extent_freed(block, length, false);
            }
        }
        Ok(())
    }

    /// Takes an extent of data that a log refers to, unless it is known already; whether it was not. Its first reference is
    /// that of a new extent then.
    ///
    /// # Errors
    /// [`TreeError::Space`] if something else lies there; an extent tree that can't be read.
    pub fn claim_data(&self, range: DataRange) -> Result<bool, TreeError> {
        if self.editor.references().is_known(&Extent::data(range))? {
            return Ok(false);
        }
        self.claim(BlockGroupType::DATA, range.start, range.length)?;
        Ok(true)
    }

    /// The checksums of a range of data, as far as a log has them, by where they begin.
    ///
    /// # Errors
    /// A log that can't be read.
    pub fn checksums(&self, log: &LogTree, range: DataRange) -> Result<Vec<(Logical, Vec<u8>)>, TreeError> {
        logged_checksums(self.editor.store, log, range)
    }

    /// Takes a range that must be free, where such things are.
    fn claim(&self, kind: BlockGroupType, start: Logical, length: u64) -> Result<(), TreeError> {
        if self.editor.changes.space.claim(self.editor.store, kind, start, length)? {
            return Ok(());
        }
        Err(TreeError::Space { start, length, problem: "a log has it, and it is not free" })
    }
}

/// The checksums of a range of data, as far as a log has them, by where they begin.
pub(super) fn logged_checksums(
    store: &Store,
    log: &LogTree,
    range: DataRange,
) -> Result<Vec<(Logical, Vec<u8>)>, TreeError> {
    let context = store.volume().tree_context();
    let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
    let end = range.start.get().saturating_add(range.length);
    let mut cursor = store.cursor(&log.tree, Readahead::None);
    cursor.seek_last(&checksum_key(range.start))?;
    if cursor.key().is_none_or(|key| key.item_type != KeyType::EXTENT_CSUM) {
        cursor.seek(&checksum_key(range.start))?;
    }
    let mut found = Vec::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.item_type == KeyType::EXTENT_CSUM) {
        let first = key.offset();
        if first >= end {
            break;
        }
        let sectors = to_u64(data.len() / size);
        let from = range.start.get().saturating_sub(first).div_ceil(sector).min(sectors);
        let to = (end - first).div_ceil(sector).min(sectors);
        if from < to {
            let bytes = to_usize(from) * size..to_usize(to) * size;
            found.push((Logical::new(first + from * sector), data[bytes].to_vec()));
        }
        cursor.next()?;
    }
    Ok(found)
}

fn checksum_key(start: Logical) -> Key {
    Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, start.get())
}
