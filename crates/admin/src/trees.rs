//! Items of a pool's trees in its three guises: by `TREE_SEARCH` from a mount, and from devices that nothing has mounted.

use crate::control::{ControlError, Mounted};
use crate::pool::AdminError;
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use brindle_tree::{Pool, Readahead, TreeError};
use rustix::io::Errno;
use std::ops::{ControlFlow, RangeInclusive};

/// Receiver of items.
pub type See<'s> = &'s mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>;

/// Trees of a pool.
pub trait Trees {
    /// Shows the items of a tree within a range of keys, until the caller has seen enough. Leaves that are older than `since` may
    /// be left out. A tree that is not there has none.
    fn each(
        &self,
        tree: RootId,
        range: RangeInclusive<Key>,
        since: u64,
        see: See<'_>,
    ) -> Result<(), AdminError>;

    /// The items of one object and type.
    fn items(
        &self,
        tree: RootId,
        objectid: ObjectId,
        item_type: KeyType,
    ) -> Result<Vec<(Key, Vec<u8>)>, AdminError> {
        let mut found = Vec::new();
        let range = Key::new(objectid, item_type, 0)..=Key::new(objectid, item_type, u64::MAX);
        self.each(tree, range, 0, &mut |key, data| {
            found.push((key, data.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Paths of an inode from the root of its subvolume, one for each name; empty without a name that can be followed.
    fn paths_of_inode(&self, tree: RootId, inode: ObjectId) -> Result<Vec<Vec<u8>>, AdminError> {
        let mut paths = Vec::new();
        for (parent, name) in self.names_of_inode(tree, inode)? {
            if let Some(path) = self.path_of_directory(tree, parent)? {
                paths.push(joined(&path, &name));
            }
        }
        Ok(paths)
    }

    /// Names of an inode, each with its directory.
    fn names_of_inode(&self, tree: RootId, inode: ObjectId) -> Result<Vec<(ObjectId, Vec<u8>)>, AdminError> {
        let mut names = Vec::new();
        for (key, data) in self.items(tree, inode, KeyType::INODE_REF)? {
            let Ok(Item::InodeRef(refs)) = Item::parse(&key, &data) else { continue };
            names.extend(refs.flatten().map(|name| (ObjectId::new(key.offset()), name.name.to_vec())));
        }
        for (key, data) in self.items(tree, inode, KeyType::INODE_EXTREF)? {
            let Ok(Item::InodeExtref(refs)) = Item::parse(&key, &data) else { continue };
            names.extend(refs.flatten().map(|name| (name.parent, name.name.to_vec())));
        }
        Ok(names)
    }

    /// Path of a directory from the root of its subvolume; `None` if it has lost its name.
    fn path_of_directory(&self, tree: RootId, directory: ObjectId) -> Result<Option<Vec<u8>>, AdminError> {
        let (mut path, mut at) = (Vec::new(), directory);
        // No path is deeper than its names have bytes; damage may go round in a circle.
        for _ in 0..PATH_DEPTH_MAX {
            if at == ObjectId::FIRST_FREE {
                return Ok(Some(path));
            }
            let Some((parent, name)) = self.names_of_inode(tree, at)?.into_iter().next() else {
                return Ok(None);
            };
            path = joined(&name, &path);
            at = parent;
        }
        Ok(None)
    }
}

/// Directories on a path, at most.
const PATH_DEPTH_MAX: usize = 1 << 16;

/// Two parts of a path, with a slash between them if neither is empty.
pub(crate) fn joined(above: &[u8], below: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if above.is_empty() || below.is_empty() { b"" } else { b"/" };
    [above, slash, below].concat()
}

impl Trees for Mounted {
    fn each(
        &self,
        tree: RootId,
        range: RangeInclusive<Key>,
        since: u64,
        see: See<'_>,
    ) -> Result<(), AdminError> {
        match self.search_since(tree, *range.start(), *range.end(), since, see) {
            Err(ControlError::Refused { source: Errno::NOENT, .. }) => Ok(()),
            looked => Ok(looked?),
        }
    }
}

impl Trees for Pool {
    fn each(&self, tree: RootId, range: RangeInclusive<Key>, _: u64, see: See<'_>) -> Result<(), AdminError> {
        let tree = match self.tree(tree) {
            Err(TreeError::NoTree(_)) => return Ok(()),
            tree => tree?,
        };
        let mut cursor = self.cursor(&tree, Readahead::None);
        cursor.seek(range.start())?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| key <= range.end()) {
            if see(key, data).is_break() {
                break;
            }
            cursor.next()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_joined() {
        assert_eq!(joined(b"", b"a"), b"a");
        assert_eq!(joined(b"a", b""), b"a");
        assert_eq!(joined(b"a/b", b"c"), b"a/b/c");
    }
}
