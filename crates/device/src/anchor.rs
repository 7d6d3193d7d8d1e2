//! Anchors: a loop device for each mount of an image, for the kernel to claim. It shows the first 4 KiB of the image alone, in
//! which no pool is found, and is neither read nor written.

use crate::loop_device::{AUTOCLEAR, Setup, attach};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// An anchor, which goes away when its last user has closed it.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    /// Keeps the device attached until another user has opened it.
    #[expect(dead_code, reason = "it is held, not read")]
    device: OwnedFd,
}

/// Bytes of an anchor.
pub(crate) const ANCHOR_BYTES: u64 = 4096;

impl Anchor {
    /// Attaches a free loop device to the beginning of an image.
    ///
    /// # Errors
    /// Those of open(2) and of the ioctls: ENOENT or EACCES where there are no loop devices, or not for this user.
    pub fn attach(image: &Path) -> io::Result<Self> {
        let setup = Setup { size_limit: ANCHOR_BYTES, block_bytes: 0, flags: AUTOCLEAR };
        let (path, device) = attach(image, setup)?;
        Ok(Self { path, device })
    }

    /// Path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
