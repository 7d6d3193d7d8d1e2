//! Files written lately. How much space such a file takes changes without the kernel's doing, when its data reaches
//! the devices, so that the kernel may not keep its attributes for long.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

/// Numbers of files written lately.
#[derive(Debug)]
pub(crate) struct RecentWrites {
    /// Each with the round in which it was written last.
    shards: [Mutex<HashMap<u64, u64>>; SHARDS],
    round: Mutex<u64>,
}

impl Default for RecentWrites {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), round: Mutex::new(0) }
    }
}

impl RecentWrites {
    /// Notes a write; true if the file was not known as written.
    pub(crate) fn note(&self, node: u64) -> bool {
        let round = *self.round();
        self.shard(node).insert(node, round).is_none()
    }

    /// Whether the file was written lately.
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.shard(node).contains_key(&node)
    }

    /// A new round begins: to be called before all that was written is brought to the devices. Answers the round
    /// that ends.
    pub(crate) fn begin_round(&self) -> u64 {
        let mut round = self.round();
        *round += 1;
        *round - 1
    }

    /// Forgets what was written last in this round or before: it is on the devices.
    pub(crate) fn forget_until(&self, round: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, written| *written > round);
            shard.shrink_to_fit();
        }
    }

    fn round(&self) -> MutexGuard<'_, u64> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, HashMap<u64, u64>> {
        let index = brindle_ondisk::to_usize(node) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_during_a_commit_stays() {
        let writes = RecentWrites::default();
        assert!(writes.note(300) && writes.note(301) && !writes.note(300));
        let round = writes.begin_round();
        assert!(!writes.note(301));
        writes.forget_until(round);
        assert!(!writes.contains(300) && writes.contains(301));
        writes.forget_until(writes.begin_round());
        assert!(!writes.contains(301));
    }
}
