//! Readahead of a file: prediction of the next reads from the past ones.

use std::ops::Range;

/// Readahead of a sequential reader, in bytes: at first, and at most where one device after the other does all the
/// work.
const AHEAD_MIN_BYTES: u64 = 512 << 10;
const AHEAD_MAX_BYTES: u64 = 8 << 20;
/// Bytes that one prefetch adds at most, so that a long readahead is not asked for in one go.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Distance by which parallel readers of one stream may come late, in bytes, and still be sequential.
const BEHIND_BYTES_MAX: u64 = 8 << 20;
/// Number of readers of one file that are followed.
const STREAMS: usize = 8;

/// The sequential readers of a file; those that read last stand at the end.
#[derive(Clone, Debug, Default)]
pub struct Readahead {
    streams: Vec<Stream>,
    /// Useful readahead, in bytes.
    worth_bytes: u64,
}

/// Prefetched part of a sequential reader.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Offset of the next read if it is sequential.
    next: u64,
    /// Offset up to which data is prefetched.
    asked: u64,
    /// Length of the next prefetch in bytes; doubles with each success.
    ahead: u64,
}

impl Readahead {
    /// Sets the readahead, in bytes, with which all devices of the file are busy.
    pub fn set_worth(&mut self, bytes: u64) {
        self.worth_bytes = bytes;
    }

    /// Notes that a range which [`advance`](Self::advance) has returned was asked for up to `reached` only: the rest is
    /// returned again by a later read.
    pub fn fell_short(&mut self, range: &Range<u64>, reached: u64) {
        let asked = self.streams.iter_mut().rev().find(|stream| stream.asked == range.end);
        if let Some(stream) = asked {
            stream.asked = reached.clamp(range.start, range.end);
        }
    }

    /// Notes a read of a file of this size; returns the range to ask for, if any.
    pub fn advance(&mut self, offset: u64, end: u64, size: u64) -> Option<Range<u64>> {
        let most = self.worth_bytes.max(AHEAD_MAX_BYTES);
        let goes_on = |s: &Stream| offset <= s.next && offset.saturating_add(BEHIND_BYTES_MAX) >= s.next;
        if let Some(index) = self.streams.iter().rposition(goes_on) {
            self.streams[index..].rotate_left(1);
            return self.streams.last_mut()?.advance(offset, end, size, most);
        }
        if self.streams.len() == STREAMS {
            self.streams.remove(0);
        }
        // A reader that begins at the start of a file will go on.
        if offset == 0 {
            self.streams.push(Stream::default());
            return self.streams.last_mut()?.advance(offset, end, size, most);
        }
        self.streams.push(Stream { next: end, asked: end, ahead: 0 });
        None
    }
}

impl Stream {
    fn advance(&mut self, offset: u64, end: u64, size: u64, most: u64) -> Option<Range<u64>> {
        self.next = self.next.max(end);
        let step = (self.ahead / 2).min(STEP_BYTES_MAX);
        if self.next + (self.ahead - step) < self.asked || self.asked >= size {
            return None;
        }
        self.ahead = (self.ahead * 2).clamp(AHEAD_MIN_BYTES, most);
        let start = self.asked.max(offset);
        self.asked = self.next.saturating_add(self.ahead).min(size);
        (start < self.asked).then_some(start..self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_range_that_fell_short_is_returned_again() {
        let mut readahead = Readahead::default();
        let mut asked = 0;
        for read in 0..64 {
            if let Some(range) = readahead.advance(read * MIB, (read + 1) * MIB, 64 * MIB) {
                assert_eq!(range.start, asked.max(read * MIB), "read {read}");
                // Every other time there is room for half of it.
                let length = range.end - range.start;
                asked = if read % 2 == 0 { range.end } else { range.start + length / 2 };
                readahead.fell_short(&range, asked);
            }
        }
        assert_eq!(asked, 64 * MIB);
        readahead.fell_short(&(7..9), 8);
    }

    /// Reads a file in order; how far ahead the devices were asked at the most.
    fn read_through(readahead: &mut Readahead, size: u64) -> u64 {
        let (mut asked, mut furthest) = (0, 0);
        for read in 0..size / MIB {
            let (offset, end) = (read * MIB, (read + 1) * MIB);
            if let Some(range) = readahead.advance(offset, end, size) {
                assert!(range.start >= asked && range.end <= size, "nothing is asked for twice");
                asked = range.end;
            }
            assert!(asked >= end, "what is read now has been asked for");
            furthest = furthest.max(asked - end);
        }
        assert_eq!(asked, size);
        furthest
    }

    #[test]
    fn a_sequential_reader_is_kept_ahead_of() {
        assert_eq!(read_through(&mut Readahead::default(), 100 * MIB), 8 * MIB);
    }

    #[test]
    fn as_far_as_it_is_worth() {
        let mut readahead = Readahead::default();
        readahead.set_worth(64 * MIB);
        assert_eq!(read_through(&mut readahead, 500 * MIB), 64 * MIB);
    }

    #[test]
    fn a_random_reader_asks_for_nothing() {
        let mut readahead = Readahead::default();
        let offsets = [50u64, 10, 90, 30, 71, 12, 55, 33, 99, 42].map(|at| at * 10 * MIB);
        assert!(offsets.iter().all(|at| readahead.advance(*at, *at + 4096, 1000 * MIB).is_none()));
    }

    #[test]
    fn readers_of_one_file_do_not_disturb_each_other() {
        let (mut readahead, size) = (Readahead::default(), 1000 * MIB);
        let mut asked = [0u64; 4];
        for read in 0..100 {
            for (reader, asked) in asked.iter_mut().enumerate() {
                let offset = reader as u64 * 200 * MIB + read * MIB;
                if let Some(range) = readahead.advance(offset, offset + MIB, size) {
                    *asked = range.end;
                }
                assert!(read < 2 || *asked >= offset + MIB, "reader {reader} at {read}");
            }
            let elsewhere = 900 * MIB + read * 9 * MIB % (90 * MIB);
            readahead.advance(elsewhere, elsewhere + 4096, size);
        }
    }
}
