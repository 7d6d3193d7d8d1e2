//! A window of a device extent, copied to the device that is to take the place of this one.
//!
//! What is in use is taken from the device itself, or from the others where that is missing, can't be read, is wrong, or is
//! told to be avoided; verified like in a scrub; and written to the target at the same addresses. Parity is computed from
//! verified data. What is wrong wherever it is read is copied as the device has it, so that it is no worse on the
//! target; what can be read nowhere is not written. Both are faults. Contents without checksums that can be read nowhere are
//! told apart: on the target nothing would tell that they are lost.

use super::correct::{Corrector, Part};
use super::expected::{Content, Want};
use super::read::used_parts;
use super::requests::{Answers, REQUEST_BYTES_MAX, Read, submit};
use super::row::{ParityStrip, is_row_used};
use super::{Expected, ScrubFindings, ScrubWindow};
use crate::chunk::Chunk;
use crate::layout::{Run, STRIP_BYTES, Way};
use crate::pool::Pool;
use crate::replace::Replacement;
use brindle_device::DeviceError;
use brindle_ondisk::{Logical, to_u64, to_usize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Options of copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// The device is read only where nothing else has the contents.
    pub avoids_source: bool,
    /// The target has some of it already: data that has the right checksums there is not copied again. A tree block that looks
    /// right may be that of another history of the pool, and is.
    pub verifies_target: bool,
    /// The target is the device itself, which was away. Contents without checksums that lie on it alone stay as they are: they were written
    /// nowhere else since.
    pub is_itself: bool,
}

/// A window whose reads are under way.
#[derive(Debug)]
pub struct CopyRead<'r> {
    replacement: &'r Replacement<'r>,
    options: CopyOptions,
    pool: Arc<Pool>,
    chunk: Arc<Chunk>,
    window: ScrubWindow,
    expected: Expected,
    data: Vec<Range<u64>>,
    parity: Vec<ParityStrip>,
    reads: BTreeMap<usize, Vec<Read>>,
    read_bytes: u64,
}

/// Result of a window.
#[derive(Clone, Debug, Default)]
pub struct CopyFindings {
    /// Counts, and contents that were wrong everywhere, or could be read nowhere.
    pub scrub: ScrubFindings,
    /// Bytes that were written to the target.
    pub written_bytes: u64,
}

/// Bytes for the target, by offset in the stripe.
#[derive(Default)]
struct Output(Vec<(u64, Vec<u8>)>);

impl Output {
    fn push(&mut self, stripe_offset: u64, bytes: &[u8]) {
        match self.0.last_mut() {
            Some((start, last)) if *start + to_u64(last.len()) == stripe_offset => last.extend(bytes),
            _ => self.0.push((stripe_offset, bytes.to_vec())),
        }
    }
}

impl Replacement<'_> {
    /// Asks the devices for what is to be copied of a window; `None` if there is nothing.
    pub fn begin_copy(
        &self,
        window: &ScrubWindow,
        expected: Expected,
        options: CopyOptions,
    ) -> Option<CopyRead<'_>> {
        let pool = self.volume.snapshot();
        let found = pool.chunks.find(window.stripe.chunk);
        let chunk = Arc::clone(found.filter(|chunk| chunk.start == window.stripe.chunk)?);
        let place = chunk.stripes.get(window.stripe.stripe).filter(|place| place.device == self.index)?;
        let layout = &chunk.layout;
        // Of a row with parity, columns that are not in use matter as well: the others are rebuilt from them.
        let is_meant = |at: Logical| match at.distance_from(chunk.start).map(|offset| layout.run_at(offset)) {
            Some(run) if layout.has_parity() => {
                is_row_used(&chunk, &expected, run.row, run.stripe_offset % STRIP_BYTES)
            }
            _ => expected.want(at).is_some(),
        };
        let (data, parity) = used_parts(&chunk, &expected, window, &is_meant);
        if data.is_empty() && parity.is_empty() {
            return None;
        }
        let has_source = pool.devices[self.index].device.is_some();
        let mut ranges: BTreeMap<usize, Vec<Range<u64>>> = BTreeMap::new();
        if has_source && options == CopyOptions::default() {
            let physical = place.physical.get();
            let own = data.iter().map(|range| physical + range.start..physical + range.end);
            ranges.entry(self.index).or_default().extend(own);
        }
        for (device, range) in parity.iter().flat_map(|strip| strip.sources(&chunk)) {
            ranges.entry(device).or_default().push(range);
        }
        let (reads, read_bytes) = submit(&pool, ranges);
        let (replacement, window) = (self, *window);
        Some(CopyRead {
            replacement,
            options,
            pool,
            chunk,
            window,
            expected,
            data,
            parity,
            reads,
            read_bytes,
        })
    }
}

impl CopyRead<'_> {
    /// Waits for the answers, and writes to the target what belongs there. Fails if the target does.
    pub fn end(mut self) -> Result<CopyFindings, DeviceError> {
        let answers = Answers::wait(&self.pool, std::mem::take(&mut self.reads));
        let (volume, stripe) = (self.replacement.volume, self.window.stripe.stripe);
        let mut corrector = Corrector::new(volume, &self.pool, &self.chunk, stripe, &self.expected, false);
        let counts = &mut corrector.findings.counts;
        (counts.read_bytes, [counts.data_extents, counts.tree_extents]) =
            (self.read_bytes, self.expected.extents);
        let mut copy = Copying { read: &self, corrector, output: Output::default() };
        for range in &self.data {
            let mut at = range.start;
            while at < range.end {
                at += copy.copy_piece(at, range.end - at, &answers)?;
            }
        }
        for strip in &self.parity {
            copy.copy_parity(strip, &answers);
        }
        let Copying { corrector, output, .. } = copy;
        let mut written_bytes = 0;
        for (stripe_offset, bytes) in output.0 {
            self.replacement.target.write_at(self.physical() + stripe_offset, &bytes)?;
            written_bytes += to_u64(bytes.len());
        }
        Ok(CopyFindings { scrub: corrector.findings, written_bytes })
    }

    /// Address of the device extent.
    fn physical(&self) -> u64 {
        self.window.stripe.physical.get()
    }
}

/// The copying of a window.
struct Copying<'c> {
    read: &'c CopyRead<'c>,
    corrector: Corrector<'c>,
    output: Output,
}

impl Copying<'_> {
    /// Copies a part of the stripe that is contiguous in the chunk, from an offset in the stripe on; returns its length.
    fn copy_piece(&mut self, at: u64, length: u64, answers: &Answers) -> Result<u64, DeviceError> {
        let (read, layout) = (self.read, &self.read.chunk.layout);
        let offset = layout.offset_on(self.corrector.stripe, at).unwrap_or(0);
        let length = length.min(layout.run_at(offset).length).min(REQUEST_BYTES_MAX);
        let there = match read.options.verifies_target {
            true => {
                let mut there = vec![0; to_usize(length)];
                read.replacement.target.read_at(read.physical() + at, &mut there)?;
                Some(there)
            }
            false => None,
        };
        let is_there = |from: u64, to: u64, want: Want<'_>| {
            let bytes = there.as_ref().map(|there| &there[to_usize(from)..to_usize(to)]);
            let has_checksum = matches!(want, Want::Checksum(_));
            has_checksum && bytes.is_some_and(|bytes| read.expected.verify(want, bytes).is_ok())
        };
        let mut found: Option<Option<Vec<u8>>> = None;
        let mut within = 0;
        while within < length {
            let granule = read.expected.granule().min(length - within);
            let end = within + granule;
            match read.expected.want(read.chunk.start + (offset + within)) {
                Some(want) if is_there(within, end, want) => {}
                Some(want) => {
                    let found = found.get_or_insert_with(|| self.bulk(at, offset, length, answers));
                    let bytes = found.as_ref().map(|found| &found[to_usize(within)..to_usize(end)]);
                    self.copy_granule(at + within, offset + within, want, granule, bytes);
                }
                None => self.copy_filler(at + within, offset + within, granule),
            }
            within = end;
        }
        Ok(length)
    }

    /// Copies a granule that is not in use, and is a part of the parity of its row: as the parity has it, for nothing tells whether
    /// the device has it right.
    fn copy_filler(&mut self, at: u64, offset: u64, length: u64) {
        let it = &self.corrector;
        let run = Run { length, ..self.read.chunk.layout.run_at(offset) };
        if let Some(bytes) = it.filler(&run).or_else(|| it.stripe_bytes(at, length).ok()) {
            self.output.push(at, &bytes);
        }
    }

    /// Bytes of a piece, not verified: those of the device, if it was asked, or else those of another copy. `None` if they
    /// can't be had at once.
    fn bulk(&self, at: u64, offset: u64, length: u64, answers: &Answers) -> Option<Vec<u8>> {
        let (read, it) = (self.read, &self.corrector);
        if self.asks_source() {
            return match read.options.verifies_target {
                true => it.stripe_bytes(at, length).ok(),
                false => answers.bytes(it.index(), read.physical() + at, length).map(<[u8]>::to_vec),
            };
        }
        let layout = &read.chunk.layout;
        let mut run = layout.run_at(offset);
        run.length = length;
        let mut bytes = vec![0; to_usize(length)];
        let mut others = (0..layout.ways()).filter(|way| layout.way(&run, *way) != Way::Direct(it.stripe));
        others.any(|way| it.pool.read_run(&read.chunk, &run, way, &mut bytes).is_ok()).then_some(bytes)
    }

    /// Returns true if the device itself was asked first.
    fn asks_source(&self) -> bool {
        let is_there = self.corrector.pool.devices[self.corrector.index()].device.is_some();
        is_there && !self.read.options.avoids_source
    }

    /// Copies a granule: the bytes that were read, if they are right, or else those of any place that has them right.
    fn copy_granule(&mut self, at: u64, offset: u64, want: Want<'_>, length: u64, bytes: Option<&[u8]>) {
        let (read, asks_source) = (self.read, self.asks_source());
        let it = &mut self.corrector;
        it.count_bytes(want, length);
        let lost_writes = &it.pool.devices[it.index()].lost_writes;
        // What can't be verified is taken from where it is known not to be old, and not rebuilt from what may be wrong.
        let is_sure = match asks_source {
            true => !lost_writes.affect(read.physical() + at, length),
            false => !read.chunk.layout.has_parity(),
        };
        let bytes = bytes.filter(|_| want.is_verifiable() || is_sure);
        if let Some(bytes) = bytes {
            if read.expected.verify(want, bytes).is_ok() {
                return self.output.push(at, bytes);
            }
        }
        if !asks_source {
            if let Some(bytes) = it.elsewhere(offset, want, length) {
                return self.output.push(at, &bytes);
            }
        }
        let (own, failure) = match it.stripe_bytes(at, length) {
            Ok(own) => match it.expected.verify(want, &own) {
                Ok(()) => return self.output.push(at, &own),
                Err(failure) => (Some(own), failure),
            },
            Err(failure) => (None, failure),
        };
        if own.is_none() && !want.is_verifiable() && read.options.is_itself && self.lies_alone(offset) {
            return;
        }
        let it = &mut self.corrector;
        it.count_failure(&failure);
        if asks_source {
            if let Some(bytes) = it.elsewhere(offset, want, length) {
                it.findings.counts.corrected_errors += 1;
                return self.output.push(at, &bytes);
            }
        }
        if own.is_none() && !want.is_verifiable() {
            if let Some(bytes) = self.elsewhere_at_rest(offset, want, length) {
                return self.output.push(at, &bytes);
            }
        }
        let it = &mut self.corrector;
        let content = want.content(it.chunk.kind);
        let part = Part { stripe_offset: at, length, logical: it.chunk.start + offset, content };
        match own {
            Some(own) => {
                it.fail(part, &format!("{failure}; so in all copies, and copied as it is"));
                self.output.push(at, &own);
            }
            None => {
                let problem = format!("{failure}; no other copy can be read, and it is not copied");
                it.fail_to_copy(part, &problem, !want.is_verifiable());
            }
        }
    }

    /// Returns true if what is at an offset in the chunk is on the device alone, in whatever number of copies.
    fn lies_alone(&self, offset: u64) -> bool {
        let (chunk, index) = (&self.read.chunk, self.corrector.index());
        let run = chunk.layout.run_at(offset);
        (0..chunk.layout.ways()).all(|way| match chunk.layout.way(&run, way) {
            Way::Direct(stripe) => chunk.stripes[stripe].device == index,
            Way::Rebuild(_) => false,
        })
    }

    /// Bytes without checksums from anywhere but the device, with all writers locked out: a row that is written in place meanwhile
    /// says different things in different ways.
    fn elsewhere_at_rest(&self, offset: u64, want: Want<'_>, length: u64) -> Option<Vec<u8>> {
        let _no_writers = self.read.replacement.volume.locks.repair();
        self.corrector.elsewhere(offset, want, length)
    }

    fn copy_parity(&mut self, strip: &ParityStrip, answers: &Answers) {
        let columns = self.read.chunk.layout.columns();
        for (slice, parity) in strip.copied(&self.corrector, answers) {
            match parity {
                Ok(parity) => self.output.push(slice, &parity),
                Err(has_lost_unverified) => {
                    let logical = self.read.chunk.start + slice / STRIP_BYTES * columns * STRIP_BYTES;
                    let (length, content) = (self.read.expected.granule(), Content::Parity);
                    let part = Part { stripe_offset: slice, length, logical, content };
                    let problem = "data of its row is lost, and so it can't be computed";
                    self.corrector.fail_to_copy(part, problem, has_lost_unverified);
                }
            }
        }
    }
}
