//! Order-independent fingerprints: sums, modulo 2^128, of hashes of facts.
//!
//! Two multisets of facts are equal exactly when what one side adds and the other takes away comes to zero,
//! but for a chance of 2^-128 or so. Sums are linear, so a fact that is known to hold `n` times is added
//! `n`-fold, and a part of a fact that is known only later can be a factor. Ranges go in as
//! `hash(end) - hash(start)`: ranges that follow each other telescope, so what tiles a larger range without
//! gap or overlap comes to that of the larger range, and nothing else does.

/// Kind of a hashed fact, so that facts of different kinds never cancel.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Domain {
    /// An extent's length or level.
    Shape = 1,
    /// An extent's number of references.
    Count,
    /// A reference to an extent.
    Reference,
    /// The edge of a range.
    Edge,
    /// A name of an inode in a directory.
    Name,
    /// Sum that the type of the inode multiplies.
    NameType,
    /// An entry of a directory.
    Entry,
}

/// The sum of hashes.
pub(crate) type Sum = u128;

const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The hash of some words.
pub(crate) fn hash(domain: Domain, words: &[u64]) -> Sum {
    let mut lanes = start(domain);
    for word in words {
        absorb(&mut lanes, *word);
    }
    finish(lanes)
}

/// The hash of some words and a name.
pub(crate) fn hash_name(domain: Domain, words: &[u64], name: &[u8]) -> Sum {
    let mut lanes = start(domain);
    for word in words {
        absorb(&mut lanes, *word);
    }
    let mut chunks = name.chunks_exact(8);
    for chunk in &mut chunks {
        absorb(&mut lanes, u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    }
    let mut rest = [0; 8];
    for (target, source) in rest.iter_mut().zip(chunks.remainder()) {
        *target = *source;
    }
    absorb(&mut lanes, u64::from_le_bytes(rest));
    absorb(&mut lanes, brindle_ondisk::to_u64(name.len()));
    finish(lanes)
}

/// A range, so that ranges that follow each other telescope.
pub(crate) fn range(start: u64, end: u64) -> Sum {
    hash(Domain::Edge, &[end]).wrapping_sub(hash(Domain::Edge, &[start]))
}

/// A number of `buckets` for an address, such that neighbours spread.
pub(crate) fn bucket(value: u64, buckets: usize) -> usize {
    brindle_ondisk::to_usize(fold(value ^ MULTIPLIERS[1], MULTIPLIERS[0])) % buckets
}

/// Adds something `times` over.
pub(crate) fn add(sum: &mut Sum, hash: Sum, times: u64) {
    *sum = sum.wrapping_add(hash.wrapping_mul(times.into()));
}

/// Takes something away `times` over.
pub(crate) fn take(sum: &mut Sum, hash: Sum, times: u64) {
    *sum = sum.wrapping_sub(hash.wrapping_mul(times.into()));
}

fn start(domain: Domain) -> [u64; 2] {
    let domain = domain as u64;
    [domain.wrapping_mul(0xa076_1d64_78bd_642f), !domain.wrapping_mul(0xe703_7ed1_a0b4_28db)]
}

fn absorb(lanes: &mut [u64; 2], word: u64) {
    lanes[0] = fold(lanes[0] ^ word, MULTIPLIERS[0]).wrapping_add(word);
    lanes[1] = fold(lanes[1].wrapping_add(word.rotate_left(29)), MULTIPLIERS[1]).wrapping_add(!word);
}

fn finish(lanes: [u64; 2]) -> Sum {
    let low = fold(lanes[0] ^ 0x8ebc_6af0_9c88_c6e3, lanes[1] | 1);
    let high = fold(lanes[1] ^ 0x5899_65cc_7537_4cc3, lanes[0] | 1);
    Sum::from(high) << 64 | Sum::from(low)
}

/// The two halves of a product, one over the other.
#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_a_range_sum_up_to_the_range() {
        let whole = range(0, 100);
        assert_eq!(range(40, 100).wrapping_add(range(0, 40)), whole);
        assert_ne!(range(40, 100).wrapping_add(range(0, 41)), whole);
        assert_ne!(range(41, 100).wrapping_add(range(0, 40)), whole);
    }

    #[test]
    fn hashes_of_neighbours_differ_in_both_halves() {
        let mut seen = std::collections::HashSet::new();
        for word in 0..10_000 {
            let sum = hash(Domain::Edge, &[word]).to_le_bytes();
            assert!(seen.insert(sum[..8].to_vec()) && seen.insert(sum[8..].to_vec()), "{word}");
        }
        assert_ne!(hash_name(Domain::Name, &[1], b"a"), hash_name(Domain::Name, &[1], b"a\0"));
        assert_ne!(hash(Domain::Name, &[1, 2]), hash(Domain::Name, &[2, 1]));
    }
}
