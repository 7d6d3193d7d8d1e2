//! Entries of a directory of the pool with their attributes, some at a time, across damage.

use super::{Context, Failure};
use brindle_fs::{Attributes, DirectoryEntry, InodeId};

/// Number of entries of a directory that are held at once.
const BATCH_ENTRIES: usize = 512;

/// A directory that is being read.
pub(super) struct Listing {
    /// The directory.
    pub(super) inode: InodeId,
    batch: std::vec::IntoIter<(DirectoryEntry, Attributes)>,
    /// The last entry asked for; `None` when there are no more.
    after: Option<u64>,
}

impl Listing {
    /// The entries of `inode`.
    pub(super) fn new(inode: InodeId) -> Self {
        Self { inode, batch: Vec::new().into_iter(), after: Some(0) }
    }

    /// The next entry that a file can have, and what it is; `path_of` makes the path of a name, or of the directory if it is empty.
    pub(super) fn next(
        &mut self,
        context: &Context<'_>,
        path_of: &dyn Fn(&[u8]) -> Vec<u8>,
    ) -> Option<(DirectoryEntry, Attributes)> {
        loop {
            if let Some((entry, attributes)) = self.batch.next() {
                if is_name(&entry.name) {
                    return Some((entry, attributes));
                }
                context.fail(&path_of(&entry.name), Failure::NotAName);
                continue;
            }
            let after = self.after?;
            self.after = None;
            let (entries, gap) = context.filesystem.read_damaged_directory(self.inode, after, BATCH_ENTRIES);
            self.after = match gap {
                None => entries.last().map(|last| last.index),
                Some(gap) => {
                    context.fail(&path_of(b""), gap.error);
                    gap.resume
                }
            };
            self.batch = with_attributes(context, entries, path_of).into_iter();
        }
    }
}

fn with_attributes(
    context: &Context<'_>,
    entries: Vec<DirectoryEntry>,
    path_of: &dyn Fn(&[u8]) -> Vec<u8>,
) -> Vec<(DirectoryEntry, Attributes)> {
    let inodes: Vec<InodeId> = entries.iter().map(|entry| entry.inode).collect();
    let attributes = context.filesystem.attributes_of(&inodes);
    let mut found = Vec::with_capacity(entries.len());
    for (entry, attributes) in entries.into_iter().zip(attributes) {
        match attributes {
            Ok(attributes) => found.push((entry, attributes)),
            Err(error) => context.fail(&path_of(&entry.name), error),
        }
    }
    found
}

/// Returns true if a name can only be that of an entry in its directory.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// A path below another one, which is empty for the destination.
pub(super) fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    match (path, name) {
        ([], name) => name.to_vec(),
        (path, []) => path.to_vec(),
        (path, name) => [path, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_name, joined};

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert!(is_name(b"a") && is_name(b"...") && is_name(b"a\nb"));
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert!(!is_name(name));
        }
    }

    #[test]
    fn paths_have_no_slash_at_their_ends() {
        assert_eq!(joined(b"a", b"b"), b"a/b");
        assert_eq!(joined(b"", b"b"), b"b");
        assert_eq!(joined(b"a", b""), b"a");
    }
}
