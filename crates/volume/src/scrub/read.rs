//! Reads of a window: planned, and verified.

use super::correct::Corrector;
use super::requests::{Answers, Read, submit};
use super::row::ParityStrip;
use super::{Expected, ScrubFindings, ScrubWindow};
use crate::Volume;
use crate::chunk::Chunk;
use crate::layout::STRIP_BYTES;
use crate::pool::Pool;
use brindle_ondisk::Logical;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

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
