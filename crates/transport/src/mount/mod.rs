//! Mounts: made and ended. Root makes a mount itself; others are helped by `fusermount3`, which sends the descriptor of
//! `/dev/fuse` through a socket.

mod abort;
mod detached;
mod error;
mod helper;

pub use abort::Abort;
pub use detached::DetachedMount;
pub use error::MountError;
pub use helper::Guard;

use helper::{helper_unmounts, mount_with_help, shell_guard, unmount_with_help};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Options of a mount that concern the kernel.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The first column of the mount table.
    pub source: String,
    /// Type of the filesystem, behind `fuse.`.
    pub subtype: &'static str,
    /// Flags of mount(2).
    pub flags: MountFlags,
    /// Users other than the mounting one may look inside.
    pub allow_other: bool,
    /// The kernel checks permissions and access control lists.
    pub default_permissions: bool,
    /// The mount goes away when this process dies; needs `fusermount3`, even for root.
    pub auto_unmount: bool,
}

/// A connection to the kernel.
#[derive(Debug)]
pub struct Connection {
    /// `/dev/fuse`.
    pub device: OwnedFd,
    /// With `auto_unmount`: by which another process sees that we are gone.
    pub guard: Option<Guard>,
}

/// Size that the kernel gives the blocks of the device.
const BLOCK_BYTES: &str = "4096";

/// Mounts on a directory whose path is canonical.
///
/// # Errors
/// The mount, as [`MountError`] says.
pub fn connect(mountpoint: &Path, options: &MountOptions) -> Result<Connection, MountError> {
    if !options.auto_unmount {
        if let Some(device) = mount_directly(mountpoint, options)? {
            return Ok(Connection { device, guard: None });
        }
    }
    // Before the mount, so that there is none without it. Dropped without one, it does nothing.
    let needs_shell = options.auto_unmount && !helper_unmounts(options);
    let shell = needs_shell.then(|| shell_guard(mountpoint)).transpose().map_err(MountError::NoGuard)?;
    let connection = mount_with_help(mountpoint, options)?;
    Ok(Connection { guard: shell.or(connection.guard), ..connection })
}

/// Mounts by ourselves; `None` if we may not.
fn mount_directly(mountpoint: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    let device = match open_device() {
        Err(MountError::Device(Errno::ACCESS | Errno::PERM)) => return Ok(None),
        device => device?,
    };
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={user},group_id={group}", device.as_raw_fd());
    for word in kernel_words(options) {
        data.push(',');
        data.push_str(word);
    }
    let kind = format!("fuse.{}", options.subtype);
    let data = CString::new(data).expect("numbers and words have no zero in them");
    match rustix::mount::mount(options.source.as_str(), mountpoint, kind, options.flags, data.as_c_str()) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(MountError::NoFuse),
        Err(source) => Err(MountError::Mount { path: mountpoint.to_owned(), source }),
    }
}

fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(
        |error| match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoFuse,
            error => MountError::Device(error),
        },
    )
}

/// Makes a mount on a block device, which the kernel claims (type `fuseblk`): it passes on sync(2) and syncfs(2) then, and
/// umount(2) waits for the answer to [`MountOperation::Destroy`](crate::MountOperation::Destroy). For root alone. The mount is
/// to be [attached](DetachedMount::attach) once it is served by the descriptor that comes with it.
///
/// # Errors
/// The mount, as [`MountError`] says.
pub fn connect_on(
    block_device: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, DetachedMount), MountError> {
    let device = open_device()?;
    let failed = |source| MountError::BlockDevice { path: block_device.to_owned(), source };
    let mount = DetachedMount::new(&device, block_device, options, options.flags).map_err(failed)?;
    Ok((device, mount))
}

/// Makes a further mount of the filesystem that is mounted on a block device by [`connect_on`], and whose root has this
/// number. It can be read-only where the other is not.
///
/// # Errors
/// EBUSY if the other mount is read-only and this one is not; ENOENT if there is none; EXDEV if its root is another.
pub fn join(block_device: &Path, options: &MountOptions, root: u64) -> Result<DetachedMount, MountError> {
    let failed = |source| MountError::BlockDevice { path: block_device.to_owned(), source };
    let device = open_device()?;
    let read_only = options.flags & MountFlags::RDONLY;
    let mount = DetachedMount::new(&device, block_device, options, MountFlags::empty());
    let mount = match mount {
        Err(Errno::BUSY) if !read_only.is_empty() => {
            DetachedMount::new(&device, block_device, options, read_only)
        }
        mount => mount,
    };
    let mount = mount.map_err(failed)?;
    let mut devices = [PollFd::new(&device, PollFlags::IN)];
    // A new filesystem would ask for a handshake.
    let is_new = poll(&mut devices, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
        && devices[0].revents().contains(PollFlags::IN);
    // Before the mount, whose end would wait for an answer.
    drop(device);
    if is_new {
        return Err(failed(Errno::NOENT));
    }
    if mount.root().map_err(failed)? == root { Ok(mount) } else { Err(failed(Errno::XDEV)) }
}

/// Ends a mount: with [`UnmountFlags::DETACH`] by taking it out of the tree, even if it is busy. Does nothing where there is
/// no mount.
///
/// # Errors
/// [`MountError::Busy`] and others.
pub fn unmount(mountpoint: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        // Not mounted there: another unmount was faster.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(mountpoint.to_owned())),
        Err(Errno::PERM | Errno::ACCESS) => {
            unmount_with_help(mountpoint, flags.contains(UnmountFlags::DETACH))
        }
        Err(source) => Err(MountError::Unmount { path: mountpoint.to_owned(), source }),
    }
}

/// The words that the kernel's FUSE understands.
fn kernel_words(options: &MountOptions) -> impl Iterator<Item = &'static str> {
    let choices =
        [(options.default_permissions, "default_permissions"), (options.allow_other, "allow_other")];
    choices.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word)
}
