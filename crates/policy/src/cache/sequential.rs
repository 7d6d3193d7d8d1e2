//! Streams: a hard disk serves a long run as fast as flash does, so a cache is of use for the rest alone.

/// Streams that are told apart at once, as flashcache has it.
const FLOWS: usize = 32;

/// Detector of streams. A request that begins at the end of an earlier one continues its stream; a stream is skipped
/// from the request on that makes it longer than the threshold. A request that is longer by itself is skipped whole: the
/// blocks of a stream's begin would cost the disk a seek when they are cleaned. A request that repeats the last one of a
/// stream begins it anew.
#[derive(Clone, Debug, Default)]
pub struct StreamDetector {
    /// The latest one last.
    flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Start of its last request.
    last: u64,
    end: u64,
    length: u64,
}

impl StreamDetector {
    /// Takes note of a request in bytes; returns true if it is to be skipped. A threshold of 0 skips none.
    pub fn is_skipped(&mut self, offset: u64, length: u64, threshold_kb: u64) -> bool {
        if threshold_kb == 0 {
            return false;
        }
        let end = offset.saturating_add(length);
        let continued = self.flows.iter().rposition(|flow| flow.end == offset);
        let repeated = || self.flows.iter().rposition(|flow| flow.last == offset);
        let mut flow = match continued.or_else(repeated).map(|found| self.flows.remove(found)) {
            None => Flow { last: offset, end, length: 0 },
            Some(flow) if flow.end == offset => flow,
            // A log that is appended to: its last block is written again and again before the next one.
            Some(repeated) => Flow { length: 0, ..repeated },
        };
        flow = Flow { last: offset, end, length: flow.length.saturating_add(length) };
        if self.flows.len() == FLOWS {
            self.flows.remove(0);
        }
        self.flows.push(flow);
        flow.length > threshold_kb.saturating_mul(1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_skipped_from_the_threshold_on() {
        let mut detector = StreamDetector::default();
        let skipped: Vec<bool> =
            (0..12).map(|at| detector.is_skipped((1 << 30) + at * 4096, 4096, 32)).collect();
        assert_eq!(skipped, [[false; 8].as_slice(), [true; 4].as_slice()].concat());
        assert!(!detector.is_skipped(0, 4096, 32), "another place");
        assert!(detector.is_skipped((1 << 30) + 12 * 4096, 4096, 32), "the stream goes on");
        assert!(detector.is_skipped(1 << 40, 512 << 10, 32), "longer by itself");
        assert!(!detector.is_skipped(1 << 41, 32 << 10, 32), "as long as the threshold");
    }

    #[test]
    fn a_place_that_is_written_again_and_again_is_no_stream() {
        let mut detector = StreamDetector::default();
        assert!((0..100).all(|_| !detector.is_skipped(8192, 4096, 32)));
        assert!((0..100).all(|at| !detector.is_skipped(at * 4096, 4096, 0)), "no threshold");
    }

    #[test]
    fn a_log_whose_last_block_is_written_again_is_no_stream() {
        let mut detector = StreamDetector::default();
        for at in 0..100 {
            assert!((0..3).all(|_| !detector.is_skipped(at * 4096, 4096, 32)), "block {at}");
        }
    }

    #[test]
    fn interleaved_streams_are_told_apart_up_to_a_number() {
        for (streams, found) in [(FLOWS as u64, true), (FLOWS as u64 + 1, false)] {
            let mut detector = StreamDetector::default();
            let mut last = false;
            for at in 0..20 {
                for stream in 0..streams {
                    last = detector.is_skipped((stream << 30) + at * 4096, 4096, 32);
                }
            }
            assert_eq!(last, found, "{streams} streams");
        }
    }
}
