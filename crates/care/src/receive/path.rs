//! Paths of a stream: they begin at the root of the subvolume, and never leave it.

use super::error::ReceiveProblem;
use brindle_fs::{FileType, Filesystem, FsError, InodeId, ObjectId};

/// The directory and the last name of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathParts<'p> {
    /// Path of the directory; empty of the root.
    pub directory: &'p [u8],
    /// The name in it.
    pub name: &'p [u8],
}

/// Splits a path that names something other than the root.
///
/// # Errors
/// A path that could lead out of the subvolume, or that of its root.
pub fn split(path: &[u8]) -> Result<PathParts<'_>, ReceiveProblem> {
    check_path(path)?;
    let refuse = |why| ReceiveProblem::Path { path: path.to_vec(), why };
    if path.is_empty() {
        return Err(refuse("is the root of the subvolume"));
    }
    Ok(match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => PathParts { directory: &path[..at], name: &path[at + 1..] },
        None => PathParts { directory: b"", name: path },
    })
}

/// Refuses a path that could lead out of the subvolume.
///
/// # Errors
/// An absolute path, an empty name, `.`, `..` or NUL.
pub fn check_path(path: &[u8]) -> Result<(), ReceiveProblem> {
    let refuse = |why| Err(ReceiveProblem::Path { path: path.to_vec(), why });
    if path.is_empty() {
        return Ok(());
    }
    if path[0] == b'/' {
        return refuse("is absolute");
    }
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" => return refuse("has an empty name"),
            b"." | b".." => return refuse("has the name . or .."),
            name if name.contains(&0) => return refuse("has a NUL"),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a name for a subvolume that is not one name.
///
/// # Errors
/// A path.
pub fn check_name(name: &[u8]) -> Result<(), ReceiveProblem> {
    let PathParts { directory, .. } = split(name)?;
    if !directory.is_empty() {
        return Err(ReceiveProblem::Path { path: name.to_vec(), why: "is not the name of a subvolume" });
    }
    Ok(())
}

/// A file or directory, and its type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: InodeId,
    pub(super) kind: FileType,
}

/// The inode of a path from a root; symbolic links and other subvolumes are not entered.
pub(super) fn find(filesystem: &Filesystem, root: InodeId, path: &[u8]) -> Result<Found, ReceiveProblem> {
    check_path(path)?;
    let mut at = Found { id: root, kind: FileType::Directory };
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if at.kind != FileType::Directory {
            return Err(ReceiveProblem::Path {
                path: path.to_vec(),
                why: "goes through what is no directory",
            });
        }
        let entry = filesystem.lookup(at.id, name)?;
        let entry = entry.ok_or_else(|| FsError::NotFound(path.to_vec()))?;
        let is_inside = entry.inode.tree == root.tree && entry.inode.number >= ObjectId::FIRST_FREE;
        if !is_inside || entry.inode == root {
            return Err(ReceiveProblem::Path { path: path.to_vec(), why: "leads into another subvolume" });
        }
        at = Found { id: entry.inode, kind: entry.kind };
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in [&b"/etc/passwd"[..], b"..", b"a/../../b", b".", b"a/./b", b"a//b", b"a/", b"a\0b"] {
            assert!(matches!(split(path), Err(ReceiveProblem::Path { .. })), "{path:?}");
        }
        let PathParts { directory, name } = split(b"a/b/...").expect("a path");
        assert_eq!((directory, name), (&b"a/b"[..], &b"..."[..]));
        assert!(check_name(b"a/b").is_err() && check_name(b"").is_err() && check_name(b"a").is_ok());
    }
}
