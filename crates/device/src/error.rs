//! What can go wrong with a device.

use std::io;
use thiserror::Error;

/// Why a device could not be opened or read.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// It can't be opened.
    #[error("cannot open {device}: {source}")]
    Open {
        /// The path.
        device: String,
        /// The host's reason.
        source: io::Error,
    },
    /// It is neither a file nor a block device.
    #[error("{device} is neither an image file nor a block device")]
    NotADevice {
        /// The path.
        device: String,
    },
    /// A read failed.
    #[error("{device}: reading {length} bytes at offset {offset}: {source}")]
    Read {
        /// The path.
        device: String,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: usize,
        /// The host's reason.
        source: io::Error,
    },
    /// A read passes the end.
    #[error("{device}: {length} bytes at offset {offset} lie beyond its end at {size_bytes}")]
    BeyondEnd {
        /// The path.
        device: String,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: usize,
        /// The device's size in bytes.
        size_bytes: u64,
    },
}
