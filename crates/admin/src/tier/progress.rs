//! Progress within a chunk that the kernel relocates. Its own counters count chunks. But while it copies what the chunk holds, the bytes that
//! are used of all chunks of this content grow by as much, and fall again by as much when it has switched over, and releases the old
//! places (seen on 6.18, of data and of metadata). What programs write and delete meanwhile counts as well: an estimate.

/// Progress within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkProgress {
    /// Used bytes of the chunk.
    used_bytes: u64,
    /// Used bytes of all chunks of its content before it was moved.
    begin: u64,
    /// The most of that since.
    peak: u64,
    /// Bytes of the chunk that count as moved.
    moved: u64,
}

impl ChunkProgress {
    /// Of a chunk that is about to be moved; `begin` is used of all chunks of its content.
    pub(super) fn new(used_bytes: u64, begin: u64) -> Self {
        Self { used_bytes, begin, peak: begin, moved: 0 }
    }

    /// Bytes of the chunk that count as moved, `now` that this is used of all: three quarters of each that is copied, the rest when its old place
    /// is released. Never less than before.
    pub(super) fn advance(&mut self, now: u64) -> u64 {
        self.peak = self.peak.max(now);
        let copied = (self.peak - self.begin).min(self.used_bytes);
        let released = (self.peak - now).min(copied);
        self.moved = self.moved.max(copied - copied / 4 + released / 4);
        self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_when_they_are_copied_and_when_their_old_places_are_released() {
        let mut progress = ChunkProgress::new(100, 1000);
        let told = [1000, 1040, 1100, 1060, 1000].map(|now| progress.advance(now));
        assert_eq!(told, [0, 30, 75, 85, 100]);
    }

    #[test]
    fn writes_and_deletions_of_programs_neither_set_it_back_nor_move_it_beyond_the_chunk() {
        let mut progress = ChunkProgress::new(100, 1000);
        let told = [900, 1080, 1070, 1500, 1200, 400].map(|now| progress.advance(now));
        assert_eq!(told, [0, 60, 62, 75, 100, 100]);
    }
}
