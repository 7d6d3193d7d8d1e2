//! What will be read next of a file, by what was read of it.

use std::ops::Range;

/// How far ahead of a sequential reader the devices are asked for, at first, and at the most where one device after the
/// other does all the work, in bytes.
const AHEAD_MIN_BYTES: u64 = 512 << 10;
const AHEAD_MAX_BYTES: u64 = 8 << 20;
/// How much more is asked for at once, so that a long way ahead is not asked for in one go.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Parallel readers of one stream come a little out of order; so far behind is still sequential.
const BEHIND_BYTES_MAX: u64 = 8 << 20;
/// How many readers of one file are followed.
const STREAMS: usize = 8;

/// The sequential readers of a file; those that read last stand at the end.
#[derive(Clone, Debug, Default)]
pub struct Readahead {
    streams: Vec<Stream>,
    /// How far ahead it is worth to ask.
    worth_bytes: u64,
}

/// What a sequential reader has asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the next read begins if it is sequential.
    next: u64,
    /// The devices have been asked up to here.
    asked: u64,
    /// How far ahead to ask next; doubles with each success.
    ahead: u64,
}

impl Readahead {
    /// So far ahead all the devices of the file have something to do.
    pub fn set_worth(&mut self, bytes: u64) {
        self.worth_bytes = bytes;
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
        // Who begins at the start of a file will go on.
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
