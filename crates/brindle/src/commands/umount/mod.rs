//! `brindle umount`: ends a mount.

mod force;
mod holders;
mod server;

use anyhow::{Context, Result, bail};
use brindle_uapi::mount_table::{self, Mount};
use clap::Args;
use holders::Holder;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use server::Server;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
EXAMPLES
    brindle umount /mnt
    brindle umount --lazy /mnt

  After `kill -9` of the server, when everything that looks at the mount hangs:
    brindle umount --force /mnt

EXIT STATUS
  0  the filesystem is unmounted
  1  it is busy, or is no mount of brindle; or it is unmounted, and its server
     does not end, or some of what was written is not on the devices, which is
     said
  2  wrong usage";

/// Unmount a filesystem that brindle has mounted
///
/// When the command returns, everything that was written is on the devices, and they may be used otherwise. With
/// --lazy that is so only once the process that serves the mount has ended. Where the same filesystem is still mounted at
/// another place (a bind mount, a container), everything is on the devices, and they stay in use.
///
/// If something uses the mount, it is named, and nothing is done. What is seen to be brief is waited for.
#[derive(Args, Debug)]
#[command(visible_alias = "unmount", after_long_help = EXAMPLES)]
pub(crate) struct UmountCommand {
    /// Take it out of the directory tree at once, even if it is busy; it ends when its last user has gone
    #[arg(short, long)]
    lazy: bool,
    /// If the server of the mount was killed and can't end, make it end first; a live one is unmounted as without
    #[arg(short, long)]
    force: bool,
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

/// The time for which an unmount is tried again, where nothing lasting is seen to be in the way: a process that only looks at a
/// mount (`df`, `stat`, another command of brindle) holds it for a moment, too.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the command.
pub(crate) fn run(command: &UmountCommand) -> Result<ExitCode> {
    let given = command.mountpoint.display();
    let mounts = mount_table::read().context("cannot read the mount table")?;
    // A mount that hangs can't be looked at, not even by its name.
    let unseen = beside(&command.mountpoint).ok().filter(|_| command.force);
    let path = match unseen.filter(|path| mount_table::at(&mounts, path).is_some()) {
        Some(path) => path,
        None => canonical(&command.mountpoint).with_context(|| format!("cannot find {given}"))?,
    };
    let mount = match mount_table::at(&mounts, &path) {
        None => bail!("{given}: nothing is mounted there"),
        Some(other) if !other.is_ours() => {
            let kind = other.kind.escape_ascii();
            bail!("{given}: not mounted by brindle; use umount for a mount of type {kind}")
        }
        Some(mount) => mount,
    };
    if command.force {
        force::abort_if_dead(mount)?;
    }
    let server = if command.lazy { None } else { Server::of(&path) };
    unmount(mount, command.lazy, &command.mountpoint)?;
    if let Some(server) = server {
        server.settle(mount)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Unmounts; tries again for a while if what is in the way may be gone soon.
fn unmount(mount: &Mount, lazy: bool, given: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        match try_to_unmount(&mount.mountpoint, lazy)? {
            Outcome::Unmounted => return Ok(()),
            Outcome::Busy => {}
        }
        let holder = holders::find(mount);
        let may_go = holder.as_ref().is_none_or(Holder::may_go_soon);
        if !may_go || began.elapsed() >= PATIENCE {
            let remedy = holder.as_ref().and_then(|holder| holder.remedy(given));
            let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            let given = given.display();
            match holder {
                Some(holder) => bail!("{given}: busy: {holder}{remedy}; --lazy waits for that"),
                None => bail!(
                    "{given}: busy: in use, by processes that can't be seen (root sees the processes of all users); --lazy waits for that"
                ),
            }
        }
        std::thread::sleep(PAUSE);
    }
}

enum Outcome {
    Unmounted,
    Busy,
}

fn try_to_unmount(path: &Path, lazy: bool) -> Result<Outcome> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Outcome::Unmounted),
        Err(Errno::PERM) => unmount_with_help(path, lazy),
        Err(Errno::BUSY) => Ok(Outcome::Busy),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", path.display())),
    }
}

/// The path without symbolic links. The server of the mount may be gone, and then the last name can't be looked at.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    path.canonicalize().or_else(|error| match error.raw_os_error() {
        Some(number) if number == Errno::NOTCONN.raw_os_error() => beside(path),
        _ => Err(error),
    })
}

/// The path without symbolic links in its directories.
fn beside(path: &Path) -> std::io::Result<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    Ok(parent.canonicalize()?.join(name))
}

/// An ordinary user may not unmount, but has a helper that may.
fn unmount_with_help(path: &Path, lazy: bool) -> Result<Outcome> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path).stdin(Stdio::null());
    let output = helper.output().context("only root can unmount without fusermount3; install fuse3")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("busy") {
            return Ok(Outcome::Busy);
        }
        // It knows the mounts of its caller alone.
        if said.contains("not found in") {
            bail!("cannot unmount {}: only root and the mounting user may", path.display());
        }
        bail!("cannot unmount {}: {}", path.display(), said.trim());
    }
    Ok(Outcome::Unmounted)
}
