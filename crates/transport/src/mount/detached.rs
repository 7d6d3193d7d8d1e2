//! Mounts on a block device, which are made apart from the tree of mounts. The filesystem's root is that of the whole pool; a
//! part of it is attached to a mount point. A further mount of the same block device is one of the same filesystem: the
//! kernel finds it by the device, so that its server is not asked.

use super::{BLOCK_BYTES, MountError, MountOptions, kernel_words};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// A mount that is not in the tree of mounts yet. Dropped, it is gone, and so is its filesystem if it has no other.
#[derive(Debug)]
pub struct DetachedMount(OwnedFd);

impl DetachedMount {
    /// Makes a mount: of a new filesystem that answers by `device`, a descriptor of `/dev/fuse`, or of the one that is on the
    /// block device already, which must have been made with the same `of_filesystem`, as far as it is read-only or not.
    pub(super) fn new(
        device: &OwnedFd,
        block_device: &Path,
        options: &MountOptions,
        of_filesystem: MountFlags,
    ) -> Result<Self, Errno> {
        let context = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let user = rustix::process::getuid().as_raw().to_string();
        let group = rustix::process::getgid().as_raw().to_string();
        let descriptor = device.as_raw_fd().to_string();
        fsconfig_set_string(&context, "source", block_device)?;
        for (key, value) in [
            ("subtype", options.subtype),
            ("fd", descriptor.as_str()),
            ("rootmode", "40000"),
            ("user_id", user.as_str()),
            ("group_id", group.as_str()),
            ("blksize", BLOCK_BYTES),
        ] {
            fsconfig_set_string(&context, key, value)?;
        }
        let words =
            [(MountFlags::RDONLY, "ro"), (MountFlags::SYNCHRONOUS, "sync"), (MountFlags::DIRSYNC, "dirsync")];
        let set = words.into_iter().filter(|(flag, _)| of_filesystem.contains(*flag));
        for word in set.map(|(_, word)| word).chain(kernel_words(options)) {
            fsconfig_set_flag(&context, word)?;
        }
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(options.flags)).map(Self)
    }

    /// Puts a directory of the filesystem at a mount point; an empty path is its root. The filesystem must be served already.
    ///
    /// # Errors
    /// ENOENT and the like if there is no such directory; EINVAL for a part by a kernel older than Linux 6.15.
    pub fn attach(self, inside: &[u8], mountpoint: &Path) -> Result<(), MountError> {
        let failed = |source| MountError::Mount { path: mountpoint.to_owned(), source };
        let part = if inside.is_empty() { self.0 } else { self.part(inside).map_err(failed)? };
        move_mount(&part, "", CWD, mountpoint, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed)
    }

    /// Number of the inode at the root of the filesystem.
    pub(super) fn root(&self) -> Result<u64, Errno> {
        Ok(rustix::fs::fstat(&self.0)?.st_ino)
    }

    fn part(self, inside: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        open_tree(&self.0, inside, flags)
    }
}

/// The flags that are those of a mount, not of its filesystem.
fn attributes(flags: MountFlags) -> MountAttrFlags {
    let pairs = [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ];
    let set = pairs.iter().filter(|(flag, _)| flags.contains(*flag));
    set.fold(MountAttrFlags::empty(), |all, (_, attribute)| all | *attribute)
}
