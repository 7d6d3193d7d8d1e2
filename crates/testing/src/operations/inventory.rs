//! Names to choose from.

use crate::model::{Body, Model, TreePath};

/// The names of a model, by sort.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// All that can be written below, subvolumes' roots among them.
    pub(super) directories: Vec<Name>,
    pub(super) files: Vec<Name>,
    /// Symbolic links and nodes.
    pub(super) others: Vec<Name>,
    /// Roots of subvolumes, the top among them, read-only ones too.
    pub(super) subvolumes: Vec<Name>,
    /// Empty directories that stand for vanished subvolumes, in snapshots that can be written.
    pub(super) placeholders: Vec<TreePath>,
    /// Everything in subvolumes that can't be written.
    pub(super) frozen: Vec<Name>,
}

#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) path: TreePath,
    pub(super) subvolume: u64,
    pub(super) size: u64,
    pub(super) is_root: bool,
    pub(super) is_empty: bool,
    pub(super) sort: Sort,
    pub(super) xattrs: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Directory,
    File,
    Symlink,
    Node,
    Missing,
}

impl Inventory {
    pub(super) fn of(model: &Model) -> Self {
        let mut inventory = Self::default();
        for found in model.walk() {
            let Some(inode) = found.inode else {
                if !found.is_read_only {
                    inventory.placeholders.push(found.path);
                }
                continue;
            };
            let name = Name {
                subvolume: found.subvolume,
                size: inode.size(),
                is_root: found.is_root,
                is_empty: matches!(&inode.body, Body::Directory(children) if children.is_empty()),
                sort: match inode.body {
                    Body::Directory(_) => Sort::Directory,
                    Body::File(_) => Sort::File,
                    Body::Symlink(_) => Sort::Symlink,
                    Body::Node(_) => Sort::Node,
                },
                xattrs: inode.xattrs.keys().cloned().collect(),
                path: found.path,
            };
            if name.is_root {
                inventory.subvolumes.push(name.clone());
            }
            if found.is_read_only {
                inventory.frozen.push(name);
                continue;
            }
            match name.sort {
                Sort::Directory => inventory.directories.push(name),
                Sort::File => inventory.files.push(name),
                Sort::Symlink | Sort::Node | Sort::Missing => inventory.others.push(name),
            }
        }
        inventory
    }

    /// Number of names that can be written.
    pub(super) fn len(&self) -> usize {
        self.directories.len() + self.files.len() + self.others.len()
    }
}

impl Name {
    /// A path where nothing is.
    pub(super) fn missing(path: TreePath) -> Self {
        Self {
            path,
            subvolume: 0,
            size: 0,
            is_root: false,
            is_empty: true,
            sort: Sort::Missing,
            xattrs: Vec::new(),
        }
    }
}
