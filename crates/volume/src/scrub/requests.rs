//! Requests of a scrub to devices, and their answers.

use crate::pool::Pool;
use brindle_device::{Buffer, PendingRead, ReadRequest};
use brindle_ondisk::{to_u64, to_usize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Longest request, in bytes: its buffer lies on huge pages, so that a device gets it as one piece.
pub(super) const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// A gap between ranges up to which they are read as one, in bytes: reading it takes less time than a second request.
const GAP_BYTES_MAX: u64 = 32 << 10;

/// A read of a range of a device.
#[derive(Debug)]
pub(super) struct Read {
    offset: u64,
    length: u64,
    pending: PendingRead,
}

/// Answers to the reads of a window.
pub(super) struct Answers(BTreeMap<usize, Vec<(u64, Option<Buffer>)>>);

impl Answers {
    /// Waits for all of them.
    pub(super) fn wait(pool: &Pool, reads: BTreeMap<usize, Vec<Read>>) -> Self {
        Self(reads.into_iter().map(|(device, reads)| (device, wait(pool, device, reads))).collect())
    }

    /// Bytes of a device, if the read that has them did not fail.
    pub(super) fn bytes(&self, device: usize, offset: u64, length: u64) -> Option<&[u8]> {
        let answers = self.0.get(&device)?;
        let index = answers.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
        let (start, buffer) = answers.get(index)?;
        let at = to_usize(offset - start);
        buffer.as_ref()?.get(at..at + to_usize(length))
    }
}

/// Submits reads of ranges, near ones as one; the devices work side by side from then on.
pub(super) fn submit(
    pool: &Pool,
    ranges: BTreeMap<usize, Vec<Range<u64>>>,
) -> (BTreeMap<usize, Vec<Read>>, u64) {
    let mut bytes = 0;
    let submit_of = |(index, ranges): (usize, Vec<Range<u64>>)| {
        let device = pool.devices[index].device.as_ref()?;
        let ranges = joined(ranges);
        bytes += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        ranges.iter().for_each(|range| device.forget_cached(range.start, range.end - range.start));
        let request = |range: &Range<u64>| ReadRequest {
            bypasses_cache: true,
            ..ReadRequest::new(range.start, to_usize(range.end - range.start))
        };
        let requests: Vec<ReadRequest> = ranges.iter().map(request).collect();
        let pending = device.submit_reads(&requests);
        let read = |(request, pending): (&ReadRequest, PendingRead)| Read {
            offset: request.offset,
            length: to_u64(request.length),
            pending,
        };
        Some((index, requests.iter().zip(pending).map(read).collect()))
    };
    let reads = ranges.into_iter().filter_map(submit_of).collect();
    (reads, bytes)
}

/// Ranges in order, near ones as one, none longer than a request may be.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let is_near = |last: &&mut Range<u64>| {
            range.start <= last.end + GAP_BYTES_MAX && range.end - last.start <= REQUEST_BYTES_MAX
        };
        match joined.last_mut().filter(is_near) {
            Some(last) => last.end = last.end.max(range.end),
            None => {
                let mut at = range.start;
                while at < range.end {
                    let end = range.end.min(at + REQUEST_BYTES_MAX);
                    joined.push(at..end);
                    at = end;
                }
            }
        }
    }
    joined
}

/// Answers of a device, and nothing left of them in the host's cache.
fn wait(pool: &Pool, device: usize, reads: Vec<Read>) -> Vec<(u64, Option<Buffer>)> {
    let device = pool.devices[device].device.as_ref();
    let answer = |Read { offset, length, pending }: Read| {
        let answer = pending.wait().inspect_err(|error| tracing::debug!("{error}")).ok();
        if let Some(device) = device {
            device.forget_cached(offset, length);
        }
        (offset, answer)
    };
    reads.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_one_request_and_none_is_too_long() {
        let near = joined(vec![1 << 20..(1 << 20) + 4096, 0..4096, 8192..12288]);
        assert_eq!(near, [0..12288, 1 << 20..(1 << 20) + 4096]);
        let long: Vec<u64> = joined(vec![0..5 << 19; 1]).iter().map(|range| range.end).collect();
        assert_eq!(long, [2 << 19, 4 << 19, 5 << 19]);
    }
}
