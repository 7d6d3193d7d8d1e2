//! Reading ahead over the ends of files. Small files that were written together lie one behind the other, and
//! are mostly read together: by `tar`, `cp -r`, `grep -r`, a build. None of them is long enough to be read ahead
//! in by itself; what tells where the next one lies is where the last ones ended.

use brindle_ondisk::Logical;
use brindle_sync::{Mutex, Rank};

/// Files of more bytes are read ahead in by themselves.
pub(crate) const SMALL_FILE_BYTES: u64 = 128 << 10;

/// Number of readers that are followed at once.
const STREAMS: usize = 8;
/// Distance from the last file up to which the next one is near, in bytes, either way: the order on disk is nearly,
/// not quite, that of the names.
const GAP_BYTES: u64 = 256 << 10;
/// Readahead, at first and at most, in bytes.
const AHEAD_MIN_BYTES: u64 = 128 << 10;
const AHEAD_MAX_BYTES: u64 = 1 << 20;
/// Number of successive near files after which readahead begins.
const PROOF: u32 = 2;

/// Small files that readers have read last; the reader that read last stands at the end.
#[derive(Debug)]
pub(crate) struct Neighbours(Mutex<Vec<Stream>>);

/// One reader, going up in the logical space.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The end of what it has read.
    end: u64,
    /// The devices have been asked up to here.
    asked: u64,
    /// Next readahead, in bytes; doubles with each time.
    ahead: u64,
    /// Number of files that were near the one before.
    hits: u32,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self(Mutex::new(Rank::Neighbours, Vec::new()))
    }
}

impl Neighbours {
    /// Notes that a small file is about to be read at an address; returns where to read ahead and how much, if
    /// anything.
    pub(crate) fn note(&self, start: Logical, length: u64) -> Option<(Logical, u64)> {
        let (start, end) = (start.get(), start.get().saturating_add(length));
        let mut streams = self.0.lock();
        let Some(index) = streams.iter().position(|stream| stream.end.abs_diff(start) <= GAP_BYTES) else {
            if streams.len() == STREAMS {
                streams.remove(0);
            }
            streams.push(Stream { end, asked: end, ahead: 0, hits: 0 });
            return None;
        };
        streams[index..].rotate_left(1);
        streams.last_mut()?.advance(end)
    }
}

impl Stream {
    fn advance(&mut self, end: u64) -> Option<(Logical, u64)> {
        self.end = self.end.max(end);
        self.asked = self.asked.max(self.end);
        self.hits = self.hits.saturating_add(1);
        if self.hits < PROOF || self.asked - self.end > self.ahead / 2 {
            return None;
        }
        self.ahead = (self.ahead * 2).clamp(AHEAD_MIN_BYTES, AHEAD_MAX_BYTES);
        let from = self.asked;
        self.asked = self.asked.max(self.end.saturating_add(self.ahead));
        (from < self.asked).then(|| (Logical::new(from), self.asked - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 12 << 10;

    #[test]
    fn files_in_a_row_are_asked_for_once_and_before_they_are_read() {
        let neighbours = Neighbours::default();
        let mut asked = 0;
        for file in 0..1000 {
            let start = (1 << 30) + file * FILE_BYTES;
            if let Some((from, length)) = neighbours.note(Logical::new(start), FILE_BYTES) {
                assert!(from.get() >= asked, "nothing is asked for twice");
                assert!(length <= AHEAD_MAX_BYTES);
                asked = from.get() + length;
            }
            assert!(file < 3 || asked >= start + FILE_BYTES, "file {file} has been asked for");
        }
        assert!(asked <= (1 << 30) + 1000 * FILE_BYTES + AHEAD_MAX_BYTES);
    }

    #[test]
    fn readers_do_not_disturb_each_other() {
        let neighbours = Neighbours::default();
        let mut asked = [0; 4];
        for file in 0..100 {
            for (reader, asked) in asked.iter_mut().enumerate() {
                let start = ((reader as u64 + 1) << 30) + file * FILE_BYTES;
                if let Some((from, length)) = neighbours.note(Logical::new(start), FILE_BYTES) {
                    assert_eq!(from.get() >> 30, reader as u64 + 1);
                    *asked += length;
                }
            }
        }
        assert!(asked.iter().all(|asked| *asked >= 97 * FILE_BYTES));
    }

    #[test]
    fn files_far_apart_ask_for_nothing() {
        let neighbours = Neighbours::default();
        for file in 0..100u64 {
            let start = file * 37 % 100 * (1 << 30);
            assert_eq!(neighbours.note(Logical::new(start), FILE_BYTES), None);
        }
        assert_eq!(neighbours.note(Logical::new(u64::MAX), u64::MAX), None);
    }
}
