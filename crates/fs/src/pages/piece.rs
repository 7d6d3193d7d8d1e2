//! Contents in memory that grow at their end.

use brindle_device::Buffer;
use std::ops::{Deref, DerefMut};

/// No piece grows longer than this, in bytes; one large write makes several.
pub(crate) const PIECE_MAX_BYTES: usize = 1 << 20;
/// Longest contents in memory of the allocator, in bytes: no more than half of a buffer is ever unused.
const SHORT_MAX_BYTES: usize = PIECE_MAX_BYTES / 2;

/// Up to [`PIECE_MAX_BYTES`] of a file. Long ones lie in a [`Buffer`]: its memory was used before, so that the host need not give pages
/// for each, and is aligned as devices want it.
#[derive(Debug)]
pub(crate) struct Piece(Memory);

#[derive(Debug)]
enum Memory {
    Short(Vec<u8>),
    Long { buffer: Buffer, length: usize },
}

impl Piece {
    /// A copy of `bytes`, at most [`PIECE_MAX_BYTES`].
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        if bytes.len() <= SHORT_MAX_BYTES {
            return Self(Memory::Short(bytes.to_vec()));
        }
        let mut buffer = Buffer::new(PIECE_MAX_BYTES);
        buffer[..bytes.len()].copy_from_slice(bytes);
        Self(Memory::Long { buffer, length: bytes.len() })
    }

    /// Writes on at the end; not more than [`PIECE_MAX_BYTES`] in all.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if let Memory::Short(short) = &mut self.0 {
            if short.len() + bytes.len() <= SHORT_MAX_BYTES {
                return short.extend_from_slice(bytes);
            }
            let mut buffer = Buffer::new(PIECE_MAX_BYTES);
            buffer[..short.len()].copy_from_slice(short);
            self.0 = Memory::Long { buffer, length: short.len() };
        }
        if let Memory::Long { buffer, length } = &mut self.0 {
            buffer[*length..*length + bytes.len()].copy_from_slice(bytes);
            *length += bytes.len();
        }
    }

    /// Cuts off what is behind `at`, and returns it.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let behind = Self::copied(&self[at..]);
        match &mut self.0 {
            Memory::Short(short) => short.truncate(at),
            Memory::Long { length, .. } => *length = at,
        }
        behind
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Memory::Short(bytes))
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Short(short) => short,
            Memory::Long { buffer, length } => &buffer[..*length],
        }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Short(short) => short,
            Memory::Long { buffer, length } => &mut buffer[..*length],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_all_that_it_was_given_however_it_grew() {
        for first in [0, 1, SHORT_MAX_BYTES - 1, SHORT_MAX_BYTES, SHORT_MAX_BYTES + 1, PIECE_MAX_BYTES - 5000]
        {
            for further in [1, 5000, PIECE_MAX_BYTES - first] {
                let contents: Vec<u8> = (0..first + further).map(|at| (at / 7).to_le_bytes()[0]).collect();
                let mut piece = Piece::copied(&contents[..first]);
                piece.extend(&contents[first..]);
                assert!(*piece == contents, "{first} and {further} bytes");
                for at in [0, first / 2, first, piece.len()] {
                    let mut cut = Piece::copied(&contents);
                    let behind = cut.split_off(at);
                    assert!(*cut == contents[..at] && *behind == contents[at..], "cut at {at}");
                    cut.extend(&behind);
                    assert!(*cut == contents, "put together again");
                }
            }
        }
    }
}
