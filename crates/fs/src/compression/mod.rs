//! Compression of extents and back, one module an algorithm.
//!
//! Each compressor takes the contents of an extent, and gives up where the result would not fit what it may have.
//! Each decompressor takes all the compressed bytes of an extent, fills `output` from its begin, and says how much it
//! filled; what is left is zeros (a writer may leave out the end of a sector).

pub(crate) mod choice;
mod lzo;
pub(crate) mod promise;
mod zlib;
mod zstd;

use brindle_ondisk::item::Compression;
pub use choice::{CompressionChoice, UnknownCompression, WrongCompression};
use thiserror::Error;

/// Reason for which compressed bytes are invalid.
#[derive(Debug, Error)]
pub enum DecompressError {
    /// The library refuses the stream.
    #[error("{0}")]
    Stream(String),
    /// The stream ends too soon.
    #[error("it is cut off at byte {0}")]
    CutOff(usize),
}

/// Compresses the contents of an extent into at most `length_max` bytes; `None` if they don't fit. `level` is brought
/// into the range that the algorithm has; without one, it takes the kernel's default.
pub(crate) fn compress(
    algorithm: Compression,
    level: Option<i8>,
    input: &[u8],
    length_max: usize,
    sectorsize: usize,
) -> Option<Vec<u8>> {
    // Compressors write up to the capacity, which must be exact.
    let mut output = Vec::new();
    output.reserve_exact(length_max);
    let level_of = |levels: std::ops::RangeInclusive<i8>, default| {
        level.filter(|level| *level != 0).map_or(default, |level| level.clamp(*levels.start(), *levels.end()))
    };
    let fits = match algorithm {
        Compression::None => false,
        Compression::Zlib => zlib::compress(input, &mut output, level_of(zlib::LEVELS, zlib::LEVEL_DEFAULT)),
        Compression::Lzo => lzo::compress(input, &mut output, sectorsize),
        Compression::Zstd => zstd::compress(input, &mut output, level_of(zstd::LEVELS, zstd::LEVEL_DEFAULT)),
    };
    (fits && output.len() <= length_max).then_some(output)
}

/// Fills `output` with what `input` holds, and with zeros after it. `sectorsize` is the pool's, in bytes.
pub fn decompress(
    algorithm: Compression,
    input: &[u8],
    output: &mut [u8],
    sectorsize: usize,
) -> Result<(), DecompressError> {
    let filled = match algorithm {
        Compression::None => {
            let length = input.len().min(output.len());
            output[..length].copy_from_slice(&input[..length]);
            length
        }
        Compression::Zlib => zlib::decompress(input, output)?,
        Compression::Lzo => lzo::decompress(input, output, sectorsize)?,
        Compression::Zstd => zstd::decompress(input, output)?,
    };
    output[filled..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests;
