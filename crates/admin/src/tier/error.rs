//! Reasons for which tiers could not be put right.

use crate::control::ControlError;
use brindle_ondisk::DevId;
use brindle_policy::tier::plan::NoRoom;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason for which tiers could not be put right.
#[derive(Debug, Error)]
pub enum TierError {
    /// The kernel did not do what it was asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A file beside the pool could not be read or written.
    #[error("{path}: {source}")]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A journal is not what we write.
    #[error("{path}: no journal of fences: {why}")]
    Journal {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// Another process works on the tiers.
    #[error("{0}: another process works on the tiers of this pool")]
    Locked(PathBuf),
    /// The kernel does something that excludes all else.
    #[error("the pool is busy: {0}; try again when that has ended")]
    Busy(String),
    /// A device is not there.
    #[error("device {0} is missing: nothing is moved in a degraded pool")]
    Missing(DevId),
    /// The pool that was watched is another one now.
    #[error("the devices of the pool are others than before: begin anew, to tell which of them are fast")]
    OtherDevices,
    /// A device of a pool that has grown from another one, and is read only.
    #[error("{0}: a seed device; tiers of a pool that has grown from a seed are not told apart")]
    Seed(DevId),
    /// There is no room for it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<NoRoom>),
    /// Moves were tried, and did not help.
    #[error(
        "{chunks} chunks with {bytes} bytes are still misplaced: the kernel has put their contents into free space between what \
             the fenced devices hold, has no room for a chunk, or has passed over them (swap files); `btrfs balance start \
             -dusage=50` before may help"
    )]
    Stuck {
        /// Number of chunks.
        chunks: usize,
        /// Used bytes in them.
        bytes: u64,
    },
    /// A device that is to be fenced has left the pool.
    #[error("device {0}, which was to be fenced, has left the pool")]
    OtherDevice(DevId),
    /// A fence could not be taken down.
    #[error("{source}; the sizes of devices are to be restored by `brindle tier recover`{}", after(.first.as_deref()))]
    Fenced {
        /// The reason.
        source: Box<TierError>,
        /// The earlier failure.
        first: Option<Box<TierError>>,
    },
}

fn after(first: Option<&TierError>) -> String {
    first.map_or(String::new(), |first| format!(" (it began with: {first})"))
}
