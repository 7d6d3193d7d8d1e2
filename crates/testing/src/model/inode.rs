//! One inode of the model.

use crate::manifest::{Device, Kind, Time};
use brindle_sim::Image;
use std::collections::BTreeMap;

/// An inode, with everything that a filesystem must keep of it.
#[derive(Clone, Debug)]
pub struct Inode {
    /// The file type, and what only that type has.
    pub body: Body,
    /// The lower 12 bits of `st_mode`.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Names; in btrfs 1 for every directory.
    pub nlink: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Known if it was set and nothing changed the contents since.
    pub mtime: Option<Time>,
}

/// The file type, and what only that type has.
#[derive(Clone, Debug)]
pub enum Body {
    /// A regular file; the image is as long as the file.
    File(Image),
    /// A directory, or the root of a subvolume.
    Directory(BTreeMap<Vec<u8>, Child>),
    /// A symbolic link.
    Symlink(String),
    /// An inode without contents.
    Node(Node),
}

/// A file that is only a name for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char(Device),
    /// A block device.
    Block(Device),
}

/// Target of a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// An inode of the same subvolume.
    Inode(u64),
    /// The root of a subvolume.
    Subvolume(u64),
    /// Empty directory in a snapshot, where its source had a subvolume.
    Placeholder,
}

impl Inode {
    /// A new one, with one name.
    #[must_use]
    pub fn new(body: Body, mode: u16) -> Self {
        Self { body, mode, uid: 0, gid: 0, nlink: 1, xattrs: BTreeMap::new(), mtime: None }
    }

    /// Its size as `stat` tells it; in btrfs that of a directory is twice the sum of the lengths of its names.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(contents) => contents.size_bytes(),
            Body::Directory(children) => children.keys().map(|name| 2 * name.len() as u64).sum(),
            Body::Symlink(target) => target.len() as u64,
            Body::Node(_) => 0,
        }
    }

    /// Returns true for a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// Its type and payload, as a manifest has it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(contents) => Kind::file_of(&contents.to_vec()),
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(target) => Kind::Symlink { target: target.clone().into_bytes() },
            Body::Node(Node::Fifo) => Kind::Fifo,
            Body::Node(Node::Socket) => Kind::Socket,
            Body::Node(Node::Char(rdev)) => Kind::Char { rdev: *rdev },
            Body::Node(Node::Block(rdev)) => Kind::Block { rdev: *rdev },
        }
    }
}
