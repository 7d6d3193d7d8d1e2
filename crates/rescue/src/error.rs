//! Errors of repairs.

use brindle_device::DeviceError;
use brindle_ondisk::Generation;
use brindle_tree::TreeError;
use brindle_volume::VolumeError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason why a repair was not made, or not undone.
#[derive(Debug, Error)]
pub enum RescueError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The pool can't be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A tree can't be read or changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The undo file can't be made or read.
    #[error("undo file {}: {source}", .path.display())]
    UndoFile {
        /// The file.
        path: PathBuf,
        /// Error of the host.
        source: io::Error,
    },
    /// The undo file is not one, or is damaged.
    #[error("undo file {}: {why}", .path.display())]
    UndoDamaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: &'static str,
    },
    /// A device was written since.
    #[error(
        "{device}: at offset {offset} is neither what the repair wrote nor what was there before: nothing was undone"
    )]
    Changed {
        /// The device.
        device: String,
        /// Offset on it, in bytes.
        offset: u64,
    },
    /// None of the devices is one that the undo file is about.
    #[error(
        "no device given is {name}, {size_bytes} bytes, of which the undo file has contents: nothing was undone"
    )]
    NoSuchDevice {
        /// Its name when the file was made.
        name: String,
        /// Its size.
        size_bytes: u64,
    },
    /// Not all devices that the repair has written are given.
    #[error("the repair has written {needed} devices, and {given} are given: nothing was undone")]
    TooFewDevices {
        /// Devices given.
        given: usize,
        /// Devices written.
        needed: usize,
    },
    /// The repair does not fit into one transaction.
    #[error(
        "the repair takes more than one transaction (generation {before} to {after}), and a crash between them could not be \
         survived: nothing was written"
    )]
    Transactions {
        /// Generation of the pool.
        before: Generation,
        /// Generation of the rehearsal.
        after: Generation,
    },
    /// The pool lacks something that the repair needs.
    #[error("{0}: nothing was written")]
    Refused(String),
    /// The rehearsal ended in a pool that is worse.
    #[error(
        "a repair in memory led to a finding that the pool does not have, and so nothing was written: {0}"
    )]
    Worse(String),
}
