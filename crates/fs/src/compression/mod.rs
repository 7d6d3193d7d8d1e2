//! Decompression of extents, one module an algorithm.
//!
//! Each takes all the compressed bytes of an extent, fills `output` from its begin, and says how much it
//! filled; what is left is zeros (a writer may leave out the end of a sector).

mod lzo;
mod zlib;
mod zstd;

use brindle_ondisk::item::Compression;
use thiserror::Error;

/// Why compressed bytes can't be what they claim.
#[derive(Debug, Error)]
pub enum DecompressError {
    /// The library refuses the stream.
    #[error("{0}")]
    Stream(String),
    /// It ends too soon.
    #[error("it is cut off at byte {0}")]
    CutOff(usize),
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
