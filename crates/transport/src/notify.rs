//! Notifications: the kernel is told what to forget.

use crate::descriptor::Descriptor;
use crate::wire::{InvalidateEntryOut, InvalidateInodeOut, notification};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Attributes alone: no range of the contents.
const NO_CONTENTS: i64 = -1;
/// Length of a range up to the end.
const TO_THE_END: i64 = 0;

/// Tells the kernel of changes that it did not ask for. What it does not remember it has nothing to forget of.
#[derive(Clone, Debug)]
pub struct Notifier {
    descriptor: Arc<Descriptor>,
}

impl Notifier {
    pub(crate) fn new(descriptor: Arc<Descriptor>) -> Self {
        Self { descriptor }
    }

    /// Drops a name. May wait for threads that work in that directory.
    ///
    /// # Errors
    /// ENOENT if the kernel knows nothing of it; those of writev(2).
    pub fn entry_changed(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let name_length = u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        let entry = InvalidateEntryOut { parent, name_length, flags: 0 };
        self.descriptor.send(0, notification::INVALIDATE_ENTRY, &[entry.as_bytes(), name, &[0]])
    }

    /// Drops the attributes of a node. Does not wait.
    ///
    /// # Errors
    /// As [`Self::entry_changed`].
    pub fn attributes_changed(&self, node: u64) -> Result<(), Errno> {
        self.invalidate(InvalidateInodeOut { node, offset: NO_CONTENTS, length: 0 })
    }

    /// Drops contents of a node, and its attributes; up to the end if the range ends with the last number there is. Unwritten
    /// pages are written back first. Waits for pages that are being read or written.
    ///
    /// # Errors
    /// As [`Self::entry_changed`].
    pub fn contents_changed(&self, node: u64, range: &Range<u64>) -> Result<(), Errno> {
        let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
        let end = i64::try_from(range.end).ok();
        let length = end.map_or(TO_THE_END, |end| end.saturating_sub(offset));
        self.invalidate(InvalidateInodeOut { node, offset, length })
    }

    fn invalidate(&self, inode: InvalidateInodeOut) -> Result<(), Errno> {
        self.descriptor.send(0, notification::INVALIDATE_INODE, &[inode.as_bytes()])
    }
}
