//! Flushes and durable writes of a file, one at a time.
//!
//! The host tells a failure of earlier writes once for each open file: to the flush or durable write that comes first, of any caller,
//! and the next flush succeeds. So a flush fails, too, if another one failed while it waited, or if a durable write was told of a
//! failure since the last flush.

use brindle_sync::{Mutex, MutexGuard, Rank};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that durable requests of a file were told.
#[derive(Debug)]
pub(crate) struct DurableRequests {
    /// True if a durable write was told of one, and no flush yet. Held while such a request is made.
    is_owed: Mutex<bool>,
    failures: AtomicU64,
}

impl Default for DurableRequests {
    fn default() -> Self {
        Self { is_owed: Mutex::new(Rank::DurableRequest, false), failures: AtomicU64::new(0) }
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
    is_owed: MutexGuard<'d, bool>,
}

impl DurableRequests {
    /// Failures up to now: to be asked before a request waits for its turn.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Waits for the requests that are under way; a caller that holds the turn of other files takes them in ascending order of this key.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { requests: self, is_owed: self.is_owed.lock_by_key(self.key()) }
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

    /// Judges the answer of the host to a request, which is told the failures of others that concern it.
    pub(crate) fn judge(
        &mut self,
        kind: DurableKind,
        failures: u64,
        answer: io::Result<()>,
    ) -> io::Result<()> {
        let others_failed = self.requests.failures() != failures || *self.is_owed;
        if answer.is_err() {
            self.requests.failures.fetch_add(1, Ordering::Release);
        }
        match (kind, answer) {
            (DurableKind::Write, answer) => {
                *self.is_owed |= answer.is_err();
                answer
            }
            (DurableKind::Flush, answer) => {
                *self.is_owed = false;
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

    /// Makes requests one after the other, each with the answer of the host; whether they succeed.
    fn made(requests: &DurableRequests, kinds: &[(DurableKind, bool)]) -> Vec<bool> {
        let make = |(kind, is_fine): &(DurableKind, bool)| {
            let answer = if *is_fine { Ok(()) } else { Err(io::ErrorKind::Other.into()) };
            let failures = requests.failures();
            requests.turn().judge(*kind, failures, answer).is_ok()
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
        let waits_since = requests.failures();
        assert_eq!(made(&requests, &[(Flush, false)]), [false]);
        requests.turn().judge(Flush, waits_since, Ok(())).expect_err("it covers the same writes");
        assert_eq!(made(&requests, &[(Flush, true)]), [true]);
    }
}
