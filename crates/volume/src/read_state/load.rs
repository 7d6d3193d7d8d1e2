//! The load of a device by readers. Counted only while a policy looks at it, or statistics are asked for.

use super::fetch::Fetch;
use crate::ReadStatistics;
use brindle_device::Device;
use brindle_policy::read::MirrorLoad;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Averages move towards each new value by one part in this number.
const SMOOTHING: u64 = 8;
/// A hard disk that answers faster has not moved: its cache has answered, or the host's.
const MOVED_NS: u64 = 300_000;
/// Upper bound on the fetches whose progress is watched.
const WATCHED_MAX: usize = 1024;
/// Bytes after which fetches tell the speed of a device; fewer do if they took long enough. A fast device is known soon,
/// and a hard disk is not judged by the contents of its cache.
const MEASURED_BYTES: u64 = 8 << 20;
const MEASURED_BYTES_MIN: u64 = 4 << 20;
const MEASURED_NS: u128 = 100_000_000;
/// Interval at which the host is asked for the requests that wait for a device, in nanoseconds.
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

/// The load of one device. Counters are for choosing well: none needs to be exact to the last read.
#[derive(Debug, Default)]
pub(crate) struct Load {
    in_flight: AtomicU32,
    /// Ranges fetched in advance that have not been read yet.
    expected: AtomicU32,
    expected_bytes: AtomicU64,
    /// End of the last request, in bytes.
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

/// Fetches that were long enough to tell the device's speed, and had not been answered when last looked at.
#[derive(Debug, Default)]
struct Backlog {
    /// In the order of their submission, with their lengths in bytes. A fetch that is gone was read, or given up.
    fetches: VecDeque<(Weak<Fetch>, u64)>,
    bytes: u64,
    /// Start of the time in which the device has been at work, in nanoseconds.
    since_ns: u64,
    /// Bytes fetched since then.
    fetched: u64,
}

impl Ranked for Backlog {
    const RANK: Rank = Rank::Backlog;
}

impl Load {
    /// Facts for a policy about a request that begins at an offset of the device.
    pub(crate) fn facts(&self, device: Option<&dyn Device>, offset: u64, now: u64) -> MirrorLoad {
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

    /// Lower bound on the requests of other processes that wait for the device: those that the host counts and that can't
    /// be ours. The host is asked at most once in a millisecond.
    pub(crate) fn foreign(&self, device: &dyn Device, now: u64) -> u32 {
        if now >= self.host_due_ns.load(Relaxed) {
            self.host_due_ns.store(now.saturating_add(HOST_LOOK_NS), Relaxed);
            self.host_in_flight.store(device.host_in_flight().unwrap_or(0), Relaxed);
        }
        // After this time all that was fetched in advance has arrived.
        let is_fetching = self.busy_until_ns.load(Relaxed) > now;
        let expected = if is_fetching { self.expected_bytes.load(Relaxed) } else { 0 };
        let expected = expected.div_ceil(HOST_REQUEST_BYTES);
        let ours = self.in_flight.load(Relaxed).saturating_add(u32::try_from(expected).unwrap_or(u32::MAX));
        self.host_in_flight.load(Relaxed).saturating_sub(ours)
    }

    /// A request goes to the device, or will; returns whether it begins where the last one ended.
    pub(crate) fn request(&self, offset: u64, length: u64) -> bool {
        let is_local = self.end.swap(offset.saturating_add(length), Relaxed) == offset;
        self.requests.fetch_add(1, Relaxed);
        self.local_requests.fetch_add(is_local.into(), Relaxed);
        is_local
    }

    /// A read begins; returns how many there are now.
    pub(crate) fn begin(&self) -> u32 {
        self.in_flight.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// A read has ended.
    pub(crate) fn end(&self, answered: &Answered) {
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

    /// A range is fetched from the device in advance, which is expected to take `cost_ns`.
    pub(crate) fn expect(&self, bytes: u64, cost_ns: u64, now: u64) {
        self.expected.fetch_add(1, Relaxed);
        self.expected_bytes.fetch_add(bytes, Relaxed);
        let due_ns = self.busy_until_ns.load(Relaxed).max(now).saturating_add(cost_ns);
        self.busy_until_ns.store(due_ns, Relaxed);
    }

    /// Watches a fetch, to learn how fast the device is.
    pub(crate) fn watch(&self, fetch: &Arc<Fetch>, bytes: u64, now: u64) {
        let mut backlog = self.backlog();
        if backlog.fetches.is_empty() {
            (backlog.since_ns, backlog.fetched) = (now, 0);
        }
        if backlog.fetches.len() < WATCHED_MAX {
            backlog.fetches.push_back((Arc::downgrade(fetch), bytes));
            backlog.bytes += bytes;
        }
    }

    /// Sees how far the device has come with what is fetched from it, and how fast it was; `usual` is the speed of an
    /// unknown device, in bytes a second.
    pub(crate) fn look(&self, usual: u64, now: u64) {
        let mut backlog = self.backlog();
        if backlog.fetches.is_empty() {
            return;
        }
        backlog.take_answered();
        let took = u128::from(now.saturating_sub(backlog.since_ns).max(1));
        let measured = u128::from(backlog.fetched) * 1_000_000_000 / took;
        let measured = u64::try_from(measured).unwrap_or(RATE_MAX);
        let known = match self.bytes_per_second.load(Relaxed) {
            0 => usual,
            known => known,
        };
        let is_enough = took >= MEASURED_NS && backlog.fetched >= MEASURED_BYTES_MIN;
        let rate = if is_enough || backlog.fetched >= MEASURED_BYTES {
            (backlog.since_ns, backlog.fetched) = (now, 0);
            known / 2 + measured / 2
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
    pub(crate) fn take_expected(&self, bytes: u64, is_all: bool) {
        self.expected_bytes.fetch_sub(bytes, Relaxed);
        self.expected.fetch_sub(is_all.into(), Relaxed);
    }

    /// Statistics for people: the two means forget at different rates, and of a read at most its latency is spent alone.
    pub(crate) fn statistics(&self) -> ReadStatistics {
        let latency_ns = self.latency_ns.load(Relaxed);
        ReadStatistics {
            in_flight: self.in_flight.load(Relaxed),
            expected: self.expected.load(Relaxed),
            reads: self.reads.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            requests: self.requests.load(Relaxed),
            local_requests: self.local_requests.load(Relaxed),
            end: self.end.load(Relaxed),
            latency_ns,
            service_ns: self.service_ns.load(Relaxed).min(latency_ns),
            bytes_per_second: self.bytes_per_second.load(Relaxed),
        }
    }
}

impl Backlog {
    /// Takes the fetches off that have been answered, up to the first that has not.
    fn take_answered(&mut self) {
        while let Some((fetch, bytes)) = self.fetches.front() {
            if fetch.upgrade().is_some_and(|fetch| !fetch.is_answered()) {
                return;
            }
            let bytes = *bytes;
            self.fetches.pop_front();
            self.bytes -= bytes;
            self.fetched += bytes;
        }
    }
}

/// A read that has ended.
pub(crate) struct Answered {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) bytes: u64,
    /// Reads of the device under way when it began.
    pub(crate) among: u32,
    pub(crate) is_rotating: bool,
    /// Nothing had announced it, and it went somewhere else than the one before.
    pub(crate) has_moved: bool,
}

/// Moves an average towards a value; the first one is taken as it is.
fn approach(average: &AtomicU64, value: u64) {
    let known = average.load(Relaxed);
    let next = if known == 0 { value } else { known - known / SMOOTHING + value / SMOOTHING };
    average.store(next.max(1), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::super::fetch::FetchPlan;
    use super::*;
    use brindle_device::DeviceError;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn backlog_ns(load: &Load, now: u64) -> u64 {
        load.facts(None, 0, now).backlog_ns
    }

    #[test]
    fn the_speed_of_a_device_is_learned_from_its_answers() {
        let load = Load::default();
        let fetches: Vec<_> = (0..64).map(|_| FetchPlan::default().add(0, 0, MIB).fetch).collect();
        load.expect(64 * MIB, 320 * MS, 0);
        fetches.iter().for_each(|fetch| load.watch(fetch, MIB, 0));
        fetches[..10].iter().for_each(|fetch| fetch.answer(&[]));
        load.look(200 * MIB, 100 * MS);
        assert_eq!(load.statistics().bytes_per_second, 150 * MIB, "half of the way from 200 to 100");
        assert_eq!(backlog_ns(&load, 100 * MS) / MS, 54 * 1000 / 150);
        // Read and gone, or given up: neither is waited for.
        drop(fetches);
        load.look(200 * MIB, 640 * MS);
        assert_eq!(backlog_ns(&load, 640 * MS), 0);
        assert_eq!(load.statistics().bytes_per_second, 125 * MIB, "54 MiB in 540 ms");
    }

    #[test]
    fn the_time_that_a_read_is_alone_is_no_longer_than_its_latency() {
        let load = Load::default();
        let read = |took_ns, has_moved| {
            load.begin();
            let answered = Answered {
                bytes: 4096,
                start_ns: 0,
                end_ns: took_ns,
                among: 1,
                is_rotating: false,
                has_moved,
            };
            load.end(&answered);
        };
        read(8 * MS, true);
        // Hits of a cache of the device, which say nothing of its arm.
        (0..64).for_each(|_| read(MS / 10, false));
        let shown = load.statistics();
        assert!(shown.latency_ns < MS && shown.service_ns <= shown.latency_ns, "{shown:?}");
        assert_eq!(load.facts(None, 0, 0).service_ns, 8 * MS, "policies know both");
    }

    #[test]
    fn a_bounded_number_of_fetches_is_watched() {
        let load = Load::default();
        let fetch = FetchPlan::default().add(0, 0, MIB).fetch;
        (0..5000).for_each(|_| load.watch(&fetch, MIB, 0));
        let backlog = load.backlog();
        assert_eq!((backlog.fetches.len(), backlog.bytes), (WATCHED_MAX, WATCHED_MAX as u64 * MIB));
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
    fn waiting_requests_that_are_not_ours_are_of_others() {
        let (load, device) = (Load::default(), Busy::default());
        device.0.store(10, Relaxed);
        assert_eq!(load.foreign(&device, MS), 10);
        load.begin();
        assert_eq!(load.foreign(&device, MS), 9);
        load.expect(4 * HOST_REQUEST_BYTES, MS, MS);
        assert_eq!(load.foreign(&device, MS), 5);
        load.expect(8 * HOST_REQUEST_BYTES, MS, MS);
        assert_eq!(load.foreign(&device, MS), 0);
        assert_eq!(device.1.load(Relaxed), 1, "once in a millisecond");
        device.0.store(20, Relaxed);
        assert_eq!(load.foreign(&device, 2 * MS), 7);
        assert_eq!(load.foreign(&device, 3 * MS), 19, "all that was expected is there");
    }
}
