//! Requests of a disk by their time and their place: what a picture of a phase is drawn from.
//!
//! A grid whose columns are slices of time and whose rows are parts of the disk. A [`Recorder`] has fine rows over the whole disk, and slices
//! that are joined in pairs when the time has gone beyond the last one; an [`Activity`] has a few rows, from the first place that was
//! touched to the last.

use brindle_sim::DriveRequestKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Columns at the most.
const COLUMNS: u64 = 60;
/// Rows of an activity at the most.
const ROWS: u64 = 40;
/// Rows of a recorder at the most.
const FINE_ROWS: u64 = 4096;
/// Slice of time with which a recorder begins.
const SLICE: Duration = Duration::from_millis(1);

/// A cell that was touched: column, row, KiB that were read, and KiB that were written.
pub type Touched = (u64, u64, u64, u64);

/// Work of a disk by its time and its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Time of a column.
    pub column_ns: u64,
    /// Offset of the first row in bytes.
    pub first_byte: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Number of rows.
    pub rows: u64,
    /// Seeks in each column, up to the last one with a request.
    pub seeks: Vec<u64>,
    /// Cells that were touched, in ascending order of column and row.
    pub cells: Vec<Touched>,
}

/// A recorder of requests.
#[derive(Debug)]
pub(crate) struct Recorder {
    begin: Instant,
    column_ns: u64,
    row_bytes: u64,
    /// Bytes that were read and written, by column and row.
    cells: BTreeMap<(u64, u64), (u64, u64)>,
    seeks: Vec<u64>,
    /// Seeks of the drive that `seeks` has, and those before the begin.
    counted: u64,
}

impl Recorder {
    /// A recorder of a disk, with the seeks that its drive has made until now.
    pub(crate) fn new(size_bytes: u64, seeks: u64) -> Self {
        Self {
            begin: Instant::now(),
            column_ns: nanoseconds(SLICE),
            row_bytes: size_bytes.div_ceil(FINE_ROWS).max(1),
            cells: BTreeMap::new(),
            seeks: Vec::new(),
            counted: seeks,
        }
    }

    /// Notes a request that comes now, and the seeks of the drive up to now, which is asked for them once a column.
    pub(crate) fn note(&mut self, kind: DriveRequestKind, seeks: impl FnOnce() -> u64) {
        self.note_at(self.begin.elapsed(), kind, seeks);
    }

    fn note_at(&mut self, time: Duration, kind: DriveRequestKind, seeks: impl FnOnce() -> u64) {
        let (offset, length, is_read) = match kind {
            DriveRequestKind::Read(offset, length) => (offset, length, true),
            DriveRequestKind::Write(offset, length) => (offset, length, false),
            DriveRequestKind::Flush | DriveRequestKind::Discard(..) => return,
        };
        while nanoseconds(time) / self.column_ns >= COLUMNS {
            self.join_columns();
        }
        let column = nanoseconds(time) / self.column_ns;
        if self.seeks.len() as u64 <= column {
            self.count(seeks());
            self.seeks.resize(usize::try_from(column).unwrap_or(0) + 1, 0);
        }
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let row = at / self.row_bytes;
            let next = end.min((row + 1) * self.row_bytes);
            let (read, written) = self.cells.entry((column, row)).or_default();
            *(if is_read { read } else { written }) += next - at;
            at = next;
        }
    }

    /// Gives the seeks since the last count to the last column.
    fn count(&mut self, seeks: u64) {
        if let Some(last) = self.seeks.last_mut() {
            *last += seeks.saturating_sub(self.counted);
            self.counted = seeks;
        }
    }

    fn join_columns(&mut self) {
        self.column_ns *= 2;
        let mut joined = BTreeMap::<_, (u64, u64)>::new();
        for ((column, row), (read, written)) in std::mem::take(&mut self.cells) {
            let cell = joined.entry((column / 2, row)).or_default();
            *cell = (cell.0 + read, cell.1 + written);
        }
        self.cells = joined;
        self.seeks = self.seeks.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Activity that it has noted, with the seeks that the drive has made until now.
    pub(crate) fn activity(&mut self, seeks: u64) -> Activity {
        self.count(seeks);
        let rows = || self.cells.keys().map(|(_, row)| *row);
        let (first, last) = (rows().min().unwrap_or(0), rows().max().unwrap_or(0));
        let joined = (last + 1 - first).div_ceil(ROWS);
        let mut cells = BTreeMap::<_, (u64, u64)>::new();
        for ((column, row), (read, written)) in &self.cells {
            let cell = cells.entry((*column, (row - first) / joined)).or_default();
            *cell = (cell.0 + read, cell.1 + written);
        }
        let kibibytes = |bytes: u64| bytes.div_ceil(1024);
        Activity {
            column_ns: self.column_ns,
            first_byte: first * self.row_bytes,
            row_bytes: joined * self.row_bytes,
            rows: (last + 1 - first).div_ceil(joined),
            seeks: self.seeks.clone(),
            cells: cells
                .into_iter()
                .map(|((column, row), (read, written))| (column, row, kibibytes(read), kibibytes(written)))
                .collect(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn read(recorder: &mut Recorder, milliseconds: u64, offset: u64, length: u64, seeks: u64) {
        let kind = DriveRequestKind::Read(offset, length);
        recorder.note_at(Duration::from_millis(milliseconds), kind, || seeks);
    }

    #[test]
    fn requests_are_noted_by_time_and_place() {
        let mut recorder = Recorder::new(4 * GIB, 100);
        assert_eq!(recorder.row_bytes, 1 << 20);
        read(&mut recorder, 0, GIB, 4096, 100);
        recorder.note_at(
            Duration::from_millis(2),
            DriveRequestKind::Write(GIB + (1 << 20) - 512, 1024),
            || 103,
        );
        recorder
            .note_at(Duration::from_millis(3), DriveRequestKind::Flush, || unreachable!("it has no place"));
        let expected = Activity {
            column_ns: 1_000_000,
            first_byte: GIB,
            row_bytes: 1 << 20,
            rows: 2,
            seeks: vec![3, 0, 4],
            cells: vec![(0, 0, 4, 0), (2, 0, 0, 1), (2, 1, 0, 1)],
        };
        assert_eq!(recorder.activity(107), expected);
        let text = serde_json::to_string(&expected).expect("JSON");
        assert_eq!(serde_json::from_str::<Activity>(&text).expect("ours"), expected);
    }

    #[test]
    fn columns_and_rows_are_joined_and_nothing_is_lost() {
        let mut recorder = Recorder::new(4 * GIB, 0);
        for time in 0..1000 {
            read(&mut recorder, time, (time * 7919 % 4000) << 20, 8192, time);
        }
        let activity = recorder.activity(1000);
        assert!(activity.seeks.len() as u64 <= COLUMNS && activity.rows <= ROWS, "{activity:?}");
        assert_eq!(activity.cells.iter().map(|(_, _, read, _)| read).sum::<u64>(), 8000);
        assert_eq!(activity.seeks.iter().sum::<u64>(), 1000);
        assert!(activity.cells.iter().all(|(column, row, ..)| *column < COLUMNS && *row < activity.rows));
        assert_eq!(activity.column_ns, 32_000_000);
    }

    #[test]
    fn a_disk_without_requests_has_an_empty_grid() {
        let activity = Recorder::new(1 << 20, 5).activity(5);
        assert_eq!((activity.cells.len(), activity.seeks.len(), activity.rows), (0, 0, 1));
    }
}
