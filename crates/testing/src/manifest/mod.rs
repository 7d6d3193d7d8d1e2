//! Complete description of a directory tree: one entry for each name, with everything that a filesystem must
//! keep, and the SHA-256 of each file's contents. The text form has one line an entry, so that two
//! manifests are compared by eye or by `diff`; fields that have their usual value (owner 0, one link)
//! are left out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};

mod text;
mod walk;

#[cfg(test)]
mod tests;

pub use text::{ParseError, escape, unescape};

/// A whole tree, sorted by path; the root comes first, with an empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: BTreeMap<Vec<u8>, Entry>,
}

/// All that is recorded of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root of the walk, without a leading slash; empty for the root itself.
    pub path: Vec<u8>,
    /// The file type, and what only that type has.
    pub kind: Kind,
    /// The lower 12 bits of `st_mode`.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Link count; in btrfs 1 for every directory.
    pub nlink: u32,
    /// Size in bytes; in btrfs, for a directory, twice the sum of the lengths of its names.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode; not compared by [`Manifest::diff`], since only the kernel can set it.
    pub ctime: Option<Time>,
    /// Creation; not compared by [`Manifest::diff`], since only the kernel can set it.
    pub btime: Option<Time>,
    /// The inode number; two subvolumes may use the same. Not compared by [`Manifest::diff`].
    pub ino: Option<u64>,
    /// `FS_IOC_GETFLAGS`, of files and directories; compared if both sides have it.
    pub flags: Option<u32>,
    /// The first path, in order, of the same inode, for its second and later hard links.
    pub same_as: Option<Vec<u8>>,
    /// Every extended attribute that `llistxattr` names, access control lists among them.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The file type, and what only that type has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, with the SHA-256 of its contents.
    File {
        /// SHA-256 of all bytes up to the size, holes read as zeros.
        sha256: [u8; 32],
    },
    /// A directory, or the root of a subvolume.
    Directory,
    /// A symbolic link.
    Symlink {
        /// The bytes that `readlink` returns.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char {
        /// `st_rdev`.
        rdev: Device,
    },
    /// A block device.
    Block {
        /// `st_rdev`.
        rdev: Device,
    },
}

/// A device number, in its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the driver.
    pub major: u32,
    /// Number among the driver's devices.
    pub minor: u32,
}

/// A time since 1970, negative seconds before it; `nsec` always counts forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub sec: i64,
    /// 0 to 999,999,999.
    pub nsec: u32,
}

impl Manifest {
    /// Walks a tree with the system's own calls. Subvolumes below are part of it, other mounts are not.
    ///
    /// # Errors
    /// Whatever the system says; the message names the path.
    pub fn of_directory(root: &Path) -> std::io::Result<Self> {
        walk::walk(root)
    }

    /// The entries in order of their paths, bytewise.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The entry at a path relative to the root; the empty path is the root.
    #[must_use]
    pub fn entry(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Number of entries, the root among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there is not even a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry, in place of any with the same path.
    pub fn insert(&mut self, entry: Entry) {
        self.entries.insert(entry.path.clone(), entry);
    }

    /// Part that a copy onto another filesystem can keep: no inode numbers, flags, creation or change times, and
    /// directories without a size and a link count, for these mean something else everywhere.
    #[must_use]
    pub fn portable(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.ino = None;
            entry.flags = None;
            entry.ctime = None;
            entry.btime = None;
            if entry.kind == Kind::Directory {
                entry.size = 0;
                entry.nlink = 1;
            }
        }
        self
    }

    /// Differences of `other` from `self`, in words, one line a difference; empty if there are none. Times that only
    /// the kernel can set, and inode numbers, are not compared: see [`Self::diff_strict`].
    #[must_use]
    pub fn diff(&self, other: &Self) -> Vec<String> {
        self.differences(other, Entry::differences)
    }

    /// Differences as by [`Self::diff`], and of change times, creation times and inode numbers too, where both sides
    /// have them. For two readings of one image.
    #[must_use]
    pub fn diff_strict(&self, other: &Self) -> Vec<String> {
        self.differences(other, |a, b| {
            let mut found = a.differences(b);
            found.extend(a.unsettable_differences(b));
            found
        })
    }

    fn differences(&self, other: &Self, compare: impl Fn(&Entry, &Entry) -> Vec<String>) -> Vec<String> {
        let mut found = Vec::new();
        for (path, entry) in &self.entries {
            match other.entries.get(path) {
                None => found.push(format!("{}: missing {}", text::path(path), entry.kind.name())),
                Some(theirs) => found.extend(
                    compare(entry, theirs).iter().map(|words| format!("{}: {words}", text::path(path))),
                ),
            }
        }
        for (path, entry) in &other.entries {
            if !self.entries.contains_key(path) {
                found.push(format!("{}: unexpected {}", text::path(path), entry.kind.name()));
            }
        }
        found
    }
}

impl FromIterator<Entry> for Manifest {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        Self { entries }
    }
}

impl Entry {
    /// An entry with every field at its usual value.
    #[must_use]
    pub fn new(path: &[u8], kind: Kind) -> Self {
        Self {
            path: path.to_vec(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            mtime: Time { sec: 0, nsec: 0 },
            ctime: None,
            btime: None,
            ino: None,
            flags: None,
            same_as: None,
            xattrs: BTreeMap::new(),
        }
    }

    fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                found.push(format!("{what} is {theirs} instead of {ours}"));
            }
        };
        note("type", self.kind.name().into(), other.kind.name().into());
        note("mode", format!("{:04o}", self.mode), format!("{:04o}", other.mode));
        note("uid", self.uid.to_string(), other.uid.to_string());
        note("gid", self.gid.to_string(), other.gid.to_string());
        note("link count", self.nlink.to_string(), other.nlink.to_string());
        note("size", self.size.to_string(), other.size.to_string());
        if !self.has_no_times() {
            note("mtime", self.mtime.to_string(), other.mtime.to_string());
        }
        if let (Some(ours), Some(theirs)) = (self.flags, other.flags) {
            note("flags", format!("{ours:#x}"), format!("{theirs:#x}"));
        }
        if self.kind.name() == other.kind.name() {
            note(self.kind.payload_name(), self.kind.payload(), other.kind.payload());
        }
        let link = |of: &Option<Vec<u8>>| of.as_ref().map_or("nothing before it".into(), |p| text::path(p));
        note("hard link to", link(&self.same_as), link(&other.same_as));
        found.extend(self.xattr_differences(other));
        found
    }

    /// Returns true for the place of a subvolume in a snapshot: its times were not recorded, as the kernel shows
    /// others at each look.
    #[must_use]
    pub fn has_no_times(&self) -> bool {
        self.kind == Kind::Directory && self.mtime == Time { sec: 0, nsec: 0 }
    }

    fn xattr_differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, ours) in &self.xattrs {
            let name_text = escape(name);
            match other.xattrs.get(name) {
                None => found.push(format!("xattr {name_text} is missing")),
                Some(theirs) if theirs != ours => {
                    let (ours, theirs) = (text::abridged(ours), text::abridged(theirs));
                    found.push(format!("xattr {name_text} is {theirs} instead of {ours}"));
                }
                Some(_) => {}
            }
        }
        for name in other.xattrs.keys().filter(|name| !self.xattrs.contains_key(*name)) {
            found.push(format!("unexpected xattr {}", escape(name)));
        }
        found
    }

    fn unsettable_differences(&self, other: &Self) -> Vec<String> {
        fn note<T: PartialEq + fmt::Display>(
            what: &str,
            ours: Option<T>,
            theirs: Option<T>,
        ) -> Option<String> {
            let (ours, theirs) = (ours?, theirs?);
            (ours != theirs).then(|| format!("{what} is {theirs} instead of {ours}"))
        }
        let found = [
            note("ctime", self.ctime, other.ctime),
            note("btime", self.btime, other.btime),
            note("inode number", self.ino, other.ino),
        ];
        found.into_iter().flatten().collect()
    }
}

impl Kind {
    /// A regular file with these contents.
    #[must_use]
    pub fn file_of(contents: &[u8]) -> Self {
        Self::File { sha256: Sha256::digest(contents).into() }
    }

    /// The word that starts the entry's line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Directory => "dir",
            Self::Symlink { .. } => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Char { .. } => "char",
            Self::Block { .. } => "block",
        }
    }

    fn payload_name(&self) -> &'static str {
        match self {
            Self::File { .. } => "sha256",
            Self::Symlink { .. } => "target",
            Self::Char { .. } | Self::Block { .. } => "rdev",
            Self::Directory | Self::Fifo | Self::Socket => "",
        }
    }

    fn payload(&self) -> String {
        match self {
            Self::File { sha256 } => text::hex(sha256),
            Self::Symlink { target } => escape(target),
            Self::Char { rdev } | Self::Block { rdev } => rdev.to_string(),
            Self::Directory | Self::Fifo | Self::Socket => String::new(),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl fmt::Display for Time {
    /// `SECONDS.NANOSECONDS`; the fraction is added to the seconds, also when these are negative.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec)
    }
}
