//! Histograms by powers of two, counted by any number of threads without a lock.

use std::array;
// Not those of `brindle_sync`: nothing is decided by a count, so that their order is not worth exploring.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of buckets of a histogram.
pub const BUCKETS: usize = 32;

/// A histogram that is being counted.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

/// Counts of a histogram. Bucket 0 counts zeros, bucket N values from 2^(N-1) to 2^N - 1, the last one all beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramCounts {
    /// Number of values in each bucket.
    pub buckets: [u64; BUCKETS],
    /// Sum of all values.
    pub sum: u64,
}

impl HistogramCounts {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Histogram {
    pub(crate) fn add(&self, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts the time until the guard is dropped, in microseconds.
    pub(crate) fn time(&self) -> Timing<'_> {
        Timing { histogram: self, since: Instant::now() }
    }

    pub(crate) fn counts(&self) -> HistogramCounts {
        HistogramCounts {
            buckets: array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// A time that is being taken for a histogram; it is counted when this is dropped.
#[derive(Debug)]
#[must_use = "the time ends when it is dropped"]
pub struct Timing<'h> {
    histogram: &'h Histogram,
    since: Instant,
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.histogram.add(microseconds(self.since.elapsed()));
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_by_their_power_of_two() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 7, 8, 1 << 30, 1 << 40] {
            histogram.add(value);
        }
        let counts = histogram.counts();
        assert_eq!(counts.buckets[..6], [1, 1, 2, 2, 1, 0]);
        assert_eq!(counts.buckets[BUCKETS - 1], 2, "the last one takes all beyond");
        assert_eq!((counts.count(), counts.sum), (9, 25 + (1 << 30) + (1 << 40)));
    }

    #[test]
    fn a_time_is_counted_once_it_has_ended() {
        let histogram = Histogram::default();
        let timing = histogram.time();
        assert_eq!(histogram.counts().count(), 0);
        drop(timing);
        assert_eq!(histogram.counts().count(), 1);
    }
}
