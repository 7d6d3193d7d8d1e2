//! Predictions: requests that were recorded, or made up, replayed in virtual time on modelled disks with and without an SSD.
//!
//! # The walk
//!
//! 1. [`Trace`] holds requests with their times: [`Trace::parse`] reads a record of `brindle lab record`, or the text of blkparse or
//!    perf, and [`Demand::trace`] makes one of numbers.
//! 2. [`Route`] sends each request to the disk, or to the SSD, by the role that the SSD would have ([`Role`]).
//! 3. [`replay`] issues each request as long after its cause as it was issued in the record: the request that had ended last. So what ran
//!    one after the other still does, what ran at once still may, and the pauses of the program stay.
//!
//! # Limits
//!
//! A record has the requests of one filesystem as it was. It does not know those that another would make in their place, nor the memory
//! of its host: what was read from memory is left out. See the errors against measured runs in `docs/user/lab.md`.

mod demand;
mod parse;
mod replay;
mod route;
#[cfg(test)]
mod tests;

/// Counts of a modelled drive.
pub use brindle_sim::DriveCounts as Counts;
pub use demand::Demand;
pub use parse::TraceError;
pub use replay::{Prediction, replay};
pub use route::{Role, Route};

use serde::{Deserialize, Serialize};

/// Reads that took less were answered from memory, in nanoseconds: no drive is as fast.
const FROM_MEMORY_NS: u64 = 40_000;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceOperation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

/// A request of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// Number of the disk among those of the trace.
    pub disk: usize,
    /// Operation.
    pub operation: TraceOperation,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Begin, in nanoseconds.
    pub begin_ns: u64,
    /// End, in nanoseconds.
    pub end_ns: u64,
    /// True for metadata of a filesystem.
    pub is_metadata: bool,
}

/// A disk of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDisk {
    /// Name.
    pub name: String,
    /// Size in bytes; at least the end of the last request.
    pub size_bytes: u64,
    /// True if it is an SSD already.
    pub is_fast: bool,
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The word `brindle-trace`.
    pub kind: String,
    /// Disks, in the order of their numbers.
    pub disks: Vec<TraceDisk>,
    /// Requests that were lost for want of room.
    pub lost: u64,
}

impl TraceHeader {
    /// The word by which a record is known.
    pub const KIND: &'static str = "brindle-trace";
}

/// Requests of disks, by their begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Disks.
    pub disks: Vec<TraceDisk>,
    /// Requests.
    pub requests: Vec<TraceRequest>,
    /// Requests that the record lacks.
    pub lost: u64,
}

impl Trace {
    /// A trace of these requests, sorted; reads from memory are left out.
    pub fn new(mut disks: Vec<TraceDisk>, mut requests: Vec<TraceRequest>, lost: u64) -> Self {
        let from_memory = |request: &TraceRequest| {
            request.operation == TraceOperation::Read
                && request.end_ns.saturating_sub(request.begin_ns) < FROM_MEMORY_NS
        };
        requests.retain(|request| !from_memory(request));
        requests.sort_by_key(|request| (request.begin_ns, request.end_ns));
        for request in &requests {
            if let Some(disk) = disks.get_mut(request.disk) {
                disk.size_bytes = disk.size_bytes.max(request.offset.saturating_add(request.length));
            }
        }
        Self { disks, requests, lost }
    }

    /// Keeps the disks of these names, with their requests; 8:0 is the disk 8,0. Requests that the record lacks may be of any disk.
    ///
    /// # Errors
    /// A name that no disk has.
    pub fn only(mut self, names: &[String]) -> Result<Self, TraceError> {
        let known: Vec<String> = self.disks.iter().map(|disk| disk.name.clone()).collect();
        let is = |known: &str, name: &str| known == name || known == name.replace(':', ",");
        if let Some(name) = names.iter().find(|name| !known.iter().any(|known| is(known, name))) {
            return Err(TraceError::NoDisk { name: name.clone(), known });
        }
        self.disks.retain(|disk| names.iter().any(|name| is(&disk.name, name)));
        let numbers: Vec<Option<usize>> =
            known.iter().map(|name| self.disks.iter().position(|disk| disk.name == *name)).collect();
        self.requests.retain_mut(|request| {
            let number = numbers[request.disk];
            request.disk = number.unwrap_or(request.disk);
            number.is_some()
        });
        Ok(self)
    }

    /// Time from the first begin to the last end, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        let first = self.requests.iter().map(|request| request.begin_ns).min().unwrap_or(0);
        let last = self.requests.iter().map(|request| request.end_ns).max().unwrap_or(0);
        last.saturating_sub(first)
    }
}
