//! Reads that are submitted now and answered later.

use crate::{Buffer, DeviceError};
use std::fmt;
use std::sync::Arc;

/// A read to be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// True if the host is not to keep what is read, nor asked for what it keeps: a hint, which a device may leave aside.
    pub bypasses_cache: bool,
}

impl ReadRequest {
    /// A plain read.
    pub fn new(offset: u64, length: usize) -> Self {
        Self { offset, length, bypasses_cache: false }
    }
}

/// Answer to a read: a buffer of the requested length.
pub type ReadAnswer = Result<Buffer, DeviceError>;

/// A read that has been submitted. Dropped, its answer is discarded when it comes.
#[derive(Debug)]
pub struct PendingRead(State);

enum State {
    Answered(ReadAnswer),
    UnderWay(Arc<dyn ReadUnderWay>),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered(_) => "Answered",
            Self::UnderWay(_) => "UnderWay",
        })
    }
}

/// A read that an engine works on. Several threads may wait for it; one takes the answer.
pub trait ReadUnderWay: Send + Sync {
    /// Returns true if [`wait`](Self::wait) would return at once. Makes no system call that waits.
    fn is_answered(&self) -> bool;

    /// Waits until there is an answer.
    fn wait(&self);

    /// Takes the answer, once, after [`wait`](Self::wait).
    fn take(&self) -> ReadAnswer;
}

impl PendingRead {
    /// A read that has been answered already.
    pub fn answered(answer: ReadAnswer) -> Self {
        Self(State::Answered(answer))
    }

    /// A read that an engine works on.
    pub fn under_way(read: impl ReadUnderWay + 'static) -> Self {
        Self(State::UnderWay(Arc::new(read)))
    }

    /// Returns true if a wait would return at once.
    pub fn is_answered(&self) -> bool {
        match &self.0 {
            State::Answered(_) => true,
            State::UnderWay(read) => read.is_answered(),
        }
    }

    /// A handle to wait by, for threads that share the read; none if it has been answered.
    pub fn waiter(&self) -> Option<ReadWaiter> {
        match &self.0 {
            State::UnderWay(read) if !read.is_answered() => Some(ReadWaiter(Arc::clone(read))),
            _ => None,
        }
    }

    /// Waits for the answer, and takes it.
    pub fn wait(self) -> ReadAnswer {
        if let Some(waiter) = self.waiter() {
            waiter.wait();
        }
        match self.0 {
            State::Answered(answer) => answer,
            State::UnderWay(read) => read.take(),
        }
    }
}

/// Waits for a read that others wait for too.
pub struct ReadWaiter(Arc<dyn ReadUnderWay>);

impl ReadWaiter {
    /// Waits until there is an answer.
    pub fn wait(&self) {
        crate::wait::announce();
        self.0.wait();
    }
}
