//! What a device does and did for readers. Kept only while a policy looks at it, or somebody asked for statistics.

use crate::ReadStatistics;
use brindle_device::Device;
use brindle_policy::read::MirrorLoad;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Averages move so far towards each new value: one part in so many.
const SMOOTHING: u64 = 8;
/// A hard disk that answers faster has not moved: its cache has answered, or the host's.
const MOVED_NS: u64 = 300_000;
/// So finely it is seen how far a device has come with what it was told to fetch, in bytes. Less is not looked after.
const PROBE_BYTES: u64 = 1 << 20;
/// Less than this says little of how fast a device streams.
const MEASURED_BYTES: u64 = 4 << 20;
/// A device that has nothing to do may be this part faster than it was taken to be.
const GROWTH: u64 = 8;
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
}

/// What a device was told to fetch and has not fetched yet, as far as the host says.
#[derive(Debug, Default)]
struct Backlog {
    ranges: VecDeque<Range<u64>>,
    bytes: u64,
    /// Since then it was at work.
    since_ns: u64,
    /// What it has fetched since then.
    fetched: u64,
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
            if backlog.ranges.is_empty() {
                (backlog.since_ns, backlog.fetched) = (now, 0);
            }
            backlog.ranges.push_back(offset..offset.saturating_add(bytes));
            backlog.bytes += bytes;
        }
    }

    /// Sees how far the device has come with what it was told to fetch, and how fast it was. If it has nothing left to do
    /// it may be faster than it was taken to be; `usual` is what that is if nobody knows.
    pub(super) fn look(&self, device: &dyn Device, usual: u64, now: u64) {
        let mut backlog = self.backlog();
        if backlog.ranges.is_empty() {
            return;
        }
        while let Some(first) = backlog.ranges.front().cloned() {
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
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(first) = self.ranges.front_mut() else { return };
        let fetched = end - first.start;
        first.start = end;
        if first.is_empty() {
            self.ranges.pop_front();
        }
        self.bytes = self.bytes.saturating_sub(fetched);
        self.fetched += fetched;
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
