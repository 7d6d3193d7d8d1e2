//! Callers that are killed while they wait for an answer.
//!
//! A process that waits for an answer can't end before it has it, even if it is killed: the kernel tells by a message
//! (`FUSE_INTERRUPT`) that it has a signal, and waits on. Where a device hangs, the process would stay for ever.
//!
//! Requests are therefore listed while they are done. A request is *waiting* until something is changed for it, then *begun*
//! ([`Reply::begin`](crate::Reply::begin), [`Effects::begin`]), and off the list with its answer. One that only reads is never begun. The
//! caller of one that waits is told EINTR by a thread of its own as soon as it is known to be killed; the request is *taken* then, its
//! answer is dropped, and it can't begin any more. So a request that was answered with EINTR has changed nothing, and
//! one that has begun is answered by its result.
//!
//! EINTR is for callers with a SIGKILL alone, which every fatal signal becomes. A caller that only handles a signal (a
//! timer, a child that ended) waits on: kernel filesystems don't interrupt their calls, and programs don't expect that.
//! It may be killed later, which the kernel does not tell, so that it is looked at from time to time.
//!
//! The message of an interruption may overtake its request: another thread has read that and not listed it yet. So numbers that are
//! not listed are kept, up to [`EARLY_MAX`]. The one that is too many is given back to the kernel (EAGAIN), which sends it again if
//! the request has not been answered. If all threads hang, there is none to read such messages, and all callers that wait are
//! looked at.

use crate::way::Way;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interruptions of requests that are not listed, at most.
pub(crate) const EARLY_MAX: usize = 64;
/// Interval at which the callers of interrupted requests are looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// The request that a thread does, before anything is changed for it.
#[derive(Clone, Debug)]
pub struct Effects {
    interrupts: Arc<Interrupts>,
    request: Rc<Cell<u64>>,
}

impl Effects {
    pub(crate) fn new(interrupts: Arc<Interrupts>) -> Self {
        Self { interrupts, request: Rc::default() }
    }

    /// The thread does this request from now on.
    pub(crate) fn of_request(&self, unique: u64) {
        self.request.set(unique);
    }

    /// Something is about to be changed for the request that this thread does. Returns false if its caller has been killed, and
    /// the request must be given up.
    pub fn begin(&self) -> bool {
        self.interrupts.begin(self.request.get())
    }
}

/// Tells whether a caller is still there, for long work.
#[derive(Clone, Debug)]
pub struct Waiter {
    interrupts: Arc<Interrupts>,
    unique: u64,
}

impl Waiter {
    pub(crate) fn new(interrupts: Arc<Interrupts>, unique: u64) -> Self {
        Self { interrupts, unique }
    }

    /// Returns true until the caller has been killed.
    pub fn is_there(&self) -> bool {
        !self.interrupts.is_taken(self.unique)
    }
}

/// Requests of a connection that are being done.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Listed>,
    /// Numbers of interrupted requests that are not listed, the oldest first.
    early: VecDeque<u64>,
    /// True if a request was interrupted since callers were looked at.
    has_news: bool,
    is_over: bool,
}

#[derive(Clone, Debug)]
struct Listed {
    unique: u64,
    pid: u32,
    way: Way,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was changed.
    Waiting { is_interrupted: bool },
    /// Something may have been changed.
    Begun,
    /// The caller was told EINTR.
    Taken,
}

impl Interrupts {
    /// Lists a request that was read.
    pub(crate) fn enter(&self, unique: u64, pid: u32, way: &Way) {
        let mut state = self.state();
        let early = state.early.iter().position(|early| *early == unique);
        let is_interrupted = early.is_some_and(|at| state.early.remove(at).is_some());
        let stage = Stage::Waiting { is_interrupted };
        state.requests.push(Listed { unique, pid, way: way.clone(), stage });
        if is_interrupted {
            self.wake(state);
        }
    }

    /// Something is about to be changed for a request. Returns false if it was taken.
    pub(crate) fn begin(&self, unique: u64) -> bool {
        let mut state = self.state();
        match state.find(unique) {
            Some(Stage::Taken) => false,
            Some(stage) => {
                *stage = Stage::Begun;
                true
            }
            None => true,
        }
    }

    fn is_taken(&self, unique: u64) -> bool {
        self.state().find(unique).is_some_and(|stage| *stage == Stage::Taken)
    }

    /// Takes a request off the list. Returns false if it was taken, so that it must not be answered.
    pub(crate) fn leave(&self, unique: u64) -> bool {
        let mut state = self.state();
        // The latest are at the end, as a rule.
        let at = state.requests.iter().rposition(|listed| listed.unique == unique);
        at.is_none_or(|at| state.requests.swap_remove(at).stage != Stage::Taken)
    }

    /// The caller of a request has a signal. Returns the number of a request whose interruption can't be kept.
    pub(crate) fn interrupt(&self, unique: u64) -> Option<u64> {
        let mut state = self.state();
        match state.find(unique) {
            Some(Stage::Waiting { is_interrupted }) => {
                *is_interrupted = true;
                self.wake(state);
                None
            }
            Some(Stage::Begun | Stage::Taken) => None,
            None => state.keep_early(unique),
        }
    }

    /// Has all callers looked at: no thread is left to hear of their signals.
    pub(crate) fn suspect_all(&self) {
        let mut state = self.state();
        for listed in &mut state.requests {
            if let Stage::Waiting { is_interrupted } = &mut listed.stage {
                *is_interrupted = true;
            }
        }
        self.wake(state);
    }

    /// Ends the thread that looks at callers.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// Takes the requests of killed callers, and calls `answer` for each, until the [end](Self::end).
    pub(crate) fn watch(&self, is_killed: impl Fn(u32) -> bool, answer: impl Fn(&Way, u64)) {
        loop {
            let Some(interrupted) = self.next() else { return };
            for Listed { unique, pid, way, .. } in interrupted {
                if is_killed(pid) && way.can_be_left() && self.take(unique) {
                    answer(&way, unique);
                }
            }
        }
    }

    /// Waits for requests to be looked at; `None` at the end.
    fn next(&self) -> Option<Vec<Listed>> {
        let mut state = self.state();
        // What was looked at already is looked at again after a pause.
        if state.has_interrupted() {
            let pause =
                self.changed.wait_timeout_while(state, PAUSE, |state| !state.is_over && !state.has_news);
            state = pause.unwrap_or_else(PoisonError::into_inner).0;
        }
        let sleep = self.changed.wait_while(state, |state| !state.is_over && !state.has_interrupted());
        let mut state = sleep.unwrap_or_else(PoisonError::into_inner);
        state.has_news = false;
        let interrupted = state.requests.iter().filter(|listed| listed.is_interrupted()).cloned().collect();
        (!state.is_over).then_some(interrupted)
    }

    /// Takes a request that waits still.
    fn take(&self, unique: u64) -> bool {
        let mut state = self.state();
        match state.find(unique) {
            Some(stage @ Stage::Waiting { .. }) => {
                *stage = Stage::Taken;
                true
            }
            _ => false,
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        state.has_news = true;
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, unique: u64) -> Option<&mut Stage> {
        let found = self.requests.iter_mut().rev().find(|listed| listed.unique == unique);
        found.map(|listed| &mut listed.stage)
    }

    /// Keeps the number of a request that is not listed; returns the one that is too many.
    fn keep_early(&mut self, unique: u64) -> Option<u64> {
        if !self.early.contains(&unique) {
            self.early.push_back(unique);
        }
        if self.early.len() > EARLY_MAX { self.early.pop_front() } else { None }
    }

    fn has_interrupted(&self) -> bool {
        self.requests.iter().any(Listed::is_interrupted)
    }
}

impl Listed {
    fn is_interrupted(&self) -> bool {
        self.stage == Stage::Waiting { is_interrupted: true }
    }
}

/// Returns true if a thread of a program has been killed; false if that can't be known.
pub(crate) fn is_killed(pid: u32) -> bool {
    has_kill(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// Every fatal signal is a SIGKILL of all threads in the end.
fn has_kill(status: &str) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let pending = |name| {
        let bits = status.lines().find_map(|line| line.strip_prefix(name));
        bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
    };
    (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_or_begins_and_never_both() {
        let interrupts = Interrupts::default();
        interrupts.enter(2, 7, &Way::Device);
        interrupts.enter(4, 7, &Way::Device);
        assert!(interrupts.begin(2));
        assert!(!interrupts.take(2), "it has begun");
        assert!(interrupts.take(4));
        assert!(!interrupts.take(4), "once");
        assert!(!interrupts.begin(4) && interrupts.is_taken(4));
        assert!(interrupts.leave(2) && !interrupts.leave(4));
        assert!(interrupts.begin(2) && interrupts.leave(2), "of what is not listed nothing is kept");
        assert!(interrupts.state().requests.is_empty());
    }

    #[test]
    fn an_interruption_may_come_first_and_a_bound_of_them_is_kept() {
        let interrupts = Interrupts::default();
        let last = 2 * u64::try_from(EARLY_MAX).expect("small");
        for unique in (2..=last).step_by(2).chain([2]) {
            assert_eq!(interrupts.interrupt(unique), None);
        }
        assert_eq!(interrupts.interrupt(last + 2), Some(2), "the oldest is given back");
        interrupts.enter(2, 7, &Way::Device);
        assert!(!interrupts.state().has_interrupted());
        interrupts.enter(last, 7, &Way::Device);
        assert_eq!(interrupts.next().expect("it goes on").len(), 1);
        assert_eq!(interrupts.state().early.len(), EARLY_MAX - 1);
    }

    #[test]
    fn a_killed_process_is_told_from_one_with_a_signal() {
        assert!(has_kill("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(has_kill("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
        assert!(!has_kill("SigPnd:\t0000000000010000\nShdPnd:\t0000000000004000\n"));
        assert!(!has_kill("") && !is_killed(0));
    }
}
