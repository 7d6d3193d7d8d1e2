//! Errors of taking in a directory.

use brindle_fs::FsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Error of taking in a directory.
#[derive(Debug, Error)]
pub enum PopulateError {
    /// A source can't be read.
    #[error("{}: {source}", path.display())]
    Source {
        /// Its path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The source is no directory.
    #[error("{}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A file named by an option does not exist, or is of the wrong kind.
    #[error("{}: {why}", path.display())]
    Rule {
        /// The path within the source.
        path: PathBuf,
        /// The problem.
        why: &'static str,
    },
    /// The observer has stopped it.
    #[error("stopped before all was taken in")]
    Stopped,
    /// A bug: the thread that read it panicked.
    #[error("{}: the thread that reads it has failed, which is a bug in brindle", path.display())]
    Panic {
        /// The path, or that of one that was read together with it.
        path: PathBuf,
    },
    /// The pool could not take something in.
    #[error("{}: {source}", path.display())]
    Entry {
        /// The path in the source.
        path: PathBuf,
        /// Cause.
        source: Box<FsError>,
    },
    /// There is too little space.
    #[error(
        "{}: no space left in the pool: at least {missing_bytes} bytes more are needed for the contents of the files \
         that are still to come ({source})", path.display()
    )]
    NoSpace {
        /// First file that did not fit.
        path: PathBuf,
        /// Further data, in bytes.
        missing_bytes: u64,
        /// The refusal.
        source: Box<FsError>,
    },
    /// The pool could not be written.
    #[error(transparent)]
    Filesystem(Box<FsError>),
}

impl From<FsError> for PopulateError {
    fn from(error: FsError) -> Self {
        Self::Filesystem(Box::new(error))
    }
}
