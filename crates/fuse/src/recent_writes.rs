//! Files written lately. How much space such a file takes changes without the kernel's doing, when its data reaches
//! the devices, so that the kernel may not keep its attributes for long.
//!
//! A program that has synced or closed a file expects to see at once what it takes. So it is remembered what the kernel was
//! told last; if that is wrong then, the kernel is told to forget it. Not more often than the kernel asks of its own accord,
//! though: a program that appends and syncs all the time would cause a request more with each sync.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const SHARDS: usize = 16;
/// Time for which the kernel keeps the attributes of such a file.
pub(crate) const UNSETTLED_TTL: Duration = Duration::from_secs(1);

/// A file that was written lately.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    /// The round in which it was written last.
    round: u64,
    /// The blocks that the kernel was told of last; `None` if it knows of none.
    told: Option<u64>,
    /// The time at which the kernel was last told to forget them.
    corrected: Option<Instant>,
}

/// Numbers of files written lately.
#[derive(Debug)]
pub(crate) struct RecentWrites {
    shards: [Mutex<HashMap<u64, Recent>>; SHARDS],
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
        let mut shard = self.shard(node);
        if let Some(recent) = shard.get_mut(&node) {
            recent.round = round;
            return false;
        }
        shard.insert(node, Recent { round, ..Recent::default() });
        true
    }

    /// Notes that the kernel is told how many blocks a file has; false if it was not written lately.
    pub(crate) fn tell(&self, node: u64, blocks: u64) -> bool {
        let mut shard = self.shard(node);
        let Some(recent) = shard.get_mut(&node) else { return false };
        recent.told = Some(blocks);
        true
    }

    /// Returns true if the kernel was told of blocks of a file.
    pub(crate) fn is_told(&self, node: u64) -> bool {
        self.shard(node).get(&node).is_some_and(|recent| recent.told.is_some())
    }

    /// Returns true if the kernel is to be told to drop the attributes of a file, which has `blocks` blocks now.
    pub(crate) fn begin_correction(&self, node: u64, blocks: u64, now: Instant) -> bool {
        let mut shard = self.shard(node);
        let Some(recent) = shard.get_mut(&node) else { return false };
        let is_recent = |at: Instant| now.saturating_duration_since(at) < UNSETTLED_TTL;
        if recent.told.is_none_or(|told| told == blocks) || recent.corrected.is_some_and(is_recent) {
            return false;
        }
        (recent.told, recent.corrected) = (None, Some(now));
        true
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
            shard.retain(|_, recent| recent.round > round);
            shard.shrink_to_fit();
        }
    }

    fn round(&self) -> MutexGuard<'_, u64> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, HashMap<u64, Recent>> {
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
        assert!(!writes.tell(300, 1) && writes.tell(301, 1));
        writes.forget_until(writes.begin_round());
        assert!(!writes.tell(301, 1));
    }

    #[test]
    fn the_kernel_forgets_what_is_wrong_once_as_long_as_it_would_keep_it() {
        let (writes, begin) = (RecentWrites::default(), Instant::now());
        assert!(!writes.begin_correction(300, 8, begin) && !writes.is_told(300));
        writes.note(300);
        assert!(!writes.begin_correction(300, 8, begin), "it knows nothing");
        assert!(writes.tell(300, 0) && writes.is_told(300));
        assert!(!writes.begin_correction(300, 0, begin), "it knows what is right");
        assert!(writes.begin_correction(300, 8, begin));
        assert!(!writes.begin_correction(300, 16, begin), "it knows nothing again");
        writes.tell(300, 8);
        assert!(!writes.begin_correction(300, 16, begin + UNSETTLED_TTL / 2));
        assert!(writes.begin_correction(300, 16, begin + UNSETTLED_TTL));
    }
}
