//! The identity of a mount.

use brindle_uapi::mount_table;
use std::path::Path;

/// A mount by the device number that the kernel made up for it, as `major:minor`. When the mount is gone, the
/// next one gets the number, wherever that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountId(String);

impl MountId {
    /// The topmost mount on this directory.
    pub(crate) fn on(mountpoint: &Path) -> Option<Self> {
        let mounts = mount_table::read().ok()?;
        mount_table::at(&mounts, mountpoint).map(|mount| Self(mount.device.clone()))
    }

    /// `major:minor`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
