//! Other processes of this program, and the devices that they have open, as far as we may look.

use brindle_cache::path_of;
use brindle_uapi::mount_table::Mount;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Time in which the processes that can be looked at are.
const PATIENCE: Duration = Duration::from_secs(10);

/// The other processes of this program that have a device open.
pub(crate) fn holders(device: &Path) -> Option<Vec<u32>> {
    let device = path_of(device).canonicalize().ok()?;
    Some(servers().filter(|process| has_open(*process, &device)).collect())
}

/// Other processes of this program, as far as we may look.
fn servers() -> impl Iterator<Item = u32> {
    let own = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    numbers().filter(move |process| {
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        *process != std::process::id() && !own.is_empty() && comm == own
    })
}

fn has_open(process: u32, device: &Path) -> bool {
    descriptors(process, device).next().is_some()
}

/// Returns true if one of these processes may serve a mount. Its server can be asked by way of the mount, but one that hangs never
/// answers: so those of other mounts are told apart by their connections, where the kernel shows these.
pub(crate) fn may_serve(processes: &[u32], mount: &Mount) -> bool {
    let connection = |process: u32| connections(process).find_map(|number| number);
    processes
        .iter()
        .any(|process| connection(*process).is_none_or(|number| Some(number) == mount.connection()))
}

/// Returns true if a live process is seen to serve a mount. Where the kernel does not show the connections, any mount of this program
/// counts as that. A process that waits in execve(2), as for the close of a file on that mount, can't be looked at, and is no server.
pub(crate) fn is_served(mount: &Mount) -> bool {
    let (own, sought) = (program("self"), mount.connection());
    let (seen, answers) = channel();
    for process in numbers() {
        let (own, seen) = (own.clone(), seen.clone());
        // One that waits is left behind.
        std::thread::spawn(move || seen.send(serves(process, sought, own.as_deref())));
    }
    drop(seen);
    let end = Instant::now() + PATIENCE;
    let mut answers =
        std::iter::from_fn(|| answers.recv_timeout(end.saturating_duration_since(Instant::now())).ok());
    answers.any(|serves| serves)
}

/// Returns true if a process serves the connection that is sought, or where that is not shown, if it runs the program `own`.
fn serves(process: u32, sought: Option<u32>, own: Option<&str>) -> bool {
    connections(process).any(|number| match number {
        Some(number) => Some(number) == sought,
        None => own.is_some() && program(&process.to_string()).as_deref() == own,
    })
}

/// The numbers of all processes that we see.
fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The path of a process's program, also of one that was replaced by another version.
fn program(process: &str) -> Option<String> {
    let path = fs::read_link(format!("/proc/{process}/exe")).ok()?.into_os_string().into_string().ok()?;
    Some(path.trim_end_matches(" (deleted)").to_owned())
}

/// The connections of FUSE that a process serves; their numbers, where the kernel shows these. One that was killed serves none, though
/// it may have threads that can't end.
fn connections(process: u32) -> impl Iterator<Item = Option<u32>> {
    descriptors(process, Path::new("/dev/fuse")).map(move |number| {
        let info = format!("/proc/{process}/fdinfo/{}", number.to_string_lossy());
        connection_of(&fs::read_to_string(info).ok()?)
    })
}

/// The number of a connection of FUSE, by the `fdinfo` of a descriptor (since Linux 6.18).
fn connection_of(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim().parse().ok()
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
            fs::read_to_string(format!("/proc/{process}/fdinfo/{}", number.to_string_lossy())).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_uapi::mount_table;

    #[test]
    fn connections_are_numbered_by_the_devices_of_mounts() {
        let info = "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nfuse_connection:\t7340033\n";
        let mounts = mount_table::parse(b"44 27 7:1 / /m rw - fuseblk.brindle /dev/loop1 rw\n");
        assert_eq!((connection_of(info), mounts[0].connection()), (Some(7_340_033), Some(7_340_033)));
        assert_eq!(connection_of("pos:\t0\n"), None);
        assert!(may_serve(&[u32::MAX], &mounts[0]), "not known");
        assert!(!may_serve(&[], &mounts[0]));
    }

    #[test]
    fn descriptors_say_what_they_are_for() {
        assert!(is_to_write("pos:\t0\nflags:\t02100002\nmnt_id:\t30\n"));
        assert!(!is_to_write("pos:\t0\nflags:\t0100000\nmnt_id:\t30\n") && !is_to_write(""));
    }
}
