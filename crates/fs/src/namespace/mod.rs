//! Names: making, linking, renaming and removing what directories hold.
//!
//! Each operation takes the locks that [`inodes`](crate::inodes) tells of, checks everything that can be refused,
//! and only then takes part in the transaction: one part for the whole operation, so that a commit has all of it
//! or nothing, and an error behind the first changed item means that the pool is broken, not the request.
//!
//! What the VFS checks before it asks a filesystem is its business and not repeated here: permissions, the sticky
//! bit, the caller's limits. Checked is what would harm the pool, and what Linux does not know behind FUSE:
//! immutable and append-only inodes.

pub(crate) mod create;
pub(crate) mod edit;
pub(crate) mod inherit;
mod link;
mod rename;
mod unlink;

use crate::error::FsError;
use std::sync::Arc;

use inherit::Inherited;

/// The longest name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// State that is locked with the names of an inode.
#[derive(Debug, Default)]
pub(crate) struct NameState {
    /// The index of a directory's next entry, once it has been looked up.
    pub(crate) next_index: Option<u64>,
    /// Number of openers; the inode stays while there are any, also without a name.
    pub(crate) opens: u32,
    /// True if it has no name (any more), and goes with its last opener.
    pub(crate) is_unnamed: bool,
    /// True if it was made without a name, and may get one.
    pub(crate) is_linkable: bool,
    /// True while a thread is removing it.
    pub(crate) is_going: bool,
    /// Inherited properties of new entries of a directory, once they have been looked up.
    pub(crate) inherited: Option<Arc<Inherited>>,
}

/// An inode to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInode<'a> {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Permissions not to be given, unless the directory has a default ACL, which then counts instead. 0 if the
    /// caller has applied it.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group; that of the directory, if that has the set-group-id bit.
    pub gid: u32,
    /// Device number of a device node, as on disk: major from bit 20 on, minor in the low 20 bits.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Option<&'a [u8]>,
}

/// Treatment of a rename's target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// The inode that has the new name loses it.
    #[default]
    Replace,
    /// Refuses if the new name is taken (`RENAME_NOREPLACE`).
    NoReplace,
    /// The two change places (`RENAME_EXCHANGE`).
    Exchange,
    /// Like `Replace`, and leaves a character device of number 0 under the old name (`RENAME_WHITEOUT`).
    Whiteout {
        /// Its owner.
        uid: u32,
        /// Its group; that of the directory, if that has the set-group-id bit.
        gid: u32,
    },
}

/// Refuses what can't be a name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong(name.to_vec()));
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(FsError::InvalidName(name.to_vec()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert!(matches!(check_name(name), Err(FsError::InvalidName(_))), "{name:?}");
        }
        assert!(matches!(check_name(&[b'a'; 256]), Err(FsError::NameTooLong(_))));
        for name in [&b"a"[..], b"...", b" ", b"\xff", &[b'a'; 255]] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
