//! What is known of a file's contents that its items do not say yet.

use crate::Attributes;

/// What is known of a file's contents that its items do not say yet.
#[derive(Debug, Default)]
pub(crate) struct FileState {}

impl FileState {
    /// Moves on whenever [`overlay`](Self::overlay) may answer otherwise for other reasons than new writes: who
    /// reads an inode item and then lays the state over it begins anew if this has moved meanwhile.
    pub(crate) fn stamp(&self) -> u64 {
        0
    }

    /// Lays what is in memory over what the inode item says: size, times, bytes on disk.
    pub(crate) fn overlay(&self, attributes: &mut Attributes) {
        let _ = attributes;
    }

    /// Forgets the times of writes that the inode item does not have yet: it was given others. To be called while
    /// the item is changed (in the closure that [`Editor::update`](brindle_tree::Editor::update) gets).
    pub(crate) fn forget_times(&self) {}
}
