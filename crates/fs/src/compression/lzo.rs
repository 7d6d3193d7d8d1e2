//! LZO as btrfs frames it: the length of everything, then for each sector of contents the length of a segment
//! and the segment, LZO1X. Lengths are four bytes, little-endian, and a length never lies across the border
//! of a sector: where fewer than four bytes are left, they are padding.

use super::DecompressError;

const LENGTH_BYTES: usize = 4;

pub(super) fn decompress(
    input: &[u8],
    output: &mut [u8],
    sectorsize: usize,
) -> Result<usize, DecompressError> {
    let total = read_length(input, 0)?;
    if total > input.len() || total < LENGTH_BYTES {
        return Err(DecompressError::CutOff(input.len()));
    }
    let input = &input[..total];
    let mut at = LENGTH_BYTES;
    let mut filled = 0;
    while at < total && filled < output.len() {
        let left_in_sector = sectorsize - at % sectorsize;
        if left_in_sector < LENGTH_BYTES {
            at += left_in_sector;
            continue;
        }
        let length = read_length(input, at)?;
        at += LENGTH_BYTES;
        let segment = input.get(at..at.saturating_add(length)).ok_or(DecompressError::CutOff(at))?;
        let end = output.len().min(filled + sectorsize);
        let written = lzokay::decompress::decompress(segment, &mut output[filled..end])
            .map_err(|error| DecompressError::Stream(format!("LZO segment at byte {at}: {error:?}")))?;
        filled += written;
        at += length;
        // Only the last segment may be short.
        if written < sectorsize {
            break;
        }
    }
    Ok(filled)
}

fn read_length(input: &[u8], at: usize) -> Result<usize, DecompressError> {
    let bytes = input.get(at..).and_then(<[u8]>::first_chunk::<LENGTH_BYTES>);
    let length = u32::from_le_bytes(*bytes.ok_or(DecompressError::CutOff(at))?);
    Ok(brindle_ondisk::to_usize(length.into()))
}
