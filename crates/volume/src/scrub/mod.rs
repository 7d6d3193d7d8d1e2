//! Scrub: what a device holds of the pool's committed contents is read from the device itself, verified, and written anew
//! where it is wrong. Which contents are committed, the caller says ([`Expected`]): no tree is known here.
//!
//! The walk, of one device, in the order of its own addresses:
//!
//! 1. [`Volume::next_stripe`]: the next device extent, and [`Volume::scrub_window`]: a piece of it, of whole strips.
//! 2. The caller looks up what is committed in the window's part of the logical space ([`Volume::expect`]).
//! 3. [`Volume::begin_scrub`] asks the devices: this one for what is used of the window, and for strips of parity the others
//!    for the data of the row. The host's cache is bypassed: a copy in memory says nothing of the medium. The next window
//!    may be begun before this one is ended, so that a device is never idle.
//! 4. [`ScrubRead::end`] verifies: data by checksums, tree blocks by the gate that reads use, parity by the data of its row.
//!    What is wrong is looked for in all other ways, and written over with what is right.
//!
//! **What may be written, and over what.** Bytes are written in one place only, over a granule (a sector, or a tree block)
//! of one copy that was found wrong, and only if they are known to belong there: they match the checksum, or pass the gate
//! for the block that is expected. Where there is no checksum, nothing is verified, and a copy is written only if its
//! device can't read it and another can. Parity is written only if each column of the row is right or is what readers get: data
//! with checksums must match, or is taken from where it matches; a column that is lost and has no checksum leaves parity as
//! it is, for that may be the only place that has it.
//!
//! **Writers beside it.** The caller holds the space that is freed meanwhile (see `tree`), so that a place of committed
//! contents is not given to anything else while it is looked at; what is committed is never written in place, except for data
//! without checksums, and parity. Before anything is written, it is looked at again with all writers of the volume locked
//! out: what a writer was about to complete in the first look is right in the second. No lock is held while nothing is
//! wrong.
//!
//! **A crash at each point.** A copy that is wrong is written over; a torn write leaves it wrong. The other copies are not
//! touched. Repairs count as such when the device was flushed, and has read them again.
//!
//! A device that failed to take something (`mend`) is not scrubbed there: that is told by the list of what it lacks, and
//! the next commit writes it.

mod copy;
mod correct;
mod expected;
mod read;
mod requests;
mod row;
mod superblocks;

pub use copy::{CopyFindings, CopyOptions, CopyRead};
pub use expected::{Content, Expected};
pub use read::ScrubRead;
pub use superblocks::SuperblockScrub;

use crate::device::PoolDevice;
use crate::layout::STRIP_BYTES;
use crate::{DeviceSet, Volume};
use brindle_device::{DIRECT_ALIGNMENT, DeviceError};
use brindle_ondisk::{BlockGroupType, DevId, Logical, Physical, SUPERBLOCK_OFFSETS, to_u64};

/// A device extent that is there to be scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStripe {
    /// The device.
    pub devid: DevId,
    /// Start address of the chunk.
    pub chunk: Logical,
    /// Length of the chunk, in bytes.
    pub chunk_length: u64,
    /// Content and profile of the chunk.
    pub kind: BlockGroupType,
    /// Start on the device.
    pub physical: Physical,
    /// Length in bytes.
    pub length: u64,
    stripe: usize,
}

/// A piece of a device extent, of whole strips but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubWindow {
    /// The device extent.
    pub stripe: ScrubStripe,
    /// Start of the piece within the device extent.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// The part of the logical space that the piece belongs to.
    pub start: Logical,
    /// Length of that, in bytes.
    pub logical_length: u64,
}

impl ScrubStripe {
    /// Address on the device behind it.
    pub fn end(&self) -> Physical {
        Physical::new(self.physical.get() + self.length)
    }
}

impl ScrubWindow {
    /// Address on the device behind the piece.
    pub fn end(&self) -> Physical {
        Physical::new(self.stripe.physical.get() + self.offset + self.length)
    }
}

/// Findings of a scrub, in the order of the kernel's (`btrfs_scrub_progress`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Extents of data.
    pub data_extents: u64,
    /// Tree blocks by their extents.
    pub tree_extents: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of tree blocks.
    pub tree_bytes: u64,
    /// Sectors and blocks that the device could not read.
    pub read_errors: u64,
    /// Sectors and blocks that don't match their checksums.
    pub csum_errors: u64,
    /// Tree blocks that are not what they should be.
    pub verify_errors: u64,
    /// Sectors without a checksum.
    pub no_csum: u64,
    /// Copies of the superblock that are wrong.
    pub super_errors: u64,
    /// Pieces of parity that don't fit their data.
    pub parity_errors: u64,
    /// Errors that could not be corrected: no copy is right.
    pub uncorrectable_errors: u64,
    /// Errors that were corrected.
    pub corrected_errors: u64,
    /// Errors that another copy, or parity, has right, and that were only looked for, or that their device did not have corrected.
    pub correctable_errors: u64,
    /// Bytes that were read of all devices.
    pub read_bytes: u64,
}

impl ScrubCounts {
    /// Adds those of another part.
    pub fn add(&mut self, other: &Self) {
        self.data_extents += other.data_extents;
        self.tree_extents += other.tree_extents;
        self.data_bytes += other.data_bytes;
        self.tree_bytes += other.tree_bytes;
        self.read_errors += other.read_errors;
        self.csum_errors += other.csum_errors;
        self.verify_errors += other.verify_errors;
        self.no_csum += other.no_csum;
        self.super_errors += other.super_errors;
        self.parity_errors += other.parity_errors;
        self.uncorrectable_errors += other.uncorrectable_errors;
        self.corrected_errors += other.corrected_errors;
        self.correctable_errors += other.correctable_errors;
        self.read_bytes += other.read_bytes;
    }

    /// Number of errors, whatever became of them.
    pub fn errors(&self) -> u64 {
        self.read_errors + self.csum_errors + self.verify_errors + self.super_errors + self.parity_errors
    }
}

/// Content that a scrub could not correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFault {
    /// Its address.
    pub logical: Logical,
    /// Its length in bytes.
    pub length: u64,
    /// The device.
    pub devid: DevId,
    /// Address on the device.
    pub physical: Physical,
    /// The content.
    pub content: Content,
    /// The problem.
    pub problem: String,
    /// True if no other copy has it right.
    pub is_lost: bool,
    /// True if a copy to another device leaves out what has no checksum: nothing would tell there that it is lost.
    pub is_silent: bool,
}

/// Result of a window.
#[derive(Clone, Debug, Default)]
pub struct ScrubFindings {
    /// Counts.
    pub counts: ScrubCounts,
    /// Errors that were not corrected.
    pub faults: Vec<ScrubFault>,
}

impl Volume {
    /// The first device extent, of a device that is there, that reaches beyond an address on the device.
    pub fn next_stripe(&self, devid: DevId, from: Physical) -> Option<ScrubStripe> {
        let pool = self.snapshot();
        let stripes = pool.chunks.iter().flat_map(|chunk| {
            let numbered = chunk.stripes.iter().enumerate();
            numbered.filter(|(_, stripe)| stripe.devid == devid).map(move |(number, stripe)| ScrubStripe {
                devid,
                chunk: chunk.start,
                chunk_length: chunk.length,
                kind: chunk.kind,
                physical: stripe.physical,
                length: chunk.stripe_length(),
                stripe: number,
            })
        });
        let is_meant = |stripe: &ScrubStripe| stripe.physical.get() + stripe.length > from.get();
        stripes.filter(is_meant).min_by_key(|stripe| stripe.physical)
    }

    /// The piece of a device extent that holds an address on the device, or that begins the device extent, of at most some
    /// bytes; `None` behind its end, and if the chunk is no more.
    pub fn scrub_window(&self, stripe: &ScrubStripe, from: Physical, length: u64) -> Option<ScrubWindow> {
        let pool = self.snapshot();
        let chunk = pool.chunks.find(stripe.chunk).filter(|chunk| chunk.start == stripe.chunk)?;
        let offset = from.get().saturating_sub(stripe.physical.get()) / STRIP_BYTES * STRIP_BYTES;
        if offset >= stripe.length {
            return None;
        }
        let length = (length.max(STRIP_BYTES) / STRIP_BYTES * STRIP_BYTES).min(stripe.length - offset);
        let (start, logical_length) = chunk.layout.span_of(offset, length);
        let logical_length = logical_length.min(chunk.length.saturating_sub(start));
        Some(ScrubWindow { stripe: *stripe, offset, length, start: chunk.start + start, logical_length })
    }

    /// Address on the device, within a device extent, before which nothing belongs to logical addresses from this one on.
    pub fn skip_to(&self, stripe: &ScrubStripe, logical: Logical) -> Physical {
        let pool = self.snapshot();
        let chunk = pool.chunks.find(stripe.chunk).filter(|chunk| chunk.start == stripe.chunk);
        let offset = chunk.zip(logical.distance_from(stripe.chunk)).map_or(0, |(chunk, distance)| {
            let row_bytes = chunk.layout.span_of(0, STRIP_BYTES).1;
            distance / row_bytes * STRIP_BYTES
        });
        Physical::new(stripe.physical.get() + offset.min(stripe.length))
    }

    /// Reads a few places of a device that is there, which lie far apart: one that can read none of them is gone, whatever the pool
    /// knows.
    ///
    /// # Errors
    /// That of the last place.
    pub fn probe(&self, devid: DevId) -> Result<(), DeviceError> {
        let pool = self.snapshot();
        let is_it = |member: &&PoolDevice| member.devid == devid && !member.is_intruder && !member.is_seed;
        let device = pool.devices.iter().filter(is_it).find_map(|member| member.device.as_ref());
        let Some(device) = device else { return Ok(()) };
        let last = device.size_bytes().saturating_sub(to_u64(DIRECT_ALIGNMENT)) / STRIP_BYTES * STRIP_BYTES;
        let places = SUPERBLOCK_OFFSETS.into_iter().filter(|at| *at < last).chain([0, last]);
        let mut bytes = vec![0; DIRECT_ALIGNMENT];
        let mut answer = Ok(());
        for place in places {
            answer = device.read_uncached(place, &mut bytes);
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    /// Nothing that is expected yet of a window.
    pub fn expect(&self, window: &ScrubWindow) -> Expected {
        Expected::new(self.tree_context(), window)
    }

    /// Makes repairs on a device durable; returns false if that failed.
    fn settle_repairs(&self, devid: DevId) -> bool {
        let flushed = self.flush(&DeviceSet::from_iter([devid]));
        flushed.inspect_err(|error| tracing::warn!("scrub: {error}")).is_ok()
    }
}
