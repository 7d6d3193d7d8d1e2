//! Detection of writers of a pool that is about to be read: its contents may then change underneath.

use crate::commands::processes::is_written;
use brindle_admin::Uuid;
use brindle_cache::{CacheWord, inspect};
use brindle_device::{DeviceError, FileDevice};
use brindle_lab::Client;
use brindle_uapi::mount_table;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

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

/// Types of the mounts that show a cache as a file.
const SHOWING: [&[u8]; 2] = [b"fuse.brindle-cache", b"fuse.brindle-export"];

/// The error of opening a cache that another process has in use, with the file that shows its contents, if there is one.
pub(crate) fn name_served(word: &Path, error: DeviceError) -> DeviceError {
    let DeviceError::Busy { device, by } = error else { return error };
    let by = match served_file(word) {
        Some(file) => format!("{by}; its contents are read from {}", file.display()),
        None => by,
    };
    DeviceError::Busy { device, by }
}

fn served_file(word: &Path) -> Option<PathBuf> {
    let word = CacheWord::parse(word).ok()??;
    let ssds: Vec<PathBuf> = [Some(&word.flash), word.mirror.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|ssd| std::path::absolute(ssd).ok())
        .collect();
    let names: Vec<String> = ssds
        .iter()
        .filter_map(|ssd| Some(inspect(&FileDevice::open(ssd).ok()?).ok()?.name))
        .chain([word.name()])
        .collect();
    let shows = |mount: &mount_table::Mount| {
        SHOWING.contains(&mount.kind.as_slice()) && names.iter().any(|name| mount.source == Path::new(name))
    };
    let client = mount_table::read()
        .ok()?
        .into_iter()
        .filter(shows)
        .filter_map(|mount| Client::of_any(&mount.mountpoint).ok())
        .find(|client| client.status_text().is_ok_and(|text| has_one(&text, &ssds)))?;
    Some(client.disk())
}

/// Returns true if a state is that of a cache on one of these SSDs.
fn has_one(status: &str, ssds: &[PathBuf]) -> bool {
    let named = status.lines().find_map(|line| line.strip_prefix("ssd ")).unwrap_or_default();
    ssds.iter().any(|ssd| ssd.to_str().is_some_and(|ssd| named.contains(ssd)))
}
