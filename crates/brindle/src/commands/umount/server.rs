//! The process that serves a mount, from the time before an unmount until its end.
//!
//! It ends when the last mount of its filesystem is gone, and not when one of several is: bind mounts are others, and copies
//! in other mount namespaces (containers, units of systemd with a namespace of their own). Those keep the devices in use, and so
//! does a mount that was detached while files were open there.

use super::holders::{name_of, processes};
use crate::commands::cache::UsedCache;
use crate::commands::filesystem::sync_what_fits;
use anyhow::{Result, bail};
use brindle_admin::{ControlError, Mounted};
use brindle_uapi::mount_table::{self, Mount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The process that serves a mount, if it ends with that.
pub(super) struct Server {
    handle: OwnedFd,
    process: u32,
    /// Failure to write everything while the mount was there.
    unsynced: Option<ControlError>,
    /// Caches among the devices, which it closes at its end.
    caches: Vec<UsedCache>,
}

/// State in which everything is on the devices.
#[derive(PartialEq, Eq)]
enum Settled {
    /// The server has ended.
    Ended,
    /// The filesystem is mounted at another place too.
    Synced,
}

/// The time between two looks for other mounts while the server is waited for.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest wait for a server of which it can't be seen whether it still serves.
const PATIENCE: Duration = Duration::from_secs(60);
/// The directory of all connections of FUSE, each by its number.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

impl Server {
    /// Finds it, and has it write what it can while the mount is still there.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let mounted = Mounted::open(path).ok()?;
        let info = mounted.server().ok()?;
        let is_writable = info.is_writable != 0;
        let unsynced = if is_writable { sync_what_fits(&mounted, path).err() } else { None };
        let caches = if is_writable { mounted.caches().unwrap_or_default() } else { Vec::new() };
        let caches = caches.iter().filter_map(|(_, lines)| UsedCache::of(lines)).collect();
        let process = Pid::from_raw(info.process as i32)?;
        let handle = pidfd_open(process, PidfdFlags::empty()).ok()?;
        Some(Self { handle, process: info.process, unsynced, caches })
    }

    /// Waits until all that was written is on the devices: until its end, or, where something else keeps the filesystem
    /// mounted, for a sync. Fails if some of it did not get there.
    pub(super) fn settle(self, unmounted: &Mount) -> Result<()> {
        if self.wait(unmounted)? == Settled::Ended {
            self.caches.iter().try_for_each(UsedCache::check_closed)?;
        }
        match self.unsynced {
            None => Ok(()),
            Some(error) => bail!(
                "{}: unmounted, but not all that was written is on the devices: {error}",
                unmounted.mountpoint.display()
            ),
        }
    }

    fn wait(&self, unmounted: &Mount) -> Result<Settled> {
        let here =
            || mount_table::read().unwrap_or_default().into_iter().find(|mount| mount.is_of(unmounted));
        if let Some(other) = here() {
            return sync(&other.mountpoint).map(|()| Settled::Synced);
        }
        let began = Instant::now();
        while !self.ends_within(PAUSE) {
            if let Some((process, mountpoint)) = mounted_elsewhere(unmounted) {
                tracing::warn!(
                    "{}: still mounted in another mount namespace, that of process {process} ({}): the devices stay in use",
                    unmounted.mountpoint.display(),
                    name_of(process)
                );
                let other = Path::new(&format!("/proc/{process}/root")).join(mountpoint);
                return sync(&other).map(|()| Settled::Synced);
            }
            match is_connected(unmounted) {
                // It makes its last commit.
                Some(false) => {}
                None if began.elapsed() < PATIENCE => {}
                _ => self.explain(unmounted)?,
            }
        }
        Ok(Settled::Ended)
    }

    fn explain(&self, unmounted: &Mount) -> Result<()> {
        bail!(
            "{}: unmounted, but process {} serves it still, and the devices stay in use: it may be mounted in another mount \
             namespace, or was detached while a file was open",
            unmounted.mountpoint.display(),
            self.process
        )
    }

    /// Waits for its end; false if that has not come in this time.
    fn ends_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
            let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
            match poll(&mut ended, left.ok().as_ref()) {
                Err(Errno::INTR) => {}
                Ok(0) => return false,
                _ => return true,
            }
        }
    }
}

/// Syncs what is still mounted at another place.
fn sync(at: &Path) -> Result<()> {
    match Mounted::open(at) {
        Ok(mounted) => Ok(sync_what_fits(&mounted, at)?),
        // All but what was written in the meantime was synced before the unmount.
        Err(error) => {
            tracing::debug!("{error}");
            Ok(())
        }
    }
}

/// A process that sees a mount of this filesystem in a namespace of its own, and where; as far as we may look.
fn mounted_elsewhere(unmounted: &Mount) -> Option<(u32, PathBuf)> {
    let mut seen: HashSet<PathBuf> = std::fs::read_link("/proc/self/ns/mnt").into_iter().collect();
    processes().find_map(|process| {
        let namespace = std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok()?;
        if !seen.insert(namespace) {
            return None;
        }
        let mounts = mount_table::read_of(process).ok()?;
        let mount = mounts.into_iter().find(|mount| mount.is_of(unmounted))?;
        Some((process, mount.mountpoint.strip_prefix("/").ok()?.to_owned()))
    })
}

/// Returns true if the kernel has the filesystem still; `None` if it does not say.
fn is_connected(unmounted: &Mount) -> Option<bool> {
    let connection = unmounted.connection()?.to_string();
    let mut all = std::fs::read_dir(CONNECTIONS).ok()?.flatten().peekable();
    // An empty list may be the list itself that is not mounted.
    all.peek()?;
    Some(all.any(|entry| entry.file_name() == connection.as_str()))
}
