//! A request to a server, until its answer is taken.

use crate::Buffer;
use brindle_nbd::{Command, CommandFlags, REQUEST_BYTES, Request};
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank};
use std::io;
use std::time::Instant;

/// Answer of a server: the bytes of a read.
pub(super) type JobAnswer = io::Result<Option<Buffer>>;

/// A request, its payload, and the answer when it is there.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) payload: Vec<u8>,
    /// Time at which the device fails without an answer.
    pub(super) deadline: Instant,
    /// Of a flush, the writes that it covers: those that were answered before it was asked for.
    pub(super) covers: u64,
    /// Failures of durable requests before it was asked for.
    pub(super) failures: u64,
    /// True for a flush that a write waits for, which is told of its failure.
    pub(super) is_for_write: bool,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug)]
enum State {
    UnderWay,
    Answered(JobAnswer),
    Taken,
}

impl Job {
    /// A request without payload.
    pub(super) fn new(request: Request, deadline: Instant, [covers, failures]: [u64; 2]) -> Self {
        let state = Mutex::new(Rank::DeviceRequest, State::UnderWay);
        Self {
            request,
            payload: Vec::new(),
            deadline,
            covers,
            failures,
            is_for_write: false,
            state,
            answered: Condvar::new(),
        }
    }

    /// Header of the request as bytes.
    pub(super) fn header(&self) -> [u8; REQUEST_BYTES] {
        self.request.encode()
    }

    /// Returns true if the answer changes the contents of the device.
    pub(super) fn is_write(&self) -> bool {
        matches!(self.request.command, Command::Write | Command::WriteZeroes)
    }

    /// Returns true for a write that is durable when it is answered.
    pub(super) fn is_durable_write(&self) -> bool {
        self.is_write() && self.request.flags.contains(CommandFlags::FUA)
    }

    pub(super) fn answer(&self, answer: JobAnswer) {
        let mut state = self.state();
        if matches!(*state, State::UnderWay) {
            *state = State::Answered(answer);
        }
        drop(state);
        self.answered.notify_all();
    }

    pub(super) fn is_answered(&self) -> bool {
        !matches!(*self.state(), State::UnderWay)
    }

    /// Waits for the answer; false if there is none at the deadline.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state();
        while matches!(*state, State::UnderWay) {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.answered.wait_timeout(state, left).0;
        }
        true
    }

    /// Takes the answer, once.
    pub(super) fn take(&self) -> JobAnswer {
        match std::mem::replace(&mut *self.state(), State::Taken) {
            State::Answered(answer) => answer,
            _ => panic!("an answer is taken once, after it was waited for"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The thread of the answers holds it for a moment, and calls nothing meanwhile.
        self.state.lock_after_panic()
    }
}
