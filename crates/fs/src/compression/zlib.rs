//! zlib: one stream an extent; the rest of the last sector is padding.

use super::DecompressError;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::ops::RangeInclusive;

/// The levels there are, and the one taken unless told otherwise (`BTRFS_ZLIB_DEFAULT_LEVEL`).
pub(super) const LEVELS: RangeInclusive<i8> = 1..=9;
pub(super) const LEVEL_DEFAULT: i8 = 3;

/// Compresses into `output`, which is empty, at most to its capacity; whether that was enough.
pub(super) fn compress(input: &[u8], output: &mut Vec<u8>, level: i8) -> bool {
    let mut stream = Compress::new(Compression::new(level.unsigned_abs().into()), true);
    matches!(stream.compress_vec(input, output, FlushCompress::Finish), Ok(Status::StreamEnd))
}

pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(input, output, FlushDecompress::Finish);
    let filled = brindle_ondisk::to_usize(stream.total_out());
    match status {
        Ok(Status::StreamEnd) => Ok(filled),
        // The kernel stops when the extent is full and never looks whether the stream ends there.
        Ok(_) if filled == output.len() => Ok(filled),
        Ok(_) => Err(DecompressError::CutOff(brindle_ondisk::to_usize(stream.total_in()))),
        Err(error) => Err(DecompressError::Stream(error.to_string())),
    }
}
