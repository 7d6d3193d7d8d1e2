//! A row of a chunk with parity: what is new in it, what must be read, and the parity of both.

use super::known::{Known, Witness};
use super::plan::{Plan, Unit, is_there, missing_attempt};
use crate::chunk::Chunk;
use crate::device::count;
use crate::layout::{Run, STRIP_BYTES};
use crate::locks::RowKey;
use crate::parity::syndromes;
use crate::pool::Pool;
use crate::{Attempt, WriteError};
use brindle_interval::IntervalSet;
use brindle_ondisk::{BlockGroupType, Logical, TreeContext, to_u64, to_usize};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Contents to be written to a row.
#[derive(Debug)]
pub(super) struct Row<'a> {
    chunk: Arc<Chunk>,
    row: u64,
    pieces: Vec<Piece<'a>>,
    /// Known present contents.
    known: Known,
}

/// Bytes for a part of a strip.
#[derive(Debug)]
struct Piece<'a> {
    column: u64,
    /// Offset in the strip.
    start: u64,
    bytes: &'a [u8],
}

/// Future contents of a part of a column.
struct ColumnPart<'a> {
    bytes: Cow<'a, [u8]>,
    /// True if the device holds something wrong there, which would not fit parity made of the bytes.
    is_corrected: bool,
}

/// Bytes of which some are wrong.
struct Found {
    bytes: Vec<u8>,
    wrong: Vec<Range<usize>>,
}

impl Found {
    /// Takes over what is right elsewhere; how many parts.
    fn correct(&mut self, other: &[u8], wrong_there: &[Range<usize>]) -> usize {
        let (still_wrong, right): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.wrong).into_iter().partition(|part| wrong_there.contains(part));
        right.iter().for_each(|part| self.bytes[part.clone()].copy_from_slice(&other[part.clone()]));
        self.wrong = still_wrong;
        right.len()
    }
}

impl Piece<'_> {
    fn end(&self) -> u64 {
        self.start + to_u64(self.bytes.len())
    }
}

impl<'a> Row<'a> {
    pub(super) fn new(chunk: &Arc<Chunk>, row: u64) -> Self {
        Self { chunk: Arc::clone(chunk), row, pieces: Vec::new(), known: Known::Nothing }
    }

    /// Adds what a run is to hold.
    pub(super) fn push(&mut self, run: &Run, bytes: &'a [u8]) {
        let start = run.stripe_offset % STRIP_BYTES;
        self.pieces.push(Piece { column: run.column, start, bytes });
    }

    pub(super) fn key(&self) -> RowKey {
        RowKey { chunk: self.chunk.start, row: self.row }
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| to_u64(piece.bytes.len())).sum()
    }

    /// Returns true if all of it is new.
    pub(super) fn is_whole(&self) -> bool {
        self.data_bytes() == self.chunk.layout.columns() * STRIP_BYTES
    }

    /// Learns what the row should hold now, if all of it will be needed.
    pub(super) fn learn(&mut self, context: &TreeContext, witness: Option<&dyn Witness>) {
        let kind = self.chunk.kind;
        self.known = match witness {
            _ if self.is_whole() => Known::Nothing,
            Some(witness) if kind.contains(BlockGroupType::DATA) => {
                Known::data(context, self.logical(), self.length(), witness)
            }
            _ if kind.contains(BlockGroupType::DATA) => Known::Nothing,
            _ => Known::blocks(context),
        };
    }

    /// Plans the writes of the new data and of the parity. What must be read for that, is.
    pub(super) fn plan(&self, pool: &Pool, plan: &mut Plan<'a>) -> Result<(), WriteError> {
        let layout = &self.chunk.layout;
        let all = layout.columns() + layout.parities();
        let lost: Vec<usize> = (0..all)
            .map(|column| layout.stripe_in_row(self.row, column))
            .filter(|stripe| !is_there(pool, &self.chunk, *stripe))
            .collect();
        let Some(spare) = to_usize(layout.parities()).checked_sub(lost.len()) else {
            let offset = self.row * STRIP_BYTES;
            let attempts = lost.iter().map(|stripe| missing_attempt(pool, &self.chunk, *stripe, offset));
            return Err(self.failed(attempts.collect()));
        };
        let unit = Unit { logical: self.logical(), length: self.length(), spare, is_mending: false };
        let unit = plan.add_unit(unit);
        for piece in &self.pieces {
            self.place(pool, plan, piece.column, piece.start, Cow::Borrowed(piece.bytes), unit);
        }
        self.touch(pool, plan);
        let parity = (layout.columns()..all).map(|column| layout.stripe_in_row(self.row, column));
        if parity.into_iter().all(|stripe| lost.contains(&stripe)) {
            return Ok(());
        }
        for range in self.ranges() {
            let columns: Vec<ColumnPart<'a>> = (0..layout.columns())
                .map(|column| self.column(pool, column, &range))
                .collect::<Result<_, _>>()?;
            let (p, q) = syndromes(&columns.iter().map(|part| part.bytes.as_ref()).collect::<Vec<&[u8]>>());
            for (column, part) in (0..).zip(columns) {
                self.place_again(pool, plan, column, &range, part, unit);
            }
            for (column, parity) in (layout.columns()..all).zip([p, q]) {
                self.place(pool, plan, column, range.start, Cow::Owned(parity), unit);
            }
        }
        Ok(())
    }

    /// All columns count as changed, and parity: what is not in use is part of the parity too.
    fn touch(&self, pool: &Pool, plan: &mut Plan<'a>) {
        for stripe in 0..self.chunk.stripes.len() {
            for range in self.ranges() {
                let (start, length) = (self.row * STRIP_BYTES + range.start, range.end - range.start);
                plan.touch(pool, &self.chunk, stripe, start, length);
            }
        }
    }

    /// Plans that a column of which something was lost or corrected is written as a whole, while there still is parity
    /// that tells what belongs there. If that fails again, it is one failure more that the row must bear.
    fn place_again(
        &self,
        pool: &Pool,
        plan: &mut Plan<'a>,
        column: u64,
        range: &Range<u64>,
        part: ColumnPart<'a>,
        unit: usize,
    ) {
        let place = &self.chunk.stripes[self.chunk.layout.stripe_in_row(self.row, column)];
        let physical = place.physical.get() + self.row * STRIP_BYTES + range.start;
        let lost_writes = &pool.devices[place.device].lost_writes;
        // What is borrowed is new, and planned already.
        let is_old = matches!(part.bytes, Cow::Owned(_));
        if is_old && (part.is_corrected || lost_writes.affect(physical, range.end - range.start)) {
            plan.is_mending(unit);
            self.place(pool, plan, column, range.start, part.bytes, unit);
        }
    }

    /// Plans the write of bytes to a column, if its device is there.
    fn place(
        &self,
        pool: &Pool,
        plan: &mut Plan<'a>,
        column: u64,
        start: u64,
        bytes: Cow<'a, [u8]>,
        unit: usize,
    ) {
        let stripe = self.chunk.layout.stripe_in_row(self.row, column);
        if is_there(pool, &self.chunk, stripe) {
            plan.add_piece(&self.chunk, stripe, self.row * STRIP_BYTES + start, bytes, unit);
        }
    }

    /// The parts of a strip in which any column has something new.
    fn ranges(&self) -> Vec<Range<u64>> {
        let pieces: IntervalSet<u64> = self.pieces.iter().map(|piece| piece.start..piece.end()).collect();
        pieces.iter().map(Range::from).collect()
    }

    /// Future contents of a column: new data, and present data.
    fn column(&self, pool: &Pool, column: u64, range: &Range<u64>) -> Result<ColumnPart<'a>, WriteError> {
        let mut pieces: Vec<&Piece<'a>> = self.pieces.iter().collect();
        pieces.retain(|piece| piece.column == column && piece.start < range.end && range.start < piece.end());
        pieces.sort_by_key(|piece| piece.start);
        if let [piece] = pieces[..] {
            if piece.start == range.start && piece.end() == range.end {
                return Ok(ColumnPart { bytes: Cow::Borrowed(piece.bytes), is_corrected: false });
            }
        }
        let mut bytes = vec![0; to_usize(range.end - range.start)];
        let (mut at, mut is_corrected) = (range.start, false);
        let within = |at: u64| to_usize(at - range.start);
        for piece in pieces {
            let before = &mut bytes[within(at)..within(piece.start.max(at))];
            is_corrected |= self.read_old(pool, column, at, before)?;
            bytes[within(piece.start)..within(piece.end())].copy_from_slice(piece.bytes);
            at = piece.end();
        }
        is_corrected |= self.read_old(pool, column, at, &mut bytes[within(at)..])?;
        Ok(ColumnPart { bytes: Cow::Owned(bytes), is_corrected })
    }

    /// Reads what a column holds, from its device or else by rebuilding it; what is known to be wrong is taken from
    /// where it is right, if there is such a place. Returns true if it was.
    fn read_old(&self, pool: &Pool, column: u64, start: u64, buffer: &mut [u8]) -> Result<bool, WriteError> {
        if buffer.is_empty() {
            return Ok(false);
        }
        let (stripe_offset, length) = (self.row * STRIP_BYTES + start, to_u64(buffer.len()));
        let run = Run { row: self.row, column, stripe_offset, length };
        let at = self.logical() + (column * STRIP_BYTES + start);
        let mut attempts: Vec<Attempt> = Vec::new();
        let (mut found, mut all_corrected) = (None::<Found>, 0);
        for way in 0..self.chunk.layout.ways() {
            if let Err(attempt) = pool.read_run(&self.chunk, &run, way, buffer) {
                attempts.push(*attempt);
                continue;
            }
            let wrong = self.known.wrong(at, buffer);
            let Some(found) = &mut found else {
                if wrong.is_empty() {
                    return Ok(false);
                }
                found = Some(Found { bytes: buffer.to_vec(), wrong });
                continue;
            };
            let corrected = found.correct(buffer, &wrong);
            self.count_corrected(pool, column, corrected);
            all_corrected += corrected;
            if found.wrong.is_empty() {
                break;
            }
        }
        let Some(found) = found else { return Err(self.failed(attempts)) };
        // What is wrong wherever it comes from is not in use, or lost already.
        buffer.copy_from_slice(&found.bytes);
        Ok(all_corrected > 0)
    }

    fn count_corrected(&self, pool: &Pool, column: u64, parts: usize) {
        let place = &self.chunk.stripes[self.chunk.layout.stripe_in_row(self.row, column)];
        let member = &pool.devices[place.device];
        for _ in 0..parts {
            count(&member.counters.checksum_errors);
            count(&member.counters.recovered);
        }
    }

    fn failed(&self, attempts: Vec<Attempt>) -> WriteError {
        WriteError::Failed { logical: self.logical(), length: self.length(), attempts }
    }

    fn logical(&self) -> Logical {
        self.chunk.start + self.row * self.length()
    }

    fn length(&self) -> u64 {
        self.chunk.layout.columns() * STRIP_BYTES
    }
}
