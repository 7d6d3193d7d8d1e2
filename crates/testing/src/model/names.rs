//! Names come and go.

use super::{Body, Child, Errno, Inode, InodePlace, Model, Node, TreePath};
use brindle_sim::Image;
use std::collections::BTreeMap;

/// Names that one inode may have (`BTRFS_LINK_MAX`).
const LINKS_MAX: u32 = 65_535;

impl Model {
    /// Makes an empty file, as `O_CREAT | O_EXCL`.
    pub fn create(&mut self, path: &TreePath, mode: u16) -> Result<(), Errno> {
        self.add(path, Inode::new(Body::File(Image::new(0)), mode))
    }

    /// Makes an empty directory.
    pub fn make_directory(&mut self, path: &TreePath, mode: u16) -> Result<(), Errno> {
        self.add(path, Inode::new(Body::Directory(BTreeMap::new()), mode))
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, path: &TreePath, target: &str) -> Result<(), Errno> {
        self.add(path, Inode::new(Body::Symlink(target.to_owned()), 0o777))
    }

    /// Makes a pipe, socket or device.
    pub fn make_node(&mut self, path: &TreePath, node: Node, mode: u16) -> Result<(), Errno> {
        self.add(path, Inode::new(Body::Node(node), mode))
    }

    /// Gives an inode another name.
    pub fn link(&mut self, existing: &TreePath, path: &TreePath) -> Result<(), Errno> {
        let place = self.resolve(existing)?;
        let directory = self.vacancy(path)?;
        if self.at(place).is_directory() {
            return Err(Errno::NotPermitted);
        }
        if place.subvolume != directory.subvolume {
            return Err(Errno::CrossDevice);
        }
        if self.at(place).nlink == LINKS_MAX {
            return Err(Errno::TooManyLinks);
        }
        self.at_mut(place).nlink += 1;
        self.put(directory, path, Child::Inode(place.ino));
        Ok(())
    }

    /// Takes a name of anything but a directory.
    pub fn unlink(&mut self, path: &TreePath) -> Result<(), Errno> {
        if path.is_top() {
            return Err(Errno::IsDirectory);
        }
        let entry = self.entry(path)?;
        let child = entry.child.ok_or(Errno::NotFound)?;
        self.check_writable(entry.directory)?;
        if self.is_directory(entry.directory, child) {
            return Err(Errno::IsDirectory);
        }
        let (directory, name) = (entry.directory, entry.name.to_vec());
        self.children_mut(directory).remove(&name);
        self.forget(directory, child);
        Ok(())
    }

    /// Removes an empty directory; of a subvolume, the subvolume with it.
    pub fn remove_directory(&mut self, path: &TreePath) -> Result<(), Errno> {
        if path.is_top() {
            return Err(Errno::Invalid);
        }
        let entry = self.entry(path)?;
        let child = entry.child.ok_or(Errno::NotFound)?;
        self.check_writable(entry.directory)?;
        if !self.is_directory(entry.directory, child) {
            return Err(Errno::NotDirectory);
        }
        if !self.is_empty(entry.directory, child) {
            return Err(Errno::NotEmpty);
        }
        let (directory, name) = (entry.directory, entry.name.to_vec());
        self.children_mut(directory).remove(&name);
        self.forget(directory, child);
        Ok(())
    }

    /// The directory in which a name is free.
    pub(super) fn vacancy(&self, path: &TreePath) -> Result<InodePlace, Errno> {
        let entry = self.entry(path)?;
        if entry.child.is_some() {
            return Err(Errno::Exists);
        }
        self.check_writable(entry.directory)?;
        Ok(entry.directory)
    }

    fn add(&mut self, path: &TreePath, inode: Inode) -> Result<(), Errno> {
        let directory = self.vacancy(path)?;
        let ino = self.add_inode(directory.subvolume, inode);
        self.put(directory, path, Child::Inode(ino));
        Ok(())
    }

    /// Gives a name of a directory to a child, whatever had it before.
    pub(super) fn put(&mut self, directory: InodePlace, path: &TreePath, child: Child) {
        let (_, name) = path.split().expect("the top is in no directory");
        self.children_mut(directory).insert(name.to_vec(), child);
    }

    pub(super) fn is_directory(&self, directory: InodePlace, child: Child) -> bool {
        directory.below(child).is_none_or(|place| self.at(place).is_directory())
    }

    pub(super) fn is_empty(&self, directory: InodePlace, child: Child) -> bool {
        let children = directory.below(child).map(|place| &self.at(place).body);
        !matches!(children, Some(Body::Directory(children)) if !children.is_empty())
    }

    /// Takes a name from what it stood for, which goes with its last.
    pub(super) fn forget(&mut self, directory: InodePlace, child: Child) {
        match child {
            Child::Placeholder => {}
            Child::Subvolume(id) => {
                self.subvolumes.remove(&id);
            }
            Child::Inode(ino) => {
                let inode = self.at_mut(InodePlace { ino, ..directory });
                inode.nlink -= 1;
                if inode.nlink == 0 {
                    self.subvolume_mut(directory.subvolume).inodes.remove(&ino);
                }
            }
        }
    }
}
