//! Reads, writes and flushes by the kernel's `io_uring`.
//!
//! **Collecting.** Answers come to one completion queue. A thread that waits and finds no other collecting becomes the
//! collector: it waits in the kernel, and hands each answer that comes to its read, until its own is there; then it wakes
//! one of those that still wait, which collects on. A lone reader so pays one system call to submit and one to wait.
//!
//! **Submission.** The kernel is given requests under the lock of the state alone; a thread that waits in the kernel
//! without that lock submits nothing. So those that the kernel has not taken are known, and stay ours.
//!
//! **Errors.** `io_uring_enter` may fail for a moment (a signal, little memory). If it fails for good (a host that forbids
//! it from now on, a descriptor that was closed), or for too long, the ring is given up: the kernel is given nothing any
//! more, requests that it did not take are made by their waiters, and the answers to the others are looked for in the
//! memory that it shares with us.
//!
//! **Memory.** The kernel writes into the buffer of a read until the read's answer has been collected. The buffer
//! belongs to the engine for that long, whatever becomes of the waiter; the engine is not dropped before, for it waits
//! for what is under way. The bytes of a write are lent by the caller of [`Uring::perform`], which does not return, nor
//! unwind, before the kernel has answered.
#![expect(unsafe_code, reason = "the kernel is given addresses of buffers; this module keeps them alive")]

use super::Read;
use crate::{PendingRead, ReadAnswer, ReadUnderWay};
use brindle_sync::{Mutex, MutexGuard, Rank};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, Thread};
use std::time::Duration;

/// Room in the submission queue. The completion queue has twice that, and the kernel keeps what does not fit.
const ENTRIES: u32 = 256;
/// Number of successive failures that may pass, after which the ring is given up.
const FAILURES_MAX: u32 = 10_000;
/// Time after which an answer is looked for again in a ring that was given up.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Result of a request that the kernel has not been given: the waiter makes it.
const NOT_TAKEN: i32 = -Errno::CANCELED.raw_os_error();
/// `RWF_DSYNC`.
const WRITE_DURABLE: i32 = ReadWriteFlags::DSYNC.bits() as i32;
/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;

/// A ring, and the reads that are under way in it.
#[derive(Debug)]
pub(super) struct Uring {
    ring: RingCell,
    state: Mutex<State>,
    /// Errno that each system call fails with, if not 0.
    #[cfg(test)]
    pub(super) fault: std::sync::atomic::AtomicI32,
}

struct RingCell(IoUring);

impl std::fmt::Debug for RingCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IoUring")
    }
}

#[derive(Debug, Default)]
struct State {
    /// Reads by number; the kernel is told the number.
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// True while a thread waits in the kernel for answers.
    is_collected: bool,
    /// Numbers of the reads whose waiters went to sleep; some have been answered since.
    sleepers: Vec<usize>,
    /// Numbers of the reads in the submission queue, in its order: the kernel has not taken them.
    queued: VecDeque<usize>,
    /// Failures of the system call since it last succeeded.
    failures: u32,
    is_given_up: bool,
}

/// A request that the caller waits for: one system call's worth.
pub(super) struct Part<'a> {
    pub(super) file: &'a File,
    pub(super) kind: PartKind<'a>,
}

pub(super) enum PartKind<'a> {
    Write {
        offset: u64,
        /// At most `IOV_MAX`.
        slices: &'a [IoSlice<'a>],
        /// Their length in bytes.
        length: usize,
        is_durable: bool,
    },
    Flush,
}

#[derive(Debug)]
enum Request {
    Read(Read),
    /// Part of a batch that is waited for, which keeps all that the kernel was given addresses of.
    Lent,
}

#[derive(Debug, Default)]
struct Slot {
    /// The request; none in a free slot.
    request: Option<Request>,
    /// Bytes read or written, or an errno below zero, of an answered request.
    result: Option<i32>,
    /// Threads that sleep until there is an answer, or until they are to collect.
    waiters: Vec<Thread>,
    is_given_up: bool,
}

/// Parts that were submitted, and were lent what the kernel was given addresses of. Dropped, they are waited for.
struct Lent<'u> {
    uring: &'u Uring,
    numbers: VecDeque<usize>,
}

/// A read that was submitted.
struct Submitted {
    uring: Arc<Uring>,
    number: usize,
    /// Changes under the lock of the state.
    is_taken: AtomicBool,
}

impl Uring {
    /// A ring; refused where the host has no `io_uring`, or forbids it.
    pub(super) fn new() -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().dontfork().build(ENTRIES)?;
        if !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let state = Mutex::new(Rank::DeviceQueue, State::default());
        Ok(Self {
            ring: RingCell(ring),
            state,
            #[cfg(test)]
            fault: std::sync::atomic::AtomicI32::new(0),
        })
    }

    /// Returns true if no more reads are given to the kernel.
    pub(super) fn is_given_up(&self) -> bool {
        self.state.lock().is_given_up
    }

    /// Submits reads. Those that the kernel does not take are made by their waiters.
    pub(super) fn submit(self: &Arc<Self>, reads: Vec<Read>) -> Vec<PendingRead> {
        let mut state = self.state.lock();
        let mut pending = Vec::with_capacity(reads.len());
        for read in reads {
            let number = state.add(Request::Read(read));
            if let Some(entry) = state.read_entry(number) {
                self.push(&mut state, number, &entry);
            } else {
                state.answer(number, NOT_TAKEN);
            }
            let submitted = Submitted { uring: Arc::clone(self), number, is_taken: AtomicBool::new(false) };
            pending.push(PendingRead::under_way(submitted));
        }
        self.enter(&mut state);
        pending
    }

    /// Makes requests, all at the same time, and waits for them; their results as the kernel gives them, or [`NOT_TAKEN`].
    pub(super) fn perform(&self, parts: &[Part<'_>]) -> Vec<i32> {
        let mut lent = Lent { uring: self, numbers: VecDeque::with_capacity(parts.len()) };
        let mut state = self.state.lock();
        for part in parts {
            let entry = part.entry();
            // From here on it is waited for, so nothing may panic before it is submitted.
            let number = state.add(Request::Lent);
            lent.numbers.push_back(number);
            self.push(&mut state, number, &entry.user_data(number as u64));
        }
        self.enter(&mut state);
        drop(state);
        std::iter::from_fn(|| lent.wait_for_next()).collect()
    }

    /// Puts a request into the submission queue, or answers that it was not taken.
    fn push(&self, state: &mut MutexGuard<'_, State>, number: usize, entry: &squeue::Entry) {
        for _ in 0..2 {
            if state.is_given_up {
                break;
            }
            // SAFETY: the only use of the submission queue is here and in `enter`, under the lock of the state. What the
            // entry of a read points to lives in its slot until the kernel's answer has been collected; that of a part
            // is borrowed by `perform` until then.
            let pushed = unsafe { self.ring.0.submission_shared().push(entry) };
            if pushed.is_ok() {
                return state.queued.push_back(number);
            }
            self.enter(state);
        }
        state.answer(number, NOT_TAKEN);
    }

    /// Gives the kernel what is in the submission queue. What it can't take now, it is given with the next batch or by
    /// the next waiter.
    fn enter(&self, state: &mut MutexGuard<'_, State>) {
        if state.queued.is_empty() {
            return;
        }
        // SAFETY: as below.
        let is_full = unsafe { self.ring.0.submission_shared() }.cq_overflow();
        let flags = if is_full { GET_EVENTS } else { 0 };
        let entered = self.call(u32::try_from(state.queued.len()).unwrap_or(u32::MAX), 0, flags);
        // SAFETY: the only use of the submission queue is here and in `push`, under the lock of the state.
        let left = unsafe { self.ring.0.submission_shared() }.len();
        let taken = state.queued.len().saturating_sub(left);
        state.queued.drain(..taken);
        state.note(entered);
    }

    /// Waits in the kernel until there is an answer. The state is not locked, so nothing is submitted.
    fn await_answer(&self) -> io::Result<()> {
        self.call(0, 1, GET_EVENTS)
    }

    fn call(&self, submitted: u32, awaited: u32, flags: u32) -> io::Result<()> {
        #[cfg(test)]
        match self.fault.load(Relaxed) {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        // SAFETY: no argument is passed by address. What is submitted are entries that `push` has made; see there.
        let entered = unsafe { self.ring.0.submitter().enter::<()>(submitted, awaited, flags, None) };
        entered.map(drop)
    }

    /// Hands what the completion queue holds to the reads. Does nothing while a thread collects in the kernel: that one
    /// would wait on for an answer that was taken from under it.
    fn collect(&self, state: &mut MutexGuard<'_, State>) {
        if state.is_collected {
            return;
        }
        // SAFETY: the only use of the completion queue is here, under the lock of the state.
        let answers = unsafe { self.ring.0.completion_shared() };
        for answer in answers {
            let number = usize::try_from(answer.user_data()).expect("a number of ours");
            state.answer(number, answer.result());
        }
    }

    /// Waits for the answer to a request. Another waiter may take it first, and its slot is another request's then.
    fn wait(&self, number: usize, is_taken: impl Fn() -> bool) {
        let mut state = self.state.lock();
        loop {
            self.collect(&mut state);
            if is_taken() || state.slots[number].result.is_some() {
                return state.wake_collector();
            }
            if state.is_collected {
                state.slots[number].waiters.push(thread::current());
                state.sleepers.push(number);
                drop(state);
                thread::park();
                state = self.state.lock();
                continue;
            }
            state = self.wait_for_any(state);
        }
    }

    /// Waits until there may be another answer, as the one thread that does.
    fn wait_for_any<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.enter(&mut state);
        if state.is_given_up {
            // Requests that the kernel did not take are answered by now.
            drop(state);
            thread::park_timeout(LOOK_INTERVAL);
            return self.state.lock();
        }
        if !state.queued.is_empty() {
            // Nothing of what is waited for may be under way.
            drop(state);
            thread::yield_now();
            return self.state.lock();
        }
        state.is_collected = true;
        drop(state);
        let entered = self.await_answer();
        let mut state = self.state.lock();
        state.is_collected = false;
        state.note(entered);
        state
    }
}

impl Lent<'_> {
    /// Waits for the next part's answer, and takes it.
    fn wait_for_next(&mut self) -> Option<i32> {
        let number = *self.numbers.front()?;
        self.uring.wait(number, || false);
        let mut state = self.uring.state.lock();
        let result = state.slots[number].result;
        state.free(number);
        self.numbers.pop_front();
        Some(result.expect("an answer is waited for"))
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // Only if a thread has panicked: locks let a thread in that unwinds.
        while self.wait_for_next().is_some() {}
    }
}

impl Part<'_> {
    fn entry(&self) -> squeue::Entry {
        let fd = types::Fd(self.file.as_raw_fd());
        match &self.kind {
            PartKind::Flush => opcode::Fsync::new(fd).build(),
            PartKind::Write { offset, slices, is_durable, .. } => {
                let flags = if *is_durable { WRITE_DURABLE } else { 0 };
                let count = u32::try_from(slices.len()).expect("at most IOV_MAX");
                // An `IoSlice` is an `iovec`.
                let write = opcode::Writev::new(fd, slices.as_ptr().cast(), count);
                write.offset(*offset).rw_flags(flags).build()
            }
        }
    }

    /// The result if everything was done.
    pub(super) fn length(&self) -> usize {
        match &self.kind {
            PartKind::Write { length, .. } => *length,
            PartKind::Flush => 0,
        }
    }
}

impl State {
    /// The submission of a read; `None` if it is too long for one.
    fn read_entry(&mut self, number: usize) -> Option<squeue::Entry> {
        let Some(Request::Read(read)) = &mut self.slots[number].request else { return None };
        let length = u32::try_from(read.buffer.len()).ok()?;
        let fd = types::Fd(read.target.file.as_raw_fd());
        let entry = opcode::Read::new(fd, read.buffer.as_mut_ptr(), length).offset(read.offset).build();
        Some(entry.user_data(number as u64))
    }

    fn add(&mut self, request: Request) -> usize {
        let slot = Slot { request: Some(request), ..Slot::default() };
        match self.free.pop() {
            Some(number) => {
                self.slots[number] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    /// Takes note of a system call: the ring is given up if it will fail again.
    fn note(&mut self, entered: io::Result<()>) {
        let Err(error) = entered else {
            self.failures = 0;
            return;
        };
        let passes = [Errno::INTR, Errno::AGAIN, Errno::BUSY];
        let errno = Errno::from_io_error(&error);
        if errno != Some(Errno::INTR) {
            self.failures += 1;
        }
        if self.is_given_up
            || (errno.is_some_and(|errno| passes.contains(&errno)) && self.failures < FAILURES_MAX)
        {
            return;
        }
        self.is_given_up = true;
        for number in std::mem::take(&mut self.queued) {
            self.answer(number, NOT_TAKEN);
        }
        // They look for their answers themselves.
        for slot in &mut self.slots {
            slot.waiters.drain(..).for_each(|waiter| waiter.unpark());
        }
    }

    /// Notes the answer to a read, and wakes its waiter.
    fn answer(&mut self, number: usize, result: i32) {
        let slot = &mut self.slots[number];
        assert!(slot.request.is_some() && slot.result.is_none(), "one answer to each request");
        slot.result = Some(result);
        if let Some(Request::Read(read)) = &mut slot.request {
            read.metered = None;
        }
        if slot.is_given_up {
            self.free(number);
        } else {
            slot.waiters.drain(..).for_each(|waiter| waiter.unpark());
        }
    }

    fn free(&mut self, number: usize) -> Request {
        let slot = std::mem::take(&mut self.slots[number]);
        self.free.push(number);
        slot.request.expect("a slot in use has a request")
    }

    /// Wakes a thread that sleeps, so that it collects. It sleeps no more in any case, so its read leaves the list.
    fn wake_collector(&mut self) {
        if self.is_collected {
            return;
        }
        while let Some(number) = self.sleepers.pop() {
            if let Some(waiter) = self.slots[number].waiters.pop() {
                return waiter.unpark();
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel writes into buffers until it has answered.
        let mut state = self.state.lock_after_panic();
        loop {
            self.collect(&mut state);
            if state.slots.iter().all(|slot| slot.request.is_none() || slot.result.is_some()) {
                return;
            }
            state = self.wait_for_any(state);
        }
    }
}

impl ReadUnderWay for Submitted {
    fn is_answered(&self) -> bool {
        let mut state = self.uring.state.lock();
        self.uring.collect(&mut state);
        self.is_taken.load(Relaxed) || state.slots[self.number].result.is_some()
    }

    fn wait(&self) {
        self.uring.wait(self.number, || self.is_taken.load(Relaxed));
    }

    fn take(&self) -> ReadAnswer {
        let (read, result) = {
            let mut state = self.uring.state.lock();
            assert!(!self.is_taken.swap(true, Relaxed), "an answer is taken once");
            let result = state.slots[self.number].result.expect("an answer is waited for");
            (state.free(self.number), result)
        };
        let Request::Read(read) = read else { unreachable!("parts have waiters of their own") };
        match usize::try_from(result) {
            Ok(length) if length == read.buffer.len() => Ok(read.buffer),
            // The kernel may stop in the middle, or refuse a way of reading; the rest says why, or is there.
            Ok(filled) => read.make(filled),
            Err(_) => read.make(0),
        }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if *self.is_taken.get_mut() {
            return;
        }
        let mut state = self.uring.state.lock_after_panic();
        if state.slots[self.number].result.is_some() {
            drop(state.free(self.number));
        } else {
            state.slots[self.number].is_given_up = true;
        }
    }
}
