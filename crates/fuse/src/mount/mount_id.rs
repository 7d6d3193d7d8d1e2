//! The identity of a mount.

use brindle_uapi::mount_table;
use std::path::{Path, PathBuf};

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

    /// The directories that a mount with this number is the topmost one on, in the order in which they were mounted.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let mounts = mount_table::read().unwrap_or_default();
        let is_topmost = |place: &Path| {
            mount_table::at(&mounts, place)
                .is_some_and(|topmost| topmost.device == self.0 && topmost.is_ours())
        };
        let ours = mounts.iter().filter(|mount| mount.device == self.0);
        ours.map(|mount| mount.mountpoint.clone()).filter(|place| is_topmost(place)).collect()
    }

    /// The number of the connection.
    pub(crate) fn connection(&self) -> Option<u32> {
        mount_table::connection(&self.0)
    }

    /// `major:minor`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
