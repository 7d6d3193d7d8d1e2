//! A thread's ring: one entry at a time is given to the kernel, which gives it back with a request.
//!
//! **Memory.** The kernel reads and writes the memory of a [`Slot`] from its submission until its completion. For that long the slot is
//! here, and can't be reached. A ring that is dropped while it has one leaves its memory to the kernel for ever.
#![expect(
    unsafe_code,
    reason = "the kernel is given addresses of memory; this module keeps it alive and out of reach"
)]

use super::slot::Slot;
use crate::wire::{RingCommand, ring_command};
use io_uring::IoUring;
use io_uring::squeue::Entry128;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use zerocopy::{Immutable, IntoBytes};

/// Submissions at a time: there is one.
const ENTRIES: u32 = 2;
/// `IORING_OP_URING_CMD`.
const COMMAND_OPERATION: u8 = 46;

/// A submission with room for a command (`io_uring_sqe` with `IORING_SETUP_SQE128`).
#[derive(Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Submission {
    operation: u8,
    flags: u8,
    priority: u16,
    file: i32,
    command_operation: u32,
    padding: u32,
    address: u64,
    length: u32,
    operation_flags: u32,
    user_data: u64,
    unused: u64,
    command: RingCommand,
    rest: [u64; 7],
}

/// A ring of one thread.
pub(crate) struct Ring {
    ring: IoUring<Entry128>,
    /// The slot that the kernel has, and the table of its addresses.
    held: Option<(Slot, Box<[[u64; 2]; 2]>)>,
    /// A request that was there before it was waited for.
    early: Option<Slot>,
}

/// The kernel's answer to a submission.
#[derive(Debug)]
pub(crate) enum Received {
    /// A request.
    Request(Slot),
    /// The submission has failed.
    Failed(Errno, Slot),
}

impl Ring {
    /// A ring that is to be [enabled](Self::enable) by the thread that uses it.
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = IoUring::<Entry128>::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled().dontfork();
        Ok(Self { ring: builder.build(ENTRIES)?, held: None, early: None })
    }

    /// The calling thread alone uses it from now on.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    /// Gives the kernel a slot, with the answer to its request, or for the first request.
    pub(crate) fn push(&mut self, device: BorrowedFd<'_>, mut slot: Slot) {
        assert!(self.held.is_none() && self.early.is_none(), "one slot at a time");
        let segments = Box::new(slot.segments());
        let count = u32::try_from(segments.len()).expect("two");
        let (command_operation, address, length) = match slot.commit() {
            None => (ring_command::REGISTER, segments.as_ptr().expose_provenance() as u64, count),
            Some(_) => (ring_command::COMMIT_AND_FETCH, 0, 0),
        };
        let command =
            RingCommand { queue: slot.queue(), commit: slot.commit().unwrap_or(0), ..RingCommand::default() };
        let submission = Submission { command_operation, address, length, command, ..Submission::of(device) };
        self.held = Some((slot, segments));
        self.queue(&submission);
    }

    fn queue(&mut self, submission: &Submission) {
        let bytes: [u8; 128] = submission.as_bytes().try_into().expect("its size is asserted");
        // SAFETY: both are 128 bytes, and every pattern is a submission; the kernel looks at its fields.
        let entry = unsafe { std::mem::transmute::<[u8; 128], Entry128>(bytes) };
        // SAFETY: the addresses in it are those of a slot and of its table in `held`, where they stay until the completion.
        unsafe { self.ring.submission().push(&entry) }.expect("the queue has room for one");
    }

    /// Submits what was pushed, without waiting; the error of a submission that fails at once.
    pub(crate) fn submit(&mut self) -> io::Result<Result<(), Errno>> {
        while let Err(error) = self.ring.submit() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        match self.take() {
            Some(Received::Failed(error, _)) => return Ok(Err(error)),
            Some(Received::Request(slot)) => self.early = Some(slot),
            None => {}
        }
        Ok(Ok(()))
    }

    /// Submits what was pushed, and waits for the kernel's answer.
    pub(crate) fn wait(&mut self) -> io::Result<Received> {
        loop {
            if let Some(received) = self.early.take().map(Received::Request).or_else(|| self.take()) {
                return Ok(received);
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self) -> Option<Received> {
        let result = self.ring.completion().next()?.result();
        // That which must be refused has none.
        let (mut slot, _) = self.held.take()?;
        if result < 0 {
            return Some(Received::Failed(Errno::from_raw_os_error(-result), slot));
        }
        slot.receive();
        Some(Received::Request(slot))
    }

    /// Returns true if the kernel has a slot.
    pub(crate) fn is_under_way(&self) -> bool {
        self.held.is_some() || self.early.is_some()
    }

    /// Submits a registration that the kernel must refuse: it takes the old way for good then.
    pub(crate) fn refuse(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        self.queue(&Submission { command_operation: ring_command::REGISTER, ..Submission::of(device) });
        self.submit().map(drop)
    }
}

impl Submission {
    fn of(device: BorrowedFd<'_>) -> Self {
        Self { operation: COMMAND_OPERATION, file: device.as_raw_fd(), ..Self::default() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel cancels what it has when the ring is closed, but not before that returns.
        std::mem::forget(self.held.take());
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("held", &self.held).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Submission>() == 128 && std::mem::offset_of!(Submission, command) == 48);
