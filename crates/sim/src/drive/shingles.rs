//! A shingled hard disk: the bookkeeping of its persistent cache, and the decisions about its bands.
//!
//! Tracks overlap in bands, so that a band can only be written on from somewhere to its end. Writes that do not do that are
//! appended to a log, the persistent cache, which lies on ordinary tracks at the outer edge. They are moved to their bands
//! later, oldest first: a band is read, with its ranges of the log, written beside the log, so that no power cut can lose it, then
//! written in its place. Addresses of the platters begin with the log; a spare band and the bands follow.

use super::hard_disk_parameters::ShingleParameters;
use brindle_interval::Interval;
use std::collections::BTreeMap;

/// Bytes of an append, at most.
pub(super) const APPEND_BYTES_MAX: u64 = 2 << 20;
/// Ranges of an append, at most.
pub(super) const APPEND_RANGES_MAX: usize = 16;
/// Bytes of the map that an append begins with.
const MAP_BYTES: u64 = 4 << 10;

/// Persistent cache and bands of a disk.
#[derive(Clone, Debug)]
pub(super) struct Shingles {
    parameters: ShingleParameters,
    size_bytes: u64,
    /// Ranges of the disk that lie in the log, by their start; none reaches into a second band.
    ranges: BTreeMap<u64, Logged>,
    /// Their starts, by their places in the log.
    by_age: BTreeMap<u64, u64>,
    /// End of the log: bytes that it has ever taken.
    log_end: u64,
    cleaning: Option<Cleaning>,
    /// End of the last write that went to its band.
    stream_end: Option<u64>,
}

/// A range in the log.
#[derive(Clone, Copy, Debug)]
struct Logged {
    end: u64,
    log: u64,
}

/// The band that is being rewritten.
#[derive(Clone, Copy, Debug)]
struct Cleaning {
    band: Interval,
    step: Step,
    /// End of the log when it began: ranges after it stay in the log.
    log_end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    ReadBand,
    ReadLog,
    WriteSpare,
    WriteBand,
}

/// Work of the head at places of the platters, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) places: Vec<Interval>,
    pub(super) is_write: bool,
    /// True if it goes on where the last write ended, so that the track need not be found again.
    pub(super) is_stream: bool,
}

impl Shingles {
    pub(super) fn new(parameters: ShingleParameters, size_bytes: u64) -> Self {
        Self {
            parameters,
            size_bytes,
            ranges: BTreeMap::new(),
            by_age: BTreeMap::new(),
            log_end: 0,
            cleaning: None,
            stream_end: None,
        }
    }

    /// Address of the disk's first byte on the platters.
    pub(super) fn base(&self) -> u64 {
        self.parameters.base()
    }

    /// Time without a write before the volatile cache is drained.
    pub(super) fn hold_ns(&self) -> u64 {
        self.parameters.hold_ns
    }

    /// Time without a request before bands are rewritten.
    pub(super) fn clean_idle_ns(&self) -> u64 {
        self.parameters.clean_idle_ns
    }

    /// Returns true if nothing lies in the log.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns true if the log or its map has no room for an append.
    pub(super) fn is_full(&self) -> bool {
        let Some((oldest, _)) = self.by_age.first_key_value() else { return false };
        let end = self.next_append(MAP_BYTES + APPEND_BYTES_MAX) + MAP_BYTES + APPEND_BYTES_MAX;
        self.ranges.len() >= self.parameters.map_entries || end - oldest > self.parameters.cache_bytes
    }

    /// Start of an append: it does not wrap around the end of the log's tracks.
    fn next_append(&self, length: u64) -> u64 {
        let size = self.parameters.cache_bytes;
        if self.log_end % size + length <= size { self.log_end } else { self.log_end.next_multiple_of(size) }
    }

    /// The next write that goes to its band, out of those that wait: one that goes on with the last, or one that is as long
    /// as a band. It has to reach the end of its band.
    pub(super) fn stream(&self, waiting: impl Iterator<Item = Interval>) -> Option<Interval> {
        let reaches_end = |range: &Interval| range.end >= self.band_end(range.start);
        let is_stream = |range: &Interval| {
            self.stream_end == Some(range.start) || range.end - range.start >= self.parameters.band_bytes
        };
        let mut candidates = waiting.filter(|range| reaches_end(range) && is_stream(range));
        let found = candidates.next()?;
        Some(Interval { end: self.band_end(found.start), ..found })
    }

    /// Bytes of a band.
    pub(super) fn band_bytes(&self) -> u64 {
        self.parameters.band_bytes
    }

    /// End of the write that a stream may go on at.
    pub(super) fn stream_end(&self) -> Option<u64> {
        self.stream_end
    }

    /// Takes a write into its band: the log has nothing of it any more.
    pub(super) fn write_in_place(&mut self, range: Interval) {
        self.forget(range);
        self.stream_end = Some(range.end);
    }

    /// Appends ranges to the log; returns the place of the append.
    pub(super) fn append(&mut self, ranges: &[Interval]) -> Interval {
        let bytes = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let start = self.next_append(MAP_BYTES + bytes);
        self.log_end = start + MAP_BYTES;
        for range in ranges {
            self.forget(*range);
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(self.band_end(at));
                self.insert(at, Logged { end, log: self.log_end });
                self.log_end += end - at;
                at = end;
            }
        }
        self.place(start, self.log_end)
    }

    /// Places of a range on the platters, in its order.
    pub(super) fn places(&self, start: u64, end: u64) -> Vec<Interval> {
        let mut places: Vec<Interval> = Vec::new();
        let mut add = |place: Interval| match places.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => places.push(place),
        };
        let mut at = start;
        for (from, logged) in self.overlapping(start, end) {
            if at < from {
                add(self.in_place(at, from));
            }
            let (begin, until) = (from.max(at), logged.end.min(end));
            let log = logged.log + (begin - from);
            add(self.place(log, log + (until - begin)));
            at = until;
        }
        if at < end {
            add(self.in_place(at, end));
        }
        places
    }

    /// Returns true if the log has nothing of a range.
    pub(super) fn is_in_place(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).next().is_none()
    }

    /// First byte from an offset on that lies in the log.
    pub(super) fn next_logged(&self, offset: u64) -> Option<u64> {
        self.overlapping(offset, u64::MAX).next().map(|(start, _)| start.max(offset))
    }

    /// The next step of cleaning; `None` if there is nothing to clean.
    pub(super) fn clean(&mut self) -> Option<Visit> {
        if self.cleaning.is_none() {
            let (_, oldest) = self.by_age.first_key_value()?;
            let start = oldest / self.parameters.band_bytes * self.parameters.band_bytes;
            let band = Interval { start, end: self.band_end(start).min(self.size_bytes.max(oldest + 1)) };
            self.cleaning = Some(Cleaning { band, step: Step::ReadBand, log_end: self.log_end });
        }
        let Cleaning { band, step, log_end } = self.cleaning?;
        let places = match step {
            Step::ReadBand | Step::WriteBand => vec![self.in_place(band.start, band.end)],
            Step::WriteSpare => {
                let start = self.parameters.cache_bytes;
                vec![Interval { start, end: start + (band.end - band.start) }]
            }
            Step::ReadLog => {
                let mut places: Vec<_> = self
                    .overlapping(band.start, band.end)
                    .filter(|(_, logged)| logged.log < log_end)
                    .map(|(start, logged)| self.place(logged.log, logged.log + (logged.end - start)))
                    .collect();
                places.sort_by_key(|place| place.start);
                places
            }
        };
        let is_write = matches!(step, Step::WriteSpare | Step::WriteBand);
        Some(Visit { places, is_write, is_stream: false })
    }

    /// The step that `clean` named last is done. Returns true if the band is.
    pub(super) fn finish_clean(&mut self) -> bool {
        let Some(cleaning) = &mut self.cleaning else { return false };
        cleaning.step = match cleaning.step {
            Step::ReadBand => Step::ReadLog,
            Step::ReadLog => Step::WriteSpare,
            Step::WriteSpare => Step::WriteBand,
            Step::WriteBand => {
                let Cleaning { band, log_end, .. } = *cleaning;
                self.cleaning = None;
                let done: Vec<_> = self
                    .overlapping(band.start, band.end)
                    .filter(|(_, logged)| logged.log < log_end)
                    .map(|(start, _)| start)
                    .collect();
                done.into_iter().for_each(|start| self.remove(start));
                return true;
            }
        };
        false
    }

    fn band_end(&self, offset: u64) -> u64 {
        (offset / self.parameters.band_bytes + 1) * self.parameters.band_bytes
    }

    /// Place of a range that lies in its band.
    fn in_place(&self, start: u64, end: u64) -> Interval {
        Interval { start: self.base() + start, end: self.base() + end }
    }

    /// Place of a range of the log.
    fn place(&self, start: u64, end: u64) -> Interval {
        let at = start % self.parameters.cache_bytes;
        Interval { start: at, end: at + (end - start) }
    }

    /// Ranges of the log that overlap with a range.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Logged)> {
        let before = self.ranges.range(..start).next_back().filter(|(_, logged)| logged.end > start);
        let inside = self.ranges.range(start..end.max(start));
        before.into_iter().chain(inside).map(|(start, logged)| (*start, *logged))
    }

    fn insert(&mut self, start: u64, logged: Logged) {
        self.ranges.insert(start, logged);
        self.by_age.insert(logged.log, start);
    }

    fn remove(&mut self, start: u64) {
        if let Some(logged) = self.ranges.remove(&start) {
            self.by_age.remove(&logged.log);
        }
    }

    /// Drops a range from the log; what is left of ranges on either side stays.
    fn forget(&mut self, range: Interval) {
        for (start, logged) in self.overlapping(range.start, range.end).collect::<Vec<_>>() {
            self.remove(start);
            if start < range.start {
                self.insert(start, Logged { end: range.start, ..logged });
            }
            if logged.end > range.end {
                self.insert(range.end, Logged { log: logged.log + (range.end - start), ..logged });
            }
        }
    }
}
