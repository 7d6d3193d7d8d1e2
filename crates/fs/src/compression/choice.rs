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

/// A word that is not taken as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WrongCompression {
    /// The word names no compression.
    #[error(transparent)]
    Unknown(#[from] UnknownCompression),
    /// The algorithm does not have the level.
    #[error("{name} has levels from {first} to {last}, and no {level}")]
    Level {
        /// The algorithm.
        name: &'static str,
        /// The lowest level that it has.
        first: i8,
        /// The highest one.
        last: i8,
        /// The level in the word.
        level: i32,
    },
    /// The algorithm has no levels.
    #[error("lzo has no levels")]
    NoLevels,
}

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

    /// Reads the word as [`parse`](Self::parse) does, and takes no other level for one that the algorithm does not have.
    ///
    /// # Errors
    /// Words that [`parse`](Self::parse) refuses, and levels that the algorithm does not have.
    pub fn parse_exactly(word: &str) -> Result<Option<Self>, WrongCompression> {
        let Some(choice) = Self::parse(word)? else { return Ok(None) };
        let level = word.split_once(':').and_then(|(_, level)| level.parse::<i32>().ok());
        match (level.filter(|level| *level != 0), levels(choice.algorithm)) {
            (Some(_), None) => Err(WrongCompression::NoLevels),
            (Some(level), Some(all)) if choice.level.is_none_or(|taken| i32::from(taken) != level) => {
                let name = if choice.algorithm == Compression::Zlib { "zlib" } else { "zstd" };
                Err(WrongCompression::Level { name, first: *all.start(), last: *all.end(), level })
            }
            _ => Ok(Some(choice)),
        }
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
        for (word, why) in [
            ("zstd:99", "zstd has levels from -15 to 15, and no 99"),
            ("zlib:-1", "zlib has levels from 1 to 9, and no -1"),
            ("lzo:1", "lzo has no levels"),
        ] {
            let refused = CompressionChoice::parse_exactly(word).expect_err("refused");
            assert_eq!(refused.to_string(), why, "{word}");
        }
        for taken in ["zstd:-15", "zstd:0", "zlib:9", "lzo", "none"] {
            let exact = CompressionChoice::parse_exactly(taken);
            assert_eq!(exact.expect("taken"), CompressionChoice::parse(taken).expect("taken"), "{taken}");
        }
        for wrong in ["", "zstd:x", "zlib:", "none:1", "zstdx", "bzip2"] {
            assert_eq!(CompressionChoice::parse(wrong), Err(UnknownCompression), "{wrong}");
        }
    }
}
