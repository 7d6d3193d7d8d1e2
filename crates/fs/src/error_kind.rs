//! Kinds of errors: what a caller can do something about, each with a number of its own in the system's interface.

use crate::error::FsError;
use brindle_tree::{QuotaError, TreeError};

/// Kind of an [`FsError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no such name, subvolume or tree (`ENOENT`).
    NotFound,
    /// The inode is gone (`ESTALE`).
    Stale,
    /// The name is taken (`EEXIST`).
    Exists,
    /// Something else than a directory (`ENOTDIR`).
    NotADirectory,
    /// A directory (`EISDIR`).
    IsADirectory,
    /// The directory or subvolume is not empty (`ENOTEMPTY`).
    NotEmpty,
    /// The request makes no sense for this file or range (`EINVAL`).
    Invalid,
    /// A name is too long (`ENAMETOOLONG`).
    NameTooLong,
    /// Too many names of the same hash (`EOVERFLOW`).
    TooManyCollisions,
    /// The inode has as many names as it can have (`EMLINK`).
    TooManyLinks,
    /// The file would pass the greatest size (`EFBIG`).
    TooLarge,
    /// Two subvolumes are involved (`EXDEV`).
    CrossSubvolume,
    /// Flags of the inode, or the kind of subvolume, forbid it (`EPERM`).
    NotPermitted,
    /// There is no such extended attribute (`ENODATA`).
    NoAttribute,
    /// There is no space left (`ENOSPC`).
    NoSpace,
    /// A quota group has all that it may have (`EDQUOT`).
    QuotaExceeded,
    /// The pool has no quota groups (`ENOTCONN`).
    QuotasOff,
    /// The pool or the subvolume is only read (`EROFS`).
    ReadOnly,
    /// The request is not supported (`EOPNOTSUPP`).
    Unsupported,
    /// The path has no end (`ELOOP`).
    Loop,
    /// There is no such device (`ENODEV`).
    NoDevice,
    /// Another operation stands in the way (`EBUSY`).
    Busy,
    /// The caller is gone, and nothing was changed (`EINTR`).
    Interrupted,
    /// A device failed, or what lies on the devices is damaged (`EIO`).
    Damaged,
}

impl FsError {
    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound(_) | Self::NoSubvolume(_) | Self::DeletedSubvolume(_) => ErrorKind::NotFound,
            Self::NoInode(_) => ErrorKind::Stale,
            Self::Exists(_) | Self::XattrExists(_) => ErrorKind::Exists,
            Self::NotADirectory(_) => ErrorKind::NotADirectory,
            Self::IsADirectory(_) => ErrorKind::IsADirectory,
            Self::NotEmpty(_) | Self::NestedSubvolume(..) => ErrorKind::NotEmpty,
            Self::NotAFile(_)
            | Self::NotASymlink(_)
            | Self::NotASubvolume(_)
            | Self::InvalidName(_)
            | Self::Invalid { .. } => ErrorKind::Invalid,
            Self::NameTooLong(_) => ErrorKind::NameTooLong,
            Self::TooManyCollisions(_) => ErrorKind::TooManyCollisions,
            Self::TooManyLinks(_) => ErrorKind::TooManyLinks,
            Self::TooLarge(_) => ErrorKind::TooLarge,
            Self::CrossSubvolume(_) => ErrorKind::CrossSubvolume,
            Self::NotPermitted { .. } | Self::DefaultSubvolume(_) => ErrorKind::NotPermitted,
            Self::HeldSubvolume(_) => ErrorKind::Busy,
            Self::NoXattr(_) => ErrorKind::NoAttribute,
            Self::XattrTooLarge(_) => ErrorKind::NoSpace,
            Self::ReadOnlySubvolume(_) => ErrorKind::ReadOnly,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::SubvolumeLoop(_) => ErrorKind::Loop,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::WriteBack { why, .. } => why.kind(),
            Self::Log(why) | Self::Relocation(why) => why.kind(),
            Self::DamagedTree { .. }
            | Self::Data { .. }
            | Self::NoChecksum { .. }
            | Self::Decompress { .. }
            | Self::Item { .. } => ErrorKind::Damaged,
            Self::Tree(error) => kind_of_tree_error(error),
        }
    }
}

/// The kind of an error of a tree, or of the pool as a whole.
fn kind_of_tree_error(error: &TreeError) -> ErrorKind {
    match error {
        TreeError::NoSpace(_) => ErrorKind::NoSpace,
        TreeError::Quota(error) => kind_of_quota_error(error),
        TreeError::ReadOnly(_) => ErrorKind::ReadOnly,
        TreeError::NoDevice(_) => ErrorKind::NoDevice,
        TreeError::NoTree(_) => ErrorKind::NotFound,
        TreeError::UnderWay(_) | TreeError::ReplacementInterrupted { .. } | TreeError::Busy { .. } => {
            ErrorKind::Busy
        }
        TreeError::Volume(_)
        | TreeError::Read(_)
        | TreeError::KeyBeyondBound { .. }
        | TreeError::WrongTree { .. }
        | TreeError::Item { .. }
        | TreeError::Exists { .. }
        | TreeError::TooLarge { .. }
        | TreeError::Space { .. }
        | TreeError::Refused(_)
        | TreeError::Unsettled
        | TreeError::Replace(_)
        | TreeError::NoRoots { .. }
        | TreeError::Write(_) => ErrorKind::Damaged,
    }
}

fn kind_of_quota_error(error: &QuotaError) -> ErrorKind {
    match error {
        QuotaError::Exceeded { .. } => ErrorKind::QuotaExceeded,
        QuotaError::Off => ErrorKind::QuotasOff,
        QuotaError::Simple | QuotaError::OtherMode(_) => ErrorKind::Invalid,
        QuotaError::NoGroup(_) | QuotaError::NotRelated { .. } => ErrorKind::NotFound,
        QuotaError::Exists(_) | QuotaError::Related { .. } => ErrorKind::Exists,
        QuotaError::Level { .. } => ErrorKind::Invalid,
        QuotaError::HasMembers(_)
        | QuotaError::HasExtents(_)
        | QuotaError::InUse(_)
        | QuotaError::Rescanning => ErrorKind::Busy,
    }
}
