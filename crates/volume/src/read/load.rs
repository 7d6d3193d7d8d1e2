//! What a device does and did for readers. Kept only while a policy looks at it, or somebody asked for statistics.

use crate::ReadStatistics;
use brindle_device::Device;
use brindle_policy::read::MirrorLoad;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Averages move so far towards each new value: one part in so many.
const SMOOTHING: u64 = 8;
/// A hard disk that answers faster has not moved: its cache has answered, or the host's.
const MOVED_NS: u64 = 300_000;
/// So finely it is seen how far a device has come with what it was told to fetch, in bytes. Less is not looked after.
const PROBE_BYTES: u64 = 1 << 20;
/// What has not come after this time never will, in nanoseconds; and no more ranges than these are looked after.
const WAIT_NS_MAX: u64 = 4_000_000_000;
const RANGES_MAX: usize = 1024;
/// Less than this says little of how fast a device streams.
const MEASURED_BYTES: u64 = 4 << 20;
/// A device that has nothing to do may be this part faster than it was taken to be.
const GROWTH: u64 = 8;
/// So often the host is asked what waits for a device, in nanoseconds.
const HOST_LOOK_NS: u64 = 1_000_000;
/// The host cuts what it is told to fetch into requests of this length, or longer ones, in bytes.
const HOST_REQUEST_BYTES: u64 = 128 << 10;
/// Bytes a second that no device is taken to exceed.
const RATE_MAX: u64 = 64 << 30;

/// The time, in nanoseconds since some moment.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    pub(crate) fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> u64 {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// What one device does and did. Counters are for choosing well: none needs to be exact to the last read.
#[derive(Debug, Default)]
pub(crate) struct Load {
    in_flight: AtomicU32,
    /// What it was told to expect and has not been read yet.
    expected: AtomicU32,
    expected_bytes: AtomicU64,
    /// Where the last request ended.
    end: AtomicU64,
    busy_until_ns: AtomicU64,
    answered_ns: AtomicU64,
    latency_ns: AtomicU64,
    service_ns: AtomicU64,
    bytes_per_second: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    requests: AtomicU64,
    local_requests: AtomicU64,
    backlog: Mutex<Backlog>,
    host_due_ns: AtomicU64,
    host_in_flight: AtomicU32,
}

/// What a device was told to fetch and has not fetched yet, as far as the host says.
#[derive(Debug, Default)]
struct Backlog {
    /// With the time at which each was announced.
    ranges: VecDeque<(Range<u64>, u64)>,
    bytes: u64,
    /// Since then it was at work.
    since_ns: u64,
    /// What it has fetched since then.
    fetched: u64,
}

impl Ranked for Backlog {
    const RANK: Rank = Rank::Backlog;
}

impl Load {
    /// What a policy may want to know, of a request that begins at an offset of the device.
    pub(super) fn facts(&self, device: Option<&dyn Device>, offset: u64, now: u64) -> MirrorLoad {
        MirrorLoad {
            in_flight: self.in_flight.load(Relaxed),
            expected: self.expected.load(Relaxed),
            queue_depth: device.map_or(0, Device::queue_depth),
            distance: self.end.load(Relaxed).abs_diff(offset),
            size_bytes: device.map_or(0, Device::size_bytes),
            backlog_ns: self.busy_until_ns.load(Relaxed).saturating_sub(now),
            latency_ns: self.latency_ns.load(Relaxed),
            age_ns: now.saturating_sub(self.answered_ns.load(Relaxed)),
            service_ns: self.service_ns.load(Relaxed),
            bytes_per_second: self.bytes_per_second.load(Relaxed),
        }
    }

    /// How many requests of others wait for the device, at the least, by what the host says of all: as many as can't be
    /// ours. The host is asked once in a millisecond at the most.
    pub(super) fn foreign(&self, device: &dyn Device, now: u64) -> u32 {
        if now >= self.host_due_ns.load(Relaxed) {
            self.host_due_ns.store(now.saturating_add(HOST_LOOK_NS), Relaxed);
            self.host_in_flight.store(device.host_in_flight().unwrap_or(0), Relaxed);
        }
        // What it was told to fetch it has fetched by then, whoever comes for it.
        let is_fetching = self.busy_until_ns.load(Relaxed) > now;
        let expected = if is_fetching { self.expected_bytes.load(Relaxed) } else { 0 };
        let expected = expected.div_ceil(HOST_REQUEST_BYTES);
        let ours = self.in_flight.load(Relaxed).saturating_add(u32::try_from(expected).unwrap_or(u32::MAX));
        self.host_in_flight.load(Relaxed).saturating_sub(ours)
    }

    /// A request goes to the device, or will; returns whether it begins where the last one ended.
    pub(super) fn request(&self, offset: u64, length: u64) -> bool {
        let is_local = self.end.swap(offset.saturating_add(length), Relaxed) == offset;
        self.requests.fetch_add(1, Relaxed);
        self.local_requests.fetch_add(is_local.into(), Relaxed);
        is_local
    }

    /// A read begins; returns how many there are now.
    pub(super) fn begin(&self) -> u32 {
        self.in_flight.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// A read has ended.
    pub(super) fn end(&self, answered: &Answered) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.reads.fetch_add(1, Relaxed);
        self.bytes.fetch_add(answered.bytes, Relaxed);
        let took = answered.end_ns.saturating_sub(answered.start_ns);
        self.answered_ns.store(answered.end_ns, Relaxed);
        approach(&self.latency_ns, took);
        if answered.has_moved && (!answered.is_rotating || took >= MOVED_NS) {
            approach(&self.service_ns, took / u64::from(answered.among.max(1)));
        }
    }

    /// The device is told to expect a read from an offset on.
    pub(super) fn expect(&self, offset: u64, bytes: u64, cost_ns: u64, now: u64) {
        self.expected.fetch_add(1, Relaxed);
        self.expected_bytes.fetch_add(bytes, Relaxed);
        let due_ns = self.busy_until_ns.load(Relaxed).max(now).saturating_add(cost_ns);
        self.busy_until_ns.store(due_ns, Relaxed);
        if bytes >= PROBE_BYTES {
            let mut backlog = self.backlog();
            backlog.give_up(now);
            if backlog.ranges.is_empty() {
                (backlog.since_ns, backlog.fetched) = (now, 0);
            }
            backlog.ranges.push_back((offset..offset.saturating_add(bytes), now));
            backlog.bytes += bytes;
        }
    }

    /// Sees how far the device has come with what it was told to fetch, and how fast it was. If it has nothing left to do
    /// it may be faster than it was taken to be; `usual` is what that is if nobody knows.
    pub(super) fn look(&self, device: &dyn Device, usual: u64, now: u64) {
        let mut backlog = self.backlog();
        backlog.give_up(now);
        if backlog.ranges.is_empty() {
            return;
        }
        while let Some((first, _)) = backlog.ranges.front().cloned() {
            let end = first.end.min(first.start.saturating_add(PROBE_BYTES));
            match device.has_fetched(end - 1) {
                Some(true) => backlog.fetch_first(end),
                Some(false) => break,
                None => return *backlog = Backlog::default(),
            }
        }
        let took = u128::from(now.saturating_sub(backlog.since_ns).max(1));
        let measured = u128::from(backlog.fetched) * 1_000_000_000 / took;
        let measured = u64::try_from(measured).unwrap_or(RATE_MAX);
        let known = match self.bytes_per_second.load(Relaxed) {
            0 => usual,
            known => known,
        };
        let rate = if backlog.ranges.is_empty() {
            measured.max(known + known / GROWTH)
        } else if backlog.fetched >= MEASURED_BYTES {
            (backlog.since_ns, backlog.fetched) = (now, 0);
            known - known / 4 + measured / 4
        } else {
            known
        };
        let rate = rate.clamp(1, RATE_MAX);
        self.bytes_per_second.store(rate, Relaxed);
        let rest = u128::from(backlog.bytes) * 1_000_000_000 / u128::from(rate);
        self.busy_until_ns.store(now.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX)), Relaxed);
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock()
    }

    /// Part of what it was told to expect has been read, or is not waited for any more.
    pub(super) fn take_expected(&self, bytes: u64, is_all: bool) {
        self.expected_bytes.fetch_sub(bytes, Relaxed);
        self.expected.fetch_sub(is_all.into(), Relaxed);
    }

    pub(super) fn statistics(&self) -> ReadStatistics {
        ReadStatistics {
            in_flight: self.in_flight.load(Relaxed),
            expected: self.expected.load(Relaxed),
            reads: self.reads.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            requests: self.requests.load(Relaxed),
            local_requests: self.local_requests.load(Relaxed),
            end: self.end.load(Relaxed),
            latency_ns: self.latency_ns.load(Relaxed),
            service_ns: self.service_ns.load(Relaxed),
            bytes_per_second: self.bytes_per_second.load(Relaxed),
        }
    }
}

impl Backlog {
    /// The first range is there up to here.
    fn fetch_first(&mut self, end: u64) {
        let Some((first, _)) = self.ranges.front_mut() else { return };
        let fetched = end - first.start;
        first.start = end;
        if first.is_empty() {
            self.ranges.pop_front();
        }
        self.bytes = self.bytes.saturating_sub(fetched);
        self.fetched += fetched;
    }

    /// Forgets what has not come for so long that it never will: the host may have dropped it, or not have asked for it.
    fn give_up(&mut self, now: u64) {
        let is_over = |made: u64| now.saturating_sub(made) > WAIT_NS_MAX;
        while self.ranges.len() >= RANGES_MAX || self.ranges.front().is_some_and(|(_, made)| is_over(*made)) {
            let Some((range, _)) = self.ranges.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(range.end - range.start);
            (self.since_ns, self.fetched) = (now, 0);
        }
    }
}

/// A read that has ended.
pub(super) struct Answered {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) bytes: u64,
    /// How many reads of the device there were when it began.
    pub(super) among: u32,
    pub(super) is_rotating: bool,
    /// Nothing had announced it, and it went somewhere else than the one before.
    pub(super) has_moved: bool,
}

/// Moves an average towards a value; the first one is taken as it is.
fn approach(average: &AtomicU64, value: u64) {
    let known = average.load(Relaxed);
    let next = if known == 0 { value } else { known - known / SMOOTHING + value / SMOOTHING };
    average.store(next.max(1), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_device::DeviceError;

    /// A device of which the host has what lies before an offset, or doesn't say.
    #[derive(Debug)]
    struct Fetched(Option<u64>);

    impl Device for Fetched {
        fn name(&self) -> &str {
            "fetched"
        }

        fn size_bytes(&self) -> u64 {
            1 << 40
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
            Ok(())
        }

        fn has_fetched(&self, offset: u64) -> Option<bool> {
            self.0.map(|end| offset < end)
        }
    }

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn backlog_ns(load: &Load, now: u64) -> u64 {
        load.facts(None, 0, now).backlog_ns
    }

    #[test]
    fn how_fast_a_device_fetches_is_seen() {
        let load = Load::default();
        load.expect(0, 64 * MIB, 320 * MS, 0);
        load.look(&Fetched(Some(10 * MIB)), 200 * MIB, 100 * MS);
        assert_eq!(load.statistics().bytes_per_second, 175 * MIB, "a quarter of the way from 200 to 100");
        assert_eq!(backlog_ns(&load, 100 * MS) / MS, 54 * 1000 / 175);
        load.look(&Fetched(Some(64 * MIB)), 200 * MIB, 640 * MS);
        assert_eq!(backlog_ns(&load, 640 * MS), 0);
        assert!(load.statistics().bytes_per_second > 175 * MIB, "it had nothing to do");
    }

    #[test]
    fn what_never_comes_is_given_up() {
        let load = Load::default();
        load.expect(0, 8 * MIB, 40 * MS, 0);
        load.look(&Fetched(Some(0)), 200 * MIB, WAIT_NS_MAX);
        assert!(backlog_ns(&load, WAIT_NS_MAX) > 30 * MS);
        load.look(&Fetched(Some(0)), 200 * MIB, WAIT_NS_MAX + 60 * MS);
        assert_eq!((backlog_ns(&load, WAIT_NS_MAX + 60 * MS), load.backlog().ranges.len()), (0, 0));
        (0..5000).for_each(|at| load.expect(at * MIB, MIB, MS, 0));
        assert_eq!(load.backlog().ranges.len(), RANGES_MAX);
        assert_eq!(load.backlog().bytes, RANGES_MAX as u64 * MIB);
    }

    #[test]
    fn a_host_that_does_not_say_is_not_asked_again() {
        let load = Load::default();
        load.expect(0, 8 * MIB, 40 * MS, 0);
        load.look(&Fetched(None), 200 * MIB, MS);
        assert_eq!((load.backlog().ranges.len(), load.statistics().bytes_per_second), (0, 0));
        assert_eq!(backlog_ns(&load, MS), 39 * MS, "what it was expected to take");
    }

    /// A device of which the host says how many requests wait for it, and counts how often it is asked.
    #[derive(Debug, Default)]
    struct Busy(AtomicU32, AtomicU32);

    impl Device for Busy {
        fn name(&self) -> &str {
            "busy"
        }

        fn size_bytes(&self) -> u64 {
            1 << 40
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
            Ok(())
        }

        fn host_in_flight(&self) -> Option<u32> {
            self.1.fetch_add(1, Relaxed);
            Some(self.0.load(Relaxed))
        }
    }

    #[test]
    fn what_waits_and_is_not_ours_is_of_others() {
        let (load, device) = (Load::default(), Busy::default());
        device.0.store(10, Relaxed);
        assert_eq!(load.foreign(&device, MS), 10);
        load.begin();
        assert_eq!(load.foreign(&device, MS), 9);
        load.expect(0, 4 * HOST_REQUEST_BYTES, MS, MS);
        assert_eq!(load.foreign(&device, MS), 5);
        load.expect(0, 8 * HOST_REQUEST_BYTES, MS, MS);
        assert_eq!(load.foreign(&device, MS), 0);
        assert_eq!(device.1.load(Relaxed), 1, "once in a millisecond");
        device.0.store(20, Relaxed);
        assert_eq!(load.foreign(&device, 2 * MS), 7);
        assert_eq!(load.foreign(&device, 3 * MS), 19, "all that was expected is there");
    }
}
