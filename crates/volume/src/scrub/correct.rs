//! Correction of what a scrub has found wrong on one stripe.

use super::expected::{Content, Expected, Want};
use super::{ScrubFault, ScrubFindings};
use crate::chunk::Chunk;
use crate::device::{PoolDevice, count};
use crate::layout::Way;
use crate::pool::Pool;
use crate::{AttemptFailure, Volume};
use brindle_ondisk::{DevId, Logical, NodeExpectation, NodeProblem, Physical, to_usize};
use brindle_sync::RwLockWriteGuard;

/// The scrub of a part of a stripe.
pub(super) struct Corrector<'a> {
    pub(super) volume: &'a Volume,
    pub(super) pool: &'a Pool,
    pub(super) chunk: &'a Chunk,
    pub(super) stripe: usize,
    pub(super) expected: &'a Expected,
    repairs: bool,
    pub(super) findings: ScrubFindings,
    /// Writes that are not durable yet.
    written: Vec<Written>,
}

/// A part of the stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) stripe_offset: u64,
    pub(super) length: u64,
    /// Address of the data, or of the row if it is parity.
    pub(super) logical: Logical,
    pub(super) content: Content,
}

/// A part that was written anew.
struct Written {
    part: Part,
    /// Bytes that are to be read again; `None` if others may have written there since.
    bytes: Option<Vec<u8>>,
    problem: String,
}

/// A decision about a part that was found wrong.
pub(super) enum Decision {
    /// Nothing to be done: it was never wrong, for a writer was about to complete it.
    Nothing,
    /// Nothing more to be done: it was wrong, and a reader has repaired it.
    Repaired,
    /// These bytes belong there.
    Write(Vec<u8>),
    /// The right bytes can't be had, or must not be written.
    Leave,
}

impl<'a> Corrector<'a> {
    pub(super) fn new(
        volume: &'a Volume,
        pool: &'a Pool,
        chunk: &'a Chunk,
        stripe: usize,
        expected: &'a Expected,
        repairs: bool,
    ) -> Self {
        let findings = ScrubFindings::default();
        Self { volume, pool, chunk, stripe, expected, repairs, findings, written: Vec::new() }
    }

    /// Counts a granule that is looked at.
    pub(super) fn count_bytes(&mut self, want: Want<'_>, length: u64) {
        let counts = &mut self.findings.counts;
        match want.content(self.chunk.kind) {
            Content::Data => counts.data_bytes += length,
            Content::Metadata => counts.tree_bytes += length,
            Content::Parity => {}
        }
        counts.no_csum += u64::from(!want.is_verifiable());
    }

    /// Verifies a granule by the bytes that were read, if they could be, and corrects it.
    pub(super) fn verify(
        &mut self,
        stripe_offset: u64,
        offset: u64,
        want: Want<'_>,
        bytes: Option<&[u8]>,
        length: u64,
    ) {
        let found = match bytes {
            Some(bytes) => self.expected.verify(want, bytes),
            None => self.look(stripe_offset, want, length),
        };
        let Err(failure) = found else { return };
        if is_known(&failure) {
            return;
        }
        let content = want.content(self.chunk.kind);
        let part = Part { stripe_offset, length, logical: self.chunk.start + offset, content };
        self.count_failure(&failure);
        self.correct(part, want.is_verifiable(), &failure.to_string(), |it| {
            match it.look(stripe_offset, want, length) {
                Ok(()) => Decision::Repaired,
                Err(_) => it.elsewhere(offset, want, length).map_or(Decision::Leave, Decision::Write),
            }
        });
    }

    /// Verifies a tree block that does not begin where a granule does.
    pub(super) fn verify_unaligned(&mut self, block: &NodeExpectation) {
        let want = Want::Block(block);
        let length = u64::from(self.volume.tree_context().nodesize);
        let Some(offset) = block.bytenr.distance_from(self.chunk.start) else { return };
        let run = self.chunk.layout.run_at(offset);
        let mut ways = 0..self.chunk.layout.ways();
        let is_here = |way: &usize| self.chunk.layout.way(&run, *way) == Way::Direct(self.stripe);
        let Some(way) = ways.find(is_here) else { return };
        self.count_bytes(want, length);
        if run.length >= length {
            return self.verify(run.stripe_offset, offset, want, None, length);
        }
        // Old conversions of other filesystems have blocks that lie on several stripes; a balance moves them.
        let mut bytes = vec![0; to_usize(length)];
        let read = self.pool.read_range(self.chunk, offset, way, &mut bytes);
        let found = read.map_err(|attempt| attempt.failure).and_then(|()| self.expected.verify(want, &bytes));
        let Err(failure) = found else { return };
        if is_known(&failure) {
            return;
        }
        self.count_failure(&failure);
        let content = Content::Metadata;
        let part = Part { stripe_offset: run.stripe_offset, length, logical: block.bytenr, content };
        self.fail(part, &format!("{failure}; it lies on several stripes"));
    }

    /// Corrects a part that was found wrong, as decided with all writers locked out: what the decision has read is what is
    /// there when it is carried out. `stays` is true if nothing else writes the part afterwards.
    pub(super) fn correct(
        &mut self,
        part: Part,
        stays: bool,
        problem: &str,
        decide: impl FnOnce(&mut Self) -> Decision,
    ) {
        let volume = self.volume;
        let no_writers = volume.is_writable().then(|| volume.locks.repair());
        let decision = decide(self);
        let is_written = match &decision {
            Decision::Write(bytes) if self.repairs => {
                no_writers.as_ref().is_some_and(|no_writers| self.write(no_writers, &part, bytes))
            }
            _ => false,
        };
        drop(no_writers);
        match decision {
            Decision::Nothing => {}
            Decision::Repaired => self.findings.counts.corrected_errors += 1,
            Decision::Write(bytes) if is_written => {
                let (bytes, problem) = (stays.then_some(bytes), problem.to_owned());
                self.written.push(Written { part, bytes, problem });
            }
            Decision::Write(_) if !self.repairs => self.findings.counts.correctable_errors += 1,
            Decision::Write(_) => {
                self.leave(part, &format!("{problem}; its device did not take the right contents"));
            }
            Decision::Leave => self.fail(part, problem),
        }
    }

    /// Reads the stripe itself, and verifies what is there.
    fn look(&self, stripe_offset: u64, want: Want<'_>, length: u64) -> Result<(), AttemptFailure> {
        let bytes = self.stripe_bytes(stripe_offset, length)?;
        self.expected.verify(want, &bytes)
    }

    /// Bytes of the stripe, from its device.
    pub(super) fn stripe_bytes(&self, stripe_offset: u64, length: u64) -> Result<Vec<u8>, AttemptFailure> {
        let mut bytes = vec![0; to_usize(length)];
        if let Some(device) = &self.member().device {
            device.forget_cached(self.physical(stripe_offset), length);
        }
        let read = self.pool.read_stripe(self.chunk, self.stripe, stripe_offset, &mut bytes);
        read.map(|()| bytes).map_err(|attempt| attempt.failure)
    }

    /// The right bytes of a granule, from anywhere but the stripe itself.
    pub(super) fn elsewhere(&self, offset: u64, want: Want<'_>, length: u64) -> Option<Vec<u8>> {
        let layout = &self.chunk.layout;
        let mut run = layout.run_at(offset);
        run.length = length;
        if layout.has_parity() && !want.is_verifiable() {
            return self.rebuilt_unverified(&run);
        }
        let mut bytes = vec![0; to_usize(length)];
        let mut others = (0..layout.ways()).filter(|way| layout.way(&run, *way) != Way::Direct(self.stripe));
        let is_right = |way: usize| {
            self.pool.read_run(self.chunk, &run, way, &mut bytes).is_ok()
                && self.expected.verify(want, &bytes).is_ok()
        };
        others.any(is_right).then_some(bytes)
    }

    /// Writes a part, with all writers locked out.
    fn write(&self, _no_writers: &RwLockWriteGuard<'_, ()>, part: &Part, bytes: &[u8]) -> bool {
        let member = self.member();
        let Some(device) = &member.writable else { return false };
        let physical = self.physical(part.stripe_offset);
        if part.content != Content::Parity {
            self.pool.choosing.prefetched().forget(part.logical.get(), part.length);
        }
        let begun = member.begin_write();
        match device.write_at(physical, bytes) {
            Ok(()) => member.has_taken(begun, physical, part.length),
            Err(error) => {
                tracing::warn!("{error}");
                count(&member.counters.write_errors);
                false
            }
        }
    }

    /// Counts an error of the stripe's device. Errors of reads are counted where they are read.
    pub(super) fn count_failure(&mut self, failure: &AttemptFailure) {
        let (member, counts) = (self.member(), &mut self.findings.counts);
        let counters = &member.counters;
        match failure {
            AttemptFailure::Io(_) => counts.read_errors += 1,
            AttemptFailure::Block(corrupt) => match corrupt.problem {
                NodeProblem::Generation(_) => {
                    counts.verify_errors += 1;
                    count(&counters.generation_errors);
                }
                NodeProblem::Checksum { .. } => {
                    counts.csum_errors += 1;
                    count(&counters.checksum_errors);
                }
                NodeProblem::Header(_) | NodeProblem::Slot { .. } => {
                    counts.verify_errors += 1;
                    count(&counters.checksum_errors);
                }
            },
            AttemptFailure::Checksum { .. } => {
                counts.csum_errors += 1;
                count(&counters.checksum_errors);
            }
            AttemptFailure::Missing | AttemptFailure::LostWrite => {}
        }
    }

    /// A part is not corrected that another copy, or the parity, has right: nothing of a file is lost, and its device is to be looked
    /// at.
    fn leave(&mut self, part: Part, problem: &str) {
        self.findings.counts.correctable_errors += 1;
        self.note(part, problem, false);
    }

    /// A part is not corrected, and no other copy has it right.
    pub(super) fn fail(&mut self, part: Part, problem: &str) {
        self.findings.counts.uncorrectable_errors += 1;
        self.note(part, problem, true);
    }

    /// The same of contents that are not copied, and if they have no checksum, nothing tells so from then on.
    pub(super) fn fail_to_copy(&mut self, part: Part, problem: &str, is_silent: bool) {
        self.fail(part, problem);
        self.findings.faults.last_mut().expect("just noted").is_silent = is_silent;
    }

    fn note(&mut self, part: Part, problem: &str, is_lost: bool) {
        let Part { stripe_offset, length, logical, content } = part;
        let devid = self.chunk.stripes[self.stripe].devid;
        let physical = Physical::new(self.physical(stripe_offset));
        let problem = problem.to_owned();
        self.findings.faults.push(ScrubFault {
            logical,
            length,
            devid,
            physical,
            content,
            problem,
            is_lost,
            is_silent: false,
        });
    }

    /// Makes corrections durable, reads them again, and counts them.
    pub(super) fn finish(mut self, devid: DevId) -> ScrubFindings {
        if self.written.is_empty() {
            return self.findings;
        }
        let is_durable = self.volume.settle_repairs(devid);
        for Written { part, bytes, problem } in std::mem::take(&mut self.written) {
            let found = self.stripe_bytes(part.stripe_offset, part.length);
            let is_right = found.is_ok_and(|found| bytes.is_none_or(|bytes| bytes == found));
            if is_durable && is_right {
                self.findings.counts.corrected_errors += 1;
                count(&self.member().counters.repaired);
                let (name, physical) = (self.member().name(), self.physical(part.stripe_offset));
                tracing::info!("{name}: scrub corrected {} bytes at offset {physical}", part.length);
            } else {
                self.leave(part, &format!("{problem}; what was written over it can't be read again"));
            }
        }
        self.findings
    }

    pub(super) fn index(&self) -> usize {
        self.chunk.stripes[self.stripe].device
    }

    fn member(&self) -> &'a PoolDevice {
        &self.pool.devices[self.index()]
    }

    fn physical(&self, stripe_offset: u64) -> u64 {
        self.chunk.stripes[self.stripe].physical.get() + stripe_offset
    }
}

/// Returns true if the device is known to lack something there.
pub(super) fn is_known(failure: &AttemptFailure) -> bool {
    matches!(failure, AttemptFailure::LostWrite | AttemptFailure::Missing)
}
