//! Streams: a hard disk serves a long run as fast as flash does, so a cache is of use for the rest alone.

/// Streams that are told apart at once, as flashcache has it.
const FLOWS: usize = 32;
/// Requests by which one may come too early: those that are under way at once are taken up in any order.
const WINDOW: u64 = 64;

/// Detector of streams. A request that begins at the end of an earlier one continues its stream; a stream is skipped
/// from the request on that makes it longer than the threshold. A request that is longer by itself is skipped whole: the
/// blocks of a stream's begin would cost the disk a seek when they are cleaned. A request that repeats the last one of a
/// stream begins it anew.
///
/// A request that comes before those in front of it begins a stream of its own, which the one in front of it takes in when it gets
/// there. A little ahead of a stream that is skipped, it goes on with that one, whatever comes of the gap.
#[derive(Clone, Debug, Default)]
pub struct StreamDetector {
    /// The latest one last.
    flows: Vec<Flow>,
    /// Number of requests.
    requests: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Start of its first request.
    start: u64,
    /// Number of its first request.
    begun: u64,
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
        self.requests += 1;
        let threshold = threshold_kb.saturating_mul(1024);
        let end = offset.saturating_add(length);
        let begun = Flow { start: offset, begun: self.requests, last: offset, end, length: 0 };
        let continued = self.flows.iter().rposition(|flow| flow.end == offset);
        let repeated = || self.flows.iter().rposition(|flow| flow.last == offset);
        let mut flow = match continued.or_else(repeated).map(|found| self.flows.remove(found)) {
            None => Flow { length: self.length_before(offset, length, threshold), ..begun },
            Some(flow) if flow.end == offset => flow,
            // A log that is appended to: its last block is written again and again before the next one.
            Some(_) => begun,
        };
        flow = Flow { last: offset, end, length: flow.length.saturating_add(length), ..flow };
        let is_skipped = flow.length > threshold;
        while let Some(early) = self.early(flow.end) {
            let Flow { last, end, length, .. } = self.flows.remove(early);
            flow = Flow { last, end, length: flow.length.saturating_add(length), ..flow };
        }
        if self.flows.len() == FLOWS {
            self.flows.remove(0);
        }
        self.flows.push(flow);
        is_skipped
    }

    /// Length of the stream that is skipped and that a request is a little ahead of; 0 if there is none.
    fn length_before(&self, offset: u64, length: u64, threshold: u64) -> u64 {
        let reach = length.saturating_mul(WINDOW);
        let is_near = |flow: &&Flow| flow.end < offset && offset - flow.end <= reach;
        let near = self.flows.iter().rev().filter(is_near);
        near.map(|flow| flow.length).find(|length| *length > threshold).unwrap_or(0)
    }

    /// A stream that begins at a place, and began a short time ago.
    fn early(&self, start: u64) -> Option<usize> {
        let is_early = |flow: &Flow| flow.start == start && flow.begun + WINDOW > self.requests;
        self.flows.iter().rposition(is_early)
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

    /// The detector of requests that come in order, as flashcache has it.
    #[derive(Default)]
    struct InOrder(Vec<(u64, u64, u64)>);

    impl InOrder {
        fn is_skipped(&mut self, offset: u64, length: u64, threshold_kb: u64) -> bool {
            let continued = self.0.iter().rposition(|(_, end, _)| *end == offset);
            let repeated = || self.0.iter().rposition(|(last, ..)| *last == offset);
            let before = match continued.or_else(repeated).map(|found| self.0.remove(found)) {
                Some((_, end, before)) if end == offset => before,
                _ => 0,
            };
            if self.0.len() == FLOWS {
                self.0.remove(0);
            }
            self.0.push((offset, offset + length, before + length));
            before + length > threshold_kb * 1024
        }
    }

    fn random(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn requests_in_order_are_judged_as_before() {
        for seed in 0..20 {
            let (mut state, mut detector, mut plain) = (seed, StreamDetector::default(), InOrder::default());
            let mut ends: Vec<u64> = (0..40).map(|stream| stream << 40).collect();
            for _ in 0..5000 {
                let stream = usize::try_from(random(&mut state, 40)).expect("small");
                let length = 4096 * (1 + random(&mut state, 32));
                // A few go on elsewhere, far from all others; some repeat the last request.
                let far = if random(&mut state, 20) == 0 { 1 << 30 } else { 0 };
                let offset = ends[stream] + far;
                for _ in 0..1 + random(&mut state, 5) / 4 {
                    let expected = plain.is_skipped(offset, length, 256);
                    assert_eq!(detector.is_skipped(offset, length, 256), expected, "seed {seed}: {offset}");
                }
                ends[stream] = offset + length;
            }
        }
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        for (seed, depth) in [(1, 2), (2, 8), (3, 32), (4, 32)] {
            let (mut state, mut detector) = (seed, StreamDetector::default());
            let (mut next, mut under_way, mut skipped) = (0, Vec::new(), 0);
            let length = 64 << 10;
            for _ in 0..8192 {
                while under_way.len() < depth {
                    under_way.push(next * length);
                    next += 1;
                }
                let taken = usize::try_from(random(&mut state, under_way.len() as u64)).expect("small");
                // None waits for ever: the oldest one is taken at last.
                let oldest = next * length - under_way[0] > 2 * depth as u64 * length;
                let offset = under_way.remove(if oldest { 0 } else { taken });
                skipped += u64::from(detector.is_skipped(offset, length, 1024));
            }
            assert!(skipped > 8192 - 128, "depth {depth}: {skipped} of 8192");
        }
    }

    #[test]
    fn a_stream_goes_on_beyond_a_request_that_comes_very_late() {
        let mut detector = StreamDetector::default();
        let mut is_skipped = |at: u64| detector.is_skipped((1 << 30) + at * 65536, 65536, 1024);
        assert!((0..16).all(|at| !is_skipped(at)));
        assert!((16..20).all(&mut is_skipped) && (21..500).all(&mut is_skipped));
        assert!(is_skipped(20), "it is a part of it");
        assert!((500..600).all(&mut is_skipped));
    }

    #[test]
    fn a_run_backwards_is_no_stream() {
        let mut detector = StreamDetector::default();
        assert!((0..1000).rev().all(|at| !detector.is_skipped((1 << 30) + at * 65536, 65536, 1024)));
    }
}
