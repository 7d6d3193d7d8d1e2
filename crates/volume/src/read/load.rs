//! What a device does and did for readers. Kept only while a policy looks at it, or somebody asked for statistics.

use crate::ReadStatistics;
use brindle_device::Device;
use brindle_policy::read::MirrorLoad;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Averages move so far towards each new value: one part in so many.
const SMOOTHING: u64 = 8;
/// A hard disk that answers faster has not moved: its cache has answered, or the host's.
const MOVED_NS: u64 = 300_000;
/// Less than this says little of how fast a device streams.
const STREAM_BYTES_MIN: u64 = 1 << 20;
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
    /// When what it was told to expect last had arrived, at the latest.
    arrived_ns: AtomicU64,
    latency_ns: AtomicU64,
    service_ns: AtomicU64,
    bytes_per_second: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    requests: AtomicU64,
    local_requests: AtomicU64,
}

/// What a device was told to expect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    pub(super) made_ns: u64,
    pub(super) due_ns: u64,
    pub(super) bytes: u64,
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

    /// The device is told to expect a read, which takes it this long.
    pub(super) fn expect(&self, bytes: u64, cost_ns: u64, now: u64) -> Expectation {
        self.expected.fetch_add(1, Relaxed);
        self.expected_bytes.fetch_add(bytes, Relaxed);
        let due_ns = self.busy_until_ns.load(Relaxed).max(now).saturating_add(cost_ns);
        self.busy_until_ns.store(due_ns, Relaxed);
        Expectation { made_ns: now, due_ns, bytes }
    }

    /// Part of what it was told to expect has been read, or is not waited for any more.
    pub(super) fn take_expected(&self, bytes: u64, is_all: bool) {
        self.expected_bytes.fetch_sub(bytes, Relaxed);
        self.expected.fetch_sub(is_all.into(), Relaxed);
    }

    /// The last part of what it was told to expect has been read. If the reader had to wait for it, that tells how fast
    /// the device is; if not, it may be faster than we think.
    pub(super) fn learn_rate(&self, what: &Expectation, now: u64, has_waited: bool) {
        if what.bytes < STREAM_BYTES_MIN {
            return;
        }
        let start = what.made_ns.max(self.arrived_ns.load(Relaxed));
        let arrived = if has_waited { now } else { now.min(what.due_ns) };
        self.arrived_ns.fetch_max(arrived, Relaxed);
        let known = self.bytes_per_second.load(Relaxed);
        let measured = u128::from(what.bytes) * 1_000_000_000 / u128::from(now.saturating_sub(start).max(1));
        let measured = u64::try_from(measured).unwrap_or(RATE_MAX);
        let rate = match (has_waited, known) {
            (true, 0) => measured,
            (true, known) => known - known / 4 + measured / 4,
            (false, known) => known + known / 32,
        };
        self.bytes_per_second.store(rate.min(RATE_MAX), Relaxed);
        if has_waited && rate > 0 {
            let rest = u128::from(self.expected_bytes.load(Relaxed)) * 1_000_000_000 / u128::from(rate);
            let rest = u64::try_from(rest).unwrap_or(u64::MAX);
            self.busy_until_ns.store(now.saturating_add(rest), Relaxed);
        }
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
