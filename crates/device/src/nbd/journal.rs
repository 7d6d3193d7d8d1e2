//! Writes that were answered and not flushed: what a server may have forgotten when it is reached again.

use super::job::Job;
use std::collections::VecDeque;
use std::sync::Arc;

/// Writes in the order of their answers. A caller overwrites a range only when the earlier write of it was answered, so
/// this is an order in which they can be repeated.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Number of the first of `writes`, counted from the first of all.
    first: u64,
    writes: VecDeque<Arc<Job>>,
}

impl Journal {
    /// Number of writes so far: a flush that is asked for now covers those below.
    pub(super) fn count(&self) -> u64 {
        self.first + self.writes.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Adds a write that was answered.
    pub(super) fn push(&mut self, write: Arc<Job>) {
        self.writes.push_back(write);
    }

    /// Forgets the writes below a number, which are durable; returns their bytes.
    pub(super) fn forget(&mut self, covered: u64) -> usize {
        let mut bytes = 0;
        while self.first < covered {
            let Some(write) = self.writes.pop_front() else { break };
            self.first += 1;
            bytes += cost(write.payload.len());
        }
        bytes
    }

    /// All writes, in order.
    pub(super) fn writes(&self) -> Vec<Arc<Job>> {
        self.writes.iter().cloned().collect()
    }
}

/// Bytes that a write with this payload takes of the memory for writes.
pub(super) fn cost(payload_bytes: usize) -> usize {
    payload_bytes + 512
}
