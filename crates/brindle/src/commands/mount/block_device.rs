//! The block device that a mount is made on (type `fuseblk`): the first device of the pool, or an anchor made for it, if that is
//! an image. The kernel passes sync(2) on to such a mount, and has umount(2) wait for the last commit.
//!
//! The mount claims the block device, as one of the kernel's filesystems does, so that our own claim is released for it. It
//! never reads or writes the device. It keeps the claim until it ends, also when the device leaves the pool before.

use crate::commands::mount_options::MountOptions;
use anyhow::{Context, Result};
use brindle_device::{Anchor, Claim};
use brindle_fs::Filesystem;
use brindle_fuse::MountHandle;
use std::path::Path;
use std::sync::Arc;

/// Mounts on a block device, where that is asked for or, by default, possible; else without. The claim is on the first device,
/// and to be kept until the mount has ended.
pub(super) fn mount(
    filesystem: &Arc<Filesystem>,
    mountpoint: &Path,
    options: &MountOptions,
    kernel: &brindle_fuse::MountOptions,
    first: &Path,
    claim: &mut Option<Claim>,
) -> Result<MountHandle> {
    if is_wanted(options, kernel) {
        match mount_on(filesystem, mountpoint, options, kernel, (first, claim.as_mut())) {
            Ok(handle) => return Ok(handle),
            Err(error) if options.mount.on_block_device == Some(true) => return Err(error),
            Err(error) => tracing::info!("sync(2) is not passed on to this mount: {error:#}"),
        }
        claim.as_mut().map(Claim::renew).transpose()?;
    }
    Ok(brindle_fuse::mount(Arc::clone(filesystem), mountpoint, kernel)?)
}

/// Returns true if the mount is to be made on a block device.
fn is_wanted(options: &MountOptions, kernel: &brindle_fuse::MountOptions) -> bool {
    options.mount.on_block_device.unwrap_or_else(|| {
        let shows_devices = options.source.is_none();
        !kernel.read_only && !kernel.auto_unmount && shows_devices && rustix::process::geteuid().is_root()
    })
}

fn mount_on(
    filesystem: &Arc<Filesystem>,
    mountpoint: &Path,
    options: &MountOptions,
    kernel: &brindle_fuse::MountOptions,
    (first, claim): (&Path, Option<&mut Claim>),
) -> Result<MountHandle> {
    let made = if claim.is_none() && !is_block_device(first) {
        let failed = || format!("no loop device for {}", first.display());
        Some(Anchor::attach(first).with_context(failed)?)
    } else {
        None
    };
    let path = made.as_ref().map_or(first, Anchor::path);
    let mut kernel = kernel.clone().on_block_device(path);
    kernel.commit_interval = options.mount.commit_interval.unwrap_or(kernel.commit_interval);
    if let Some(claim) = claim {
        claim.release();
    }
    Ok(brindle_fuse::mount(Arc::clone(filesystem), mountpoint, &kernel)?)
}

fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}
