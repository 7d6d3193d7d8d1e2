//! Names: making, linking, renaming and removing what directories hold.
//!
//! Each operation takes the locks that [`inodes`](crate::core::inodes) tells of, checks everything that can be refused,
//! and only then takes part in the transaction: one part for the whole operation, so that a commit has all of it
//! or nothing, and an error behind the first changed item means that the pool is broken, not the request.
//!
//! What the VFS checks before it asks a filesystem is its business and not repeated here: permissions, the sticky
//! bit, the caller's limits. Checked is what would harm the pool, and what Linux does not know behind FUSE:
//! immutable and append-only inodes.

pub(crate) mod create;
pub(crate) mod inherit;
mod link;
mod rename;
mod unlink;

use crate::core::Core;
use crate::data::FileData;
use crate::directory::Directories;
use crate::hold::Holds;
use crate::items::InodeItems;
use crate::orphan::Orphans;
use crate::read::Reader;
use crate::subvolume::Subvolumes;
use std::sync::Arc;

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
    /// Leaves a character device of number 0 under the old name (`RENAME_WHITEOUT`).
    Whiteout {
        /// Like `Replace` if true, else like `NoReplace`.
        replaces: bool,
        /// Its owner.
        uid: u32,
        /// Its group; that of the directory, if that has the set-group-id bit.
        gid: u32,
    },
}

impl RenameMode {
    /// Returns true if a new name that is taken is a reason to refuse.
    pub(crate) fn keeps_target(self) -> bool {
        matches!(self, Self::NoReplace | Self::Whiteout { replaces: false, .. })
    }
}

/// Makes, links, renames and removes names, and the inodes that come and go with them.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) core: Arc<Core>,
    pub(crate) items: Arc<InodeItems>,
    pub(crate) directories: Arc<Directories>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) data: Arc<FileData>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) subvolumes: Arc<Subvolumes>,
}
