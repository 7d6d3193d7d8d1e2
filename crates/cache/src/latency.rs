//! Times that requests to a cache took, in buckets that double.

use std::time::Duration;

/// The last bucket but one ends here, in units of the first one: 128 ms.
const BUCKETS: usize = 12;
/// End of the first bucket in microseconds.
const FIRST_US: u64 = 125;

/// Times of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

/// Times of all requests since the counters were set to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Times of reads.
    pub reads: Histogram,
    /// Times of writes.
    pub writes: Histogram,
    /// Times of flushes.
    pub flushes: Histogram,
}

impl Histogram {
    /// Counts a request.
    pub(crate) fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let fits = |bucket: &usize| micros <= FIRST_US << *bucket;
        self.0[(0..BUCKETS - 1).find(fits).unwrap_or(BUCKETS - 1)] += 1;
    }

    /// Ends of buckets in microseconds, the last one being `more`, and numbers of requests that took at most that long, and longer than
    /// the end before.
    pub fn buckets(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.0.iter().enumerate().map(|(bucket, count)| match bucket + 1 {
            BUCKETS => ("more".to_owned(), *count),
            _ => ((FIRST_US << bucket).to_string(), *count),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        for micros in [0, 125, 126, 250, 128_000, 128_001, u64::MAX] {
            histogram.add(Duration::from_micros(micros));
        }
        let found: Vec<(String, u64)> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        let expected = [("125", 2), ("250", 2), ("128000", 1), ("more", 2)];
        assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
