//! Numbers that look random and follow from a seed.

/// A small generator (SplitMix64): the same numbers on every machine and in every version, for the seed in a
/// message must still mean the same a year later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The numbers that follow from a seed; neighbouring seeds have nothing in common.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.number()) * u128::from(bound);
        u64::try_from(product >> 64).expect("128 bits less 64 are 64")
    }

    /// An index of something with `length` elements, or 0 if it has none.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("less than a length")
    }

    /// True `times` in `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// One of these; there must be one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// Fills a buffer with bytes that nothing compresses.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.number().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    /// Another generator, which depends on this one's seed and on `label`, and takes nothing from this one.
    #[must_use]
    pub fn fork(&self, label: u64) -> Self {
        let mut fork = Self::new(self.state ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self::new(fork.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_are_those_of_the_algorithm() {
        // The published test values of SplitMix64 for this seed.
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn every_number_below_a_bound_comes() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.index(5)] += 1;
        }
        assert!(seen.iter().all(|count| (150..250).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn forks_differ_from_each_other_and_leave_the_trunk_alone() {
        let trunk = Random::new(1);
        assert_eq!(trunk.fork(3), trunk.fork(3));
        assert_ne!(trunk.fork(3), trunk.fork(4));
        assert_eq!(trunk, Random::new(1));
    }
}
