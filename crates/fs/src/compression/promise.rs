//! Prediction of compressibility, from a small sample.

use brindle_ondisk::to_u64;

/// Length in bytes of one sample.
const SAMPLE_BYTES: usize = 16;
/// Interval in bytes at which samples are taken.
const SAMPLE_EVERY_BYTES: usize = 256;
/// Entropy in 1/256 of a bit a byte above which contents are as good as random.
const BITS_MAX: u64 = 8 * 256 * 93 / 100;

/// Returns true if contents look compressible.
pub(crate) fn is_promising(contents: &[u8]) -> bool {
    let mut counts = [0u32; 256];
    let mut total = 0u64;
    for block in contents.chunks(SAMPLE_EVERY_BYTES) {
        for byte in &block[..block.len().min(SAMPLE_BYTES)] {
            counts[usize::from(*byte)] += 1;
            total += 1;
        }
    }
    // A few bytes say nothing about the rest.
    if total < to_u64(counts.len()) * 4 {
        return true;
    }
    bits_per_byte(&counts, total) <= BITS_MAX || repeats(contents)
}

/// The entropy of bytes with these counts, in 1/256 of a bit a byte.
fn bits_per_byte(counts: &[u32; 256], total: u64) -> u64 {
    let bits = counts.iter().filter(|count| **count > 0).map(|count| {
        let count = u64::from(*count);
        count * log2(total).saturating_sub(log2(count))
    });
    bits.sum::<u64>() / total
}

/// The binary logarithm in 1/256, a straight line between powers of two.
fn log2(value: u64) -> u64 {
    let whole = u64::from(value.ilog2());
    let fraction = (u128::from(value) << 8 >> whole) - 256;
    whole * 256 + u64::try_from(fraction).expect("less than 256")
}

/// Returns true if the second half repeats the first: bytes as varied as random ones, twice.
fn repeats(contents: &[u8]) -> bool {
    let (first, second) = contents.split_at(contents.len() / 2);
    let samples = (0..second.len().saturating_sub(SAMPLE_BYTES)).step_by(SAMPLE_EVERY_BYTES);
    let equal = |at: &usize| first.get(*at..*at + SAMPLE_BYTES) == second.get(*at..*at + SAMPLE_BYTES);
    let all = samples.clone().count();
    all > 0 && samples.filter(equal).count() * 2 > all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as random as a multiplication makes them.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).to_le_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn text_is_promising_and_noise_is_not() {
        let text: Vec<u8> = b"It was the best of times, it was the worst of times. ".repeat(2000);
        assert!(is_promising(&text[..100_000]));
        assert!(is_promising(&vec![0; 128 << 10]));
        assert!(!is_promising(&noise(128 << 10)));
    }

    #[test]
    fn noise_told_twice_is_promising() {
        let mut twice = noise(32 << 10);
        twice.extend_from_within(..);
        assert!(is_promising(&twice));
    }

    #[test]
    fn little_is_always_tried() {
        assert!(is_promising(&noise(4096)) && is_promising(&[]));
    }
}
