//! The descriptor of a mount: messages come and go whole, one at each call.

use crate::wire::OutHeader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use zerocopy::IntoBytes;

/// Parts of an answer behind its header that need no allocation.
const PARTS_MAX: usize = 3;

/// Descriptor of `/dev/fuse` that a mount belongs to.
#[derive(Debug)]
pub(crate) struct Descriptor(OwnedFd);

impl Descriptor {
    pub(crate) fn new(device: OwnedFd) -> Self {
        Self(device)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for the next message. `None` at the end of the mount.
    ///
    /// The kernel tells threads that wait of the end by ENODEV; but one that was being handed a request just then (a file closed
    /// by the last user of a detached mount) by ECONNABORTED.
    ///
    /// # Errors
    /// Any other error of read(2).
    pub(crate) fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                // A socket in the kernel's place ends so.
                Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Ok(length) => return Ok(Some(&buffer[..length])),
                // Interrupted, or the process that asked has gone meanwhile.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns true if a message waits.
    pub(crate) fn has_message(&self) -> bool {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut devices = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut devices, Some(&NOW)).is_ok_and(|ready| ready > 0)
    }

    /// Returns true if the mount has not ended.
    pub(crate) fn is_connected(&self) -> bool {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut devices = [PollFd::new(&self.0, PollFlags::IN)];
        let ended = PollFlags::ERR | PollFlags::HUP;
        poll(&mut devices, Some(&NOW)).is_ok() && !devices[0].revents().intersects(ended)
    }

    /// Answers a request.
    pub(crate) fn answer(&self, unique: u64, answer: Result<&[&[u8]], Errno>) {
        let (error, parts) = match answer {
            Ok(parts) => (0, parts),
            Err(error) => (-error.raw_os_error(), &[][..]),
        };
        match self.send(unique, error, parts) {
            // The process that asked was killed, or the mount has ended.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => tracing::error!("the kernel does not take an answer: {error}"),
        }
    }

    /// Sends a header and what belongs to it.
    ///
    /// # Errors
    /// Those of writev(2).
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
        let length = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let header = OutHeader { length, error, unique };
        let (mut few, mut many) = ([IoSlice::new(&[]); 1 + PARTS_MAX], Vec::new());
        let slices = if parts.len() <= PARTS_MAX {
            &mut few[..=parts.len()]
        } else {
            many.resize(1 + parts.len(), IoSlice::new(&[]));
            &mut many[..]
        };
        slices[0] = IoSlice::new(header.as_bytes());
        slices[1..].iter_mut().zip(parts).for_each(|(slice, part)| *slice = IoSlice::new(part));
        rustix::io::writev(&self.0, slices).map(drop)
    }
}
