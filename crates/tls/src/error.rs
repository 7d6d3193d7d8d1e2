//! Errors of credentials.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason for which credentials can't be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// No directory was named, and none is where one is looked for.
    #[error("no certificates: name their directory by tls-certificates=, or put them into one of {places}")]
    NoDirectory {
        /// Directories that were looked for.
        places: String,
    },
    /// A file can't be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A file is damaged, or has none of what it is for.
    #[error("{path}: {why}")]
    Contents {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Certificates and keys that can't be used together.
    #[error("{directory}: the certificates can't be used: {why}")]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        why: String,
    },
}
