//! Why a directory could not be taken in.

use brindle_fs::FsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a directory could not be taken in.
#[derive(Debug, Error)]
pub enum PopulateError {
    /// A source can't be read.
    #[error("{}: {source}", path.display())]
    Source {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The source is no directory.
    #[error("{}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// What an option names is not there, or not what it must be.
    #[error("{}: {why}", path.display())]
    Rule {
        /// The path within the source.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// A bug: whoever read it panicked.
    #[error("{}: what reads it has failed, which is a bug in brindle", path.display())]
    Panic {
        /// The path, or that of one that was read together with it.
        path: PathBuf,
    },
    /// The pool could not take something in.
    #[error("{}: {source}", path.display())]
    Entry {
        /// The path in the source.
        path: PathBuf,
        /// Why.
        source: Box<FsError>,
    },
    /// There is too little space.
    #[error(
        "{}: no space left in the pool: at least {missing_bytes} bytes more are needed for the contents of the files \
         that are still to come ({source})", path.display()
    )]
    NoSpace {
        /// What did not fit any more.
        path: PathBuf,
        /// How much more data there is, in bytes.
        missing_bytes: u64,
        /// What was wanting.
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
