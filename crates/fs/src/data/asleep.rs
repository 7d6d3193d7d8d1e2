//! Places that lie on devices which sleep: the last commits had nothing for them.

use brindle_ondisk::Logical;
use brindle_tree::Pool;
use std::collections::BTreeSet;

/// Chunks with a stripe on a device that sleeps: start and end, in order.
#[derive(Debug)]
pub(super) struct SleepingChunks(Vec<(u64, u64)>);

impl SleepingChunks {
    /// Those of a pool as of now. A disk that spins for other reasons counts too, for the host does not tell.
    pub(super) fn of(pool: &Pool) -> Self {
        let devices = pool.volume().traffic().into_iter().filter(|device| device.is_asleep);
        let devices: BTreeSet<_> = devices.map(|device| device.devid).collect();
        if devices.is_empty() {
            return Self(Vec::new());
        }
        let chunks = pool.volume().chunks().into_iter();
        let chunks =
            chunks.filter(|chunk| chunk.stripes.iter().any(|stripe| devices.contains(&stripe.devid)));
        let mut ranges: Vec<_> =
            chunks.map(|chunk| (chunk.start.get(), chunk.start.get().saturating_add(chunk.length))).collect();
        ranges.sort_unstable();
        Self(ranges)
    }

    /// Returns true if an address lies in one of them.
    pub(super) fn hold(&self, at: Logical) -> bool {
        let behind = self.0.partition_point(|(start, _)| *start <= at.get());
        self.0[..behind].last().is_some_and(|(_, end)| at.get() < *end)
    }
}
