//! A trace made of numbers: files of a size, and syncs a second.

use super::{Trace, TraceDisk, TraceOperation, TraceRequest};

/// Numbers of a program's writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Files that are written, one after the other.
    pub files: u64,
    /// Mean size of a file, in bytes; sizes go from a half to one and a half of it.
    pub mean_bytes: u64,
    /// Files that are synced, a second; 0 for none.
    pub syncs_per_second: u64,
    /// Number of files written for each one that is read; 0 for none.
    pub files_per_read: u64,
    /// Seed of sizes and places.
    pub seed: u64,
}

/// Tree blocks that a sync writes: a path of the log.
const LOG_BLOCKS: u64 = 3;
/// Tree block, in bytes.
const BLOCK_BYTES: u64 = 16 << 10;
/// Place of metadata, and of data behind it, in bytes.
const METADATA_AT: u64 = 1 << 30;
const DATA_AT: u64 = 10 << 30;
/// Metadata goes round within this, in bytes.
const METADATA_BYTES: u64 = 1 << 30;
/// Time between requests of one operation, in nanoseconds.
const STEP_NS: u64 = 1000;
/// A request as it is recorded takes longer than one from memory.
const LATENCY_NS: u64 = 100_000;
/// Place of the superblock, in bytes.
const SUPERBLOCK_AT: u64 = 64 << 10;

impl Demand {
    /// The requests of btrfs for it: contents, and for each sync tree blocks, a flush, the superblock, and another flush.
    pub fn trace(&self) -> Trace {
        let mut maker = Maker { now_ns: 0, requests: Vec::new(), random: self.seed | 1 };
        let (mut data_at, mut metadata_at) = (DATA_AT, 0);
        let every_ns = 1_000_000_000u64.checked_div(self.syncs_per_second);
        for number in 0..self.files {
            let begin_ns = every_ns.map_or(maker.now_ns, |every| maker.now_ns.max(number * every));
            maker.now_ns = begin_ns;
            let size =
                (self.mean_bytes / 2 + maker.below(self.mean_bytes.max(1))).max(1).next_multiple_of(4096);
            maker.add(TraceOperation::Write, data_at, size, false);
            data_at += size;
            if every_ns.is_some() {
                for _ in 0..LOG_BLOCKS {
                    maker.add(TraceOperation::Write, METADATA_AT + metadata_at, BLOCK_BYTES, true);
                    metadata_at = (metadata_at + BLOCK_BYTES) % METADATA_BYTES;
                }
                maker.add(TraceOperation::Flush, 0, 0, true);
                maker.add(TraceOperation::Write, SUPERBLOCK_AT, 4096, true);
                maker.add(TraceOperation::Flush, 0, 0, true);
            }
            if self.files_per_read > 0 && (number + 1) % self.files_per_read == 0 {
                let block = METADATA_AT + maker.below(METADATA_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
                maker.add(TraceOperation::Read, block, BLOCK_BYTES, true);
                let at = DATA_AT + maker.below((data_at - DATA_AT) / 4096) * 4096;
                maker.add(TraceOperation::Read, at, size, false);
            }
        }
        let disk = TraceDisk { name: "disk".to_owned(), size_bytes: 0, is_fast: false };
        Trace::new(vec![disk], maker.requests, 0)
    }
}

struct Maker {
    now_ns: u64,
    requests: Vec<TraceRequest>,
    random: u64,
}

impl Maker {
    /// A number below a limit (xorshift).
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit.max(1)
    }

    /// A request that begins when the one before has ended.
    fn add(&mut self, operation: TraceOperation, offset: u64, length: u64, is_metadata: bool) {
        let (begin_ns, end_ns) = (self.now_ns, self.now_ns + LATENCY_NS);
        self.requests.push(TraceRequest {
            disk: 0,
            operation,
            offset,
            length,
            begin_ns,
            end_ns,
            is_metadata,
        });
        self.now_ns = end_ns + STEP_NS;
    }
}
