//! Errors of a server.

use std::io;
use thiserror::Error;

/// Reason for which a server could not be started.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The place can't be listened at.
    #[error("cannot listen at {place}: {source}")]
    Listen {
        /// The socket or port.
        place: String,
        /// The host's reason.
        source: io::Error,
    },
    /// Another server listens at the socket.
    #[error("{place}: another server listens there")]
    Used {
        /// The socket.
        place: String,
    },
    /// A name that clients can't be told.
    #[error("the name of an export has at most {max} bytes and no NUL, and this one has {found} bytes", max = brindle_nbd::NAME_BYTES_MAX)]
    Name {
        /// Its length in bytes.
        found: usize,
    },
    /// No thread, no descriptor.
    #[error("cannot start a server: {0}")]
    Start(io::Error),
}
