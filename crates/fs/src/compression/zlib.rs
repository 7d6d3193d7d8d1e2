//! zlib: one stream an extent; the rest of the last sector is padding.

use super::DecompressError;
use flate2::{Decompress, FlushDecompress, Status};

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
