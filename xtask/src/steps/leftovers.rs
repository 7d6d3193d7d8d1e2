//! Processes, mounts and loop devices that steps leave behind in their folder. After a step that was killed, all three; a
//! process that is left by another holds the output of the chore open, which so would never end for its reader.

use super::child::wait;
use super::processes;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time to detach a loop device.
const DETACH: Duration = Duration::from_secs(10);

/// Kills the processes, and detaches the mounts and loop devices of a folder, and names each.
pub(super) fn clear(folder: &Path, report: &mut dyn Write) {
    // A report that can't be written is no reason to leave anything.
    let mut say = |text: String| drop(writeln!(report, "{text}"));
    for process in processes::members(None, folder) {
        say(format!("left running, and killed: {}", process.command_line()));
        process.kill();
    }
    // Files of devices have no path any more once the mount that they lie on is detached.
    let devices = loop_devices(folder);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for mount in mounts(&table, folder).iter().rev() {
        let ended = unmount(mount, UnmountFlags::DETACH);
        say(format!("left mounted, and detached: {}{}", mount.display(), failure(ended.is_ok())));
    }
    for device in devices {
        let is_done = detach(&device);
        say(format!("left attached, and detached: {}{}", device.display(), failure(is_done)));
    }
}

fn failure(is_done: bool) -> &'static str {
    if is_done { "" } else { " (in vain)" }
}

/// Points of mounts below a folder, in the order in which they were made.
fn mounts(table: &str, folder: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(folder)).collect()
}

/// Loop devices with a file below a folder.
fn loop_devices(folder: &Path) -> Vec<PathBuf> {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let is_ours = |block: &fs::DirEntry| {
        fs::read_to_string(block.path().join("loop/backing_file"))
            .is_ok_and(|file| Path::new(&file).starts_with(folder))
    };
    blocks.filter(is_ours).map(|block| Path::new("/dev").join(block.file_name())).collect()
}

fn detach(device: &Path) -> bool {
    let child =
        Command::new("losetup").arg("-d").arg(device).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    child.is_ok_and(|mut child| {
        let ended = wait(&mut child, DETACH, &[]);
        matches!(ended, Ok(super::child::Ended::Exited(status)) if status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_the_folder_are_ours() {
        let table = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
                     40 22 0:50 / /tmp/xtask-a/m rw shared:5 - fuse.brindle b rw\n\
                     41 40 0:51 / /tmp/xtask-a/m/below rw - btrfs /dev/loop1 rw\n\
                     42 22 0:52 / /tmp/xtask-ab rw - tmpfs none rw\n";
        let found = mounts(table, Path::new("/tmp/xtask-a"));
        assert_eq!(found, [Path::new("/tmp/xtask-a/m"), Path::new("/tmp/xtask-a/m/below")]);
    }
}
