//! Files whose last name a rename has given to another file, until the kernel forgets them. A path that the kernel had
//! resolved just before leads to the old file then, as on any filesystem, and not to an error: the name was there all the
//! time. (What an unlink takes away is gone at once where it is not open; its path leads nowhere either way.)

use brindle_fs::OpenFile;
use brindle_ondisk::IdMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that have been replaced, by the number that the kernel has for each.
#[derive(Debug, Default)]
pub(crate) struct ReplacedFiles(Mutex<IdMap<u64, OpenFile>>);

impl ReplacedFiles {
    /// Keeps a file until its node is forgotten.
    pub(crate) fn keep(&self, node: u64, file: OpenFile) {
        self.files().insert(node, file);
    }

    /// The file that was kept for a node.
    pub(crate) fn take(&self, node: u64) -> Option<OpenFile> {
        self.files().remove(&node)
    }

    /// All files that are kept.
    pub(crate) fn take_all(&self) -> Vec<OpenFile> {
        self.files().drain().map(|(_, file)| file).collect()
    }

    fn files(&self) -> MutexGuard<'_, IdMap<u64, OpenFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
