//! The language in which a mounted filesystem is asked for subvolumes, labels and the like: btrfs' own ioctls, as
//! far as they say all they have to say in one block of fixed size, and a few of ours for the rest. [`number`] and
//! [`message`] are the vocabulary, used by both sides; [`control`] is the side that asks, of a mount of the kernel or
//! of ours. [`search`], [`devices`] and [`balance`] are what a pool is looked into and controlled by that the kernel
//! has mounted, and [`tier`] what is done with them. [`mount_table`] says what is mounted where.
//! Must not know: our own engine.
//!
//! There are libraries of such ioctls (`btrfs-uapi`); they would bring a second set of on-disk structures, a second
//! wrapper of system calls, and a C header to be translated, by libclang, wherever brindle is built. What is needed
//! here of them is five calls.

pub mod balance;
mod call;
pub mod control;
mod defragment;
pub mod devices;
pub mod message;
pub mod mount_table;
mod mounts;
pub mod number;
pub mod search;
mod settings;
pub mod tier;

pub use control::{ControlError, Mounted, SubvolumeRecord, Synced};
