//! Whole trees come and go.

use super::{Body, Child, Errno, Inode, Model, ROOT_INO, Subvolume, TreePath};
use std::sync::Arc;

impl Model {
    /// Makes an empty subvolume.
    pub fn create_subvolume(&mut self, path: &TreePath) -> Result<(), Errno> {
        self.add_subvolume(path, Subvolume::new())
    }

    /// Makes a snapshot of the subvolume at `source`, which must be its root.
    pub fn snapshot(&mut self, source: &TreePath, path: &TreePath, is_read_only: bool) -> Result<(), Errno> {
        let place = self.resolve(source)?;
        if place.ino != ROOT_INO {
            return Err(Errno::Invalid);
        }
        let mut copy = Subvolume::clone(&self.subvolumes[&place.subvolume]);
        copy.is_read_only = is_read_only;
        copy.inodes.values_mut().for_each(without_subvolumes);
        self.add_subvolume(path, copy)
    }

    /// Deletes a subvolume that has no other subvolumes in it.
    pub fn delete_subvolume(&mut self, path: &TreePath) -> Result<(), Errno> {
        if path.is_top() {
            return Err(Errno::Invalid);
        }
        let entry = self.entry(path)?;
        let id = match entry.child.ok_or(Errno::NotFound)? {
            Child::Subvolume(id) => id,
            child if self.is_directory(entry.directory, child) => return Err(Errno::Invalid),
            _ => return Err(Errno::NotDirectory),
        };
        self.check_writable(entry.directory)?;
        let subvolume = &self.subvolumes[&id];
        if subvolume.inodes.values().any(|inode| has_subvolumes(inode)) {
            return Err(Errno::NotEmpty);
        }
        let (directory, name) = (entry.directory, entry.name.to_vec());
        self.children_mut(directory).remove(&name);
        self.subvolumes.remove(&id);
        Ok(())
    }

    /// Returns true if the path is the root of a subvolume.
    #[must_use]
    pub fn is_subvolume(&self, path: &TreePath) -> bool {
        self.resolve(path).is_ok_and(|place| place.ino == ROOT_INO)
    }

    fn add_subvolume(&mut self, path: &TreePath, subvolume: Subvolume) -> Result<(), Errno> {
        let directory = self.vacancy(path)?;
        let id = self.next_subvolume;
        self.next_subvolume += 1;
        self.subvolumes.insert(id, Arc::new(subvolume));
        self.put(directory, path, Child::Subvolume(id));
        Ok(())
    }
}

fn has_subvolumes(inode: &Inode) -> bool {
    match &inode.body {
        Body::Directory(children) => children.values().any(|child| matches!(child, Child::Subvolume(_))),
        _ => false,
    }
}

fn without_subvolumes(inode: &mut Arc<Inode>) {
    if !has_subvolumes(inode) {
        return;
    }
    if let Body::Directory(children) = &mut Arc::make_mut(inode).body {
        let subvolumes = children.values_mut().filter(|child| matches!(child, Child::Subvolume(_)));
        subvolumes.for_each(|child| *child = Child::Placeholder);
    }
}
