//! Anchors: a loop device for each mount of an image, for the kernel to claim. It shows the first 4 KiB of the image alone, in
//! which no pool is found, and is neither read nor written.
#![expect(unsafe_code, reason = "the only way to an ioctl; the module has all of it")]

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An anchor, which goes away when its last user has closed it.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    /// Keeps the device attached until another user has opened it.
    #[expect(dead_code, reason = "it is held, not read")]
    device: OwnedFd,
}

/// `LOOP_CTL_GET_FREE` (kernel header `linux/loop.h`).
const GET_FREE: Opcode = 0x4c82;
/// `LOOP_CONFIGURE`, of Linux 5.8.
const CONFIGURE: Opcode = 0x4c0a;
/// Bytes of an anchor.
pub(crate) const ANCHOR_BYTES: u64 = 4096;
/// `LO_FLAGS_AUTOCLEAR`.
const AUTOCLEAR: u32 = 4;
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

impl Anchor {
    /// Attaches a free loop device to the beginning of an image.
    ///
    /// # Errors
    /// Those of open(2) and of the ioctls: ENOENT or EACCES where there are no loop devices, or not for this user.
    pub fn attach(image: &Path) -> io::Result<Self> {
        let backing = image.canonicalize()?;
        let file = File::options().read(true).write(true).open(&backing)?;
        let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        for _ in 0..ATTEMPTS {
            // SAFETY: the ioctl takes no argument, and answers with a number.
            let number = unsafe { ioctl(&control, GetFree) }?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            // SAFETY: the number is that of an ioctl that reads one `struct loop_config`.
            match unsafe { ioctl(&device, Setter::<CONFIGURE, _>::new(configuration(&file, &backing))) } {
                Ok(()) => return Ok(Self { path, device }),
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn configuration(image: &File, backing: &Path) -> Configuration {
    const NAME_BYTES: usize = 64;
    let mut name = [0; NAME_BYTES];
    let shown = backing.as_os_str().as_bytes();
    // The last byte stays zero.
    let length = shown.len().min(NAME_BYTES - 1);
    name[..length].copy_from_slice(&shown[..length]);
    Configuration {
        image: image.as_raw_fd().cast_unsigned(),
        block_bytes: 0,
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: ANCHOR_BYTES,
        number: 0,
        encryption: [0; 2],
        flags: AUTOCLEAR,
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
