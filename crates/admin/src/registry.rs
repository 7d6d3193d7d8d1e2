//! Devices that the kernel knows: it finds the members of a pool among those that were made known to it.

use crate::call;
use crate::pool::AdminError;
use brindle_uapi::message::{self, VolumeArguments};
use brindle_uapi::verb;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zerocopy::FromZeros;

/// The kernel's list of devices.
#[derive(Debug)]
pub struct Registry(OwnedFd);

const CONTROL: &str = "/dev/btrfs-control";

impl Registry {
    /// Opens it.
    ///
    /// # Errors
    /// A kernel without btrfs, or a caller without the permission.
    pub fn open() -> Result<Self, AdminError> {
        let file = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        Ok(Self(file.map_err(|source| refused(Path::new(CONTROL), source))?))
    }

    /// Makes a device known.
    ///
    /// # Errors
    /// A device without btrfs, or one that the kernel can't open.
    pub fn scan(&self, device: &Path) -> Result<(), AdminError> {
        let arguments = named(device)?;
        call::set::<verb::ScanDevice>(&self.0, arguments).map_err(|source| refused(device, source))
    }

    /// Forgets a device that is not mounted; without one, all of them.
    ///
    /// # Errors
    /// A device that is mounted, or not known.
    pub fn forget(&self, device: Option<&Path>) -> Result<(), AdminError> {
        let arguments = device.map_or_else(|| Ok(VolumeArguments::new_zeroed()), named)?;
        let path = device.unwrap_or(Path::new(CONTROL));
        call::set::<verb::ForgetDevice>(&self.0, arguments).map_err(|source| refused(path, source))
    }
}

fn named(device: &Path) -> Result<VolumeArguments, AdminError> {
    // The kernel looks for the name by itself.
    let path =
        device.canonicalize().map_err(|source| AdminError::Path { path: device.to_owned(), source })?;
    let name = message::field(path.as_os_str().as_bytes());
    let name = name.ok_or_else(|| refused(device, Errno::NAMETOOLONG))?;
    Ok(VolumeArguments { name, ..VolumeArguments::new_zeroed() })
}

fn refused(path: &Path, source: Errno) -> AdminError {
    AdminError::Path { path: path.to_owned(), source: source.into() }
}
