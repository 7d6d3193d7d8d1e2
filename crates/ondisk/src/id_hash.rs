//! Maps of addresses and identifiers. Every step down a tree looks some up, and the hash function of the standard
//! library takes longer than all else that such a step does.
//!
//! Keys may come from hostile images; each map mixes in a number of its own, so that an image cannot be made to have
//! colliding keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map of addresses or identifiers.
pub type IdMap<K, V> = HashMap<K, V, IdHash>;

/// Hasher state of an [`IdMap`]: a seed of its own.
#[derive(Clone, Copy, Debug)]
pub struct IdHash {
    seed: u64,
}

/// A hash that is being made.
#[derive(Clone, Copy, Debug)]
pub struct IdHasher(u64);

impl Default for IdHash {
    fn default() -> Self {
        Self { seed: RandomState::new().hash_one(0u8) }
    }
}

impl BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(self.seed)
    }
}

impl Hasher for IdHasher {
    /// Two products by odd numbers without a pattern. The upper half of the first one, which knows all of the number,
    /// goes to the lower half of what the second one is of.
    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (product ^ (product >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let number = chunk.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            self.write_u64(number);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Logical;
    use std::collections::HashSet;

    #[test]
    fn addresses_of_blocks_are_spread_over_the_buckets() {
        const BUCKETS: u64 = 1024;
        for (spacing, seed) in [1, 4096, 16384, 1 << 30].into_iter().zip([0, 1, 7, 5 << 40]) {
            let hash = IdHash { seed };
            let hashes = (0..BUCKETS).map(|block| hash.hash_one(Logical::new((1 << 63) | (block * spacing))));
            let (buckets, tags): (HashSet<u64>, HashSet<u64>) =
                hashes.map(|hash| (hash % BUCKETS, hash >> 57)).unzip();
            // Numbers drawn at random would fill 647 of them.
            assert!(buckets.len() > 600, "{} of {BUCKETS} buckets at {spacing}", buckets.len());
            assert_eq!(tags.len(), 128, "what tells those of one bucket apart");
        }
    }

    #[test]
    fn every_byte_counts() {
        let hash = IdHash { seed: 3 };
        let mut bytes = [0; 20];
        let mut seen = HashSet::from([hash.hash_one(bytes)]);
        for at in 0..bytes.len() {
            bytes[at] = 1;
            assert!(seen.insert(hash.hash_one(bytes)), "byte {at}");
            bytes[at] = 0;
        }
    }
}
