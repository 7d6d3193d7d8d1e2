//! The block device that a mount is made on (type `fuseblk`): the first device of the pool, or an anchor made for it, if that is
//! an image. The kernel passes sync(2) on to such a mount, and has umount(2) wait for the last commit.
//!
//! The mount claims the block device, as one of the kernel's filesystems does, so that our own claim is released for it. It
//! never reads or writes the device. It keeps the claim until it ends, also when the device leaves the pool before.

use crate::commands::mount_options::MountOptions;
use anyhow::{Context, Result};
use brindle_cache::path_of;
use brindle_device::{Anchor, Claim};
use brindle_fs::{Filesystem, RootId, SubvolumeChoice};
use brindle_fuse::MountHandle;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// Mounts on a block device, where that is asked for or, by default, possible; else without. The claim is on the first device,
/// and to be kept until the mount has ended.
///
/// The root of the filesystem is the top level of the pool then, of which the mount shows a part, so that further mounts can
/// show others. Where the kernel can't attach a part (before Linux 6.15), the subvolume is the root.
pub(super) fn mount(
    mut filesystem: Filesystem,
    mountpoint: &Path,
    options: &MountOptions,
    kernel: &brindle_fuse::MountOptions,
    first: &Path,
    claim: &mut Option<Claim>,
) -> Result<MountHandle> {
    if is_wanted(options, kernel) {
        let chosen = SubvolumeChoice::Id(filesystem.root().tree);
        let part = filesystem.path_of_subvolume(filesystem.root().tree)?;
        let top_level = SubvolumeChoice::Id(RootId::FS_TREE);
        let whole = [(&chosen, Vec::new())];
        let attempts = part.map(|part| (&top_level, part)).into_iter().chain(whole);
        for (root, part) in attempts {
            filesystem.choose_subvolume(root)?;
            let shared = Arc::new(filesystem);
            let error = match mount_on(&shared, mountpoint, options, kernel, part, (first, claim.as_mut())) {
                Ok(handle) => return Ok(handle),
                Err(error) => error,
            };
            claim.as_mut().map(Claim::renew).transpose()?;
            // What served it has ended.
            filesystem = Arc::into_inner(shared).context("the filesystem is still in use")?;
            if root == &chosen && options.mount.on_block_device == Some(true) {
                return Err(error);
            }
            tracing::info!("{error:#}");
        }
        filesystem.choose_subvolume(&chosen)?;
        tracing::info!("sync(2) is not passed on to this mount");
    }
    Ok(brindle_fuse::mount(Arc::new(filesystem), mountpoint, kernel)?)
}

/// Returns true if the mount is to be made on a block device.
fn is_wanted(options: &MountOptions, kernel: &brindle_fuse::MountOptions) -> bool {
    !kernel.auto_unmount
        && may_be(options)
        && (!kernel.read_only || options.mount.on_block_device == Some(true))
}

/// Returns true if a mount with these options may be one on a block device.
pub(super) fn may_be(options: &MountOptions) -> bool {
    let is_default = options.source.is_none() && !options.mount.auto_unmount;
    options.mount.on_block_device.unwrap_or_else(|| is_default && rustix::process::geteuid().is_root())
}

fn mount_on(
    filesystem: &Arc<Filesystem>,
    mountpoint: &Path,
    options: &MountOptions,
    kernel: &brindle_fuse::MountOptions,
    part: Vec<u8>,
    (first, claim): (&Path, Option<&mut Claim>),
) -> Result<MountHandle> {
    let made = if claim.is_none() && !is_block_device(first) {
        let image = path_of(first);
        let failed = || format!("no loop device for {}", image.display());
        Some(Anchor::attach(&image).with_context(failed)?)
    } else {
        None
    };
    let path = made.as_ref().map_or(first, Anchor::path);
    let mut kernel = brindle_fuse::MountOptions { part, ..kernel.clone().on_block_device(path) };
    kernel.commit_interval = options.mount.commit_interval.unwrap_or(kernel.commit_interval);
    if let Some(claim) = claim {
        claim.release();
    }
    Ok(brindle_fuse::mount(Arc::clone(filesystem), mountpoint, &kernel)?)
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}
