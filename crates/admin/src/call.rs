//! The calls themselves. An ioctl's number holds the size of its argument; here that is checked against the type.
#![expect(unsafe_code, reason = "ioctl can be had in no other way; this crate may")]

use rustix::io::Result;
use rustix::ioctl::{Getter, IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, Updater, ioctl};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use zerocopy::{FromBytes, IntoBytes};

/// Whether the number is one for arguments of this type.
const fn fits<T>(number: u32) -> bool {
    const SIZE_MASK: u32 = (1 << 14) - 1;
    ((number >> 16) & SIZE_MASK) as usize == size_of::<T>()
}

/// An ioctl that answers something.
pub(crate) fn get<const NUMBER: u32, T: FromBytes>(file: &OwnedFd) -> Result<T> {
    const { assert!(fits::<T>(NUMBER)) };
    // SAFETY: by its number the ioctl fills so many bytes, and any bytes are a value of the type.
    unsafe { ioctl(file, Getter::<NUMBER, T>::new()) }
}

/// An ioctl that is told something.
pub(crate) fn set<const NUMBER: u32, T: IntoBytes>(file: &OwnedFd, value: T) -> Result<()> {
    const { assert!(fits::<T>(NUMBER)) };
    // SAFETY: by its number the ioctl reads so many bytes, and all of them are initialised; the
    // ioctls of this crate take no addresses in them.
    unsafe { ioctl(file, Setter::<NUMBER, T>::new(value)) }
}

/// An ioctl that is told something, and answers in the same place.
pub(crate) fn update<const NUMBER: u32, T: IntoBytes + FromBytes>(
    file: &OwnedFd,
    value: &mut T,
) -> Result<()> {
    const { assert!(fits::<T>(NUMBER)) };
    // SAFETY: as both above.
    unsafe { ioctl(file, Updater::<NUMBER, T>::new(value)) }
}

/// An ioctl that says nothing but its number.
pub(crate) fn tell<const NUMBER: u32>(file: &OwnedFd) -> Result<()> {
    const { assert!(fits::<()>(NUMBER)) };
    // SAFETY: the ioctl has no argument.
    unsafe { ioctl(file, NoArg::<NUMBER>::new()) }
}

/// An ioctl whose argument is a number itself, not the address of one, whatever its own number says.
pub(crate) fn tell_number<const NUMBER: u32>(file: &OwnedFd, value: usize) -> Result<()> {
    // SAFETY: the kernel takes the argument for a number and refuses those that it does not know; a mount of ours, for
    // which FUSE would fetch what lies there, answers that nothing does.
    unsafe { ioctl(file, IntegerSetter::<NUMBER>::new_usize(value)) }
}

/// An ioctl that is told something, and answers by a number.
pub(crate) fn ask<const NUMBER: u32, T: IntoBytes>(file: &OwnedFd, value: &T) -> Result<i32> {
    const { assert!(fits::<T>(NUMBER)) };
    // SAFETY: as for `set`.
    unsafe { ioctl(file, Asked::<NUMBER, T>(value)) }
}

/// What [`ask`] hands to the kernel.
struct Asked<'a, const NUMBER: u32, T>(&'a T);

// SAFETY: the kernel only reads the value, and the answer is the number that the call returns.
unsafe impl<const NUMBER: u32, T> Ioctl for Asked<'_, NUMBER, T> {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NUMBER
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_ref(self.0).cast_mut().cast()
    }

    // SAFETY: nothing is asked of the caller, for the pointer is not looked at.
    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<i32> {
        Ok(output)
    }
}
