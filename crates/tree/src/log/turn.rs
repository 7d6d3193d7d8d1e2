//! Turns of syncs: one sync at a time, for all that wait for it.
//!
//! A caller with a durable entry returns at once, while the next sync is under way already; of those that wait for the next
//! one, one gets the turn, and may wait a moment for others ([`Gathering`]). What syncs must not run beside takes a turn too, before all syncs that wait: the end of
//! the log in a commit, and exclusive changes.

use super::gathering::Gathering;
use super::{Log, LogState, LogTicket};
use crate::stop::Stop;
use brindle_sync::{HAS_TIME, HeldRank, MutexGuard, Rank};
use std::time::Instant;

/// Taken and wanted turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    is_taken: bool,
    /// Callers that keep syncs away, once they get their turn.
    waiting_others: usize,
    /// True if the holder of the turn waits for more callers.
    is_gathering: bool,
    gathering: Gathering,
}

/// A turn: no sync is under way but that of its holder. A holder that panics stops the pool before another one gets the turn.
#[derive(Debug)]
#[must_use = "syncs are kept away as long as it lives"]
pub(crate) struct SyncTurn<'l> {
    log: &'l Log,
    stop: &'l Stop,
    _rank: HeldRank,
}

/// Outcome of a wait for a sync.
#[derive(Debug)]
pub(crate) enum Waited<'l> {
    /// The entry is durable.
    Synced,
    /// The log has ended: a commit makes the entry durable.
    Ended,
    /// The caller is to sync.
    Turn(SyncTurn<'l>),
}

impl LogState {
    /// Returns the outcome for an entry that needs no turn: an ended log has no durable entries, whatever their numbers.
    fn outcome<'l>(&self, ticket: LogTicket) -> Option<Waited<'l>> {
        if self.generation != ticket.generation {
            Some(Waited::Ended)
        } else if self.synced >= ticket.number {
            Some(Waited::Synced)
        } else {
            None
        }
    }
}

impl Log {
    /// Waits for the sync of an entry, or for the turn to make it. Counts the caller, unless the entry is durable at once.
    pub(crate) fn wait_for_sync<'l>(&'l self, ticket: LogTicket, stop: &'l Stop) -> Waited<'l> {
        let rank = Rank::LogSync.hold();
        let mut state = self.state();
        match state.outcome(ticket) {
            Some(Waited::Synced) => return Waited::Synced,
            Some(_) => {}
            None => *state.callers(ticket.number) += 1,
        }
        if state.turns.is_gathering {
            self.called.notify_all();
        }
        self.counts().fsyncs += 1;
        loop {
            if let Some(outcome) = state.outcome(ticket) {
                return outcome;
            }
            if !state.turns.is_taken && state.turns.waiting_others == 0 {
                state.turns.is_taken = true;
                let turn = SyncTurn { log: self, stop, _rank: rank };
                self.gather(state, ticket);
                return Waited::Turn(turn);
            }
            state = self.turn_ended.wait(state);
        }
    }

    /// The holder of the turn waits a moment for more callers, unless something waits that syncs must not run beside.
    fn gather(&self, mut state: MutexGuard<'_, LogState>, ticket: LogTicket) {
        let before = *state.callers(ticket.number);
        let until = state.turns.gathering.until(before, Instant::now()).filter(|_| HAS_TIME);
        if let Some(until) = until {
            state.turns.is_gathering = true;
            loop {
                let callers = *state.callers(ticket.number);
                let left = until.saturating_duration_since(Instant::now());
                let is_over = left.is_zero() || state.turns.waiting_others > 0;
                if is_over || state.turns.gathering.is_complete(callers) {
                    state.turns.gathering.waited(before, callers);
                    break;
                }
                state = self.called.wait_timeout(state, left).0;
            }
            state.turns.is_gathering = false;
        }
        state.turns.gathering.begin(Instant::now());
    }

    /// A sync is durable: returns how many callers it was for.
    pub(crate) fn note_synced(&self, number: u64) -> u64 {
        let mut state = self.state();
        state.synced = number;
        let callers = std::mem::take(state.callers(number));
        let waiting = *state.callers(number + 1);
        state.turns.gathering.end(callers, waiting, Instant::now());
        callers
    }

    /// Keeps syncs away, once the one that is under way has ended.
    #[track_caller]
    pub(crate) fn keep_syncs_away<'l>(&'l self, stop: &'l Stop) -> SyncTurn<'l> {
        let rank = Rank::LogSync.hold();
        let mut state = self.state.lock_after_panic();
        state.turns.waiting_others += 1;
        self.called.notify_all();
        while state.turns.is_taken {
            state = self.turn_ended.wait(state);
        }
        state.turns.waiting_others -= 1;
        state.turns.is_taken = true;
        drop(state);
        SyncTurn { log: self, stop, _rank: rank }
    }
}

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        self.stop.abort_if_panicking();
        // Its holder may be unwinding.
        self.log.state.lock_after_panic().turns.is_taken = false;
        self.log.turn_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::Generation;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// A log with entries of one generation that the next sync is for, their ticket, and the pool's stop.
    fn log_with_entries() -> (Log, LogTicket, Stop) {
        let (log, generation) = (Log::default(), Generation::new(7));
        log.state().generation = generation;
        (log, LogTicket { generation, number: 1 }, Stop::default())
    }

    fn turn<'l>(waited: Waited<'l>) -> SyncTurn<'l> {
        match waited {
            Waited::Turn(turn) => turn,
            other => panic!("no turn: {other:?}"),
        }
    }

    /// Waits until as many others want a turn.
    fn wait_for_others(log: &Log, count: usize) {
        while log.state().turns.waiting_others != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_caller_with_a_durable_entry_does_not_wait_for_the_next_sync() {
        let (log, first, stop) = log_with_entries();
        let second = LogTicket { number: 2, ..first };
        let leader = turn(log.wait_for_sync(first, &stop));
        log.state().begun = 1;
        let next_may_end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| matches!(log.wait_for_sync(first, &stop), Waited::Synced));
            let next = scope.spawn(|| {
                let turn = turn(log.wait_for_sync(second, &stop));
                while !next_may_end.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                drop(turn);
            });
            while *log.state().callers(1) < 2 || *log.state().callers(2) < 1 {
                std::thread::yield_now();
            }
            assert_eq!(log.note_synced(1), 2);
            drop(leader);
            // The next sync is under way, or will be at once, and does not end.
            assert!(follower.join().expect("no panic"), "the first sync is durable");
            assert!(!next.is_finished());
            next_may_end.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn entries_of_a_log_that_has_ended_are_for_its_commit_whatever_their_number() {
        let (log, ticket, stop) = log_with_entries();
        // The sync of the first one has failed, and the commit that is made instead is under way.
        log.state().begun = 1;
        let mut state = log.state();
        *state = state.ended();
        drop(state);
        assert!(matches!(log.wait_for_sync(ticket, &stop), Waited::Ended));
    }

    #[test]
    fn a_commit_comes_before_syncs_that_wait() {
        let (log, ticket, stop) = log_with_entries();
        let leader = turn(log.wait_for_sync(ticket, &stop));
        let is_away = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let turn = log.keep_syncs_away(&stop);
                is_away.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                drop(turn);
            });
            wait_for_others(&log, 1);
            let waiter = scope.spawn(|| {
                let turn = turn(log.wait_for_sync(ticket, &stop));
                assert!(is_away.load(Ordering::SeqCst), "a sync came first");
                drop(turn);
            });
            while *log.state().callers(1) < 2 {
                std::thread::yield_now();
            }
            drop(leader);
            waiter.join().expect("its turn comes");
        });
    }

    #[test]
    fn a_panic_stops_the_pool_before_it_gives_a_turn_back() {
        let (log, ticket, stop) = log_with_entries();
        std::thread::scope(|scope| {
            let panicked = scope.spawn(|| {
                let _turn = turn(log.wait_for_sync(ticket, &stop));
                while *log.state().callers(1) < 2 {
                    std::thread::yield_now();
                }
                panic!("a sync fails");
            });
            while *log.state().callers(1) < 1 {
                std::thread::yield_now();
            }
            let next = turn(log.wait_for_sync(ticket, &stop));
            assert!(stop.reason().is_some(), "the next one would sync what the first one has left half done");
            drop(next);
            assert!(panicked.join().is_err());
        });
        drop(log.keep_syncs_away(&stop));
    }
}
