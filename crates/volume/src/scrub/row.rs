//! Rows of chunks with parity: a strip of parity held against the data of its row.

use super::Expected;
use super::correct::{Corrector, Decision, Part, is_known};
use super::expected::{Content, Want};
use super::requests::Answers;
use crate::chunk::Chunk;
use crate::device::count;
use crate::layout::{Run, STRIP_BYTES};
use crate::parity::{Recovery, add_multiple, syndromes};
use brindle_ondisk::to_usize;
use std::ops::Range;

/// A strip of parity. A *slice* of its row is what has one offset in all of its strips, as long as a granule.
#[derive(Debug)]
pub(super) struct ParityStrip {
    row: u64,
    /// 0 for P, 1 for Q.
    number: u64,
    /// The part of the stripe from the first slice in use to the last.
    range: Range<u64>,
    granule: u64,
    /// Offsets in the stripe of the slices of which any column is in use.
    slices: Vec<u64>,
}

/// Content of a column of a slice.
enum Column {
    /// Right, or at least what readers get.
    Held(Vec<u8>),
    /// Known to be wrong or not there, and not to be had from anywhere.
    Lost,
}

/// Returns true if any column of a row is in use at an offset of its strips.
pub(super) fn is_row_used(chunk: &Chunk, expected: &Expected, row: u64, within: u64) -> bool {
    let columns = chunk.layout.columns();
    (0..columns).any(|column| {
        let offset = (row * columns + column) * STRIP_BYTES + within;
        offset < chunk.length && expected.want(chunk.start + offset).is_some()
    })
}

impl ParityStrip {
    /// The parity at an offset of a stripe; `None` if nothing of its row is in use.
    pub(super) fn of(
        chunk: &Chunk,
        expected: &Expected,
        stripe: usize,
        stripe_offset: u64,
        length: u64,
    ) -> Option<Self> {
        let (layout, granule) = (&chunk.layout, expected.granule());
        let run = layout.run_on(stripe, stripe_offset, length);
        let number = run.column.checked_sub(layout.columns())?;
        let is_used = |at: &u64| is_row_used(chunk, expected, run.row, at % STRIP_BYTES);
        let offsets = (stripe_offset..stripe_offset + length).step_by(to_usize(granule));
        let slices: Vec<u64> = offsets.filter(is_used).collect();
        let range = *slices.first()?..slices.last()? + granule;
        Some(Self { row: run.row, number, range, granule, slices })
    }

    /// The part of the stripe that is looked at.
    pub(super) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Ranges of devices that hold the row's data.
    pub(super) fn sources(&self, chunk: &Chunk) -> Vec<(usize, Range<u64>)> {
        let columns = (0..chunk.layout.columns()).map(|column| chunk.layout.stripe_in_row(self.row, column));
        let place = |stripe: usize| {
            let place = &chunk.stripes[stripe];
            let physical = place.physical.get();
            (place.device, physical + self.range.start..physical + self.range.end)
        };
        columns.map(place).collect()
    }

    /// Verifies the parity by what was read. Only where it does not fit is the data looked at more closely: parity that
    /// fits data that is wrong is of no use to anything, and the scrub of that data's device tells it.
    pub(super) fn verify(&self, corrector: &mut Corrector<'_>, answers: &Answers) {
        let length = self.range.end - self.range.start;
        let own = &corrector.chunk.stripes[corrector.stripe];
        let found = answers.bytes(own.device, own.physical.get() + self.range.start, length);
        let sources = self.sources(corrector.chunk);
        let data: Option<Vec<&[u8]>> =
            sources.iter().map(|(device, range)| answers.bytes(*device, range.start, length)).collect();
        let parity = data.map(|data| self.parity_of(&data));
        for slice in &self.slices {
            let start = to_usize(slice - self.range.start);
            let within = start..start + to_usize(self.granule);
            let fits = found.zip(parity.as_ref()).is_some_and(|(f, p)| f[within.clone()] == p[within]);
            if !fits {
                self.correct(corrector, *slice);
            }
        }
    }

    /// The parity that each slice should have, for a device that is to hold it: by data that is verified, or else what the
    /// stripe itself says. `Err` if neither can be had, with true if data without checksums is lost with it.
    pub(super) fn copied(&self, it: &Corrector<'_>, answers: &Answers) -> Vec<(u64, Result<Vec<u8>, bool>)> {
        let length = self.range.end - self.range.start;
        let of_column = |(device, range): (usize, Range<u64>)| {
            let lacks_some = it.pool.devices[device].lost_writes.affect(range.start, length);
            answers.bytes(device, range.start, length).filter(|_| !lacks_some)
        };
        let data: Option<Vec<&[u8]>> = self.sources(it.chunk).into_iter().map(of_column).collect();
        let of_slice = |slice: &u64| {
            let start = to_usize(slice - self.range.start);
            let within = start..start + to_usize(self.granule);
            let columns: Option<Vec<&[u8]>> =
                data.as_ref().map(|data| data.iter().map(|column| &column[within.clone()]).collect());
            let is_right = |(column, bytes): (u64, &&[u8])| {
                it.want(&self.run(column, *slice)).is_none_or(|want| it.expected.verify(want, bytes).is_ok())
            };
            let columns = columns.filter(|columns| (0..).zip(columns).all(is_right));
            (*slice, columns.map_or_else(|| self.copied_slice(it, *slice), |it| Ok(self.parity_of(&it))))
        };
        self.slices.iter().map(of_slice).collect()
    }

    /// The same of a slice of which some data is wrong. With all writers locked out where data is lost at first: a row that is written
    /// in place meanwhile says different things in different ways.
    fn copied_slice(&self, it: &Corrector<'_>, slice: u64) -> Result<Vec<u8>, bool> {
        self.rebuilt_slice(it, slice).or_else(|_| {
            let _no_writers = it.volume.locks.repair();
            self.rebuilt_slice(it, slice)
        })
    }

    fn rebuilt_slice(&self, it: &Corrector<'_>, slice: u64) -> Result<Vec<u8>, bool> {
        let (mut columns, mut is_lost, mut has_lost_unverified) = (Vec::new(), false, false);
        for column in 0..it.chunk.layout.columns() {
            let run = self.run(column, slice);
            match it.column_or_rebuilt(&run) {
                Column::Held(bytes) => columns.push(bytes),
                Column::Lost => {
                    is_lost = true;
                    has_lost_unverified |= it.want(&run).is_some_and(|want| !want.is_verifiable());
                }
            }
        }
        if is_lost {
            return it.stripe_bytes(slice, self.granule).map_err(|_| has_lost_unverified);
        }
        Ok(self.parity_of(&columns.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    /// Decides about a slice, by each of its columns.
    fn correct(&self, corrector: &mut Corrector<'_>, slice: u64) {
        let columns = corrector.chunk.layout.columns();
        let logical = corrector.chunk.start + self.row * columns * STRIP_BYTES;
        let part = Part { stripe_offset: slice, length: self.granule, logical, content: Content::Parity };
        corrector.correct(part, false, "parity that does not fit its data", |it| self.decide(it, slice));
    }

    fn decide(&self, it: &mut Corrector<'_>, slice: u64) -> Decision {
        let found = it.stripe_bytes(slice, self.granule);
        if found.as_ref().is_err_and(is_known) {
            return Decision::Nothing;
        }
        let columns = (0..it.chunk.layout.columns()).map(|column| it.column(&self.run(column, slice)));
        let columns: Option<Vec<Vec<u8>>> = columns
            .map(|column| match column {
                Column::Held(bytes) => Some(bytes),
                Column::Lost => None,
            })
            .collect();
        // With a column that is lost, the parity may be all that is left of it.
        let Some(columns) = columns else {
            return match found {
                Ok(_) => Decision::Nothing,
                Err(failure) => {
                    it.count_failure(&failure);
                    Decision::Leave
                }
            };
        };
        let parity = self.parity_of(&columns.iter().map(Vec::as_slice).collect::<Vec<_>>());
        match found {
            Ok(found) if found == parity => return Decision::Nothing,
            Ok(_) => {
                it.findings.counts.parity_errors += 1;
                count(&it.pool.devices[it.index()].counters.checksum_errors);
            }
            Err(failure) => it.count_failure(&failure),
        }
        Decision::Write(parity)
    }

    fn run(&self, column: u64, stripe_offset: u64) -> Run {
        Run { row: self.row, column, stripe_offset, length: self.granule }
    }

    fn parity_of(&self, columns: &[&[u8]]) -> Vec<u8> {
        if self.number > 0 {
            return syndromes(columns).1;
        }
        let mut parity = columns.first().map_or_else(Vec::new, |first| first.to_vec());
        columns.iter().skip(1).for_each(|column| add_multiple(&mut parity, column, 1));
        parity
    }
}

impl Corrector<'_> {
    /// Expectation of a column of a slice; `None` if it is not in use.
    fn want(&self, run: &Run) -> Option<Want<'_>> {
        let columns = self.chunk.layout.columns();
        let offset = (run.row * columns + run.column) * STRIP_BYTES + run.stripe_offset % STRIP_BYTES;
        (offset < self.chunk.length).then(|| self.expected.want(self.chunk.start + offset)).flatten()
    }

    /// Content of a column of a slice, from its device or, where that is verified, from the rest of the row.
    fn column(&self, run: &Run) -> Column {
        let layout = &self.chunk.layout;
        let want = self.want(run);
        let mut bytes = vec![0; to_usize(run.length)];
        for way in 0..layout.ways() {
            // Without verification, only the device itself tells what readers get.
            if way > 0 && want.is_none_or(|want| !want.is_verifiable()) {
                break;
            }
            let read = self.pool.read_run(self.chunk, run, way, &mut bytes);
            if read.is_ok() && want.is_none_or(|want| self.expected.verify(want, &bytes).is_ok()) {
                return Column::Held(bytes);
            }
        }
        Column::Lost
    }

    /// The same, where a column without verification may be rebuilt.
    fn column_or_rebuilt(&self, run: &Run) -> Column {
        let is_verifiable = self.want(run).is_some_and(|want| want.is_verifiable());
        match self.column(run) {
            Column::Lost if !is_verifiable => self.rebuilt_unverified(run).map_or(Column::Lost, Column::Held),
            column => column,
        }
    }

    /// Content of a column that is not in use, by parity and the other columns as they should be: what belongs there for the
    /// others to be rebuilt.
    pub(super) fn filler(&self, run: &Run) -> Option<Vec<u8>> {
        self.rebuilt(run).next()
    }

    fn stripe_of(&self, stripe: usize, run: &Run) -> Option<Vec<u8>> {
        let mut bytes = vec![0; to_usize(run.length)];
        self.pool.read_stripe(self.chunk, stripe, run.stripe_offset, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Content of a column that its device can't read and that has no checksum: what the other columns and the parity say, if
    /// no more of them is lost than parity makes up for, and all parity that can be read says the same.
    pub(super) fn rebuilt_unverified(&self, run: &Run) -> Option<Vec<u8>> {
        let found: Vec<Vec<u8>> = self.rebuilt(run).collect();
        let (first, rest) = found.split_first()?;
        rest.iter().all(|other| other == first).then(|| first.clone())
    }

    /// Content of a column by the other columns as they should be, and by each parity; by both parities together if another column is
    /// lost. Empty if too much is.
    fn rebuilt(&self, run: &Run) -> impl Iterator<Item = Vec<u8>> {
        let (layout, run) = (self.chunk.layout, *run);
        let (mut held, mut lost) = (Vec::new(), Vec::new());
        for column in (0..layout.columns()).filter(|column| *column != run.column) {
            match self.column(&Run { column, ..run }) {
                Column::Held(bytes) => held.push((layout.stripe_in_row(run.row, column), bytes)),
                Column::Lost => lost.push(column),
            }
        }
        let recoveries = match (lost.as_slice(), layout.parities()) {
            ([], 1) => vec![Recovery::FromP],
            ([], 2) => vec![Recovery::FromP, Recovery::FromQ],
            ([other], 2) => vec![Recovery::FromBoth { other: *other }],
            _ => Vec::new(),
        };
        let by = move |recovery: Recovery| {
            let mut bytes = vec![0; to_usize(run.length)];
            for (stripe, factor) in layout.sources(&run, recovery) {
                match held.iter().find(|(other, _)| *other == stripe) {
                    Some((_, column)) => add_multiple(&mut bytes, column, factor),
                    None => add_multiple(&mut bytes, &self.stripe_of(stripe, &run)?, factor),
                }
            }
            Some(bytes)
        };
        recoveries.into_iter().filter_map(by)
    }
}
