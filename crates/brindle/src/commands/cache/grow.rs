//! `cache grow`: takes the new size of a disk.

use super::served::{client_at, lines_at};
use super::stat::{caches_of, pool_at};
use anyhow::{Context, Result, bail};
use brindle_device::LoopDevice;
use clap::Args;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::path::PathBuf;
use std::process::ExitCode;

const MANUAL: &str = "\
THE SSD
  stays as large as it was when the cache was made. For a larger one, stop the
  cache, after which the disk has everything, and destroy and create it.

EXAMPLES
    lvextend -L +1T /dev/vg/slow
    brindle cache grow /run/fsdc && xfs_growfs /mnt

    truncate -s 2T disk.img
    brindle cache grow /mnt && brindle filesystem resize max /mnt

EXIT STATUS
  0  the size is that of the disk
  1  no cache is served there, or the disk is shorter than it was
  2  wrong usage";

/// Take the new size of a disk that was made larger
///
/// The cache is in use meanwhile. Its device has the size that the disk has now, and so has its loop device; a filesystem on it
/// is grown with its own tools. An export of NBD is asked by a connection of its own.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct GrowCommand {
    /// Directory on which the cache or a pool is mounted
    mountpoint: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &GrowCommand) -> Result<ExitCode> {
    if let Some(mounted) = pool_at(&command.mountpoint) {
        for (devid, _) in caches_of(&mounted)? {
            mounted.set_cache(devid, "grow", "1")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let client = client_at(&command.mountpoint)?;
    client.send("grow=1").context("cannot grow the cache")?;
    let lines = lines_at(&command.mountpoint)?;
    let find = |name: &str| lines.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    // The kernel asks for the size when it is told to, and not before.
    let shown = statx(CWD, client.disk(), AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)?.stx_size;
    if find("disk_bytes") != Some(&shown.to_string()) {
        bail!("the kernel has the size {shown} still");
    }
    if let Some(device) = find("loop_device") {
        LoopDevice::at(device).refresh_size().with_context(|| device.to_owned())?;
    }
    Ok(ExitCode::SUCCESS)
}
