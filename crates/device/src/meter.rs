//! Requests of a device as this process made them: counts, bytes and times by operation, and a record of each on demand.
//!
//! A request is one to the host, which may answer a read from memory and take a write into it. It ends when its answer has been
//! collected: of a batch that is waited for, with the batch; of a read in advance, when a thread looks for answers. Counters are
//! relaxed: they are for people and models, and nothing is decided by them.

use brindle_sync::{Mutex, Rank, Ranked};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Requests of a device that are kept until they are taken; further ones are counted as lost.
const RECORDED_MAX: usize = 1 << 16;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

impl Operation {
    /// All operations, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Number of the operation in messages, from 1.
    pub const fn number(self) -> u64 {
        self as u64 + 1
    }

    /// Name of the operation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// Requests of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of requests that have ended.
    pub requests: u64,
    /// Length of these, in bytes.
    pub bytes: u64,
    /// Time of these, in nanoseconds; those of requests at the same time add up.
    pub time_ns: u64,
}

/// Requests of a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By [`Operation`].
    pub tallies: [Tally; 4],
    /// Number of requests without an answer.
    pub in_flight: u64,
    /// Time since the last request began or ended, in nanoseconds.
    pub idle_ns: u64,
}

/// A request that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Operation.
    pub operation: Operation,
    /// First byte; 0 of a flush.
    pub offset: u64,
    /// Length in bytes; 0 of a flush.
    pub length: u64,
    /// Begin, in nanoseconds since the first device of the process was opened.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
}

/// Counters of a device's requests.
#[derive(Debug)]
pub struct Meter {
    tallies: [Counters; 4],
    begun: AtomicU64,
    ended: AtomicU64,
    last_ns: AtomicU64,
    is_recording: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    time_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Record {
    requests: VecDeque<RecordedRequest>,
    lost: u64,
}

impl Ranked for Record {
    const RANK: Rank = Rank::RequestRecord;
}

/// A request from its begin until it is dropped.
#[derive(Debug)]
pub(crate) struct MeteredRequest {
    meter: Arc<Meter>,
    operation: Operation,
    offset: u64,
    length: u64,
    begin_ns: u64,
}

/// Nanoseconds since the first call.
fn now_ns() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGIN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            tallies: Default::default(),
            begun: 0.into(),
            ended: 0.into(),
            last_ns: now_ns().into(),
            is_recording: false.into(),
            record: Mutex::default(),
        }
    }
}

impl Meter {
    /// Begins a request.
    pub(crate) fn begin(self: &Arc<Self>, operation: Operation, offset: u64, length: u64) -> MeteredRequest {
        let begin_ns = now_ns();
        self.begun.fetch_add(1, Relaxed);
        self.last_ns.store(begin_ns, Relaxed);
        MeteredRequest { meter: Arc::clone(self), operation, offset, length, begin_ns }
    }

    /// Counts until now.
    pub fn traffic(&self) -> Traffic {
        // In this order a request that ends meanwhile is under way, never less than none.
        let ended = self.ended.load(Relaxed);
        let in_flight = self.begun.load(Relaxed).saturating_sub(ended);
        let tallies = std::array::from_fn(|number| {
            let counters = &self.tallies[number];
            Tally {
                requests: counters.requests.load(Relaxed),
                bytes: counters.bytes.load(Relaxed),
                time_ns: counters.time_ns.load(Relaxed),
            }
        });
        let idle_ns = if in_flight > 0 { 0 } else { now_ns().saturating_sub(self.last_ns.load(Relaxed)) };
        Traffic { tallies, in_flight, idle_ns }
    }

    /// Begins a record of requests, or ends it. What an earlier record holds is dropped.
    pub fn record(&self, is_recording: bool) {
        *self.record.lock() = Record::default();
        self.is_recording.store(is_recording, Relaxed);
    }

    /// Takes at most this many recorded requests, in the order of their ends, and the number of those that were lost since the
    /// last call for want of room.
    pub fn take_recorded(&self, most: usize) -> (Vec<RecordedRequest>, u64) {
        let mut record = self.record.lock();
        let count = record.requests.len().min(most);
        let taken = record.requests.drain(..count).collect();
        (taken, std::mem::take(&mut record.lost))
    }
}

impl Drop for MeteredRequest {
    fn drop(&mut self) {
        let (meter, end_ns) = (&self.meter, now_ns());
        let counters = &meter.tallies[self.operation as usize];
        counters.requests.fetch_add(1, Relaxed);
        counters.bytes.fetch_add(self.length, Relaxed);
        counters.time_ns.fetch_add(end_ns.saturating_sub(self.begin_ns), Relaxed);
        meter.last_ns.store(end_ns, Relaxed);
        meter.ended.fetch_add(1, Relaxed);
        if !meter.is_recording.load(Relaxed) {
            return;
        }
        let mut record = meter.record.lock_after_panic();
        if record.requests.len() >= RECORDED_MAX {
            record.lost += 1;
            return;
        }
        record.requests.push_back(RecordedRequest {
            operation: self.operation,
            offset: self.offset,
            length: self.length,
            begin_ns: self.begin_ns,
            end_ns,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Device, FileDevice, ReadRequest, WritableDevice, WriteRequest};

    #[test]
    fn requests_are_counted_by_operation_whichever_way_they_go() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let new = |name: &str| FileDevice::create(&directory.path().join(name), 1 << 20).expect("create");
        let (one, two) = (new("one"), new("two"));
        let bytes = vec![1; 300_000];
        one.write_at(0, &bytes[..4096]).expect("write");
        let write = |offset| WriteRequest { offset, pieces: vec![&bytes[..]], is_durable: false };
        let mut batch = Batch::default();
        one.submit_write(write(8192), &mut batch);
        two.submit_write(write(0), &mut batch);
        one.submit_flush(&mut batch);
        batch.run().into_iter().for_each(|answer| answer.expect("nothing fails"));
        one.read_at(0, &mut [0; 512]).expect("read");
        let reads = [ReadRequest::new(0, 4096), ReadRequest::new(8192, 4096)];
        for pending in one.submit_reads(&reads) {
            pending.wait().expect("read");
        }
        one.discard(0, 4096).expect("discard");
        let traffic = one.meter().expect("files have one").traffic();
        let counts = traffic.tallies.map(|tally| (tally.requests, tally.bytes));
        assert_eq!(counts, [(3, 8704), (2, 304_096), (1, 0), (1, 4096)]);
        assert_eq!(traffic.in_flight, 0);
        assert!(traffic.tallies[1].time_ns > 0);
        assert_eq!(two.meter().expect("meter").traffic().tallies[1].bytes, 300_000);
    }

    #[test]
    fn a_record_has_the_requests_since_it_began_and_counts_those_that_have_no_room() {
        let meter = Arc::new(Meter::default());
        drop(meter.begin(Operation::Flush, 0, 0));
        meter.record(true);
        let open = meter.begin(Operation::Read, 7, 1);
        assert_eq!(meter.traffic().in_flight, 1);
        for offset in 0..RECORDED_MAX as u64 {
            drop(meter.begin(Operation::Write, offset, 512));
        }
        drop(open);
        let (first, lost) = meter.take_recorded(2);
        assert_eq!((first.len(), first[1].offset, first[1].operation, lost), (2, 1, Operation::Write, 1));
        assert!(first[0].end_ns >= first[0].begin_ns);
        let (rest, lost) = meter.take_recorded(usize::MAX);
        assert_eq!((rest.len(), lost), (RECORDED_MAX - 2, 0));
        meter.record(false);
        drop(meter.begin(Operation::Write, 0, 512));
        assert_eq!(meter.take_recorded(9).0, []);
    }
}
