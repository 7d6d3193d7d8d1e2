//! Errors of devices.

use std::io;
use thiserror::Error;

/// Reason for which a device could not be opened, read or written.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A setting of a device that it does not have, or a value that the setting can't have.
    #[error("{device}: {why}")]
    Setting {
        /// The device.
        device: String,
        /// The reason.
        why: String,
    },
    /// Opening failed.
    #[error("cannot open {device}: {source}")]
    Open {
        /// The path.
        device: String,
        /// The host's reason.
        source: io::Error,
    },
    /// Neither a file nor a block device.
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
        /// First byte of the range.
        offset: u64,
        /// Length in bytes.
        length: usize,
        /// The host's reason.
        source: io::Error,
    },
    /// The device is in use: by a mounted filesystem, a RAID, a loop device.
    #[error("{device} is in use: {by}")]
    Busy {
        /// The path.
        device: String,
        /// The user, as far as is known.
        by: String,
    },
    /// A write failed.
    #[error("{device}: writing {length} bytes at offset {offset}: {source}")]
    Write {
        /// The path.
        device: String,
        /// First byte of the range.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// The host's reason.
        source: io::Error,
    },
    /// Flushing failed: writes may not be durable.
    #[error("{device}: flushing: {source}")]
    Flush {
        /// The path.
        device: String,
        /// The host's reason.
        source: io::Error,
    },
    /// The size of an image can't be changed.
    #[error("{device}: cannot make it {size_bytes} bytes long: {source}")]
    SetSize {
        /// The path.
        device: String,
        /// The size asked for.
        size_bytes: u64,
        /// The host's reason.
        source: io::Error,
    },
    /// A block device is as large as it is.
    #[error("{device} is a block device, whose size can't be set")]
    FixedSize {
        /// The path.
        device: String,
    },
    /// A read or write passes the end.
    #[error("{device}: {length} bytes at offset {offset} lie beyond its end at {size_bytes}")]
    BeyondEnd {
        /// The path.
        device: String,
        /// First byte of the range.
        offset: u64,
        /// Length in bytes.
        length: usize,
        /// The device's size in bytes.
        size_bytes: u64,
    },
}
