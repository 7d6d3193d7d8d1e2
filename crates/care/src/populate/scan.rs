//! Scan of the source: a walk, level by level, which reads directories but no contents.

use super::PopulateError;
use brindle_fs::{FileType, Timestamp};
use rayon::prelude::*;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The unit in which the space of a file is counted, in bytes.
const BLOCK_BYTES: u64 = 512;
/// Assumed compression of a file with less space than its size: one in this share, or it has holes.
const COMPRESSED_SHARE: u64 = 4;
/// Approximate metadata of an entry beside its name, in bytes: inode, names, extent and its record.
const ENTRY_BYTES: u64 = 512;

/// A directory to be taken in, and all that is in it.
#[derive(Debug)]
pub struct Source {
    pub(super) root: PathBuf,
    /// The root first, then level by level; the children of a directory stand together, by name.
    pub(super) entries: Vec<SourceEntry>,
}

/// Something in the source.
#[derive(Debug)]
pub(super) struct SourceEntry {
    /// The directory that has it; the root its own.
    pub(super) parent: usize,
    pub(super) name: Box<[u8]>,
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// Device number in the form of the disk.
    pub(super) rdev: u64,
    /// Device and inode number.
    pub(super) identity: (u64, u64),
    pub(super) links: u64,
    /// Allocated bytes; less than its size if there are holes.
    pub(super) allocated_bytes: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    /// The entries of a directory.
    pub(super) children: Range<usize>,
}

impl Source {
    /// Walks a directory.
    pub fn scan(root: &Path) -> Result<Self, PopulateError> {
        let fail = |source| PopulateError::Source { path: root.to_owned(), source };
        // The source itself may be named by a link.
        let metadata = fs::metadata(root).map_err(fail)?;
        if !metadata.is_dir() {
            return Err(PopulateError::NotADirectory(root.to_owned()));
        }
        let mut source = Self { root: root.to_owned(), entries: vec![entry(0, &[], &metadata)] };
        let mut level = 0..1;
        while !level.is_empty() {
            let directories: Vec<usize> =
                level.clone().filter(|at| source.entries[*at].kind == FileType::Directory).collect();
            let found: Vec<Vec<SourceEntry>> =
                directories.par_iter().map(|at| source.read_directory(*at)).collect::<Result<_, _>>()?;
            for (at, children) in directories.into_iter().zip(found) {
                let start = source.entries.len();
                source.entries.extend(children);
                source.entries[at].children = start..source.entries.len();
            }
            level = level.end..source.entries.len();
        }
        Ok(source)
    }

    /// Upper bound on the data, in whole sectors, in bytes.
    pub fn data_bytes(&self) -> u64 {
        let sector = u64::from(crate::mkfs::SECTORSIZE);
        let files = self.entries.iter().filter(|entry| entry.kind == FileType::Regular);
        // A source that compresses, or keeps what is small in its inodes, has less than it would take without.
        let one = |file: &SourceEntry| match file.may_have_holes() {
            true => file.size.min(file.allocated_bytes.saturating_mul(COMPRESSED_SHARE)),
            false => file.size,
        };
        files.map(|file| one(file).next_multiple_of(sector)).fold(0, u64::saturating_add)
    }

    /// Approximate metadata, in bytes: rather more than less.
    pub fn metadata_bytes(&self) -> u64 {
        let one = |entry: &SourceEntry| {
            let inline = if entry.size < u64::from(crate::mkfs::SECTORSIZE) { entry.size } else { 0 };
            // Extents of compressed data, and checksums of a few bytes for each sector.
            let extents = (entry.size >> 17) * 128 + (entry.size >> 12) * 8;
            ENTRY_BYTES + 3 * brindle_ondisk::to_u64(entry.name.len()) + inline + extents
        };
        self.entries.iter().map(one).sum()
    }

    /// Path of a file in the source, if it is there, by its device and inode number.
    pub fn find_file(&self, identity: (u64, u64)) -> Option<PathBuf> {
        let at = self.entries.iter().position(|entry| entry.identity == identity)?;
        Some(self.path(at))
    }

    /// Units of the progress of taking it in: bytes of data, and one more for each entry.
    pub fn units(&self) -> u64 {
        self.data_bytes() + brindle_ondisk::to_u64(self.count())
    }

    /// Number of entries, the root among them.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Path of an entry.
    pub(super) fn path(&self, at: usize) -> PathBuf {
        let mut names = Vec::new();
        let mut above = at;
        while above != 0 {
            names.push(OsStr::from_bytes(&self.entries[above].name));
            above = self.entries[above].parent;
        }
        let mut path = self.root.clone();
        path.extend(names.into_iter().rev());
        path
    }

    /// The entry at a path within the source.
    pub(super) fn find(&self, path: &Path) -> Option<usize> {
        let mut at = 0;
        for part in path.components() {
            match part {
                std::path::Component::CurDir => {}
                std::path::Component::Normal(name) => {
                    let children = self.entries[at].children.clone();
                    let found = self.entries[children.clone()]
                        .binary_search_by(|entry| (*entry.name).cmp(name.as_bytes()));
                    at = children.start + found.ok()?;
                }
                _ => return None,
            }
        }
        Some(at)
    }

    fn read_directory(&self, at: usize) -> Result<Vec<SourceEntry>, PopulateError> {
        let path = self.path(at);
        let fail = |source| PopulateError::Source { path: path.clone(), source };
        let mut found = Vec::new();
        for child in fs::read_dir(&path).map_err(fail)? {
            let child = child.map_err(fail)?;
            let metadata = match child.metadata() {
                // It has gone since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => {
                    metadata.map_err(|source| PopulateError::Source { path: child.path(), source })?
                }
            };
            found.push(entry(at, child.file_name().as_bytes(), &metadata));
        }
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }
}

impl SourceEntry {
    /// Returns true if it is worth asking for its holes.
    pub(super) fn may_have_holes(&self) -> bool {
        self.allocated_bytes < self.size
    }
}

fn entry(parent: usize, name: &[u8], metadata: &Metadata) -> SourceEntry {
    let time = |seconds, nanoseconds: i64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    };
    let kind = FileType::from_mode(metadata.mode()).expect("the kernel has no other types");
    let rdev = metadata.rdev();
    SourceEntry {
        parent,
        name: name.into(),
        kind,
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: if kind == FileType::Regular { metadata.size() } else { 0 },
        rdev: u64::from(rustix::fs::major(rdev)) << 20 | u64::from(rustix::fs::minor(rdev)),
        identity: (metadata.dev(), metadata.ino()),
        links: metadata.nlink(),
        allocated_bytes: metadata.blocks() * BLOCK_BYTES,
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        children: 0..0,
    }
}
