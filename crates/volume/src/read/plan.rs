//! The plan of a read of data: the ranges that it needs of each device. All devices are asked at once; the answers are used in order. Where the
//! host caches a device, it is the host that is asked, and the answer is read from its memory without a copy of ours.

use super::way::{Begun, Piece};
use crate::chunk::Chunk;
use crate::pool::Pool;
use crate::read_state::{FetchPlan, Part};
use crate::{Attempt, ReadError};
use brindle_ondisk::{Logical, to_u64, to_usize};

/// A read of data, in pieces that follow each other.
#[derive(Debug)]
pub(super) struct ReadPlan<'p> {
    pub(super) pieces: Vec<PlannedPiece<'p>>,
}

/// A piece, and where its bytes come from.
#[derive(Debug)]
pub(super) struct PlannedPiece<'p> {
    pub(super) chunk: &'p Chunk,
    /// Offset in the chunk, in bytes.
    pub(super) offset: u64,
    pub(super) piece: Piece,
    /// The answer to a request of this read. None if the bytes are in memory, or are read when they are wanted.
    requested: Option<Requested>,
}

#[derive(Debug)]
struct Requested {
    part: Part,
    device: usize,
    /// Counted, if a policy looks at the devices.
    begun: Option<Begun>,
}

impl<'p> ReadPlan<'p> {
    /// Plans a read and submits its requests. A read of one piece has none: the calling thread makes it, into the
    /// caller's buffer.
    pub(super) fn begin(pool: &'p Pool, logical: Logical, length: u64) -> Result<Self, ReadError> {
        let (mut pieces, mut done) = (Vec::new(), 0);
        while done < length {
            let at = logical + done;
            let chunk = pool.chunks.find(at).ok_or(ReadError::Unmapped { logical: at })?;
            let offset = chunk.offset_of(at).unwrap_or(0);
            let piece = pool.piece(chunk, offset, length - done);
            done += piece.run.length;
            pieces.push(PlannedPiece { chunk, offset, piece, requested: None });
        }
        if pieces.len() > 1 {
            let mut plan = FetchPlan::default();
            pieces.iter_mut().for_each(|piece| piece.request(pool, &mut plan));
            pool.submit(plan);
        }
        Ok(Self { pieces })
    }
}

impl Pool {
    /// Submits fetches to the devices that are there.
    pub(super) fn submit(&self, plan: FetchPlan) {
        plan.submit(|device| self.devices[device].device.as_deref());
    }
}

impl PlannedPiece<'_> {
    /// Length in bytes.
    pub(super) fn length(&self) -> usize {
        to_usize(self.piece.run.length)
    }

    /// Plans the request for bytes that are not in memory and need no rebuilding.
    fn request(&mut self, pool: &Pool, plan: &mut FetchPlan) {
        let run = &self.piece.run;
        if self.piece.prefetched.as_ref().is_some_and(|found| found.part.is_some()) {
            return;
        }
        let Some((device, physical)) = pool.direct_place(self.chunk, run, self.piece.way) else { return };
        if pool.prefetch_by_host(device, physical, run.length) {
            return;
        }
        let load = &pool.devices[device].load;
        let request = self.piece.prefetched.is_none().then_some((physical, run.length));
        let begun = pool.keeps_count().then(|| pool.begin(load, request));
        self.requested = Some(Requested { part: plan.add(device, physical, run.length), device, begun });
    }

    /// Fills `buffer` in the piece's own way; nothing is verified.
    pub(super) fn read(&self, pool: &Pool, buffer: &mut [u8]) -> Result<(), Box<Attempt>> {
        let Some(Requested { part, device, begun }) = &self.requested else {
            return pool.read_piece(self.chunk, self.offset, &self.piece, buffer);
        };
        let copied = part.copy_to(buffer);
        if let Some(begun) = begun {
            let device = &pool.devices[*device];
            pool.end(&device.load, begun, to_u64(buffer.len()), device.is_rotating());
        }
        // What has failed is read anew, by itself: seldom is all of a request bad.
        copied.or_else(|()| pool.read_piece(self.chunk, self.offset, &self.piece, buffer))
    }
}
