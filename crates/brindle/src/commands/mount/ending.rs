//! Servers of mounts that are gone, on their way to the end.
//!
//! umount(8) returns when the mount is gone from the tree, and its server then makes the last commit. A new mount of the
//! same pool again waits for that, instead of being refused.

use brindle_admin::Mounted;
use brindle_cache::path_of;
use brindle_uapi::mount_table::{self, Mount};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs;
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

/// The other processes of this program that have a device open.
pub(super) fn holders(device: &Path) -> Option<Vec<u32>> {
    let device = path_of(device).canonicalize().ok()?;
    Some(servers().filter(|process| has_open(*process, &device)).collect())
}

/// Returns true if none of these processes, which have the device open, serves a mount any more.
fn are_ending(holders: &[u32], device: &Path) -> bool {
    let alive = live_servers(candidates(mount_table::read().unwrap_or_default(), device));
    holders.iter().all(|holder| !alive.contains(holder))
}

/// Other processes of this program, as far as we may look.
fn servers() -> impl Iterator<Item = u32> {
    let own = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(move |process| {
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        *process != std::process::id() && !own.is_empty() && comm == own
    })
}

fn has_open(process: u32, device: &Path) -> bool {
    descriptors(process, device).next().is_some()
}

/// The descriptors by which a process has a device open.
fn descriptors<'d>(process: u32, device: &'d Path) -> impl Iterator<Item = OsString> + use<'d> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let is_it = move |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target == device);
    files.filter(is_it).map(|entry| entry.file_name())
}

/// Returns true if another process of this program has a device open to write it, as far as we may look.
pub(crate) fn is_written(device: &Path) -> bool {
    let Ok(device) = device.canonicalize() else { return false };
    let writes = |process: u32| {
        let mut info = descriptors(process, &device).filter_map(|number| {
            fs::read_to_string(format!("/proc/{process}/fdinfo/{}", number.display())).ok()
        });
        info.any(|info| is_to_write(&info))
    };
    servers().any(writes)
}

/// Returns true if a descriptor is one to write, by its `fdinfo`.
fn is_to_write(info: &str) -> bool {
    const READ_ONLY: u32 = 0;
    const ACCESS: u32 = 0b11;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != READ_ONLY)
}

/// The mounts to be asked for their servers: those that show the device as their source. Only if there are none (the source
/// can be given by `fsname=`), all of ours, for to ask a mount keeps it from being unmounted for a moment.
fn candidates(mounts: Vec<Mount>, device: &Path) -> Vec<Mount> {
    let shows_device = |mount: &Mount| {
        let source = mount.source.as_os_str().as_bytes();
        source.split(|byte| *byte == b':').any(|shown| {
            let shown = Path::new(OsStr::from_bytes(shown));
            shown.file_name() == device.file_name() || shown.canonicalize().is_ok_and(|shown| shown == device)
        })
    };
    let ours = mounts.into_iter().filter(Mount::is_ours);
    let (shown, others): (Vec<_>, Vec<_>) = ours.partition(shows_device);
    if shown.is_empty() { others } else { shown }
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
    fn descriptors_say_what_they_are_for() {
        assert!(is_to_write("pos:\t0\nflags:\t02100002\nmnt_id:\t30\n"));
        assert!(!is_to_write("pos:\t0\nflags:\t0100000\nmnt_id:\t30\n") && !is_to_write(""));
    }

    #[test]
    fn unopened_devices_are_not_waited_for_long() {
        let patience = Patience::new();
        assert!(!patience.wait(Path::new("/nowhere")));
        while patience.wait(Path::new("/proc/self/exe")) {}
        assert!(patience.began.elapsed() >= UNSEEN);
    }
}
