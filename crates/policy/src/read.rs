//! Order in which the mirrors of the same bytes are tried.
//!
//! First counts what is known to be wrong with a mirror ([`rank`]): whatever the policy, it chooses only among those
//! that are equally fit. What it regards then is in [`MirrorLoad`]; a caller need gather that only if
//! [`ReadPolicy::needs_load`].

mod estimate;
mod readahead;
mod settings;

#[cfg(test)]
mod tests;

pub use estimate::{Cost, SEGMENT_BYTES, cost, expected_ns};
pub use readahead::Readahead;
pub use settings::{Knob, ReadPolicy, ReadSettings, RoundedUp, SettingError, SettingFacts};

use std::cmp::Reverse;

/// Under [`ReadPolicy::Runs`], reads within one such run of the logical space stay on one mirror, so that a sequential
/// reader keeps one disk streaming; the next run is another mirror's, so that mirrors share the load. In bytes.
pub const RUN_BYTES: u64 = 1 << 20;

/// No profile keeps more copies.
pub const COPIES_MAX: usize = 4;

/// Facts about one way to obtain the bytes: a mirror, or a rebuild from parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorFacts {
    /// Every device that it needs is there.
    pub present: bool,
    /// Some device that it needs has missed transactions.
    pub stale: bool,
    /// The bytes would be rebuilt from other stripes.
    pub rebuilt: bool,
    /// Errors that its devices have shown since the pool was opened.
    pub errors: u64,
    /// Some device that it needs rotates.
    pub rotating: bool,
    /// The device's id.
    pub devid: u64,
    /// Load of the device.
    pub load: MirrorLoad,
}

/// Load of a device now, and measurements of its reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorLoad {
    /// Reads that it has not answered yet.
    pub in_flight: u32,
    /// Prefetches in its queue for which no reader waits yet.
    pub expected: u32,
    /// Requests that it works on at once.
    pub queue_depth: u32,
    /// Distance of the request from the end of the last one on the device, in bytes; 0 is *local*.
    pub distance: u64,
    /// The device's size, in bytes.
    pub size_bytes: u64,
    /// For how long it is taken to be busy with what it was told to expect, in nanoseconds.
    pub backlog_ns: u64,
    /// Recent latency of a read, in nanoseconds; 0 if there was none.
    pub latency_ns: u64,
    /// Time since the last read was answered, in nanoseconds.
    pub age_ns: u64,
    /// Recent time for which a read kept the device from others, in nanoseconds; 0 if there was none.
    pub service_ns: u64,
    /// Recent throughput of streams; 0 if unknown.
    pub bytes_per_second: u64,
}

impl MirrorLoad {
    /// Requests that it has before it.
    fn requests(&self) -> u32 {
        self.in_flight.saturating_add(self.expected)
    }
}

/// Facts about the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRequestFacts {
    /// Logical address, in bytes.
    pub logical: u64,
    /// Length, in bytes.
    pub length: u64,
    /// The process that reads.
    pub pid: u32,
    /// The mirror that the same worker read last.
    pub last_mirror: usize,
    /// Bytes that were read from mirrored chunks so far.
    pub bytes_read: u64,
    /// The pool has devices that rotate and others that do not.
    pub is_mixed: bool,
}

/// Age in nanoseconds up to which a latency counts: an older one may be out of date, and is measured anew.
const LATENCY_AGE_MAX_NS: u64 = 10_000_000_000;

/// The mirror to try first, of [`COPIES_MAX`] at the most. Without any, 0.
pub fn choose_mirror(settings: &ReadSettings, mirrors: &[MirrorFacts], request: &ReadRequestFacts) -> usize {
    let candidates = Candidates::of(settings.active, mirrors);
    match settings.active {
        ReadPolicy::Runs => candidates.get(request.logical / RUN_BYTES),
        ReadPolicy::Pid => candidates.get(request.pid.into()),
        ReadPolicy::RoundRobin => {
            candidates.by_devid(mirrors).get(request.bytes_read / settings.min_contig_bytes.max(1))
        }
        ReadPolicy::Devid => {
            let is_it = |index: &usize| mirrors[*index].devid == settings.devid;
            candidates.from(0).find(is_it).unwrap_or(candidates.get(0))
        }
        ReadPolicy::LoadRoundRobin => below_depth(settings, &candidates, mirrors, request),
        ReadPolicy::Latency => candidates.least_behind(request.last_mirror, |index| {
            let load = &mirrors[index].load;
            if load.age_ns > LATENCY_AGE_MAX_NS { 0 } else { load.latency_ns }
        }),
        ReadPolicy::Queue => {
            candidates.least_behind(request.last_mirror, |index| mirrors[index].load.requests())
        }
        ReadPolicy::Auto => {
            candidates.least_behind(request.last_mirror, |index| expected_ns(&mirrors[index], request.length))
        }
    }
}

/// Every way, in the order in which to try them when one has failed.
pub fn order_mirrors(mirrors: &[MirrorFacts]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..mirrors.len()).collect();
    order.sort_by_key(|index| (rank(&mirrors[*index]), mirrors[*index].rotating));
    order
}

/// The first mirror, from the last one on, whose load is lower than its queue is deep; if all queues are full, the one
/// of least load.
fn below_depth(
    settings: &ReadSettings,
    candidates: &Candidates,
    mirrors: &[MirrorFacts],
    request: &ReadRequestFacts,
) -> usize {
    let load = |index: &usize| {
        let mirror = &mirrors[*index];
        let penalty = settings.penalty(mirror.rotating, request.is_mixed);
        mirror.load.requests().saturating_add(if mirror.load.distance == 0 { 0 } else { penalty })
    };
    let start = request.last_mirror;
    let free = candidates.from(start).find(|index| load(index) < mirrors[*index].load.queue_depth);
    free.or_else(|| candidates.from(start).min_by_key(load)).unwrap_or(0)
}

/// The smaller, the better. Errors count by their order of magnitude: one more is no news of a device that
/// has had a thousand.
fn rank(facts: &MirrorFacts) -> (Reverse<bool>, bool, bool, u32) {
    let magnitude = u64::BITS - facts.errors.leading_zeros();
    (Reverse(facts.present), facts.stale, facts.rebuilt, magnitude)
}

/// The mirrors among which a policy may choose, in their order.
struct Candidates {
    indices: [usize; COPIES_MAX],
    count: usize,
}

impl Candidates {
    fn of(policy: ReadPolicy, mirrors: &[MirrorFacts]) -> Self {
        let mirrors = &mirrors[..mirrors.len().min(COPIES_MAX)];
        // Without counters the only assumption is that a disk that does not rotate is faster.
        let rotates = |facts: &MirrorFacts| policy == ReadPolicy::Runs && facts.rotating;
        let rank = |facts: &MirrorFacts| (rank(facts), rotates(facts));
        let mut found = Self { indices: [0; COPIES_MAX], count: 0 };
        let best = mirrors.iter().map(rank).min();
        for (index, _) in mirrors.iter().enumerate().filter(|(_, facts)| Some(rank(facts)) == best) {
            found.indices[found.count] = index;
            found.count += 1;
        }
        found
    }

    fn all(&self) -> &[usize] {
        &self.indices[..self.count]
    }

    /// Index whose turn it is.
    fn get(&self, turn: u64) -> usize {
        let turn = turn.checked_rem(self.count as u64).and_then(|turn| usize::try_from(turn).ok());
        turn.and_then(|turn| self.all().get(turn)).copied().unwrap_or(0)
    }

    fn by_devid(mut self, mirrors: &[MirrorFacts]) -> Self {
        self.indices[..self.count].sort_unstable_by_key(|index| mirrors[*index].devid);
        self
    }

    /// All, beginning with a mirror, or the next that is a candidate.
    fn from(&self, start: usize) -> impl Iterator<Item = usize> {
        let first = self.all().iter().position(|index| *index >= start).unwrap_or(0);
        let (before, behind) = self.all().split_at(first);
        behind.iter().chain(before).copied()
    }

    /// Index of the least value; of equals, the first after `last`.
    fn least_behind<T: Ord>(&self, last: usize, value: impl Fn(usize) -> T) -> usize {
        self.from(last.saturating_add(1)).min_by_key(|index| value(*index)).unwrap_or(0)
    }
}
