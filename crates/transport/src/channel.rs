//! The connection of a mount to the kernel.

use crate::descriptor::Descriptor;
use crate::interrupt::Interrupts;
use crate::notify::Notifier;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Connection of a mount to the kernel.
#[derive(Debug)]
pub struct Channel {
    pub(crate) descriptor: Arc<Descriptor>,
    /// Bytes of data in the largest request.
    pub(crate) write_bytes_max: usize,
    /// True if SETXATTR has further flags.
    pub(crate) has_long_setxattr: bool,
    /// Number of queues of rings, if that was agreed on.
    pub(crate) queues: Option<u16>,
    /// True if there is to be no mount without rings.
    pub(crate) needs_rings: bool,
    /// Requests that are being done.
    pub(crate) interrupts: Arc<Interrupts>,
}

impl Channel {
    pub(crate) fn new(device: OwnedFd, write_bytes_max: usize) -> Self {
        Self {
            descriptor: Arc::new(Descriptor::new(device)),
            write_bytes_max,
            has_long_setxattr: false,
            queues: None,
            needs_rings: false,
            interrupts: Arc::default(),
        }
    }

    /// Number of queues that requests come by.
    pub fn queues(&self) -> u16 {
        self.queues.unwrap_or(1)
    }

    /// Returns true if the mount has not ended.
    pub fn is_connected(&self) -> bool {
        self.descriptor.is_connected()
    }

    /// The way to tell the kernel of changes.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.descriptor))
    }

    /// Tells the callers of requests that were killed, until the mount ends.
    pub(crate) fn watch_callers(&self, is_killed: impl Fn(u32) -> bool) {
        self.interrupts.watch(is_killed, |way, unique| way.interrupt(&self.descriptor, unique));
    }

    /// Takes note that the caller of a request has a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        /// Tells the answer to an interruption from that to its request (`FUSE_INT_REQ_BIT`).
        const OF_INTERRUPTION: u64 = 1;
        if let Some(too_many) = self.interrupts.interrupt(unique) {
            self.descriptor.answer(too_many | OF_INTERRUPTION, Err(Errno::AGAIN));
        }
    }
}
