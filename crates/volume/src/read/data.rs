//! Data: read in pieces as large as the stripes allow, straight into the caller's buffer; verified sector
//! by sector; and only the sectors that are bad are looked for elsewhere.

use super::plan::{PlannedPiece, ReadPlan};
use super::way::Piece;
use crate::chunk::Chunk;
use crate::locks::Locks;
use crate::pool::Pool;
use crate::read_state::FetchPlan;
use crate::{Attempt, AttemptFailure, DataChecksums, ReadError, Volume};
use brindle_ondisk::{Checksum, ChecksumType, Logical, to_u64, to_usize};

/// Shortest range that is fetched past the host's cache, in bytes: what lies in shorter ones is likely to be read again.
const BYPASS_BYTES_MIN: u64 = 256 << 10;

/// The checksums that the sectors of a piece should have.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    checksums: DataChecksums<'a>,
    algorithm: ChecksumType,
    sector_bytes: usize,
    /// The number of the piece's first sector within the checksums.
    first_sector: usize,
    /// True if a sector is served as it is if no copy is right.
    serves_bad: bool,
    /// Locks of repairs, if bad copies are to be repaired.
    repair: Option<&'a Locks>,
}

impl Expected<'_> {
    /// Goes on to the piece behind one of a length in bytes.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.first_sector += bytes / self.sector_bytes;
    }

    /// Returns true if all sectors of the piece are as they should be.
    pub(super) fn accepts(&self, piece: &[u8]) -> bool {
        let mut sectors = piece.chunks(self.sector_bytes).enumerate();
        self.checksums.are_none() || sectors.all(|(sector, data)| self.verify(sector, data).is_ok())
    }

    /// Returns true if a sector of the piece has a checksum.
    fn is_known(&self, sector: usize) -> bool {
        self.checksums.get(self.first_sector + sector, self.algorithm).is_some()
    }

    /// Verifies a sector of the piece, if it has a checksum.
    pub(super) fn verify(&self, sector: usize, data: &[u8]) -> Result<(), AttemptFailure> {
        let Some(stored) = self.checksums.get(self.first_sector + sector, self.algorithm) else {
            return Ok(());
        };
        let found = self.algorithm.compute(data);
        let expected = Checksum::from_slice(stored);
        if found == expected { Ok(()) } else { Err(AttemptFailure::Checksum { found, expected }) }
    }
}

impl Volume {
    /// Reads data. Address and length are of whole sectors; each sector that has a checksum is verified,
    /// and one that is bad is read from another copy, or rebuilt.
    pub fn read_data(
        &self,
        logical: Logical,
        buffer: &mut [u8],
        checksums: &DataChecksums<'_>,
    ) -> Result<(), ReadError> {
        let mut expected = self.expected(logical, to_u64(buffer.len()), checksums)?;
        let pool = self.snapshot();
        let plan = ReadPlan::begin(&pool, logical, to_u64(buffer.len()))?;
        let mut rest = buffer;
        for planned in &plan.pieces {
            let (now, later) = rest.split_at_mut(planned.length());
            pool.fill(planned, now, &expected)?;
            expected.pass(now.len());
            rest = later;
        }
        Ok(())
    }

    /// Expectations of a read of data, which must be of whole sectors.
    pub(super) fn expected<'a>(
        &'a self,
        logical: Logical,
        length: u64,
        checksums: &DataChecksums<'a>,
    ) -> Result<Expected<'a>, ReadError> {
        let context = self.tree_context();
        let refuse = |why| Err(ReadError::Request { logical, length, why });
        let sector_bytes = u64::from(context.sectorsize);
        if !logical.is_aligned(sector_bytes) || length % sector_bytes != 0 {
            return refuse("not of whole sectors");
        }
        if logical.checked_add(length).is_none() {
            return refuse("passes the end of the logical space");
        }
        let sector_bytes = to_usize(sector_bytes);
        let expected = Expected {
            checksums: *checksums,
            algorithm: context.checksum_type,
            sector_bytes,
            first_sector: 0,
            serves_bad: self.rescue.data_checksums,
            repair: self.is_writable().then_some(&self.locks),
        };
        if !checksums.cover(to_usize(length) / sector_bytes, expected.algorithm) {
            return refuse("there are fewer checksums than sectors");
        }
        Ok(expected)
    }
}

impl Pool {
    /// Fetches what a read of a range would read. Ends where the chunks do, or the memory for it; after how many bytes.
    pub(super) fn prefetch(&self, logical: Logical, length: u64) -> u64 {
        let (mut plan, mut done) = (FetchPlan::default(), 0);
        let is_long = length >= BYPASS_BYTES_MIN;
        while done < length {
            let Some(at) = logical.checked_add(done) else { break };
            let Some(chunk) = self.chunks.find(at) else { break };
            let Some(offset) = chunk.offset_of(at) else { break };
            if done == 0 {
                self.look_after(chunk);
            }
            let room = self.choosing.prefetched().room();
            if room == 0 {
                break;
            }
            let piece = self.piece(chunk, offset, room.min(length - done));
            self.prefetch_piece(chunk, offset, &piece, is_long, &mut plan);
            done += piece.run.length;
        }
        self.submit(plan);
        done
    }

    /// Fills `buffer` with a piece.
    fn fill(
        &self,
        planned: &PlannedPiece<'_>,
        buffer: &mut [u8],
        expected: &Expected<'_>,
    ) -> Result<(), ReadError> {
        let (chunk, offset, piece) = (planned.chunk, planned.offset, &planned.piece);
        match planned.read(self, buffer) {
            Ok(()) => self.verify(chunk, offset, piece, buffer, expected, &[]),
            Err(attempt) => self.fill_otherwise(chunk, offset, piece, buffer, expected, *attempt),
        }
    }

    /// Fills `buffer` in any way but the piece's own, which has failed: as a whole if that can be done,
    /// otherwise sector by sector, since devices seldom fail in the same sectors.
    fn fill_otherwise(
        &self,
        chunk: &Chunk,
        offset: u64,
        piece: &Piece,
        buffer: &mut [u8],
        expected: &Expected<'_>,
        attempt: Attempt,
    ) -> Result<(), ReadError> {
        let (mut attempts, mut bad) = (vec![attempt], vec![piece.way]);
        for way in self.ways_in_order(chunk, offset) {
            if way == piece.way {
                continue;
            }
            let piece = Piece { run: piece.run, way, prefetched: None };
            match self.read_run(chunk, &piece.run, way, buffer) {
                Ok(()) => {
                    self.count_recovered(&attempts);
                    return self.verify(chunk, offset, &piece, buffer, expected, &bad);
                }
                Err(attempt) => attempts.push(*attempt),
            }
            bad.push(way);
        }
        if buffer.len() <= expected.sector_bytes {
            let (logical, chunk, length) = (chunk.start + offset, chunk.start, to_u64(buffer.len()));
            return Err(ReadError::Failed { logical, chunk, length, attempts });
        }
        for (sector, data) in buffer.chunks_mut(expected.sector_bytes).enumerate() {
            self.recover_sector(chunk, offset, sector, data, expected, None)?;
        }
        Ok(())
    }

    /// Verifies what a piece's way has read; bad sectors are recovered. `failed` are ways tried before, whose
    /// devices did not answer: they are repaired if it is known of all sectors that they are right.
    fn verify(
        &self,
        chunk: &Chunk,
        offset: u64,
        piece: &Piece,
        buffer: &mut [u8],
        expected: &Expected<'_>,
        failed: &[usize],
    ) -> Result<(), ReadError> {
        if expected.checksums.are_none() {
            return Ok(());
        }
        let mut all_right = true;
        for (sector, data) in buffer.chunks_mut(expected.sector_bytes).enumerate() {
            all_right &= expected.is_known(sector);
            if let Err(failure) = expected.verify(sector, data) {
                all_right = false;
                let at = offset + to_u64(sector * expected.sector_bytes);
                let attempt = self.blame(chunk, at, piece.way, failure);
                self.recover_sector(chunk, offset, sector, data, expected, Some((piece.way, attempt)))?;
            }
        }
        if let Some(locks) = expected.repair {
            if all_right {
                self.repair(locks, chunk, offset, piece.way, failed, buffer);
            }
        }
        Ok(())
    }

    /// Obtains one sector of a piece, in any way but the one that gave bad data.
    fn recover_sector(
        &self,
        chunk: &Chunk,
        offset: u64,
        sector: usize,
        data: &mut [u8],
        expected: &Expected<'_>,
        bad: Option<(usize, Attempt)>,
    ) -> Result<(), ReadError> {
        let offset = offset + to_u64(sector * expected.sector_bytes);
        let (bad, attempt) = bad.unzip();
        let mut attempts: Vec<Attempt> = attempt.into_iter().collect();
        let mut bad_ways: Vec<usize> = bad.into_iter().collect();
        for way in self.ways_in_order(chunk, offset) {
            if bad == Some(way) {
                continue;
            }
            let read = self.read_range(chunk, offset, way, data);
            let result = read.and_then(|()| {
                let right = expected.verify(sector, data);
                right.map_err(|failure| Box::new(self.blame(chunk, offset, way, failure)))
            });
            match result {
                Ok(()) => {
                    self.count_recovered(&attempts);
                    if let Some(locks) = expected.repair {
                        if expected.is_known(sector) {
                            self.repair(locks, chunk, offset, way, &bad_ways, data);
                        }
                    }
                    return Ok(());
                }
                Err(attempt) => attempts.push(*attempt),
            }
            bad_ways.push(way);
        }
        if expected.serves_bad && self.serve_bad(chunk, offset, data) {
            return Ok(());
        }
        let (logical, chunk, length) = (chunk.start + offset, chunk.start, to_u64(data.len()));
        Err(ReadError::Failed { logical, chunk, length, attempts })
    }

    /// Reads a sector in the first way that answers, without regard to its checksum; false if there is none.
    fn serve_bad(&self, chunk: &Chunk, offset: u64, data: &mut [u8]) -> bool {
        let served = (0..chunk.layout.ways()).any(|way| self.read_range(chunk, offset, way, data).is_ok());
        if served {
            let logical = chunk.start + offset;
            tracing::warn!(
                "data at logical {logical} matches its checksum in no copy, and is served as it is"
            );
        }
        served
    }
}
