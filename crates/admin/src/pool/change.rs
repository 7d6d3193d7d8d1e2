//! A change of a pool's devices, as a value and as the message to the process that serves a mount.

use super::AdminError;
use brindle_care::device::{AddOptions, Leaving, NewSize, ReplaceOptions};
use brindle_care::job::{Control, Progress};
use brindle_device::is_remote;
use brindle_ondisk::DevId;
use brindle_policy::placement::PlacementClass;
use brindle_uapi::message::{
    DEVICE_ADD, DEVICE_AVOID, DEVICE_BULK, DEVICE_DISCARD, DEVICE_FAST, DEVICE_FORCE, DEVICE_REJOIN,
    DEVICE_REMOVE, DEVICE_REPLACE, DEVICE_RESIZE, DeviceStart, SIZE_GROW, SIZE_MAX, SIZE_SHRINK, SIZE_TO,
    field,
};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zerocopy::FromZeros;

/// Change of the devices.
#[derive(Clone, Debug)]
pub enum Change {
    /// A device joins.
    Add {
        /// Its path, or the URI of an export.
        path: PathBuf,
        /// Side that is stored for it.
        class: Option<PlacementClass>,
        /// Name of its class within the side, one that the pool lists.
        class_name: Option<String>,
        /// Treatment of its contents.
        options: AddOptions,
    },
    /// A device leaves.
    Remove(Leaving),
    /// A device gets another size.
    Resize(DevId, NewSize),
    /// A device takes the place of another.
    Replace {
        /// The other one.
        which: Leaving,
        /// Path of the device.
        path: PathBuf,
        /// Treatment of both.
        options: ReplaceOptions,
    },
    /// A device that was away comes back.
    Rejoin {
        /// Its path.
        path: PathBuf,
    },
}

/// Result of a change.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// The device, if its id is known.
    pub devid: Option<u64>,
    /// Progress of the block groups that had to be emptied, or of the device extents that were copied.
    pub progress: Progress,
    /// Last control of the observer: to go on, if the change is complete.
    pub control: Control,
}

impl Changed {
    /// A change that moved nothing.
    pub(super) fn at_once(devid: Option<u64>) -> Self {
        Self { devid, progress: Progress::default(), control: Control::Continue }
    }
}

impl Change {
    /// Message to the process that serves a mount: it opens a device that joins, by an absolute path or a URI.
    pub(super) fn message(&self) -> Result<DeviceStart, AdminError> {
        let mut message = DeviceStart::new_zeroed();
        match self {
            Self::Add { path, class, options, .. } => {
                (message.change, message.path) = (DEVICE_ADD, path_field(path)?);
                message.flags = flags([
                    (options.force, DEVICE_FORCE),
                    (options.discard, DEVICE_DISCARD),
                    (*class == Some(PlacementClass::Fast), DEVICE_FAST),
                    (*class == Some(PlacementClass::Bulk), DEVICE_BULK),
                ]);
            }
            Self::Replace { which, path, options } => {
                (message.change, message.path) = (DEVICE_REPLACE, path_field(path)?);
                message.devid = which.devid().unwrap_or(0);
                message.flags = flags([
                    (options.force, DEVICE_FORCE),
                    (options.discard, DEVICE_DISCARD),
                    (options.avoid_source, DEVICE_AVOID),
                ]);
            }
            Self::Rejoin { path } => (message.change, message.path) = (DEVICE_REJOIN, path_field(path)?),
            Self::Remove(which) => {
                (message.change, message.devid) = (DEVICE_REMOVE, which.devid().unwrap_or(0));
            }
            Self::Resize(devid, size) => {
                (message.change, message.devid) = (DEVICE_RESIZE, devid.get());
                (message.size_kind, message.size_bytes) = match *size {
                    NewSize::Max => (SIZE_MAX, 0),
                    NewSize::To(bytes) => (SIZE_TO, bytes),
                    NewSize::Grow(bytes) => (SIZE_GROW, bytes),
                    NewSize::Shrink(bytes) => (SIZE_SHRINK, bytes),
                };
            }
        }
        Ok(message)
    }
}

/// A device as a message has it: an absolute path, or the URI of an export.
fn path_field<const N: usize>(word: &Path) -> Result<[u8; N], AdminError> {
    let word = if is_remote(word) { word.to_owned() } else { absolute(word)? };
    field(word.as_os_str().as_bytes()).ok_or(AdminError::LongPath)
}

/// The flags that are set.
fn flags<const N: usize>(flags: [(bool, u64); N]) -> u64 {
    flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
}

/// A path without links, from the root on.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, AdminError> {
    path.canonicalize().map_err(|source| AdminError::Path { path: path.to_owned(), source })
}
