//! The plainest filesystem that can say what another one must hold: inodes in a map, directories as maps of
//! names, contents as bytes. It knows what btrfs adds to POSIX (subvolumes, snapshots, reflinks), has no
//! limit of space, and refuses what Linux refuses on btrfs, with the same errno where several would do.
//! A clone is cheap, so that the state at every commit can be kept.

mod attributes;
mod contents;
mod errno;
mod identity;
mod inode;
mod names;
mod path;
mod rename;
mod subvolumes;
mod tree;

#[cfg(test)]
mod tests;

pub use attributes::XattrRule;
pub use contents::SECTOR_BYTES;
pub use errno::Errno;
pub use identity::Identity;
pub use inode::{Body, Child, Inode, Node};
pub use path::{TreePath, path};
pub use rename::RenameRule;
pub use tree::{Expectation, ModelEntry};

use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest name, in bytes (`BTRFS_NAME_LEN`).
pub const NAME_BYTES_MAX: usize = 255;

/// Inode number of a subvolume's root (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT_INO: u64 = 256;

/// The subvolume that is the whole.
const TOP: u64 = 5;

/// A whole pool's files.
#[derive(Clone, Debug)]
pub struct Model {
    subvolumes: BTreeMap<u64, Arc<Subvolume>>,
    next_subvolume: u64,
}

/// One subvolume or snapshot.
#[derive(Clone, Debug)]
struct Subvolume {
    inodes: BTreeMap<u64, Arc<Inode>>,
    next_ino: u64,
    is_read_only: bool,
}

/// An inode: its subvolume, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InodePlace {
    subvolume: u64,
    ino: u64,
}

/// A name in a directory, there or not.
struct Entry<'a> {
    directory: InodePlace,
    name: &'a [u8],
    child: Option<Child>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// A pool just made: an empty top directory.
    #[must_use]
    pub fn new() -> Self {
        let mut subvolumes = BTreeMap::new();
        subvolumes.insert(TOP, Arc::new(Subvolume::new()));
        Self { subvolumes, next_subvolume: 256 }
    }

    /// The inode at a path.
    pub fn inode(&self, path: &TreePath) -> Result<&Inode, Errno> {
        Ok(self.at(self.resolve(path)?))
    }

    /// The bytes of a file.
    pub fn contents(&self, path: &TreePath) -> Result<Vec<u8>, Errno> {
        match &self.inode(path)?.body {
            Body::File(contents) => Ok(contents.to_vec()),
            Body::Directory(_) => Err(Errno::IsDirectory),
            Body::Symlink(_) | Body::Node(_) => Err(Errno::Invalid),
        }
    }

    /// Returns true if a path exists; also where an empty directory stands for a vanished subvolume, which has no
    /// inode.
    #[must_use]
    pub fn is_there(&self, path: &TreePath) -> bool {
        path.is_top() || self.entry(path).is_ok_and(|entry| entry.child.is_some())
    }

    fn resolve(&self, path: &TreePath) -> Result<InodePlace, Errno> {
        let mut place = InodePlace::TOP;
        for name in path.names() {
            let child = self.lookup(place, name)?.ok_or(Errno::NotFound)?;
            place = place.below(child).ok_or(Errno::NotFound)?;
        }
        Ok(place)
    }

    /// Target and location of a path; the directory must exist, the name need not.
    fn entry<'a>(&self, path: &'a TreePath) -> Result<Entry<'a>, Errno> {
        let (directory, name) = path.split().ok_or(Errno::Exists)?;
        let directory = self.resolve(&directory)?;
        // The name's slice must outlive the path that was split off.
        let name = &path.bytes()[path.bytes().len() - name.len()..];
        let child = self.lookup(directory, name)?;
        Ok(Entry { directory, name, child })
    }

    fn lookup(&self, directory: InodePlace, name: &[u8]) -> Result<Option<Child>, Errno> {
        let Body::Directory(children) = &self.at(directory).body else {
            return Err(Errno::NotDirectory);
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NameTooLong);
        }
        Ok(children.get(name).copied())
    }

    fn at(&self, place: InodePlace) -> &Inode {
        let subvolume = &self.subvolumes[&place.subvolume];
        &subvolume.inodes[&place.ino]
    }

    fn at_mut(&mut self, place: InodePlace) -> &mut Inode {
        let inodes = &mut self.subvolume_mut(place.subvolume).inodes;
        Arc::make_mut(inodes.get_mut(&place.ino).expect("a place is an inode that is there"))
    }

    fn subvolume_mut(&mut self, id: u64) -> &mut Subvolume {
        Arc::make_mut(self.subvolumes.get_mut(&id).expect("a subvolume that is there"))
    }

    /// The inode at a path, to be changed.
    fn writable(&self, path: &TreePath) -> Result<InodePlace, Errno> {
        let place = self.resolve(path)?;
        self.check_writable(place)?;
        Ok(place)
    }

    fn check_writable(&self, place: InodePlace) -> Result<(), Errno> {
        if self.subvolumes[&place.subvolume].is_read_only { Err(Errno::ReadOnly) } else { Ok(()) }
    }

    /// The children of a directory that is to change.
    fn children_mut(&mut self, directory: InodePlace) -> &mut BTreeMap<Vec<u8>, Child> {
        let inode = self.at_mut(directory);
        inode.mtime = None;
        match &mut inode.body {
            Body::Directory(children) => children,
            _ => unreachable!("an entry was looked up in it"),
        }
    }

    fn add_inode(&mut self, subvolume: u64, inode: Inode) -> u64 {
        let subvolume = self.subvolume_mut(subvolume);
        let ino = subvolume.next_ino;
        subvolume.next_ino += 1;
        subvolume.inodes.insert(ino, Arc::new(inode));
        ino
    }
}

impl Subvolume {
    fn new() -> Self {
        let root = Inode::new(Body::Directory(BTreeMap::new()), 0o755);
        let inodes = BTreeMap::from([(ROOT_INO, Arc::new(root))]);
        Self { inodes, next_ino: ROOT_INO + 1, is_read_only: false }
    }
}

impl InodePlace {
    /// The top directory.
    pub(crate) const TOP: Self = Self { subvolume: TOP, ino: ROOT_INO };

    /// The inode behind a name in this place; a placeholder has none.
    fn below(self, child: Child) -> Option<Self> {
        match child {
            Child::Inode(ino) => Some(Self { ino, ..self }),
            Child::Subvolume(subvolume) => Some(Self { subvolume, ino: ROOT_INO }),
            Child::Placeholder => None,
        }
    }
}
