//! Bytes that follow from three numbers, so that an operation fits a line.

use brindle_sim::Random;

/// Bytes to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Number of bytes.
    pub length: usize,
    /// Their texture.
    pub texture: Texture,
    /// Their seed.
    pub seed: u64,
}

/// Texture of bytes to a compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texture {
    /// All zero.
    Zeros,
    /// Words that come again and again.
    Text,
    /// Nothing compresses them.
    Noise,
}

impl Data {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        let mut random = Random::new(self.seed);
        match self.texture {
            Texture::Zeros => {}
            Texture::Noise => random.fill(&mut bytes),
            Texture::Text => {
                for chunk in bytes.chunks_mut(8) {
                    let line = format!("word{:03} ", random.below(50));
                    chunk.copy_from_slice(&line.as_bytes()[..chunk.len()]);
                }
            }
        }
        bytes
    }
}
