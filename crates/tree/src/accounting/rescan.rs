//! Counting anew, a part at each commit.

use super::reach::Reach;
use super::{Sums, add};
use crate::editor::Editor;
use crate::error::TreeError;
use crate::store::cursor::Readahead;
use crate::store::trees::Trees;
use brindle_ondisk::{Key, KeyType, Logical, ObjectId, RootId};
use std::sync::Arc;

/// Number of extents that are counted at a commit.
const EXTENTS_PER_COMMIT: usize = 1 << 14;

/// A part of a rescan.
pub(super) struct Step {
    pub(super) sums: Sums,
    /// The address before which everything is counted; `None` if that is all.
    pub(super) next: Option<u64>,
}

/// Counts the extents from an address on, some of them. Nothing else changes meanwhile.
pub(super) fn rescan(editor: &Editor<'_>, from: u64) -> Result<Step, TreeError> {
    let mut reach = Reach::new(editor, Trees::Running(editor.store))?;
    let extents = editor.store.tree(RootId::EXTENT_TREE)?;
    let mut cursor = editor.store.cursor(&extents, Readahead::Forward);
    let (mut sums, mut next, nobody) = (Sums::default(), from, Arc::default());
    for _ in 0..EXTENTS_PER_COMMIT {
        cursor.seek(&Key::new(ObjectId::new(next), KeyType(0), 0))?;
        while cursor.key().is_some_and(|key| !is_extent(&key)) {
            cursor.next()?;
        }
        let Some(key) = cursor.key() else { return Ok(Step { sums, next: None }) };
        let at = Logical::new(key.objectid.get());
        if let Some(found) = reach.extent(at)? {
            add(&mut sums, true, found.extent.length, (&nobody, &found.by));
        }
        next = at.get().saturating_add(1);
    }
    Ok(Step { sums, next: Some(next) })
}

fn is_extent(key: &Key) -> bool {
    matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM)
}
