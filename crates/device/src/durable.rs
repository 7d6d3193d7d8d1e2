//! Flushes and durable writes of a file, one at a time.
//!
//! The host tells a failure of earlier writes once for each open file: to the flush or durable write that comes first, of any caller,
//! and the next flush succeeds. So a flush fails, too, if another one failed while it waited, or if a durable write was told of a
//! failure since the last flush. Flushes that wait share one that began after they came.

use brindle_sync::{Mutex, MutexGuard, Rank};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that durable requests of a file were told.
#[derive(Debug)]
pub(crate) struct DurableRequests {
    /// Held while such a request is made.
    state: Mutex<State>,
    failures: AtomicU64,
    /// Flushes that have begun.
    begun: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// True if a durable write was told of a failure, and no flush yet.
    is_owed: bool,
    /// Number of the last flush that succeeded.
    flushed: u64,
}

/// Moment at which a request came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    failures: u64,
    begun: u64,
}

impl Default for DurableRequests {
    fn default() -> Self {
        let state = Mutex::new(Rank::DurableRequest, State { is_owed: false, flushed: 0 });
        Self { state, failures: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }
}

/// Kind of a durable request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DurableKind {
    Flush,
    Write,
}

/// Durable requests of a file that are made now.
pub(crate) struct Turn<'d> {
    requests: &'d DurableRequests,
    state: MutexGuard<'d, State>,
}

impl DurableRequests {
    /// The present moment: to be asked before a request waits for its turn.
    pub(crate) fn arrive(&self) -> Arrival {
        Arrival { failures: self.failures.load(Ordering::Acquire), begun: self.begun.load(Ordering::Acquire) }
    }

    /// Waits for the requests that are under way; a caller that holds the turn of other files takes them in ascending order of this key.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { requests: self, state: self.state.lock_by_key(self.key()) }
    }

    pub(crate) fn key(&self) -> u128 {
        std::ptr::from_ref(self).addr() as u128
    }
}

impl Turn<'_> {
    /// Returns true if it is the turn of this file.
    pub(crate) fn is_of(&self, requests: &DurableRequests) -> bool {
        std::ptr::eq(self.requests, requests)
    }

    /// Flushes, unless another flush has begun since this one came, and has succeeded.
    pub(crate) fn flush(
        &mut self,
        arrival: Arrival,
        flush: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if self.state.flushed > arrival.begun && !self.have_others_failed(arrival) {
            return Ok(());
        }
        let number = self.requests.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.judge(DurableKind::Flush, arrival, flush())?;
        self.state.flushed = number;
        Ok(())
    }

    fn have_others_failed(&self, arrival: Arrival) -> bool {
        self.state.is_owed || self.requests.failures.load(Ordering::Acquire) != arrival.failures
    }

    /// Judges the answer of the host to a request, which is told the failures of others that concern it.
    pub(crate) fn judge(
        &mut self,
        kind: DurableKind,
        arrival: Arrival,
        answer: io::Result<()>,
    ) -> io::Result<()> {
        let others_failed = self.have_others_failed(arrival);
        if answer.is_err() {
            self.requests.failures.fetch_add(1, Ordering::Release);
        }
        match (kind, answer) {
            (DurableKind::Write, answer) => {
                self.state.is_owed |= answer.is_err();
                answer
            }
            (DurableKind::Flush, answer) => {
                self.state.is_owed = false;
                answer?;
                if others_failed {
                    let why = "an earlier write failed, of which another request was told";
                    return Err(io::Error::other(why));
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DurableKind::{Flush, Write};
    use super::*;
    use std::cell::Cell;

    /// Makes requests one after the other, each with the answer of the host; whether they succeed.
    fn made(requests: &DurableRequests, kinds: &[(DurableKind, bool)]) -> Vec<bool> {
        let make = |(kind, is_fine): &(DurableKind, bool)| {
            let answer = if *is_fine { Ok(()) } else { Err(io::ErrorKind::Other.into()) };
            let arrival = requests.arrive();
            requests.turn().judge(*kind, arrival, answer).is_ok()
        };
        kinds.iter().map(make).collect()
    }

    #[test]
    fn a_failure_that_a_durable_write_was_told_is_told_to_the_next_flush() {
        let requests = DurableRequests::default();
        let kinds = [(Flush, true), (Write, false), (Write, true), (Flush, true), (Flush, true)];
        assert_eq!(made(&requests, &kinds), [true, false, true, false, true]);
        let kinds = [(Write, false), (Flush, false), (Flush, true)];
        assert_eq!(made(&requests, &kinds), [false, false, true], "both were told");
    }

    #[test]
    fn a_failure_that_a_flush_was_told_is_told_to_those_that_waited() {
        let requests = DurableRequests::default();
        let waits_since = requests.arrive();
        assert_eq!(made(&requests, &[(Flush, false)]), [false]);
        requests.turn().judge(Flush, waits_since, Ok(())).expect_err("it covers the same writes");
        assert_eq!(made(&requests, &[(Flush, true)]), [true]);
    }

    #[test]
    fn flushes_that_wait_share_one_that_began_after_they_came() {
        let requests = DurableRequests::default();
        let flushes = Cell::new(0);
        let flush = |arrival, answer: io::Result<()>| {
            let count = || {
                flushes.set(flushes.get() + 1);
                answer
            };
            requests.turn().flush(arrival, count).is_ok()
        };
        let [first, second, third] = [(); 3].map(|()| requests.arrive());
        assert!(flush(first, Ok(())) && flush(second, Ok(())) && flush(third, Ok(())));
        assert_eq!(flushes.get(), 1, "it began after all had come");
        assert!(flush(requests.arrive(), Ok(())));
        assert_eq!(flushes.get(), 2, "none has begun since");
        let [fourth, fifth] = [(); 2].map(|()| requests.arrive());
        assert!(!flush(fourth, Err(io::ErrorKind::Other.into())) && !flush(fifth, Ok(())));
        assert_eq!(flushes.get(), 4, "a failure is not shared as a success");
    }
}
