//! The language in which a mounted filesystem is asked for subvolumes, labels and the like: btrfs' own ioctls, as
//! far as they say all they have to say in one block of fixed size, and a few of ours for the rest. [`number`] and
//! [`message`] are the vocabulary, used by both sides; [`control`] is the side that asks, of a mount of the kernel or
//! of ours.
//! Must not know: our own engine.

mod call;
pub mod control;
pub mod message;
pub mod number;

pub use control::{ControlError, Mounted, SubvolumeRecord};
