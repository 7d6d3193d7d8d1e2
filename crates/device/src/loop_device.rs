//! Loop devices.
#![expect(unsafe_code, reason = "the only way to an ioctl; the module has all of it")]

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A loop device on a whole file, with direct I/O. It stays until it is detached, also when this process has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
}

/// Properties of a new device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Bytes that it shows; 0 for all.
    pub(crate) size_limit: u64,
    /// Bytes of its sectors; 0 for the kernel's choice.
    pub(crate) block_bytes: u32,
    pub(crate) flags: u32,
}

/// `LOOP_CTL_GET_FREE` (kernel header `linux/loop.h`).
const GET_FREE: Opcode = 0x4c82;
/// `LOOP_CONFIGURE`, of Linux 5.8.
const CONFIGURE: Opcode = 0x4c0a;
/// `LOOP_CLR_FD`.
const CLEAR: Opcode = 0x4c01;
/// `LOOP_SET_CAPACITY`.
const SET_CAPACITY: Opcode = 0x4c07;
/// `LO_FLAGS_AUTOCLEAR`.
pub(crate) const AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_DIRECT_IO`.
const DIRECT_IO: u32 = 16;
/// Bytes of a sector.
const SECTOR_BYTES: u32 = 512;
/// Attempts to get a free device, for another process may be faster.
const ATTEMPTS: usize = 64;

/// `struct loop_config`, with the `struct loop_info64` in it.
#[repr(C)]
struct Configuration {
    image: u32,
    block_bytes: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    name: [u8; 64],
    cipher: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

impl LoopDevice {
    /// Attaches a free loop device to a file.
    ///
    /// # Errors
    /// Those of open(2) and of the ioctls: ENOENT or EACCES where there are no loop devices, or not for this user.
    pub fn attach(image: &Path) -> io::Result<Self> {
        let setup = Setup { size_limit: 0, block_bytes: SECTOR_BYTES, flags: DIRECT_IO };
        let (path, _device) = attach(image, setup)?;
        Ok(Self { path })
    }

    /// The loop device of this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets a property of its queue, by its name in `/sys`.
    ///
    /// # Errors
    /// Those of write(2): EROFS where `/sys` is read-only, EINVAL for a value that the kernel does not take.
    pub fn set_queue(&self, property: &str, value: &str) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        std::fs::write(Path::new("/sys/block").join(name).join("queue").join(property), value)
    }

    /// Takes the present size of its file.
    ///
    /// # Errors
    /// Those of open(2) and of the ioctl.
    pub fn refresh_size(&self) -> io::Result<()> {
        let device = rustix::fs::open(&self.path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the ioctl takes no argument.
        Ok(unsafe { ioctl(&device, NoArg::<SET_CAPACITY>::new()) }?)
    }

    /// Detaches it, after some properties of its queue were set, which stay with its number for the next user. Does
    /// nothing if it is not attached.
    ///
    /// # Errors
    /// EBUSY if it is in use: mounted, or a part of a RAID; others of open(2) and of the ioctl.
    pub fn detach(&self, left: &[(&str, &str)]) -> io::Result<()> {
        self.clear(left, OFlags::EXCL)
    }

    /// The same of one that may be in use: then its last user detaches it by closing it.
    ///
    /// # Errors
    /// Those of open(2) and of the ioctl.
    pub fn detach_with_last_user(&self, left: &[(&str, &str)]) -> io::Result<()> {
        self.clear(left, OFlags::empty())
    }

    fn clear(&self, left: &[(&str, &str)], flags: OFlags) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | flags;
        let device = rustix::fs::open(&self.path, flags, Mode::empty())?;
        for (property, value) in left {
            // Kernels that do not have it, or not this value, leave it as it is.
            let _ = self.set_queue(property, value);
        }
        // SAFETY: the ioctl takes no argument.
        match unsafe { ioctl(&device, NoArg::<CLEAR>::new()) } {
            Ok(()) | Err(Errno::NXIO) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Attaches a free loop device to an image, and opens it.
pub(crate) fn attach(image: &Path, setup: Setup) -> io::Result<(PathBuf, OwnedFd)> {
    let backing = image.canonicalize()?;
    let file = File::options().read(true).write(true).open(&backing)?;
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..ATTEMPTS {
        // SAFETY: the ioctl takes no argument, and answers with a number.
        let number = unsafe { ioctl(&control, GetFree) }?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the number is that of an ioctl that reads one `struct loop_config`.
        match unsafe { ioctl(&device, Setter::<CONFIGURE, _>::new(configuration(&file, &backing, setup))) } {
            Ok(()) => return Ok((path, device)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::BUSY.into())
}

fn configuration(image: &File, backing: &Path, setup: Setup) -> Configuration {
    const NAME_BYTES: usize = 64;
    let mut name = [0; NAME_BYTES];
    let shown = backing.as_os_str().as_bytes();
    // The last byte stays zero.
    let length = shown.len().min(NAME_BYTES - 1);
    name[..length].copy_from_slice(&shown[..length]);
    Configuration {
        image: image.as_raw_fd() as u32,
        block_bytes: setup.block_bytes,
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: setup.size_limit,
        number: 0,
        encryption: [0; 2],
        flags: setup.flags,
        name,
        cipher: [0; NAME_BYTES],
        key: [0; 32],
        init: [0; 2],
        reserved: [0; 8],
    }
}

/// The ioctl whose answer is its return value.
struct GetFree;

// SAFETY: the ioctl reads and writes no memory.
unsafe impl Ioctl for GetFree {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    // SAFETY: unsafe by the trait alone. The pointer is that of `as_ptr`, which is null; it is not looked at, so that the
    // caller owes nothing.
    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_that_of_the_kernel() {
        assert_eq!(size_of::<Configuration>(), 304);
    }
}
