//! The calls themselves, by the table of ioctls: the type of the argument and its direction are those of the row.
#![expect(unsafe_code, reason = "the only way to an ioctl; the module has all of it")]

use brindle_uapi::message::{
    INHERIT_QGROUPS, KernelEncodedWrite, KernelSend, VolumeArgumentsV2, inherited_groups,
};
use brindle_uapi::verb::{Direction, Verb};
use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use zerocopy::FromZeros;

/// Returns true if the row has this direction, and its number the size of a value of this type.
const fn fits<V: Verb, T>(direction: Direction) -> bool {
    V::ROW.direction as u32 == direction as u32 && V::ROW.argument_bytes() == size_of::<T>()
}

/// Asks for the answer of an ioctl.
pub(crate) fn get<V: Verb>(file: &OwnedFd) -> Result<V::Answer> {
    const { assert!(fits::<V, V::Answer>(Direction::Asks)) };
    let mut answer = V::Answer::new_zeroed();
    // SAFETY: by its number the ioctl fills as many bytes, and any bytes are a value of the type.
    unsafe { ioctl(file, Exchange::<V>::new(&mut answer)) }.map(|_| answer)
}

/// Tells an ioctl its argument.
pub(crate) fn set<V: Verb>(file: &OwnedFd, mut value: V::Told) -> Result<()> {
    ask::<V>(file, &mut value).map(|_| ())
}

/// Tells an ioctl its argument, which it answers in place.
pub(crate) fn update<V: Verb<Answer = <V as Verb>::Told>>(file: &OwnedFd, value: &mut V::Told) -> Result<()> {
    const { assert!(fits::<V, V::Told>(Direction::Exchanges)) };
    // SAFETY: by its number the ioctl reads and fills as many bytes; all are initialised, and any bytes are a value of the
    // type. No ioctl of the table takes addresses in its argument.
    unsafe { ioctl(file, Exchange::<V>::new(value)) }.map(|_| ())
}

/// The same for an ioctl whose number has the size of the beginning of its argument: the kernel fills the room behind it.
pub(crate) fn update_with_room<V: Verb<Answer = <V as Verb>::Told>>(
    file: &OwnedFd,
    value: &mut V::Told,
) -> Result<()> {
    const { assert!(V::ROW.argument_bytes() <= size_of::<V::Told>()) };
    // SAFETY: the kernel reads the beginning and fills no more of the room than that says; all bytes are initialised, and any
    // bytes are a value of the type.
    unsafe { ioctl(file, Exchange::<V>::new(value)) }.map(|_| ())
}

/// Tells an ioctl its argument; the answer is a number.
pub(crate) fn ask<V: Verb>(file: &OwnedFd, value: &mut V::Told) -> Result<i32> {
    const { assert!(fits::<V, V::Told>(Direction::Tells)) };
    // SAFETY: by its number the ioctl reads as many bytes, and all of them are initialised. No argument has an address in it,
    // but those of `set_with_groups`, `send_with_sources` and `write_encoded`.
    unsafe { ioctl(file, Exchange::<V>::new(value)) }
}

/// Tells an ioctl its argument, of which the number says that it is answered.
pub(crate) fn fill<V: Verb>(file: &OwnedFd, value: &mut V::Answer) -> Result<()> {
    const { assert!(fits::<V, V::Answer>(Direction::Asks)) };
    // SAFETY: by its number the ioctl has as many bytes; all are initialised, and any bytes are a value of the type.
    unsafe { ioctl(file, Exchange::<V>::new(value)) }.map(|_| ())
}

/// Tells an ioctl a name and the quota groups that what is made becomes part of.
pub(crate) fn set_with_groups<V: Verb<Told = VolumeArgumentsV2>>(
    file: &OwnedFd,
    mut value: VolumeArgumentsV2,
    groups: &[u64],
) -> Result<()> {
    const { assert!(fits::<V, V::Told>(Direction::Tells)) };
    let list = inherited_groups(groups);
    if !groups.is_empty() {
        value.flags |= INHERIT_QGROUPS;
        value.inherited = [size_of_val(list.as_slice()) as u64, list.as_ptr().expose_provenance() as u64];
    }
    // SAFETY: by its number the ioctl reads as many bytes, all of them initialised; and no more of the list, which outlives
    // the call, than its size says.
    unsafe { ioctl(file, Exchange::<V>::new(&mut value)) }.map(|_| ())
}

/// Has the kernel send a subvolume; the receiver has the sources, which may be cloned from.
pub(crate) fn send_with_sources<V: Verb<Told = KernelSend>>(
    file: &OwnedFd,
    mut value: KernelSend,
    sources: &[u64],
) -> Result<()> {
    const { assert!(fits::<V, V::Told>(Direction::Tells)) };
    value.source_count = sources.len() as u64;
    value.sources = sources.as_ptr().expose_provenance() as u64;
    // SAFETY: by its number the ioctl reads as many bytes, all of them initialised; and as many ids of the sources, which outlive
    // the call, as there are.
    unsafe { ioctl(file, Exchange::<V>::new(&mut value)) }.map(|_| ())
}

/// Writes encoded contents into a file.
pub(crate) fn write_encoded<V: Verb<Told = KernelEncodedWrite>>(
    file: &OwnedFd,
    mut value: KernelEncodedWrite,
    contents: &[u8],
) -> Result<()> {
    const { assert!(fits::<V, V::Told>(Direction::Tells)) };
    let piece = [contents.as_ptr().expose_provenance(), contents.len()];
    value.pieces = [piece.as_ptr().expose_provenance() as u64, 1];
    // SAFETY: by its number the ioctl reads as many bytes, all of them initialised; one piece, which is an address and a length as
    // an `iovec` is; and no more of the contents, which outlive the call, than that length.
    unsafe { ioctl(file, Exchange::<V>::new(&mut value)) }.map(|_| ())
}

/// Calls an ioctl without an argument.
pub(crate) fn tell<V: Verb>(file: &OwnedFd) -> Result<()> {
    const { assert!(fits::<V, ()>(Direction::Plain)) };
    // SAFETY: the ioctl has no argument.
    unsafe { ioctl(file, Exchange::<V>::with_number(0)) }.map(|_| ())
}

/// Calls an ioctl whose argument is a number itself, not the address of one, whatever its own number says.
pub(crate) fn tell_number<V: Verb>(file: &OwnedFd, value: usize) -> Result<()> {
    // SAFETY: the kernel takes the argument for a number and refuses those that it does not know; a mount of brindle, for
    // which FUSE would fetch what lies there, answers that nothing does.
    unsafe { ioctl(file, Exchange::<V>::with_number(value)) }.map(|_| ())
}

/// A call as the kernel takes it; the answer is the number that the call returns.
struct Exchange<V> {
    argument: *mut c_void,
    verb: std::marker::PhantomData<V>,
}

impl<V: Verb> Exchange<V> {
    fn new<T>(argument: &mut T) -> Self {
        Self { argument: std::ptr::from_mut(argument).cast(), verb: std::marker::PhantomData }
    }

    fn with_number(number: usize) -> Self {
        Self { argument: std::ptr::without_provenance_mut(number), verb: std::marker::PhantomData }
    }
}

// SAFETY: the pointer is that of an exclusive borrow which outlives the call, of a type whose size the number has, or no
// pointer at all.
unsafe impl<V: Verb> Ioctl for Exchange<V> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        V::ROW.number
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    // SAFETY: the caller owes nothing, for the pointer is not looked at.
    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<i32> {
        Ok(output)
    }
}
