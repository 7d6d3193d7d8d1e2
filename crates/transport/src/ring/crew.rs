//! The threads of the rings, and the slots that change hands.
//!
//! Each slot that the kernel may put a request into has a thread that waits for it; a thread that has none is *spare*. A queue has
//! as many slots as it had at first, for the processes of its processor: those that wait for a late answer don't count, and get a
//! substitute. So there are at most as many threads and slots more than at first as there are callers that wait for late
//! answers at once, and [`HANGING_MAX`] threads that hang in requests of killed callers.

use super::slot::Slot;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads that hang in requests whose callers were killed, at most. The callers of others wait on.
const HANGING_MAX: usize = 64;

/// Starts a spare thread.
type Starter = Box<dyn Fn() -> io::Result<JoinHandle<io::Result<()>>> + Send>;

/// The threads of the rings.
pub(crate) struct Crew {
    /// Slots of each queue.
    per_queue: isize,
    payload_bytes: usize,
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    /// Slots with an answer, for spare threads.
    waiting: VecDeque<Slot>,
    spares: usize,
    /// Number of slots of each queue that no late answer is waited for in.
    slots: Vec<isize>,
    hanging: usize,
    start: Option<Starter>,
    started: Vec<JoinHandle<io::Result<()>>>,
    is_over: bool,
}

impl Crew {
    pub(crate) fn new(queues: u16, per_queue: usize, payload_bytes: usize) -> Self {
        let per_queue = isize::try_from(per_queue).expect("a small number");
        let state = State { slots: vec![per_queue; usize::from(queues)], ..State::default() };
        Self { per_queue, payload_bytes, state: Mutex::new(state), called: Condvar::new() }
    }

    /// The way to start a thread where none is spare.
    pub(crate) fn set_starter(&self, start: Starter) {
        self.state().start = Some(start);
    }

    /// The slots that there are at first.
    pub(crate) fn first_slots(&self) -> impl Iterator<Item = Slot> {
        let counts = self.state().slots.clone();
        let queues = counts.into_iter().zip(0..).flat_map(|(count, queue)| (0..count).map(move |_| queue));
        queues.map(|queue| self.slot(queue))
    }

    pub(crate) fn slot(&self, queue: u16) -> Slot {
        Slot::new(queue, self.payload_bytes)
    }

    /// The answer to a request of this queue comes later. Returns a substitute for its slot, if that is due.
    pub(crate) fn later(&self, queue: u16) -> Option<Slot> {
        let mut state = self.state();
        let slots = &mut state.slots[usize::from(queue)];
        *slots -= 1;
        if *slots >= self.per_queue {
            return None;
        }
        *slots += 1;
        drop(state);
        Some(self.slot(queue))
    }

    /// A late answer has come.
    pub(crate) fn answered_later(&self, slot: Slot) {
        let mut state = self.state();
        state.slots[usize::from(slot.queue())] += 1;
        self.pass(state, slot);
    }

    /// A thread hangs in a request whose caller was killed.
    pub(crate) fn taken(&self, slot: Slot) {
        let mut state = self.state();
        state.hanging += 1;
        self.pass(state, slot);
    }

    /// Returns true if one more thread may hang.
    pub(crate) fn can_lose_thread(&self) -> bool {
        self.state().hanging < HANGING_MAX
    }

    /// Such a thread is back, and spare.
    pub(crate) fn returned(&self) {
        self.state().hanging -= 1;
    }

    /// A thread that was doing a request panics; its slot has an answer.
    pub(crate) fn inherited(&self, slot: Slot) {
        self.pass(self.state(), slot);
    }

    fn pass(&self, mut state: MutexGuard<'_, State>, slot: Slot) {
        if state.is_over {
            return;
        }
        state.waiting.push_back(slot);
        if state.spares < state.waiting.len() {
            match state.start.as_ref().map_or_else(|| Err(io::ErrorKind::NotFound.into()), |start| start()) {
                Ok(thread) => state.started.push(thread),
                Err(error) => tracing::error!("no thread for an answer until another one ends: {error}"),
            }
        }
        drop(state);
        self.called.notify_one();
    }

    /// Waits as a spare thread for a slot. `None` at the end of the mount.
    pub(crate) fn next(&self) -> Option<Slot> {
        let mut state = self.state();
        state.spares += 1;
        let wait = self.called.wait_while(state, |state| state.waiting.is_empty() && !state.is_over);
        state = wait.unwrap_or_else(PoisonError::into_inner);
        state.spares -= 1;
        state.waiting.pop_front().filter(|_| !state.is_over)
    }

    /// The mount has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        // They are of no use to the kernel any more; and the starter keeps what the threads keep.
        (state.waiting, state.start) = (VecDeque::new(), None);
        drop(state);
        self.called.notify_all();
    }

    /// Threads that were started later, to be joined.
    pub(crate) fn take_started(&self) -> Vec<JoinHandle<io::Result<()>>> {
        std::mem::take(&mut self.state().started)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("per_queue", &self.per_queue).finish_non_exhaustive()
    }
}
