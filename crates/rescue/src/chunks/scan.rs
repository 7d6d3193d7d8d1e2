//! The scan: every tree block of a pool on its devices, by its header.

use super::candidates::Candidates;
use super::members::Members;
use brindle_check::Progress;
use brindle_device::{Buffer, Device, PendingRead, ReadRequest};
use brindle_ondisk::{
    Checksum, Generation, Logical, NodeHeader, RootId, SUPERBLOCK_OFFSETS, TreeContext, to_u64, to_usize,
};
use std::collections::VecDeque;
use zerocopy::FromBytes;

/// Bytes of a request.
const WINDOW_BYTES: u64 = 1 << 20;
/// Requests of a device that are under way at once.
const REQUESTS: usize = 8;
/// Distance of places at which a block can begin.
const STEP: usize = 4096;
/// Bytes of a device of which one block tells enough, if its tree is not walked by sightings.
const PIECE_BYTES: u64 = 64 << 10;

/// Trees that are walked before there is a map: all of their blocks must be found.
const WALKED: [RootId; 5] =
    [RootId::ROOT_TREE, RootId::EXTENT_TREE, RootId::CHUNK_TREE, RootId::DEV_TREE, RootId::BLOCK_GROUP_TREE];

/// A tree block at a place of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sighting {
    pub(crate) bytenr: Logical,
    pub(crate) generation: Generation,
    /// Number of the device.
    pub(crate) device: usize,
    /// Offset on it, in bytes.
    pub(crate) physical: u64,
}

/// All that a scan has found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Sightings by address and generation.
    pub(crate) sightings: Vec<Sighting>,
    pub(crate) candidates: Candidates,
    /// Bytes that could not be read.
    pub(crate) unreadable_bytes: u64,
}

impl Scan {
    /// Reads all devices.
    pub(crate) fn of(members: &Members, context: &TreeContext, progress: &dyn Progress) -> Self {
        progress.begin("scan");
        progress.total(members.devices.iter().map(|device| device.size_bytes()).sum());
        let scan = |(number, device): (usize, &dyn Device)| {
            let generation_max = members.superblock.generation;
            let mut one = DeviceScan {
                number,
                device,
                context,
                generation_max,
                last_piece: None,
                found: Self::default(),
            };
            one.run(progress);
            one.found
        };
        let mut whole = Self::default();
        std::thread::scope(|scope| {
            let devices = members.devices.iter().map(|device| &**device as &dyn Device).enumerate();
            let threads: Vec<_> = devices.map(|device| scope.spawn(move || scan(device))).collect();
            for thread in threads {
                let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                whole.sightings.extend(one.sightings);
                whole.candidates.extend(one.candidates);
                whole.unreadable_bytes += one.unreadable_bytes;
            }
        });
        whole.sightings.sort_unstable();
        whole
    }

    /// Sightings of blocks with addresses in a range.
    pub(crate) fn within(&self, start: Logical, length: u64) -> &[Sighting] {
        let end = start.get().saturating_add(length);
        let first = self.sightings.partition_point(|sighting| sighting.bytenr < start);
        let last = self.sightings.partition_point(|sighting| sighting.bytenr.get() < end);
        &self.sightings[first..last.max(first)]
    }
}

struct DeviceScan<'a> {
    number: usize,
    device: &'a dyn Device,
    context: &'a TreeContext,
    generation_max: Generation,
    last_piece: Option<u64>,
    found: Scan,
}

impl DeviceScan<'_> {
    /// Bytes behind a window that a block which begins in it may have.
    fn tail(&self) -> u64 {
        u64::from(self.context.nodesize) - to_u64(STEP)
    }

    fn run(&mut self, progress: &dyn Progress) {
        let mut at = 0;
        let mut under_way: VecDeque<(u64, u64, PendingRead)> = VecDeque::new();
        while at < self.device.size_bytes() || !under_way.is_empty() {
            while under_way.len() < REQUESTS && at < self.device.size_bytes() {
                let length = (self.device.size_bytes() - at).min(WINDOW_BYTES);
                let skipped = self.hole_at(at);
                if skipped > 0 {
                    progress.advance(skipped);
                    at += skipped;
                    continue;
                }
                let with_tail = (length + self.tail()).min(self.device.size_bytes() - at);
                let request =
                    ReadRequest { bypasses_cache: true, ..ReadRequest::new(at, to_usize(with_tail)) };
                let pending = self.device.submit_reads(&[request]).pop();
                let pending = pending.unwrap_or_else(|| PendingRead::answered(Ok(Buffer::new(0))));
                under_way.push_back((at, length, pending));
                at += length;
            }
            let Some((offset, length, pending)) = under_way.pop_front() else { continue };
            match pending.wait() {
                Ok(bytes) => self.examine(offset, to_usize(length), &bytes),
                Err(error) => {
                    tracing::debug!("{error}");
                    self.examine_in_pieces(offset, length);
                }
            }
            progress.advance(length);
        }
    }

    /// Bytes without data from an offset on.
    fn hole_at(&self, offset: u64) -> u64 {
        let left = self.device.size_bytes() - offset;
        match self.device.extent_at(offset, left) {
            Ok(extent) if extent.is_hole => {
                // A block begins at a multiple of the step.
                let length = extent.length.min(left);
                if length == left { length } else { length - length % to_u64(STEP) }
            }
            _ => 0,
        }
    }

    /// Reads a window of which a part can't be read.
    fn examine_in_pieces(&mut self, offset: u64, length: u64) {
        let end = self.device.size_bytes();
        for at in (offset..offset + length).step_by(STEP) {
            let mut bytes = vec![0; to_usize(u64::from(self.context.nodesize).min(end - at))];
            match self.device.read_at(at, &mut bytes) {
                Ok(()) => self.examine(at, STEP, &bytes),
                Err(_) => self.found.unreadable_bytes += to_u64(STEP),
            }
        }
    }

    /// Looks for blocks that begin in the first `length` bytes.
    fn examine(&mut self, offset: u64, length: usize, bytes: &[u8]) {
        let nodesize = to_usize(self.context.nodesize.into());
        let mut at = 0;
        while at < length {
            let is_block =
                bytes.get(at..at + nodesize).is_some_and(|block| self.take(offset + to_u64(at), block));
            at += if is_block { nodesize } else { STEP };
        }
    }

    /// Takes a block, if it is one of the pool.
    fn take(&mut self, physical: u64, block: &[u8]) -> bool {
        let Ok((header, _)) = NodeHeader::ref_from_prefix(block) else { return false };
        if header.fsid != self.context.tree_uuid || SUPERBLOCK_OFFSETS.contains(&physical) {
            return false;
        }
        let stored = Checksum::from_slice(&header.csum[..self.context.checksum_type.size()]);
        if self.context.checksum_type.compute(&block[header.csum.len()..]) != stored {
            return false;
        }
        if header.generation > self.generation_max {
            return true;
        }
        if header.owner == RootId::CHUNK_TREE {
            self.found.candidates.take(block, self.context);
        }
        let piece = physical / PIECE_BYTES;
        if WALKED.contains(&header.owner) || self.last_piece != Some(piece) {
            self.last_piece = Some(piece);
            let (bytenr, generation) = (header.bytenr, header.generation);
            self.found.sightings.push(Sighting { bytenr, generation, device: self.number, physical });
        }
        true
    }
}
