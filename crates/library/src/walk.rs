//! Paths to inodes. A path begins at the root directory of the pool, with or without a slash; `..` of the root is the root.

use crate::Error;
use brindle_fs::{FileType, Filesystem, FsError, InodeId};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Number of symbolic links on the way that are followed, as in the kernel.
pub(crate) const LINKS_MAX: usize = 40;

/// Treatment of a symbolic link that is the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    /// The walk goes on to its target.
    Follow,
    /// Is kept: the path means it, unless a slash follows.
    Keep,
    /// Is kept, also before a slash: a name is made or taken away.
    Name,
}

/// The last part of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LastPart {
    /// A name in a directory.
    Name(Vec<u8>),
    /// The path is the root.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

/// The end of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The directory of the last part; the one that is meant, if that is no name.
    pub(crate) directory: InodeId,
    pub(crate) last: LastPart,
    /// The inode there, if there is one, and its type.
    pub(crate) target: Option<(InodeId, FileType)>,
    /// True if the path ends in a slash, which only directories may.
    is_of_directory: bool,
}

impl Place {
    /// The inode, which must be there.
    pub(crate) fn inode(&self, path: &Path) -> Result<InodeId, Error> {
        self.target(path).map(|(inode, _)| inode)
    }

    /// The inode and its type, which must be there.
    pub(crate) fn target(&self, path: &Path) -> Result<(InodeId, FileType), Error> {
        match self.target {
            None => Err(Error::at(path)(FsError::NotFound(bytes(path).to_vec()))),
            Some((inode, kind)) if self.is_of_directory && kind != FileType::Directory => {
                Err(Error::at(path)(FsError::NotADirectory(inode)))
            }
            Some(target) => Ok(target),
        }
    }

    /// The name for a directory that is to be made.
    pub(crate) fn name_of_new(&self, path: &Path) -> Result<&[u8], Error> {
        self.name_or(path, || FsError::Exists(bytes(path).to_vec()))
    }

    /// The name of something that is no directory. A path that ends in a slash can't mean it.
    pub(crate) fn name_of_file(&self, path: &Path) -> Result<&[u8], Error> {
        let refused = || FsError::IsADirectory(self.directory);
        if self.is_of_directory { Err(Error::at(path)(refused())) } else { self.name_or(path, refused) }
    }

    /// The name for a link that is to be made.
    pub(crate) fn name_of_link(&self, path: &Path) -> Result<&[u8], Error> {
        let named = |error: fn(Vec<u8>) -> FsError| Err(Error::at(path)(error(bytes(path).to_vec())));
        match self.target {
            Some(_) => named(FsError::Exists),
            None if self.is_of_directory => named(FsError::NotFound),
            None => self.name_of_new(path),
        }
    }

    /// The name of a directory that is to be removed.
    pub(crate) fn name_of_removed(&self, path: &Path) -> Result<&[u8], Error> {
        self.target(path)?;
        match &self.last {
            LastPart::DotDot => Err(Error::at(path)(FsError::NotEmpty(self.directory))),
            LastPart::Dot => Err(Error::at(path)(FsError::InvalidName(b".".to_vec()))),
            LastPart::Root => Err(Error::Nameless { path: path.to_owned() }),
            LastPart::Name(name) => Ok(name),
        }
    }

    /// The old or new name of something that is renamed.
    pub(crate) fn name_of_renamed(&self, path: &Path) -> Result<&[u8], Error> {
        match &self.last {
            LastPart::Name(name) => Ok(name),
            _ => Err(Error::Nameless { path: path.to_owned() }),
        }
    }

    /// Returns true if the path can only be that of a directory.
    pub(crate) fn is_of_directory(&self) -> bool {
        self.is_of_directory
    }

    fn name_or(&self, path: &Path, refused: impl Fn() -> FsError) -> Result<&[u8], Error> {
        match &self.last {
            LastPart::Name(name) => Ok(name),
            _ => Err(Error::at(path)(refused())),
        }
    }
}

/// Resolves a path. All of its parts but the last must be there.
pub(crate) fn walk(filesystem: &Filesystem, path: &Path, last: LastLink) -> Result<Place, Error> {
    let failed = Error::at(path);
    if bytes(path).is_empty() {
        return Err(failed(FsError::NotFound(Vec::new())));
    }
    let mut todo: VecDeque<Vec<u8>> = parts(bytes(path)).collect();
    let mut is_of_directory = bytes(path).ends_with(b"/");
    let (mut above, mut links, mut nameless) = (vec![filesystem.root()], 0, LastPart::Root);
    while let Some(part) = todo.pop_front() {
        let (directory, is_last) = (above[above.len() - 1], todo.is_empty());
        match part.as_slice() {
            b"." => {
                nameless = LastPart::Dot;
                continue;
            }
            b".." => {
                above.truncate((above.len() - 1).max(1));
                nameless = LastPart::DotDot;
                continue;
            }
            _ => {}
        }
        let Some(entry) = filesystem.lookup(directory, &part).map_err(&failed)? else {
            if !is_last {
                return Err(failed(FsError::NotFound(bytes(path).to_vec())));
            }
            return Ok(Place { directory, last: LastPart::Name(part), target: None, is_of_directory });
        };
        match entry.kind {
            FileType::Symlink if !is_last || follows_last(last, is_of_directory) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::Loop { path: path.to_owned() });
                }
                let target = filesystem.read_link(entry.inode).map_err(&failed)?;
                if target.first() == Some(&b'/') {
                    above.truncate(1);
                    nameless = LastPart::Root;
                }
                is_of_directory |= is_last && target.ends_with(b"/");
                parts(&target).rev().for_each(|part| todo.push_front(part));
            }
            kind if is_last => {
                let target = Some((entry.inode, kind));
                return Ok(Place { directory, last: LastPart::Name(part), target, is_of_directory });
            }
            FileType::Directory => above.push(entry.inode),
            _ => return Err(failed(FsError::NotADirectory(entry.inode))),
        }
    }
    let directory = above[above.len() - 1];
    let target = Some((directory, FileType::Directory));
    Ok(Place { directory, last: nameless, target, is_of_directory: true })
}

/// Returns true if a symbolic link at the end of the path is followed.
fn follows_last(last: LastLink, is_of_directory: bool) -> bool {
    match last {
        LastLink::Follow => true,
        LastLink::Keep => is_of_directory,
        LastLink::Name => false,
    }
}

/// The bytes of a path.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The parts of a path.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}
