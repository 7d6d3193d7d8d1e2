//! Errors.

use brindle_device::DeviceError;
use brindle_fs::{ErrorKind, FsError};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Failure of a call.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A device could not be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The pool could not be opened, or an operation of all of it failed.
    #[error(transparent)]
    Pool(Box<FsError>),
    /// An operation on a file or directory failed.
    #[error("{}: {}", path.display(), without_path(source))]
    File {
        /// The path as it was given.
        path: PathBuf,
        /// Cause.
        source: Box<FsError>,
    },
    /// Too many symbolic links lead to one another.
    #[error("{}: more than {} symbolic links on the way", path.display(), crate::walk::LINKS_MAX)]
    Loop {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The root, and paths that end in `.` or `..`, can't be renamed or removed.
    #[error("{}: the root, or a path that ends in . or .., can't be renamed or removed", path.display())]
    Nameless {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Only a part of the contents found room.
    #[error("{}: no space is left for all of it", path.display())]
    Full {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A thread could not be made.
    #[error("no thread for the upkeep of the pool: {0}")]
    Thread(io::Error),
}

impl Error {
    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Pool(error) | Self::File { source: error, .. } => error.kind(),
            Self::Loop { .. } => ErrorKind::Loop,
            Self::Full { .. } => ErrorKind::NoSpace,
            Self::Thread(_) | Self::Nameless { .. } => ErrorKind::Busy,
            Self::Device(DeviceError::Busy { .. }) => ErrorKind::Busy,
            Self::Device(DeviceError::NotADevice { .. }) => ErrorKind::Invalid,
            Self::Device(DeviceError::Open { source, .. }) => match source.kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                io::ErrorKind::PermissionDenied => ErrorKind::NotPermitted,
                io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
                _ => ErrorKind::Damaged,
            },
            Self::Device(_) => ErrorKind::Damaged,
        }
    }

    /// Error that a reader or writer of the standard library returns for a file of ours.
    pub(crate) fn from_io(path: &Path, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            // `write_all` of a full pool.
            Err(_) => Self::Full { path: path.to_owned() },
        }
    }

    /// Error of the pool.
    pub(crate) fn of_pool(error: FsError) -> Self {
        Self::Pool(Box::new(error))
    }

    /// Error of an operation on the file of a path.
    pub(crate) fn at(path: &Path) -> impl Fn(FsError) -> Self {
        move |source| Self::File { path: path.to_owned(), source: Box::new(source) }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(io_kind(error.kind()), error)
    }
}

/// The text of an error that stands behind a path.
fn without_path(error: &FsError) -> String {
    match error {
        FsError::NotFound(_) => "no such file or directory".to_owned(),
        FsError::Exists(_) => "exists already".to_owned(),
        error => error.to_string(),
    }
}

/// The system's kind for a kind.
fn io_kind(kind: ErrorKind) -> io::ErrorKind {
    match kind {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::Stale => io::ErrorKind::StaleNetworkFileHandle,
        ErrorKind::Exists => io::ErrorKind::AlreadyExists,
        ErrorKind::NotADirectory => io::ErrorKind::NotADirectory,
        ErrorKind::IsADirectory => io::ErrorKind::IsADirectory,
        ErrorKind::NotEmpty => io::ErrorKind::DirectoryNotEmpty,
        ErrorKind::Invalid => io::ErrorKind::InvalidInput,
        ErrorKind::NameTooLong => io::Error::from(Errno::NAMETOOLONG).kind(),
        ErrorKind::TooManyLinks => io::ErrorKind::TooManyLinks,
        ErrorKind::TooLarge => io::ErrorKind::FileTooLarge,
        ErrorKind::CrossSubvolume => io::ErrorKind::CrossesDevices,
        ErrorKind::NotPermitted => io::ErrorKind::PermissionDenied,
        ErrorKind::NoSpace => io::ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded => io::ErrorKind::QuotaExceeded,
        ErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
        ErrorKind::Unsupported => io::ErrorKind::Unsupported,
        ErrorKind::Busy => io::ErrorKind::ResourceBusy,
        ErrorKind::Interrupted => io::ErrorKind::Interrupted,
        ErrorKind::NoAttribute
        | ErrorKind::TooManyCollisions
        | ErrorKind::Loop
        | ErrorKind::NoDevice
        | ErrorKind::QuotasOff
        | ErrorKind::Damaged => io::ErrorKind::Other,
    }
}
