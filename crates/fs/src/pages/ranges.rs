//! Dirty contents: pieces of a file in memory, of whole sectors, by offset.
//!
//! A piece is written to in place. One that is written on at its end grows, up to [`PIECE_MAX_BYTES`]; so a file that is
//! written in order costs one piece a mebibyte, and one that is written here and there no more than its sectors.

use super::piece::{PIECE_MAX_BYTES, Piece};
use brindle_ondisk::{to_u64, to_usize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Pieces of a file, by offset: none is empty, none overlaps another, all are of whole sectors.
#[derive(Debug, Default)]
pub(crate) struct DirtyRanges {
    pieces: BTreeMap<u64, Piece>,
    bytes: u64,
}

impl DirtyRanges {
    /// Number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Number of bytes within a range.
    pub(crate) fn bytes_in(&self, range: &Range<u64>) -> u64 {
        let shared = |(start, piece): (u64, &Piece)| {
            let end = start + to_u64(piece.len());
            end.min(range.end) - start.max(range.start)
        };
        self.overlapping(range).map(shared).sum()
    }

    /// Returns true if all of a range is there.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.bytes_in(range) == range.end - range.start
    }

    /// The pieces that share something with a range, in order, whole.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let first = self.first_reaching(range.start);
        self.pieces.range(first..range.end.max(first)).map(|(start, piece)| (*start, piece))
    }

    /// The first run (pieces that touch each other) that ends behind `offset`.
    pub(crate) fn run_from(&self, offset: u64) -> Option<Range<u64>> {
        let mut pieces = self.pieces.range(self.first_reaching(offset)..);
        let (start, piece) = pieces.next()?;
        let mut run = *start..*start + to_u64(piece.len());
        for (start, piece) in pieces {
            if *start != run.end {
                break;
            }
            run.end += to_u64(piece.len());
        }
        Some(run)
    }

    /// Copies what there is of a range into `buffer`, which begins at its start.
    pub(crate) fn copy_to(&self, offset: u64, buffer: &mut [u8]) {
        let range = offset..offset + to_u64(buffer.len());
        for (start, piece) in self.overlapping(&range) {
            copy_shared(start, piece, offset, buffer);
        }
    }

    /// Writes `bytes`; what was dirty there is overwritten. Offset and length are of whole sectors, unless what is
    /// partly written is there already.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, end) = (offset, offset + to_u64(bytes.len()));
        while at < end {
            let rest = &bytes[to_usize(at - offset)..];
            let next = self.pieces.range_mut(self.first_reaching(at)..).next();
            match next {
                Some((start, piece)) if *start <= at => {
                    let skip = to_usize(at - start);
                    let length = rest.len().min(piece.len() - skip);
                    piece[skip..skip + length].copy_from_slice(&rest[..length]);
                    at += to_u64(length);
                }
                next => {
                    let gap_end = next.map_or(end, |(start, _)| end.min(*start));
                    let length = to_usize(gap_end - at);
                    self.add(at, &rest[..length]);
                    at = gap_end;
                }
            }
        }
    }

    /// Fills a range with zeros where there is something.
    pub(crate) fn zero(&mut self, range: &Range<u64>) {
        let first = self.first_reaching(range.start);
        for (start, piece) in self.pieces.range_mut(first..range.end.max(first)) {
            let from = to_usize(range.start.saturating_sub(*start));
            let to = piece.len().min(to_usize(range.end - start));
            piece[from..to].fill(0);
        }
    }

    /// Forgets what there is of a range, of whole sectors; how much it was.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> u64 {
        let before = self.bytes;
        self.split_at(range.start);
        self.split_at(range.end);
        while let Some(start) = self.pieces.range(range.clone()).next().map(|(start, _)| *start) {
            if let Some(piece) = self.pieces.remove(&start) {
                self.bytes -= to_u64(piece.len());
            }
        }
        before - self.bytes
    }

    /// Takes the first pieces: whole runs where that is possible, about `bytes_max` at the most, of at most
    /// `runs_max` runs.
    pub(crate) fn take(&mut self, bytes_max: u64, runs_max: usize) -> Vec<(u64, Piece)> {
        let (mut bytes, mut runs, mut end) = (0, 0, None);
        let mut split = None;
        for (start, piece) in &self.pieces {
            if end != Some(*start) {
                runs += 1;
            }
            if runs > runs_max || bytes >= bytes_max {
                split = Some(*start);
                break;
            }
            bytes += to_u64(piece.len());
            end = Some(*start + to_u64(piece.len()));
        }
        let rest = split.map_or_else(BTreeMap::new, |split| self.pieces.split_off(&split));
        self.bytes -= bytes;
        std::mem::replace(&mut self.pieces, rest).into_iter().collect()
    }

    /// Adds what touches nothing that is there, but perhaps a piece's end.
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes += to_u64(bytes.len());
        let mut rest = bytes;
        if let Some((start, piece)) = self.pieces.range_mut(..offset).next_back() {
            if *start + to_u64(piece.len()) == offset {
                let length = rest.len().min(PIECE_MAX_BYTES.saturating_sub(piece.len()));
                piece.extend(&rest[..length]);
                rest = &rest[length..];
            }
        }
        let mut at = offset + to_u64(bytes.len() - rest.len());
        for piece in rest.chunks(PIECE_MAX_BYTES) {
            self.pieces.insert(at, Piece::copied(piece));
            at += to_u64(piece.len());
        }
    }

    /// The key of the first piece that ends behind `offset`, or `offset`.
    fn first_reaching(&self, offset: u64) -> u64 {
        match self.pieces.range(..=offset).next_back() {
            Some((start, piece)) if *start + to_u64(piece.len()) > offset => *start,
            _ => offset,
        }
    }

    /// Cuts the piece in two that `at` lies inside of.
    fn split_at(&mut self, at: u64) {
        let Some((start, piece)) = self.pieces.range_mut(..at).next_back() else {
            return;
        };
        if *start + to_u64(piece.len()) > at {
            let behind = piece.split_off(to_usize(at - *start));
            self.pieces.insert(at, behind);
        }
    }
}

/// Copies what a piece that begins at `start` shares with a buffer that begins at `offset`.
pub(crate) fn copy_shared(start: u64, piece: &[u8], offset: u64, buffer: &mut [u8]) {
    let from = start.max(offset);
    let to = (start + to_u64(piece.len())).min(offset + to_u64(buffer.len()));
    if from < to {
        let source = &piece[to_usize(from - start)..to_usize(to - start)];
        buffer[to_usize(from - offset)..to_usize(to - offset)].copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECTOR: u64 = 4;
    const FILE_SECTORS: u64 = 40;

    fn check(ranges: &DirtyRanges, model: &[Option<u8>]) {
        let mut end = 0;
        for (start, piece) in &ranges.pieces {
            assert!(*start >= end && !piece.is_empty() && piece.len() <= PIECE_MAX_BYTES);
            end = start + to_u64(piece.len());
        }
        let mut buffer = vec![0xee; model.len()];
        ranges.copy_to(0, &mut buffer);
        for (at, byte) in model.iter().enumerate() {
            assert_eq!(buffer[at], byte.unwrap_or(0xee), "byte {at}");
        }
        assert_eq!(ranges.bytes(), to_u64(model.iter().flatten().count()));
    }

    fn sectors() -> impl Strategy<Value = Range<u64>> {
        (0..FILE_SECTORS, 1..12u64)
            .prop_map(|(start, length)| start * SECTOR..(start + length).min(FILE_SECTORS) * SECTOR)
    }

    fn as_indices(range: &Range<u64>) -> Range<usize> {
        to_usize(range.start)..to_usize(range.end)
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_a_plain_array(
            operations in prop::collection::vec((0..5u8, sectors(), 1..=200u8), 1..60),
        ) {
            let mut ranges = DirtyRanges::default();
            let mut model = vec![None; to_usize(FILE_SECTORS * SECTOR)];
            for (kind, range, byte) in operations {
                let part = as_indices(&range);
                match kind {
                    0 | 1 => {
                        ranges.write(range.start, &vec![byte; part.len()]);
                        model[part].fill(Some(byte));
                    }
                    2 => {
                        let gone = ranges.remove(&range);
                        prop_assert_eq!(gone, to_u64(model[part.clone()].iter().flatten().count()));
                        model[part].fill(None);
                    }
                    3 => {
                        ranges.zero(&(range.start + 1..range.end));
                        model[part].iter_mut().skip(1).flatten().for_each(|byte| *byte = 0);
                    }
                    _ => {
                        let covered = model[part.clone()].iter().flatten().count();
                        prop_assert_eq!(ranges.bytes_in(&range), to_u64(covered));
                        prop_assert_eq!(ranges.covers(&range), covered == part.len());
                    }
                }
                check(&ranges, &model);
            }
            let taken = ranges.take(50, 3);
            for (start, piece) in &taken {
                let part = as_indices(&(*start..*start + to_u64(piece.len())));
                model[part].fill(None);
            }
            check(&ranges, &model);
        }
    }

    #[test]
    fn a_file_written_in_order_has_long_pieces() {
        let mut ranges = DirtyRanges::default();
        for number in 0..1024u64 {
            ranges.write(number * 4096, &[7; 4096]);
        }
        assert_eq!(ranges.pieces.len(), 4);
        assert_eq!(ranges.run_from(0), Some(0..4 << 20));
        ranges.write(100 << 20, &vec![1; 5 << 20]);
        assert_eq!(ranges.pieces.len(), 9);
        assert_eq!(ranges.run_from(5 << 20), Some(100 << 20..105 << 20));
        assert_eq!(ranges.run_from(102 << 20).map(|run| run.end), Some(105 << 20));
    }

    #[test]
    fn taking_keeps_to_its_limits() {
        let mut ranges = DirtyRanges::default();
        for number in 0..10u64 {
            ranges.write(number * 8192, &[7; 4096]);
        }
        assert_eq!(ranges.take(u64::MAX, 4).len(), 4);
        assert_eq!(ranges.take(8192, 100).len(), 2);
        assert_eq!(ranges.take(u64::MAX, 100).len(), 4);
        assert!(ranges.is_empty() && ranges.bytes() == 0);
    }
}
