//! The gate of the running transaction: operations pass in and out, a commit closes it for the moment in which
//! nothing may change.

use brindle_ondisk::Generation;
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank};

/// Gate of the running transaction: counts its participants.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    running: Generation,
    inside: usize,
    is_closed: bool,
}

impl Gate {
    pub(super) fn new(running: Generation) -> Self {
        let state = State { running, inside: 0, is_closed: false };
        Self { state: Mutex::new(Rank::GateState, state), changed: Condvar::new() }
    }

    /// Transaction that a new participant becomes part of.
    pub(super) fn running(&self) -> Generation {
        self.lock().running
    }

    /// Goes in, once the gate is open.
    pub(super) fn enter(&self) -> Generation {
        let mut state = self.wait_while(|state| state.is_closed);
        state.inside += 1;
        state.running
    }

    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.inside -= 1;
        // Only the thread that closed the gate waits for the last one, and a wakeup costs a system call.
        if state.inside == 0 && state.is_closed {
            self.changed.notify_all();
        }
    }

    /// Closes the gate and waits until everybody has left. One caller at a time: the commit lock sees to that.
    pub(super) fn close(&self) -> Generation {
        let mut state = self.lock();
        assert!(!state.is_closed, "the gate is closed by the holder of the commit lock alone");
        state.is_closed = true;
        drop(state);
        self.wait_while(|state| state.inside > 0).running
    }

    /// Opens the gate; new participants are part of `running`.
    pub(super) fn open(&self, running: Generation) {
        let mut state = self.lock();
        state.is_closed = false;
        state.running = running;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Leaving is a destructor's work, and no change here can end half way.
        self.state.lock_after_panic()
    }

    #[track_caller]
    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.lock(), |state| condition(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn closing_waits_for_participants_and_keeps_others_out() {
        let gate = Gate::new(Generation::new(7));
        assert_eq!(gate.enter(), Generation::new(7));
        let closed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(gate.close(), Generation::new(7));
                closed.store(true, Ordering::SeqCst);
                gate.open(Generation::new(8));
            });
            while !gate.lock().is_closed {
                std::thread::yield_now();
            }
            assert!(!closed.load(Ordering::SeqCst));
            gate.leave();
            assert_eq!(gate.enter(), Generation::new(8));
            assert!(closed.load(Ordering::SeqCst));
        });
    }
}
