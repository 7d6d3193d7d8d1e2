//! Counts of what a drive was asked, and of what it had to do for it.

use super::DriveRequestKind;

/// Counts of a drive. They follow from the requests and their times alone, so a test may ask for exact numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes that they asked for.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that they brought.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes that they gave back.
    pub discarded_bytes: u64,
    /// Times that the head of a hard disk left its place: each operation that does not go on where the last one ended.
    /// 0 for a drive without one.
    pub seeks: u64,
    /// Times that the platters of a hard disk had stopped and were started.
    pub wake_ups: u64,
    /// Bands that a shingled hard disk has rewritten to empty its persistent cache.
    pub bands: u64,
}

impl DriveCounts {
    /// Number of requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    /// Counts a request.
    pub(super) fn count(&mut self, kind: DriveRequestKind) {
        let (requests, bytes) = match kind {
            DriveRequestKind::Read(_, length) => (&mut self.reads, Some((&mut self.read_bytes, length))),
            DriveRequestKind::Write(_, length) => (&mut self.writes, Some((&mut self.written_bytes, length))),
            DriveRequestKind::Flush => (&mut self.flushes, None),
            DriveRequestKind::Discard(_, length) => {
                (&mut self.discards, Some((&mut self.discarded_bytes, length)))
            }
        };
        *requests += 1;
        if let Some((sum, length)) = bytes {
            *sum += length;
        }
    }
}
