//! The place where a thread of a ring and the answer to its request meet.
//!
//! A request occupies its slot until the kernel has fetched the answer. As a rule the thread answers while it does the request, and
//! hands the answer over as it fetches the next request. There are two exceptions. An answer may be given *later*, by
//! another thread. And a caller that was killed while the thread hangs is told EINTR at once; the slot is *taken* then.
//! In both cases another thread goes on with the slot ([`Crew`]). Then the kernel may write to its memory, so what the thread still
//! looks at must not be there: messages are copied. Two kinds are not, as no caller is told EINTR of them: pages that the kernel writes
//! back, whose slot stays with the thread, and large reads, whose slot is [lent](Desk::lend) to be filled.

use super::crew::Crew;
use super::slot::Slot;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The meeting place of one thread.
#[derive(Debug)]
pub(crate) struct Desk {
    crew: Arc<Crew>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slot: Place,
    /// An answer for a slot that is elsewhere.
    staged: Option<(u64, Result<Vec<u8>, Errno>)>,
    is_answered: bool,
    /// The thread has gone on without an answer.
    is_later: bool,
}

#[derive(Debug, Default)]
enum Place {
    Here(Slot),
    /// With the thread, or being filled.
    #[default]
    Elsewhere,
    /// With another thread: the caller was told EINTR.
    Taken,
}

/// The end of a request, for its thread.
#[derive(Debug)]
pub(crate) enum Left {
    /// The slot has its answer.
    Answered(Slot),
    /// The answer comes later.
    Later,
    /// Another thread has gone on with the slot.
    Taken,
}

/// A slot that is being filled.
#[derive(Debug)]
pub(crate) struct LentSlot<'d> {
    desk: &'d Desk,
    slot: Option<Slot>,
}

impl Desk {
    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        Self { crew, state: Mutex::default() }
    }

    /// The slot of a request that the thread is about to do.
    pub(crate) fn put(&self, slot: Slot) {
        self.state().slot = Place::Here(slot);
    }

    /// Answers the request.
    pub(crate) fn answer(&self, unique: u64, answer: Result<&[&[u8]], Errno>) {
        let mut state = self.state();
        state.is_answered = true;
        match std::mem::take(&mut state.slot) {
            Place::Here(mut slot) => {
                slot.answer(unique, answer);
                state.slot = Place::Here(slot);
                self.pass_on(state);
            }
            Place::Elsewhere => state.staged = Some((unique, answer.map(<[_]>::concat))),
            Place::Taken => state.slot = Place::Taken,
        }
    }

    /// Answers with EINTR, and has another thread go on with the slot.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.state();
        match std::mem::replace(&mut state.slot, Place::Taken) {
            Place::Here(mut slot) => {
                slot.answer(unique, Err(Errno::INTR));
                let is_later = state.is_later;
                drop(state);
                if is_later {
                    self.crew.answered_later(slot);
                } else {
                    self.crew.taken(slot);
                }
            }
            // Requests whose slot is elsewhere are not listed.
            elsewhere => state.slot = elsewhere,
        }
    }

    /// Returns true if a thread may be left hanging.
    pub(crate) fn can_be_left(&self) -> bool {
        self.crew.can_lose_thread()
    }

    /// Lends the slot, to be filled with the answer of a request that is not listed.
    pub(crate) fn lend(&self) -> Option<LentSlot<'_>> {
        let mut state = self.state();
        match std::mem::take(&mut state.slot) {
            Place::Here(slot) => Some(LentSlot { desk: self, slot: Some(slot) }),
            elsewhere => {
                state.slot = elsewhere;
                None
            }
        }
    }

    /// The thread has done the request; it has the slot if it was [kept](Slot::is_write_back).
    pub(crate) fn leave(&self, kept: Option<Slot>) -> Left {
        let mut state = self.state();
        if let Some(slot) = kept {
            state.slot = Place::Here(slot);
        }
        let staged = state.staged.take();
        match std::mem::take(&mut state.slot) {
            Place::Here(mut slot) if state.is_answered => {
                if let Some((unique, answer)) = staged {
                    let parts = answer.as_ref().map(|bytes| [bytes.as_slice()]);
                    slot.answer(unique, parts.as_ref().map(|parts| &parts[..]).map_err(|error| **error));
                }
                state.is_answered = false;
                Left::Answered(slot)
            }
            Place::Taken => Left::Taken,
            place => {
                state.slot = place;
                state.is_later = true;
                Left::Later
            }
        }
    }

    /// An answer that comes later is another thread's.
    fn pass_on(&self, mut state: MutexGuard<'_, State>) {
        if state.is_later {
            if let Place::Here(slot) = std::mem::take(&mut state.slot) {
                drop(state);
                self.crew.answered_later(slot);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LentSlot<'_> {
    /// Memory for an answer.
    pub(crate) fn payload(&mut self, length: usize) -> &mut [u8] {
        self.slot.as_mut().expect("it is given back at the end").payload(length)
    }

    /// Answers with as many of its bytes, or an error.
    pub(crate) fn answer(mut self, unique: u64, filled: Result<usize, Errno>) {
        let slot = self.slot.as_mut().expect("it is given back at the end");
        match filled {
            Ok(length) => slot.answer_in_place(unique, length),
            Err(error) => slot.answer(unique, Err(error)),
        }
        self.desk.state().is_answered = true;
    }
}

impl Drop for LentSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        state.slot = self.slot.take().map_or(Place::Elsewhere, Place::Here);
        if state.is_answered {
            self.desk.pass_on(state);
        }
    }
}
