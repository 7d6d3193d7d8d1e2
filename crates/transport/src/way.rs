//! The way back to the kernel of an answer: that by which its request came.

use crate::descriptor::Descriptor;
use crate::ring::{Desk, LentSlot};
use rustix::io::Errno;
use std::sync::Arc;

/// The way by which a request came.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// `/dev/fuse`.
    Device,
    /// A ring.
    Ring(Arc<Desk>),
}

impl Way {
    /// Answers a request.
    pub(crate) fn answer(&self, descriptor: &Descriptor, unique: u64, answer: Result<&[&[u8]], Errno>) {
        match self {
            Self::Device => descriptor.answer(unique, answer),
            Self::Ring(desk) => desk.answer(unique, answer),
        }
    }

    /// Answers a request that a thread is doing by EINTR.
    pub(crate) fn interrupt(&self, descriptor: &Descriptor, unique: u64) {
        match self {
            Self::Device => descriptor.answer(unique, Err(Errno::INTR)),
            Self::Ring(desk) => desk.interrupt(unique),
        }
    }

    /// Returns true if a request can be answered while a thread hangs in it.
    pub(crate) fn can_be_left(&self) -> bool {
        match self {
            Self::Device => true,
            Self::Ring(desk) => desk.can_be_left(),
        }
    }

    /// Lends the memory from which the kernel fetches the answer.
    pub(crate) fn lend(&self) -> Option<LentSlot<'_>> {
        match self {
            Self::Device => None,
            Self::Ring(desk) => desk.lend(),
        }
    }
}
