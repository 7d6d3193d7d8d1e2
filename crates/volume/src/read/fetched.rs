//! Data that was fetched before it is read, where it lies in memory.

use super::way::Piece;
use crate::chunk::Chunk;
use crate::pool::Pool;
use crate::read_state::FetchedBytes;
use crate::{DataChecksums, ReadError, Volume};
use brindle_ondisk::{Logical, to_u64, to_usize};
use std::sync::Arc;

/// A range of data all of which was asked for before; the devices may not have answered yet.
#[derive(Debug)]
pub struct FetchedData<'v> {
    volume: &'v Volume,
    pool: Arc<Pool>,
    logical: Logical,
    length: u64,
    pieces: Vec<FetchedPiece>,
}

#[derive(Debug)]
struct FetchedPiece {
    chunk: Arc<Chunk>,
    /// Offset in the chunk, in bytes.
    offset: u64,
    piece: Piece,
}

impl Volume {
    /// The fetches that a range of whole sectors is the answer of; `None` unless that is all of it.
    pub fn fetched(&self, logical: Logical, length: u64) -> Option<FetchedData<'_>> {
        let pool = self.snapshot();
        let (mut pieces, mut done) = (Vec::new(), 0);
        while done < length {
            let at = logical.checked_add(done)?;
            let chunk = pool.chunks.find(at)?;
            let offset = chunk.offset_of(at)?;
            let piece = pool.fetched_piece(chunk, offset, length - done)?;
            done += piece.run.length;
            pieces.push(FetchedPiece { chunk: Arc::clone(chunk), offset, piece });
        }
        Some(FetchedData { volume: self, pool, logical, length, pieces })
    }
}

impl FetchedData<'_> {
    /// Waits for the answers, and verifies each sector that has a checksum. The bytes in the order of the range; `None` if a device has
    /// failed or a sector is wrong: [`Volume::read_data`] obtains it otherwise, and tells what happened.
    ///
    /// # Errors
    /// A range that is not of whole sectors, or for which there are too few checksums.
    pub fn verified(self, checksums: &DataChecksums<'_>) -> Result<Option<Vec<FetchedBytes>>, ReadError> {
        let mut expected = self.volume.expected(self.logical, self.length, checksums)?;
        let mut all = Vec::with_capacity(self.pieces.len());
        for fetched in &self.pieces {
            let Some(bytes) = fetched.bytes(&self.pool).filter(|bytes| expected.accepts(bytes)) else {
                return Ok(None);
            };
            expected.pass(bytes.len());
            all.push(bytes);
        }
        let mut prefetched = self.pool.choosing.prefetched();
        for (fetched, bytes) in self.pieces.iter().zip(&all) {
            prefetched.take(fetched.chunk.start.get() + fetched.offset, to_u64(bytes.len()));
        }
        drop(prefetched);
        Ok(Some(all))
    }
}

impl FetchedPiece {
    /// Waits for the answer.
    fn bytes(&self, pool: &Pool) -> Option<FetchedBytes> {
        let part = self.piece.prefetched.as_ref()?.part.as_ref()?;
        let length = self.piece.run.length;
        pool.counted(&self.chunk, &self.piece, length, || part.bytes(to_usize(length))).ok()
    }
}
