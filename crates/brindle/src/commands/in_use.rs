//! Detection of writers of a pool that is about to be read: its contents may then change underneath.

use crate::commands::processes::is_written;
use brindle_admin::Uuid;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;

/// A writer of a pool.
#[derive(Debug)]
pub(crate) enum Writer {
    /// The kernel has the pool mounted.
    Kernel {
        /// A device that was named.
        device: String,
        /// The block device by which the kernel has it.
        by: String,
    },
    /// Another process of ours has the pool open.
    Brindle {
        /// A device that was named.
        device: String,
    },
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { device, by } => {
                write!(
                    f,
                    "{device}: the kernel has the pool mounted ({by}); its writes meanwhile may look like damage"
                )
            }
            Self::Brindle { device } => write!(
                f,
                "{device}: another process of brindle has the pool open to write it; what it writes meanwhile may \
                 look like damage"
            ),
        }
    }
}

/// The writer of the pool `fsid`, of which `devices` are a part.
pub(crate) fn writer_of(fsid: &Uuid, devices: &[String]) -> Option<Writer> {
    if let Some((device, by)) = mounted_by_kernel(fsid, devices) {
        return Some(Writer::Kernel { device, by });
    }
    let device = devices.iter().find(|device| is_claimed(Path::new(device)))?.clone();
    Some(Writer::Brindle { device })
}

/// Warns if the kernel has one of `devices` mounted as part of the pool `fsid`, or another process of ours writes it.
pub(crate) fn warn_if_used(fsid: &Uuid, devices: &[String]) {
    if let Some(writer) = writer_of(fsid, devices) {
        tracing::warn!("{writer}");
    }
}

/// Returns true if a process of ours has a device open to write it. Of an image that shows in its lock, to all users;
/// of a block device in the files that the process has open, to users with the permission to look.
fn is_claimed(device: &Path) -> bool {
    let Ok(file) = File::open(device) else { return false };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => {
            flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
        }
        _ => is_written(device),
    }
}

/// The first of `devices` that the kernel's btrfs has mounted as part of the pool `fsid`, and as which block
/// device: itself, or the loop device that shows the image file.
fn mounted_by_kernel(fsid: &Uuid, devices: &[String]) -> Option<(String, String)> {
    let mounted = fs::read_dir(format!("/sys/fs/btrfs/{fsid}/devices")).ok()?;
    mounted.flatten().find_map(|entry| {
        let block_device = entry.file_name().into_string().ok()?;
        let device = devices.iter().find(|device| shows(&block_device, Path::new(device)))?;
        Some((device.clone(), format!("/dev/{block_device}")))
    })
}

/// Returns true if a block device is this one, or shows this file.
fn shows(block_device: &str, device: &Path) -> bool {
    let Ok(device) = device.canonicalize() else {
        return false;
    };
    let backing = fs::read_to_string(format!("/sys/class/block/{block_device}/loop/backing_file"));
    device == Path::new("/dev").join(block_device)
        || backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == device)
}
