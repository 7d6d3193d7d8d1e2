//! Block groups in memory, and the sums over all of a kind.

use super::FreeRanges;
use super::delta::Delta;
use super::free_space::Bounds;
use super::reserve::LogReserve;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::{BlockGroupType, DevId};
use std::fmt;
use std::ops::{Index, IndexMut};

/// Permission to allocate from a block group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Allocation allowed.
    #[default]
    Open,
    /// Only where a new chunk can't be had: it is to be emptied.
    Avoided,
    /// Nothing: it is being emptied, and goes when nothing is in it any more.
    Closed,
}

/// A block group and its chunk.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) start: u64,
    pub(super) length: u64,
    /// Content and profile.
    pub(super) kind: BlockGroupType,
    /// True if its devices can be written.
    pub(super) writable: bool,
    /// Permission to allocate from it.
    pub(super) role: Role,
    /// Device and start of each stripe.
    pub(crate) stripes: Vec<(DevId, u64)>,
    /// Bytes that each stripe takes.
    pub(super) stripe_bytes: u64,
    /// Bytes of extents that have an item in the extent tree.
    pub(super) used: u64,
    /// Bytes that are taken and have no item yet.
    pub(super) reserved: u64,
    /// Bytes that were freed, and are not to be used before that is durable.
    pub(super) pinned: u64,
    /// Places of superblocks.
    pub(super) excluded: IntervalSet<u64>,
    /// Ranges that may be taken; `None` until they are looked up.
    pub(super) free: Option<FreeRanges>,
    /// Part that is kept for logs; `None` while free ranges are not looked up.
    pub(super) log_reserve: Option<LogReserve>,
    /// End of the last extent taken.
    pub(super) next: u64,
    /// Changes that the free space tree does not have yet.
    pub(super) delta: Delta,
    /// Free ranges that were counted anew when the pool was opened, as long as the free space tree does not have them.
    pub(super) recounted: Option<IntervalSet<u64>>,
    /// Used bytes in the block group item; `None` while there is no item.
    pub(super) written_used: Option<u64>,
    /// True if it was made in the running transaction, or got another content.
    pub(super) is_fresh: bool,
    /// True in a pool with two classes of devices if it lies on fast ones alone, or is one of data with a copy on each of them where they
    /// are fewer than copies.
    pub(super) is_fast: bool,
    /// Rank of its class: that of its slowest device, or of the slowest fast one if it is of the fast tier of data.
    pub(super) rank: u8,
    /// True if the pool has it as a chunk of the write-back tier.
    pub(super) is_write_back: bool,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block group at {} ({}, {} bytes)", self.start, self.kind, self.length)
    }
}

impl Group {
    /// Content that is allocated from it.
    pub(super) fn content(&self) -> Content {
        match Content::of(self.kind) {
            Content::Data if self.is_fast && self.is_write_back => Content::WriteBack,
            Content::Data if self.is_fast => Content::FastData,
            content => content,
        }
    }

    /// Returns true if anything may be taken from it.
    pub(super) fn is_open(&self) -> bool {
        self.writable && self.role != Role::Closed
    }

    /// Bytes that hold nothing.
    pub(super) fn unused(&self) -> u64 {
        let taken = self.used + self.reserved + self.pinned + self.excluded.bytes();
        self.length.saturating_sub(taken)
    }

    /// Bytes that could be taken, were all free ranges looked up.
    pub(super) fn available(&self) -> u64 {
        if self.is_open() { self.unused() } else { 0 }
    }

    /// Free bytes that cannot be allocated: the group is closed, or a superblock lies there.
    pub(super) fn read_only(&self) -> u64 {
        let taken = self.used + self.reserved + self.pinned;
        if self.is_open() { self.excluded.bytes() } else { self.length.saturating_sub(taken) }
    }

    /// Returns true if nothing is in it, and no change of it waits.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.reserved == 0 && self.pinned == 0 && self.delta.is_empty()
    }

    /// Returns true if a transaction before the running one has written its items.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_fresh && self.written_used.is_some()
    }

    /// Its addresses.
    pub(super) fn interval(&self) -> Interval {
        Interval::new(self.start, self.length)
    }

    /// The first address after it.
    pub(super) fn end(&self) -> u64 {
        self.start + self.length
    }

    /// For the items of the free space tree.
    pub(crate) fn bounds(&self, sectorsize: u64) -> Bounds {
        Bounds { start: self.start, length: self.length, sectorsize }
    }

    /// Contribution of the group to the sums.
    pub(super) fn totals(&self) -> Totals {
        let available = self.available();
        Totals {
            bytes: if self.is_open() { self.length } else { 0 },
            used: if self.is_open() { self.used } else { 0 },
            available,
            looked_up: if self.free.is_some() { available } else { 0 },
            pinned: if self.role == Role::Closed { 0 } else { self.pinned },
            taken: self.used + self.reserved,
        }
    }

    /// Takes a free range.
    pub(super) fn reserve(&mut self, span: Interval) {
        let free = self.free_at(span.start).expect("a range that is taken was found among the free ones");
        free.remove(span);
        self.reserved += span.length();
        self.next = span.end;
    }

    /// Gives a range back that was taken and not used.
    pub(super) fn unreserve(&mut self, span: Interval) {
        self.reserved = self.reserved.saturating_sub(span.length());
        self.add_free(span);
    }

    /// The place for a range of `least` to `most` bytes at an address, aligned.
    pub(super) fn room_at(&self, at: u64, (least, most): (u64, u64), unit: u64) -> Option<Interval> {
        let free = self.free.as_ref()?.holding(at)?;
        aligned(Interval { start: at, end: free.end }, unit)
            .filter(|room| room.length() >= least)
            .map(|room| cut(room, most))
    }

    /// The best place for a range of `least` to `most` bytes, aligned: one that is just long enough, or the longest
    /// there is. Without `tight`, always the longest.
    pub(super) fn best_room(&self, (least, most): (u64, u64), unit: u64, tight: bool) -> Option<Interval> {
        let free = self.free.as_ref()?;
        let fitting = if tight { free.fitting(most) } else { None };
        let whole = |span: Interval| aligned(span, unit).filter(|room| room.length() >= least);
        let best = fitting.and_then(whole).or_else(|| free.longest().and_then(whole));
        // The longest may be so askew that a shorter one has more room.
        let any = || {
            let is_hopeful = free.longest().is_some_and(|span| span.length() >= least && unit > 1);
            if is_hopeful { free.iter().find_map(whole) } else { None }
        };
        best.or_else(any).map(|room| cut(room, most))
    }

    /// A free range shorter than `below`, aligned: one that `wanted` bytes just fit in, or the longest of at least `least`.
    pub(super) fn short_room(&self, (least, wanted): (u64, u64), below: u64, unit: u64) -> Option<Interval> {
        let free = self.free.as_ref()?;
        let fitting = free.fitting(wanted).filter(|room| room.length() < below);
        let whole = |span: Interval| aligned(span, unit).filter(|room| room.length() >= least);
        fitting.and_then(whole).or_else(|| free.longest_below(below).and_then(whole))
    }

    /// Bytes that could be taken in ranges of at least `length`; `None` until they are looked up.
    pub(super) fn long_bytes(&self, length: u64) -> Option<u64> {
        Some(self.free.as_ref()?.bytes_from(length))
    }
}

/// The aligned part of a range.
fn aligned(span: Interval, unit: u64) -> Option<Interval> {
    let aligned = Interval { start: span.start.next_multiple_of(unit), end: span.end / unit * unit };
    (!aligned.is_empty()).then_some(aligned)
}

fn cut(span: Interval, most: u64) -> Interval {
    Interval::new(span.start, span.length().min(most))
}

/// Content of block groups, for allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Data,
    Metadata,
    System,
    /// Data and metadata.
    Mixed,
    /// Data of the fast tier: on fast devices alone, in a pool that has others, or with a copy on each of them.
    FastData,
    /// Data on fast devices alone, until it is destaged.
    WriteBack,
}

impl Content {
    /// All of them.
    pub(super) const ALL: [Self; 6] =
        [Self::Data, Self::Metadata, Self::System, Self::Mixed, Self::FastData, Self::WriteBack];

    /// Content of groups of a type, on any devices.
    pub(super) fn of(kind: BlockGroupType) -> Self {
        if kind.contains(BlockGroupType::DATA | BlockGroupType::METADATA) {
            Self::Mixed
        } else if kind.contains(BlockGroupType::DATA) {
            Self::Data
        } else if kind.contains(BlockGroupType::SYSTEM) {
            Self::System
        } else {
            Self::Metadata
        }
    }

    /// The bits of the kind.
    pub(super) fn flags(self) -> BlockGroupType {
        match self {
            Self::Data | Self::FastData | Self::WriteBack => BlockGroupType::DATA,
            Self::Metadata => BlockGroupType::METADATA,
            Self::System => BlockGroupType::SYSTEM,
            Self::Mixed => BlockGroupType::DATA | BlockGroupType::METADATA,
        }
    }
}

/// Sums over block groups that may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Their length.
    pub(super) bytes: u64,
    /// Bytes of extents that have items in the extent tree.
    pub(super) used: u64,
    /// Bytes that could be taken.
    pub(super) available: u64,
    /// Bytes of these in free ranges that are looked up.
    pub(super) looked_up: u64,
    /// Bytes freed, and not durably so.
    pub(super) pinned: u64,
    /// Bytes used, and bytes taken that have no item yet, in closed groups, too.
    pub(super) taken: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.used += other.used;
        self.available += other.available;
        self.looked_up += other.looked_up;
        self.pinned += other.pinned;
        self.taken += other.taken;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.bytes -= other.bytes;
        self.used -= other.used;
        self.available -= other.available;
        self.looked_up -= other.looked_up;
        self.pinned -= other.pinned;
        self.taken -= other.taken;
    }
}

/// Something for each content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PerContent<T>([T; Content::ALL.len()]);

impl<T> Index<Content> for PerContent<T> {
    type Output = T;

    fn index(&self, content: Content) -> &T {
        &self.0[content as usize]
    }
}

impl<T> IndexMut<Content> for PerContent<T> {
    fn index_mut(&mut self, content: Content) -> &mut T {
        &mut self.0[content as usize]
    }
}
