//! The choice of a compression, and the word for it.

use super::{zlib, zstd};
use brindle_ondisk::item::Compression;
use std::ops::RangeInclusive;
use thiserror::Error;

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionChoice {
    /// The algorithm.
    pub algorithm: Compression,
    /// Effort; `None` for the default of the algorithm.
    pub level: Option<i8>,
    /// Compress even files that did not compress well before.
    pub force: bool,
}

/// A word that names no compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is one of zlib, lzo, zstd and no; zlib and zstd with a level if wanted, as zstd:3")]
pub struct UnknownCompression;

impl CompressionChoice {
    /// Reads `ALGORITHM[:LEVEL]`; `None` for `no` and `none`. As with the kernel, a level of 0 is the default, one that the
    /// algorithm does not have is the nearest that it has, and that of lzo counts for nothing.
    ///
    /// # Errors
    /// No algorithm has this name, or the level is no number.
    pub fn parse(word: &str) -> Result<Option<Self>, UnknownCompression> {
        let (name, level) = word.split_once(':').map_or((word, None), |(name, level)| (name, Some(level)));
        let algorithm = match (name, level) {
            ("no" | "none", None) => return Ok(None),
            ("zlib", _) => Compression::Zlib,
            ("lzo", _) => Compression::Lzo,
            ("zstd", _) => Compression::Zstd,
            _ => return Err(UnknownCompression),
        };
        let level = level.map(str::parse::<i32>).transpose().map_err(|_| UnknownCompression)?;
        let level = level.filter(|level| *level != 0).zip(levels(algorithm));
        let level = level.map(|(level, all)| level.clamp((*all.start()).into(), (*all.end()).into()));
        let level = level.and_then(|level| i8::try_from(level).ok());
        Ok(Some(Self { algorithm, level, force: false }))
    }
}

/// The levels that an algorithm has. Of zstd's, those below zero are faster than 1, and 0 is none.
fn levels(algorithm: Compression) -> Option<RangeInclusive<i8>> {
    match algorithm {
        Compression::Zlib => Some(zlib::LEVELS),
        Compression::Zstd => Some(zstd::LEVELS),
        Compression::None | Compression::Lzo => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_taken_as_by_the_kernel() {
        let level = |word| CompressionChoice::parse(word).expect("known").and_then(|choice| choice.level);
        for (word, expected) in [
            ("zstd", None),
            ("zstd:0", None),
            ("zstd:7", Some(7)),
            ("zstd:16", Some(15)),
            ("zstd:-15", Some(-15)),
            ("zstd:-16", Some(-15)),
            ("zlib:10", Some(9)),
            ("zlib:-1", Some(1)),
            ("lzo:1", None),
            ("no", None),
        ] {
            assert_eq!(level(word), expected, "{word}");
        }
        for wrong in ["", "zstd:x", "zlib:", "none:1", "zstdx", "bzip2"] {
            assert_eq!(CompressionChoice::parse(wrong), Err(UnknownCompression), "{wrong}");
        }
    }
}
