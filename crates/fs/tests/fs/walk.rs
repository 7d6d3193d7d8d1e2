//! Everything that a filesystem holds, read through the library; `fuzz/` takes this file in as a module of its
//! own. What can't be read is noted, and so is what the library says in two different ways.

use brindle_fs::{Attributes, FileType, Filesystem, FsError, InodeId, Timestamp};
use brindle_testing::manifest::{self, Entry, Kind, Manifest, Time, escape};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;

/// Entries asked for at once: few, so that a listing is continued often.
const LISTING_ENTRIES: usize = 7;

/// Limits of a walk. A damaged directory may hold itself, a damaged file may be endless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes that one read asks for.
    pub(crate) piece: usize,
    /// Names.
    pub(crate) entries: usize,
    /// Bytes of one file.
    pub(crate) file_bytes: u64,
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// Directories in directories.
    pub(crate) depth: usize,
}

impl Limits {
    /// No limits.
    pub(crate) const NONE: Self =
        Self { piece: 1 << 20, entries: usize::MAX, file_bytes: u64::MAX, bytes: u64::MAX, depth: 1000 };
}

/// Result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Every entry that could be read in full.
    pub(crate) manifest: Manifest,
    /// Entries that could not be read.
    pub(crate) troubles: Vec<Trouble>,
}

/// Reason for which an entry, or the entries of a directory, are not in the manifest.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// Path of the entry or directory.
    pub(crate) path: Vec<u8>,
    /// The problem.
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// An error, as it should be.
    Failed(FsError),
    /// The library contradicts itself.
    Disagrees(&'static str),
    /// A limit has been reached.
    Limit,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = escape(&self.path);
        match &self.why {
            Why::Failed(error) => write!(f, "{path}: {error}"),
            Why::Disagrees(what) => write!(f, "{path}: disagrees about {what}"),
            Why::Limit => write!(f, "{path}: limit reached"),
        }
    }
}

impl From<FsError> for Why {
    fn from(error: FsError) -> Self {
        Self::Failed(error)
    }
}

impl Walk {
    /// Looks at all that lies below the root.
    pub(crate) fn of(filesystem: &Filesystem, limits: Limits) -> Self {
        Self::below(filesystem, filesystem.root(), limits)
    }

    /// Looks at all that lies below a directory.
    pub(crate) fn below(filesystem: &Filesystem, top: InodeId, limits: Limits) -> Self {
        let mut walker = Walker {
            filesystem,
            limits,
            found: Self::default(),
            ids: HashMap::new(),
            directories: Vec::new(),
        };
        walker.add(top, Vec::new(), 0);
        while let Some((id, path, depth)) = walker.directories.pop() {
            let listed =
                if depth < limits.depth { walker.add_entries(id, &path, depth + 1) } else { Err(Why::Limit) };
            if let Err(why) = listed {
                walker.found.troubles.push(Trouble { path, why });
            }
        }
        walker.link_names();
        walker.found
    }

    /// The manifest of a walk that nothing came in the way of.
    pub(crate) fn expect_whole(self, name: &str) -> Manifest {
        let troubles: Vec<String> = self.troubles.iter().map(ToString::to_string).collect();
        assert!(troubles.is_empty(), "{name}:\n{}", troubles.join("\n"));
        self.manifest
    }
}

struct Walker<'a> {
    filesystem: &'a Filesystem,
    limits: Limits,
    found: Walk,
    ids: HashMap<Vec<u8>, InodeId>,
    /// Still to be listed.
    directories: Vec<(InodeId, Vec<u8>, usize)>,
}

impl Walker<'_> {
    fn add(&mut self, id: InodeId, path: Vec<u8>, depth: usize) {
        match self.entry(id, &path) {
            Ok(entry) => {
                if entry.kind == Kind::Directory {
                    self.directories.push((id, path.clone(), depth));
                }
                self.ids.insert(path, id);
                self.found.manifest.insert(entry);
            }
            Err(why) => self.found.troubles.push(Trouble { path, why }),
        }
    }

    fn entry(&mut self, id: InodeId, path: &[u8]) -> Result<Entry, Why> {
        let fs = self.filesystem;
        self.limits.entries = self.limits.entries.checked_sub(1).ok_or(Why::Limit)?;
        let attributes = fs.attributes(id)?;
        let xattrs = fs.xattrs(id)?;
        for xattr in &xattrs {
            if fs.xattr(id, &xattr.name)?.as_ref() != Some(&xattr.value) {
                return Err(Why::Disagrees("the value of an xattr"));
            }
        }
        let mut entry = Entry::new(path, self.kind(&attributes)?);
        entry.mode = u16::try_from(attributes.mode & 0o7777).expect("twelve bits");
        entry.uid = attributes.uid;
        entry.gid = attributes.gid;
        entry.nlink = attributes.nlink;
        entry.size = attributes.size;
        entry.mtime = time(attributes.modified);
        entry.ctime = Some(time(attributes.changed));
        entry.btime = Some(time(attributes.created));
        entry.ino = Some(id.number.get());
        entry.xattrs = xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        Ok(entry)
    }

    fn add_entries(&mut self, directory: InodeId, path: &[u8], depth: usize) -> Result<(), Why> {
        let mut after = 0;
        loop {
            let entries = self.filesystem.read_directory(directory, after, LISTING_ENTRIES)?;
            let Some(last) = entries.last() else {
                return Ok(());
            };
            after = last.index;
            for entry in entries {
                if self.limits.entries == 0 {
                    return Err(Why::Limit);
                }
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let path = [path, separator, &entry.name].concat();
                let why = match self.filesystem.lookup(directory, &entry.name) {
                    Ok(Some(found)) if (found.inode, found.kind) == (entry.inode, entry.kind) => {
                        self.add(entry.inode, path, depth);
                        continue;
                    }
                    Ok(_) => Why::Disagrees("what a name stands for"),
                    Err(error) => error.into(),
                };
                self.found.troubles.push(Trouble { path, why });
            }
        }
    }

    fn kind(&mut self, attributes: &Attributes) -> Result<Kind, Why> {
        let (major, minor) = attributes.device_numbers();
        let rdev = manifest::Device { major, minor };
        Ok(match attributes.kind {
            FileType::Regular => self.contents(attributes)?,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink { target: self.filesystem.read_link(attributes.id)? },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharDevice => Kind::Char { rdev },
            FileType::BlockDevice => Kind::Block { rdev },
            FileType::Xattr => return Err(Why::Disagrees("what an inode can be")),
        })
    }

    fn contents(&mut self, attributes: &Attributes) -> Result<Kind, Why> {
        let file = self.filesystem.open_file(attributes.id)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0xa5; self.limits.piece];
        let mut offset = 0;
        loop {
            let length = self.filesystem.read(&file, offset, &mut buffer)?;
            if length == 0 {
                break;
            }
            self.limits.bytes = self.limits.bytes.checked_sub(length as u64).ok_or(Why::Limit)?;
            hash.update(&buffer[..length]);
            offset += length as u64;
            if offset > self.limits.file_bytes {
                return Err(Why::Limit);
            }
        }
        if offset != attributes.size {
            return Err(Why::Disagrees("the size of a file"));
        }
        Ok(Kind::File { sha256: hash.finalize().into() })
    }

    /// Names the first path of an inode at its others, in the order of paths.
    fn link_names(&mut self) {
        let mut first_paths: HashMap<InodeId, Vec<u8>> = HashMap::new();
        let mut entries: Vec<Entry> = self.found.manifest.entries().cloned().collect();
        for entry in &mut entries {
            if entry.nlink < 2 || entry.kind == Kind::Directory {
                continue;
            }
            let Some(id) = self.ids.get(&entry.path) else { continue };
            match first_paths.get(id) {
                Some(first) => entry.same_as = Some(first.clone()),
                None => drop(first_paths.insert(*id, entry.path.clone())),
            }
        }
        self.found.manifest = entries.into_iter().collect();
    }
}

fn time(time: Timestamp) -> Time {
    Time { sec: time.seconds, nsec: time.nanoseconds }
}
