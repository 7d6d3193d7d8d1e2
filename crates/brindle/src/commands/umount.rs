//! `brindle umount`: ends a mount.

use crate::commands::filesystem::sync_what_fits;
use anyhow::{Context, Result, bail};
use brindle_kernel::Mounted;
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const EXAMPLES: &str = "\
EXAMPLES
    brindle umount /mnt
    brindle umount --lazy /mnt

EXIT STATUS
  0  the filesystem is unmounted
  1  it is busy, or is no mount of brindle
  2  wrong usage";

/// Unmount a filesystem that brindle has mounted
///
/// When the command returns, everything that was written is on the devices, and they may be used otherwise. With
/// --lazy that is so only once the process that serves the mount has ended.
#[derive(Args, Debug)]
#[command(visible_alias = "unmount", after_long_help = EXAMPLES)]
pub(crate) struct UmountCommand {
    /// Take it out of the directory tree at once, even if it is busy; it ends when its last user has gone
    #[arg(short, long)]
    lazy: bool,
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

/// The type of our mounts.
const MOUNT_TYPE: &[u8] = b"fuse.brindle";

/// Runs the command.
pub(crate) fn run(command: &UmountCommand) -> Result<ExitCode> {
    let given = command.mountpoint.display();
    // The server of the mount may be gone, and then the last name can't be looked at.
    let path = canonical(&command.mountpoint).with_context(|| format!("cannot find {given}"))?;
    let table = std::fs::read("/proc/self/mountinfo").context("cannot read the mount table")?;
    match mount_type(&table, &path) {
        None => bail!("{given}: nothing is mounted there"),
        Some(other) if other != MOUNT_TYPE => {
            bail!("{given}: not mounted by brindle; use umount for a mount of type {}", other.escape_ascii())
        }
        Some(_) => {}
    }
    let server = if command.lazy { None } else { Server::of(&path) };
    let flags = if command.lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(&path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => {}
        Err(Errno::PERM) => unmount_with_help(&path, command.lazy)?,
        Err(Errno::BUSY) => {
            bail!(
                "{given}: busy: somebody has a file open there, or stands in a directory of it; --lazy waits for them"
            )
        }
        Err(error) => return Err(error).with_context(|| format!("cannot unmount {given}")),
    }
    if let Some(server) = server {
        server.wait();
    }
    Ok(ExitCode::SUCCESS)
}

/// The process that serves a mount, if it ends with that.
struct Server(OwnedFd);

impl Server {
    /// Has it write what it can while the mount is still there.
    fn of(path: &Path) -> Option<Self> {
        let mounted = Mounted::open(path).ok()?;
        let info = mounted.server().ok()?;
        if info.is_writable != 0
            && let Err(error) = sync_what_fits(&mounted, path)
        {
            tracing::warn!("{error}");
        }
        let process = Pid::from_raw(info.process.cast_signed())?;
        pidfd_open(process, PidfdFlags::empty()).ok().map(Self)
    }

    /// Waits for its end: then its last commit is on the devices.
    fn wait(self) {
        loop {
            let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut ended, None) {
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
}

/// The path without symbolic links in its directories.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    path.canonicalize().or_else(|error| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Err(error),
    })
}

/// The type of what is mounted at a path: the last one, where several are.
fn mount_type<'t>(table: &'t [u8], path: &Path) -> Option<&'t [u8]> {
    let at = |line: &'t [u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let mountpoint = unescape(fields.nth(4)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (mountpoint == path.as_os_str().as_bytes()).then_some(kind)
    };
    table.split(|byte| *byte == b'\n').filter_map(at).next_back()
}

/// The mount table writes blanks and the like as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = || {
            let digits = after.get(..3).filter(|_| *byte == b'\\')?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
        };
        match octal() {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

/// An ordinary user may not unmount, but has a helper that may.
fn unmount_with_help(path: &Path, lazy: bool) -> Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path).stdin(Stdio::null());
    let output = helper.output().context("only root can unmount without fusermount3; install fuse3")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // It knows the mounts of its caller alone.
        if said.contains("not found in") {
            bail!("cannot unmount {}: only root may, and who mounted it", path.display());
        }
        bail!("cannot unmount {}: {}", path.display(), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_path_counts() {
        let table = b"22 1 0:1 / / rw shared:1 - ext4 /dev/vda rw\n\
            30 22 0:40 / /a\\040b ro,nodev - fuse.brindle x.img ro\n\
            31 22 0:41 / /mnt ro - fuse.brindle x.img ro\n\
            32 31 0:42 / /mnt rw - tmpfs none rw\n";
        assert_eq!(mount_type(table, Path::new("/a b")), Some(&b"fuse.brindle"[..]));
        assert_eq!(mount_type(table, Path::new("/mnt")), Some(&b"tmpfs"[..]));
        assert_eq!(mount_type(table, Path::new("/mnt/x")), None);
        assert_eq!(mount_type(b"", Path::new("/")), None);
    }
}
