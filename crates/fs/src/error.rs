//! Errors of files.

use crate::attributes::InodeId;
use brindle_ondisk::{Defect, Key, Logical, RootId};
use brindle_tree::{TreeError, tree_name};
use brindle_volume::{ReadError, VolumeError};
use thiserror::Error;

/// Error of an operation on a file.
#[derive(Debug, Error)]
pub enum FsError {
    /// A tree could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A log could not be replayed.
    #[error(
        "the log of fsyncs after the last commit can't be replayed: {0}. The pool is as it was. If the cause can be \
         removed, as a full host can, nothing is lost: mount it again. Mounted with ro,nologreplay it shows the last commit; \
         `btrfs rescue zero-log` gives up what was fsynced since"
    )]
    Log(Box<FsError>),
    /// A relocation that the kernel was interrupted in could not be ended.
    #[error(
        "a relocation (balance, or removal of a device) was interrupted, and its remains can't be dropped: {0}. The \
         pool is read-only until the kernel has ended it"
    )]
    Relocation(Box<FsError>),
    /// A tree that is written with the files can't be read, so that nothing can be written.
    #[error("the pool can't be written without its {}: {source}", tree_name(*.tree))]
    DamagedTree {
        /// The tree.
        tree: RootId,
        /// The damage.
        source: Box<TreeError>,
    },
    /// Data could not be read.
    #[error("{file}, offset {offset}: {source}")]
    Data {
        /// The file.
        file: InodeId,
        /// Offset in bytes.
        offset: u64,
        /// Cause.
        source: ReadError,
    },
    /// A file that has checksums lacks some.
    #[error(
        "{file}, offset {offset}: only {found} of {sectors} sectors from logical {at} on have a checksum"
    )]
    NoChecksum {
        /// The file.
        file: InodeId,
        /// Offset in bytes.
        offset: u64,
        /// Address of the sectors.
        at: Logical,
        /// Number of sectors.
        sectors: usize,
        /// Number of them with a checksum.
        found: usize,
    },
    /// Compressed data is nonsense although its checksum is right.
    #[error("{file}, offset {offset}: corrupt {algorithm} extent at logical {at}: {why}")]
    Decompress {
        /// The file.
        file: InodeId,
        /// Offset in bytes.
        offset: u64,
        /// The compression.
        algorithm: brindle_ondisk::item::Compression,
        /// Address of the extent; 0 if inline.
        at: Logical,
        /// The problem.
        why: String,
    },
    /// An item of a file is nonsense in its place.
    #[error("{file}: corrupt item {key}: {defect}")]
    Item {
        /// The file.
        file: InodeId,
        /// The item's key.
        key: Key,
        /// The defect.
        defect: Defect,
    },
    /// There is no such name.
    #[error("no such file or directory: {}", String::from_utf8_lossy(.0))]
    NotFound(Vec<u8>),
    /// The name is taken.
    #[error("{} exists already", String::from_utf8_lossy(.0))]
    Exists(Vec<u8>),
    /// Nothing can have this name.
    #[error("invalid name {:?}", String::from_utf8_lossy(.0))]
    InvalidName(Vec<u8>),
    /// A name, or what a symbolic link says, is too long.
    #[error("name too long: {}", String::from_utf8_lossy(.0))]
    NameTooLong(Vec<u8>),
    /// Too many names of one directory have the same hash for this one to fit (`EOVERFLOW`).
    #[error("no room for another name of the hash of {}", String::from_utf8_lossy(.0))]
    TooManyCollisions(Vec<u8>),
    /// Only an empty directory can be removed.
    #[error("{0} is not empty")]
    NotEmpty(InodeId),
    /// An inode can't have names in several subvolumes.
    #[error("{0} can't leave its subvolume")]
    CrossSubvolume(InodeId),
    /// The inode has as many names as it can have.
    #[error("{0} has too many names")]
    TooManyLinks(InodeId),
    /// The inode's flags forbid it (`EPERM`).
    #[error("{file}: {why}")]
    NotPermitted {
        /// The inode.
        file: InodeId,
        /// Reason.
        why: &'static str,
    },
    /// The request is not supported (`EOPNOTSUPP`).
    #[error("{file}: {what} that is not supported")]
    Unsupported {
        /// The inode.
        file: InodeId,
        /// The request.
        what: &'static str,
    },
    /// There is no such extended attribute.
    #[error("no extended attribute {}", String::from_utf8_lossy(.0))]
    NoXattr(Vec<u8>),
    /// There is such an extended attribute already.
    #[error("there is an extended attribute {} already", String::from_utf8_lossy(.0))]
    XattrExists(Vec<u8>),
    /// An extended attribute does not fit into a tree block (`ENOSPC`).
    #[error("extended attribute {} is too large", String::from_utf8_lossy(.0))]
    XattrTooLarge(Vec<u8>),
    /// The subvolume is read-only.
    #[error("subvolume {0} is read-only")]
    ReadOnlySubvolume(RootId),
    /// The subvolume is sent, or received from, and stays read-only and undeleted for as long (`EBUSY`).
    #[error("subvolume {0} is being sent, or is what a stream builds on")]
    HeldSubvolume(RootId),
    /// The subvolume is the default one, and can't be deleted (`EPERM`).
    #[error("subvolume {0} is the default one")]
    DefaultSubvolume(RootId),
    /// The subvolume has others below it (`ENOTEMPTY`).
    #[error("subvolume {0} holds subvolume {1}")]
    NestedSubvolume(RootId, RootId),
    /// There is no such inode.
    #[error("{0} does not exist")]
    NoInode(InodeId),
    /// Something else was looked for.
    #[error("{0} is not a directory")]
    NotADirectory(InodeId),
    /// A directory has no contents to read.
    #[error("{0} is a directory")]
    IsADirectory(InodeId),
    /// The range or the file is not one that this can be done with (`EINVAL`).
    #[error("{file}: {why}")]
    Invalid {
        /// The file.
        file: InodeId,
        /// Reason.
        why: &'static str,
    },
    /// The file would pass the greatest size (`EFBIG`).
    #[error("{0} would become too large")]
    TooLarge(InodeId),
    /// Contents written earlier could not be brought to the devices, and are lost.
    #[error("{file}: contents were lost when they were written back: {why}")]
    WriteBack {
        /// The file.
        file: InodeId,
        /// Cause.
        why: std::sync::Arc<Self>,
    },
    /// Only regular files and symbolic links have contents.
    #[error("{0} is not a regular file")]
    NotAFile(InodeId),
    /// Only symbolic links have a target.
    #[error("{0} is not a symbolic link")]
    NotASymlink(InodeId),
    /// There is no such subvolume.
    #[error("there is no subvolume {0}")]
    NoSubvolume(RootId),
    /// The subvolume is being deleted.
    #[error("subvolume {0} is deleted")]
    DeletedSubvolume(RootId),
    /// The caller was killed before anything was changed.
    #[error("the caller is gone")]
    Interrupted,
    /// The path leads to something that is no subvolume.
    #[error("{} is not a subvolume", String::from_utf8_lossy(.0))]
    NotASubvolume(Vec<u8>),
    /// A path goes through too many levels.
    #[error("the subvolumes above {0} form a loop")]
    SubvolumeLoop(RootId),
}

impl FsError {
    /// The part of a pool that is damaged in every copy, if that is the error.
    pub fn damage(&self) -> Option<Damage> {
        let if_data = |is_damage: bool| is_damage.then_some(Damage::Data);
        match self {
            Self::Tree(error) => error.is_damage().then_some(Damage::Trees),
            Self::DamagedTree { .. } => Some(Damage::Trees),
            Self::Log(error) | Self::Relocation(error) => error.damage(),
            Self::Data { source, .. } => if_data(source.is_damage()),
            Self::NoChecksum { .. } => Some(Damage::Data),
            Self::Item { .. } => Some(Damage::Trees),
            _ => None,
        }
    }

    /// Returns true if every copy of a tree block lies on a device that is missing.
    pub(crate) fn lacks_devices(&self) -> bool {
        matches!(self, Self::Tree(error) if error.lacks_devices())
    }
}

/// Damaged part of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// Contents of files.
    Data,
    /// Names, and everything else.
    Trees,
}

impl From<VolumeError> for FsError {
    fn from(error: VolumeError) -> Self {
        Self::Tree(error.into())
    }
}
