//! Reads of a window: planned, under way, and verified.

use super::correct::Corrector;
use super::row::ParityStrip;
use super::{Expected, ScrubFindings, ScrubWindow};
use crate::Volume;
use crate::chunk::Chunk;
use crate::layout::STRIP_BYTES;
use crate::pool::Pool;
use brindle_device::{Buffer, PendingRead, ReadRequest};
use brindle_ondisk::{Logical, to_u64, to_usize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Longest request, in bytes.
pub(super) const REQUEST_BYTES_MAX: u64 = 512 << 10;
/// A gap between ranges up to which they are read as one, in bytes: reading it takes less time than a second request.
const GAP_BYTES_MAX: u64 = 32 << 10;

/// A window whose reads are under way.
#[derive(Debug)]
pub struct ScrubRead<'v> {
    volume: &'v Volume,
    pool: Arc<Pool>,
    chunk: Arc<Chunk>,
    window: ScrubWindow,
    expected: Expected,
    /// Used ranges of the stripe that hold data, as offsets in it.
    data: Vec<Range<u64>>,
    parity: Vec<ParityStrip>,
    /// Reads, by index of the device.
    reads: BTreeMap<usize, Vec<Read>>,
    read_bytes: u64,
}

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

impl Volume {
    /// Asks the devices for what is to be verified of a window; `None` if there is nothing, or the device is not there.
    pub fn begin_scrub(&self, window: &ScrubWindow, expected: Expected) -> Option<ScrubRead<'_>> {
        let pool = self.snapshot();
        let chunk =
            pool.chunks.find(window.stripe.chunk).filter(|chunk| chunk.start == window.stripe.chunk)?;
        let chunk = Arc::clone(chunk);
        let place =
            chunk.stripes.get(window.stripe.stripe).filter(|place| place.devid == window.stripe.devid)?;
        pool.devices[place.device].device.as_ref()?;
        let is_used = |at: Logical| expected.want(at).is_some();
        let (data, parity) = used_parts(&chunk, &expected, window, &is_used);
        if data.is_empty() && parity.is_empty() && expected.unaligned().is_empty() {
            return None;
        }
        let mut ranges: BTreeMap<usize, Vec<Range<u64>>> = BTreeMap::new();
        let physical = place.physical.get();
        let own = data.iter().chain(parity.iter().map(ParityStrip::range));
        ranges.entry(place.device).or_default().extend(own.map(|r| physical + r.start..physical + r.end));
        for (device, range) in parity.iter().flat_map(|strip| strip.sources(&chunk)) {
            ranges.entry(device).or_default().push(range);
        }
        let (reads, read_bytes) = submit(&pool, ranges);
        let window = *window;
        Some(ScrubRead { volume: self, pool, chunk, window, expected, data, parity, reads, read_bytes })
    }
}

impl ScrubRead<'_> {
    /// Waits for the answers, verifies them, and corrects what is wrong if `repairs`.
    pub fn end(self, repairs: bool) -> ScrubFindings {
        let Self { volume, pool, chunk, window, expected, data, parity, reads, read_bytes } = self;
        let answers = Answers::wait(&pool, reads);
        let stripe = window.stripe.stripe;
        let device = chunk.stripes[stripe].device;
        let mut corrector = Corrector::new(volume, &pool, &chunk, stripe, &expected, repairs);
        let counts = &mut corrector.findings.counts;
        (counts.read_bytes, [counts.data_extents, counts.tree_extents]) = (read_bytes, expected.extents);
        let physical = chunk.stripes[stripe].physical.get();
        let granule = expected.granule();
        for range in data {
            let mut at = range.start;
            while at < range.end {
                let length = granule.min(range.end - at);
                let offset = chunk.layout.offset_on(stripe, at).unwrap_or(0);
                if let Some(want) = expected.want(chunk.start + offset) {
                    corrector.count_bytes(want, length);
                    corrector.verify(at, offset, want, answers.bytes(device, physical + at, length), length);
                }
                at += length;
            }
        }
        for strip in &parity {
            strip.verify(&mut corrector, &answers);
        }
        for block in expected.unaligned() {
            corrector.verify_unaligned(block);
        }
        corrector.finish(window.stripe.devid)
    }
}

/// The parts of a window that matter: ranges of the stripe that hold data, of granules that are meant by their address, and
/// strips of parity.
pub(super) fn used_parts(
    chunk: &Chunk,
    expected: &Expected,
    window: &ScrubWindow,
    is_meant: &dyn Fn(Logical) -> bool,
) -> (Vec<Range<u64>>, Vec<ParityStrip>) {
    let (mut data, mut parity) = (Vec::new(), Vec::new());
    let end = window.offset + window.length;
    let mut at = window.offset;
    while at < end {
        let length = (STRIP_BYTES - at % STRIP_BYTES).min(end - at);
        match chunk.layout.offset_on(window.stripe.stripe, at) {
            Some(offset) => {
                let step = expected.granule();
                used_ranges(chunk, step, is_meant, offset, at, length, &mut data);
            }
            None => parity.extend(ParityStrip::of(chunk, expected, window.stripe.stripe, at, length)),
        }
        at += length;
    }
    (data, parity)
}

/// Adds the ranges that are in use of a part of a stripe, which holds data from an offset of the chunk on.
fn used_ranges(
    chunk: &Chunk,
    granule: u64,
    is_meant: &dyn Fn(Logical) -> bool,
    offset: u64,
    stripe_offset: u64,
    length: u64,
    ranges: &mut Vec<Range<u64>>,
) {
    let mut at = 0;
    while at < length && offset + at < chunk.length {
        let step = granule.min(length - at);
        if is_meant(chunk.start + (offset + at)) {
            let start = stripe_offset + at;
            match ranges.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = start + step,
                None => ranges.push(start..start + step),
            }
        }
        at += step;
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
            offset: range.start,
            length: to_usize(range.end - range.start),
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
        let long: Vec<u64> = joined(vec![0..5 << 18; 1]).iter().map(|range| range.end).collect();
        assert_eq!(long, [2 << 18, 4 << 18, 5 << 18]);
    }
}
