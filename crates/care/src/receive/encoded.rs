//! Contents that come as they lay in an extent, compressed for the most part.

use super::error::ReceiveProblem;
use brindle_fs::{Compression, decompress};
use brindle_ondisk::{to_u64, to_usize};
use brindle_stream::EncodedWrite;

/// Longest contents of a compressed extent, in bytes.
const DECODED_BYTES_MAX: u64 = 128 << 10;

/// The bytes of the file that encoded contents stand for.
///
/// # Errors
/// Unknown encodings; contents that don't decode; lengths that contradict each other.
pub fn decode(write: &EncodedWrite<'_>) -> Result<Vec<u8>, ReceiveProblem> {
    let refuse = |why| Err(ReceiveProblem::Lengths(why));
    if write.encryption != 0 {
        return Err(ReceiveProblem::Encoding { what: "encryption", found: write.encryption });
    }
    if write.decoded_length > DECODED_BYTES_MAX {
        return refuse("an extent that is longer than any");
    }
    let end = write.decoded_offset.checked_add(write.length);
    let Some(end) = end.filter(|end| *end <= write.decoded_length) else {
        return refuse("a part beyond the extent");
    };
    let mut decoded = vec![0; to_usize(write.decoded_length)];
    let (algorithm, sector) = algorithm(write.compression)?;
    if algorithm == Compression::None && to_u64(write.data.len()) != write.decoded_length {
        return refuse("plain contents of another length");
    }
    decompress(algorithm, write.data, &mut decoded, sector)?;
    decoded.truncate(to_usize(end));
    Ok(decoded.split_off(to_usize(write.decoded_offset)))
}

/// The algorithm of a number (`BTRFS_ENCODED_IO_COMPRESSION_*`), and the sector size of its sender.
fn algorithm(number: u32) -> Result<(Compression, usize), ReceiveProblem> {
    Ok(match number {
        0 => (Compression::None, 4096),
        1 => (Compression::Zlib, 4096),
        2 => (Compression::Zstd, 4096),
        3..=7 => (Compression::Lzo, 4096 << (number - 3)),
        found => return Err(ReceiveProblem::Encoding { what: "compression", found }),
    })
}
