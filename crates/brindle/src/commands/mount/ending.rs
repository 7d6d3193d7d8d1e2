//! Servers of mounts that are gone, on their way to the end.
//!
//! umount(8) returns when the mount is gone from the tree, and its server then makes the last commit. A new mount of the
//! same pool again waits for that, instead of being refused.

use crate::commands::processes::{holders, may_serve};
use anyhow::anyhow;
use brindle_admin::{ControlError, Mounted};
use brindle_cache::path_of;
use brindle_device::DeviceError;
use brindle_uapi::mount_table::{self, Mount};
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time to wait for its end.
const PATIENCE: Duration = Duration::from_secs(30);
/// A process that is being taken apart holds a device for a moment after it can no longer be seen to.
const UNSEEN: Duration = Duration::from_secs(1);
/// Interval of looking.
const PAUSE: Duration = Duration::from_millis(20);

/// The time there is for waiting.
pub(super) struct Patience {
    began: Instant,
    /// Time at which a server was last seen on its way to the end.
    seen: Cell<Instant>,
}

impl Patience {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { began: now, seen: Cell::new(now) }
    }

    /// Waits a moment if the process that has the device open is the server of a mount that is gone, or is not seen;
    /// returns false if waiting makes no sense.
    pub(super) fn wait(&self, device: &Path) -> bool {
        let device = &path_of(device);
        let waits = match holders(device) {
            Some(holders) if holders.is_empty() => self.seen.get().elapsed() < UNSEEN,
            Some(holders) if are_ending(&holders, device) => {
                self.seen.set(Instant::now());
                self.began.elapsed() < PATIENCE
            }
            _ => false,
        };
        if waits {
            std::thread::sleep(PAUSE);
        }
        waits
    }
}

/// Returns true if none of these processes, which have the device open, serves a mount any more.
fn are_ending(holders: &[u32], device: &Path) -> bool {
    let mut mounts = candidates(mount_table::read().unwrap_or_default(), device);
    mounts.retain(|mount| may_serve(holders, mount));
    let alive = live_servers(mounts);
    holders.iter().all(|holder| !alive.contains(holder))
}

/// The mounts to be asked for their servers: those that show the device as their source. Only if there are none (the source
/// can be given by `fsname=`), all of ours, for to ask a mount keeps it from being unmounted for a moment.
fn candidates(mounts: Vec<Mount>, device: &Path) -> Vec<Mount> {
    let ours = mounts.into_iter().filter(Mount::is_ours);
    let (shown, others): (Vec<_>, Vec<_>) = ours.partition(|mount| shows(mount, device));
    if shown.is_empty() { others } else { shown }
}

/// Returns true if a mount shows a device as its source, or as one of several.
fn shows(mount: &Mount, device: &Path) -> bool {
    let source = mount.source.as_os_str().as_bytes();
    source.split(|byte| *byte == b':').any(|shown| {
        let shown = Path::new(OsStr::from_bytes(shown));
        shown.file_name() == device.file_name() || shown.canonicalize().is_ok_and(|shown| shown == device)
    })
}

/// The error of a device that is in use, with the way out if what uses it is a mount on the block device whose server has ended.
pub(super) fn name_abandoned(error: anyhow::Error) -> anyhow::Error {
    let Some(DeviceError::Busy { device, .. }) = error.downcast_ref() else { return error };
    let path = Path::new(device).canonicalize().unwrap_or_default();
    let mounts = mount_table::read().unwrap_or_default();
    let mut shown = mounts.iter().filter(|mount| mount.is_on_block_device() && shows(mount, &path));
    let ended =
        shown.find_map(|mount| Mounted::open(&mount.mountpoint).err().filter(ControlError::is_end_of_server));
    match ended {
        Some(ended) => anyhow!("{device} is in use: {ended}"),
        None => error,
    }
}

/// The processes that serve these mounts.
fn live_servers(mounts: Vec<Mount>) -> Vec<u32> {
    let server = |mount: Mount| Some(Mounted::open(&mount.mountpoint).ok()?.server().ok()?.process);
    mounts.into_iter().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_other_devices_are_left_alone() {
        let table =
            b"30 22 0:40 / /mnt/a rw,nodev shared:7 - fuse.brindle x.img:/images/y.img rw,user_id=0\n\
            31 22 0:41 / /mnt/b rw - fuse.brindle /images/z.img rw\n\
            32 31 0:42 / /mnt rw - tmpfs y.img rw\n";
        let asked = |device: &str| {
            let asked = candidates(mount_table::parse(table), Path::new(device));
            asked.into_iter().map(|mount| mount.device).collect::<Vec<_>>()
        };
        assert_eq!(asked("/images/y.img"), ["0:40"]);
        assert_eq!(asked("/images/z.img"), ["0:41"]);
        assert_eq!(asked("/images/renamed.img"), ["0:40", "0:41"]);
    }

    #[test]
    fn unopened_devices_are_not_waited_for_long() {
        let patience = Patience::new();
        assert!(!patience.wait(Path::new("/nowhere")));
        while patience.wait(Path::new("/proc/self/exe")) {}
        assert!(patience.began.elapsed() >= UNSEEN);
    }
}
