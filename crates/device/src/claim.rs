//! Claims: a block device that one user has for itself.

use crate::DeviceError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A claim on a block device, apart from the device itself, so that it can be given to a mount of the kernel.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    file: Option<File>,
}

impl Claim {
    /// Claims a block device.
    pub(crate) fn new(path: &Path) -> Result<Self, DeviceError> {
        let mut claim = Self { path: path.to_owned(), file: None };
        claim.renew()?;
        Ok(claim)
    }

    /// Gives up the claim, for the next user to take.
    pub fn release(&mut self) {
        self.file = None;
    }

    /// Takes the claim again, if it was released.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if another user was faster, [`DeviceError::Open`].
    pub fn renew(&mut self) -> Result<(), DeviceError> {
        if self.file.is_none() {
            let exclusive = OFlags::EXCL.bits().cast_signed();
            let opened = File::options().read(true).custom_flags(exclusive).open(&self.path);
            self.file = Some(opened.map_err(|source| refusal(&self.path, source))?);
        }
        Ok(())
    }
}

/// Error of opening a device.
pub(crate) fn refusal(path: &Path, source: io::Error) -> DeviceError {
    let device = path.display().to_string();
    match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => {
            let by = "it is mounted, or part of something that is running".to_owned();
            DeviceError::Busy { device, by }
        }
        _ => DeviceError::Open { device, source },
    }
}
