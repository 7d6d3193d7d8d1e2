//! LZO as btrfs frames it: the length of everything, then for each sector of contents the length of a segment
//! and the segment, LZO1X. Lengths are four bytes, little-endian, and a length never lies across the border
//! of a sector: where fewer than four bytes are left, they are padding.

use super::DecompressError;
use brindle_ondisk::to_u64;
use lzokay::compress::{Dict, compress_no_alloc, compress_worst_size};
use std::cell::RefCell;

const LENGTH_BYTES: usize = 4;

thread_local! {
    /// A dictionary is larger than what it helps to compress.
    static DICTIONARY: RefCell<Box<Dict>> = RefCell::new(Dict::new());
}

/// Compresses into `output`, which is empty, at most to its capacity; whether that was enough.
pub(super) fn compress(input: &[u8], output: &mut Vec<u8>, sectorsize: usize) -> bool {
    let capacity = output.capacity();
    let mut segment = vec![0; compress_worst_size(sectorsize)];
    output.extend_from_slice(&[0; LENGTH_BYTES]);
    for sector in input.chunks(sectorsize) {
        let compressed = DICTIONARY.with_borrow_mut(|dict| compress_no_alloc(sector, &mut segment, dict));
        let Ok(length) = compressed else {
            return false;
        };
        let left_in_sector = sectorsize - output.len() % sectorsize;
        let padding = if left_in_sector < LENGTH_BYTES { left_in_sector } else { 0 };
        if output.len() + padding + LENGTH_BYTES + length > capacity {
            return false;
        }
        output.resize(output.len() + padding, 0);
        output.extend_from_slice(&length_bytes(length));
        output.extend_from_slice(&segment[..length]);
    }
    let total = length_bytes(output.len());
    output[..LENGTH_BYTES].copy_from_slice(&total);
    true
}

fn length_bytes(length: usize) -> [u8; LENGTH_BYTES] {
    u32::try_from(to_u64(length)).expect("an extent is small").to_le_bytes()
}

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
