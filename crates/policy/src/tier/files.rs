//! Tiers that files ask for: the tier of each extent of their data, and the extents that lie in the other one.
//!
//! Data that was written while its tier was full lies in the other one, and so does what was written before it was
//! marked, before there was a limit for small files, or before the file grew beyond it. A [`Survey`] is shown the items
//! of all subvolumes, and tells which extents those are. An extent that several files share (clones, snapshots) belongs
//! into the best tier that one of them asks for.
//!
//! The compressed length of a file was unknown to a program that wrote it bit by bit. So a file that is small only
//! compressed is right in either tier, unless it is marked.
//!
//! Memory is bounded: a survey looks at a window of addresses, which ends where there would be too much, and
//! [`Survey::behind`] says where the next one begins.

use super::shortage::Shortage;
use super::{Content, TierChunk, TierPool};
use crate::class::{CLASSES_MAX, DeviceClasses, SIDES, is_class_name};
use crate::placement::{DataTier, PlacementClass, copies_on_fast};
use brindle_ondisk::item::{Compression, FileExtent};
use brindle_ondisk::{Item, Key, Logical, ObjectId, Profile};
use std::collections::BTreeMap;

/// The attribute that marks a file or directory.
pub const MARK: &[u8] = b"user.brindle.tier";

/// The attribute that limits the length of small files, of a file or directory.
pub const SMALL_FILES: &[u8] = b"user.brindle.small_files";

/// Length up to which a file with this attribute counts as small, in bytes: a decimal number; 0 for never.
pub fn limit_of(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() < 20 && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

/// The most ranks that there are: a side without a class of the owner's has one.
pub const RANKS_MAX: usize = CLASSES_MAX + 1;

/// Upper bound on remembered extents.
const WINDOW_EXTENTS: usize = 1 << 20;

/// A file takes no more than this above its length, unless space is kept beyond its end: a sector of any size.
const SLACK_BYTES: u64 = 64 << 10;

/// Returns true if a file can be marked so: `fast`, `bulk`, or a name that a class can have. One that the pool has no class of counts
/// for nothing.
pub fn is_mark(value: &[u8]) -> bool {
    SIDES.iter().any(|side| side.to_string().as_bytes() == value) || is_class_name(value)
}

/// Tier that a file asks for; of several requests, the one of most worth counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TierRequest {
    /// Right wherever it is.
    Either,
    Of(DataTier),
}

impl TierRequest {
    const BULK: Self = Self::side(PlacementClass::Bulk);
    const FAST: Self = Self::side(PlacementClass::Fast);

    const fn side(side: PlacementClass) -> Self {
        Self::Of(DataTier { side, rank: None })
    }

    fn worth(self, first_bulk_rank: u8) -> u16 {
        match self {
            // Between the two sides.
            Self::Either => 800,
            Self::Of(tier) => tier.worth(first_bulk_rank),
        }
    }
}

/// A data block group.
#[derive(Clone, Copy, Debug)]
struct BlockGroupRange {
    start: u64,
    end: u64,
    is_fast: bool,
    /// Rank of its slowest device; of the fast tier, of its slowest fast one.
    rank: u8,
}

/// An extent that lies in the wrong tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongExtent {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Tier that it belongs to.
    pub target: DataTier,
}

/// Extents, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of extents.
    pub extents: u64,
    /// Their length together, in bytes, each counted once.
    pub bytes: u64,
}

/// Amounts of tiered data, by tier and location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTiers {
    /// For fast devices, and there: small files, and what is marked.
    pub fast_in_place: Amount,
    /// For fast devices, and on the others.
    pub fast_on_bulk: Amount,
    /// For bulk devices, and on fast ones.
    pub bulk_on_fast: Amount,
    /// For devices of the class of a rank, which files are marked for, and on others.
    pub by_class: [Amount; RANKS_MAX],
}

/// Looks at the items of subvolumes.
#[derive(Debug)]
pub struct Survey {
    places: Vec<BlockGroupRange>,
    classes: DeviceClasses,
    /// Ranks of the classes that have devices enough for data.
    ranks: Vec<u8>,
    /// True if extents on bulk devices may be on those of a wrong class.
    looks_at_bulk: bool,
    small_file_bytes: u64,
    from: Logical,
    behind: Option<Logical>,
    window: usize,
    /// All on fast devices, and what should be there of the others.
    extents: BTreeMap<Logical, (u64, TierRequest)>,
    file: File,
}

/// The file whose items come.
#[derive(Debug, Default)]
struct File {
    number: Option<ObjectId>,
    size: u64,
    mark: Option<DataTier>,
    /// Its own limit for small files, if it has one.
    limit: Option<u64>,
    /// Bytes that its extents take.
    stored: u64,
    /// Its extents, as long as they may turn out to be right in either tier.
    extents: Vec<(Logical, u64)>,
}

impl Survey {
    /// Survey of extents from an address on. Empty if data has no tiers: if there are too few devices of a class.
    pub fn new(pool: &TierPool, small_file_bytes: u64, from: Logical) -> Self {
        let ranks = ranks_of_data(pool);
        let border = pool.classes.first_bulk_rank();
        Self {
            places: places(pool),
            classes: pool.classes.clone(),
            looks_at_bulk: ranks.iter().filter(|rank| **rank >= border).count() > 1,
            ranks,
            small_file_bytes,
            from,
            behind: None,
            window: WINDOW_EXTENTS,
            extents: BTreeMap::new(),
            file: File::default(),
        }
    }

    /// Returns true if there is nothing to look for.
    pub fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// A tree begins, or there are no more.
    pub fn next_tree(&mut self) {
        self.end_file();
    }

    /// The next item of the tree, in their order. What can't be understood is passed over.
    pub fn see(&mut self, key: &Key, data: &[u8]) {
        if self.file.number != Some(key.objectid) {
            self.end_file();
        }
        match Item::parse(key, data) {
            Ok(Item::Inode(inode)) => {
                self.file = File { number: Some(key.objectid), size: inode.size.get(), ..File::default() };
            }
            Ok(Item::Xattr(entries)) => {
                for entry in entries.flatten() {
                    match entry.name {
                        MARK => self.file.mark = self.classes.named(entry.value).or(self.file.mark),
                        SMALL_FILES => self.file.limit = limit_of(entry.value).or(self.file.limit),
                        _ => {}
                    }
                }
            }
            Ok(Item::FileExtent(FileExtent::OnDisk { compression, extent, .. }))
                if self.file.number == Some(key.objectid) && extent.disk_bytenr.get() != 0 =>
            {
                let (whole, part) = (extent.disk_num_bytes.get(), extent.num_bytes.get());
                let stored = if compression == Compression::None { part } else { whole };
                self.file.stored = self.file.stored.saturating_add(stored);
                self.file.extents.push((extent.disk_bytenr, whole));
                if self.is_decided() {
                    self.note_extents();
                }
            }
            _ => {}
        }
    }

    /// Start of the next survey; `None` if all was seen.
    pub fn behind(&self) -> Option<Logical> {
        self.behind
    }

    /// Amounts by tier and location.
    pub fn tiers(&self) -> FileTiers {
        let mut tiers = FileTiers::default();
        for (start, (length, wish)) in &self.extents {
            let is_fast = self.place(*start).is_some_and(|place| place.is_fast);
            let amount = match self.target(*start, *wish) {
                None if is_fast => &mut tiers.fast_in_place,
                None => continue,
                Some(DataTier { rank: Some(rank), .. }) => &mut tiers.by_class[usize::from(rank)],
                Some(DataTier { side: PlacementClass::Fast, .. }) => &mut tiers.fast_on_bulk,
                Some(DataTier { side: PlacementClass::Bulk, .. }) => &mut tiers.bulk_on_fast,
            };
            amount.add(*length);
        }
        tiers
    }

    /// Misplaced extents, by address.
    pub fn wrong(&self) -> impl Iterator<Item = WrongExtent> {
        self.extents.iter().filter_map(|(start, (length, wish))| {
            let target = self.target(*start, *wish)?;
            Some(WrongExtent { start: *start, length_bytes: *length, target })
        })
    }

    /// Tier that an extent belongs to, if it lies in the other one.
    fn target(&self, start: Logical, wish: TierRequest) -> Option<DataTier> {
        let (place, TierRequest::Of(tier)) = (self.place(start)?, wish) else { return None };
        let is_there = place.is_fast == (tier.side == PlacementClass::Fast)
            && tier.rank.is_none_or(|rank| rank == place.rank);
        (!is_there).then_some(tier)
    }

    fn place(&self, at: Logical) -> Option<BlockGroupRange> {
        let after = self.places.partition_point(|place| place.start <= at.get());
        self.places.get(after.checked_sub(1)?).copied().filter(|place| at.get() < place.end)
    }

    /// Returns true if the items of the file still to come make no difference.
    fn is_decided(&self) -> bool {
        let is_large = self.file.stored > self.limit().saturating_add(SLACK_BYTES);
        self.file.mark.is_some() || self.limit() == 0 || is_large
    }

    /// Length up to which the file counts as small.
    fn limit(&self) -> u64 {
        self.file.limit.unwrap_or(self.small_file_bytes)
    }

    /// TierRequest of the file, as far as it is known.
    fn wish(&self) -> TierRequest {
        let File { mark, size, stored, .. } = self.file;
        let limit = self.limit();
        match mark {
            // A class with too few devices counts as its side.
            Some(DataTier { side, rank }) => {
                let rank = rank.filter(|rank| self.ranks.contains(rank));
                TierRequest::Of(DataTier { side, rank })
            }
            None if limit == 0 => TierRequest::BULK,
            // Space may be kept for what is to come.
            None if size <= limit && self.is_decided() => TierRequest::Either,
            None if size <= limit => TierRequest::FAST,
            None if stored <= limit => TierRequest::Either,
            None => TierRequest::BULK,
        }
    }

    fn end_file(&mut self) {
        self.note_extents();
        self.file = File::default();
    }

    fn note_extents(&mut self) {
        let wish = self.wish();
        for (start, length) in std::mem::take(&mut self.file.extents) {
            self.note(start, length, wish);
        }
    }

    fn note(&mut self, start: Logical, length: u64, wish: TierRequest) {
        let is_outside = start < self.from || self.behind.is_some_and(|behind| start >= behind);
        let Some(place) = self.place(start).filter(|_| !is_outside) else { return };
        let is_for_fast = matches!(wish, TierRequest::Of(DataTier { side: PlacementClass::Fast, .. }));
        if !place.is_fast && !is_for_fast && !self.looks_at_bulk {
            return;
        }
        let border = self.classes.first_bulk_rank();
        let (_, known) = self.extents.entry(start).or_insert((length, wish));
        if wish.worth(border) > known.worth(border) {
            *known = wish;
        }
        if self.extents.len() > self.window {
            if let Some((last, _)) = self.extents.pop_last() {
                self.behind = Some(last);
            }
        }
    }
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.extents += 1;
        self.bytes += bytes;
    }
}

impl std::ops::AddAssign for FileTiers {
    fn add_assign(&mut self, other: Self) {
        let pairs = [
            (&mut self.fast_in_place, other.fast_in_place),
            (&mut self.fast_on_bulk, other.fast_on_bulk),
            (&mut self.bulk_on_fast, other.bulk_on_fast),
        ];
        for (sum, other) in pairs.into_iter().chain(self.by_class.iter_mut().zip(other.by_class)) {
            sum.extents += other.extents;
            sum.bytes += other.bytes;
        }
    }
}

/// Reason for which data of these profiles has no tiers on this number of fast and bulk devices; `None` if it has.
pub fn no_tiers_reason(
    profiles: impl IntoIterator<Item = Profile>,
    fast: usize,
    bulk: usize,
) -> Option<Shortage> {
    if fast == 0 || bulk == 0 {
        return Some(Shortage::OneClass(if fast == 0 { PlacementClass::Bulk } else { PlacementClass::Fast }));
    }
    let short = |profile: Profile| {
        if copies_on_fast(profile, fast, bulk).is_some() {
            return None;
        }
        let needed = usize::from(profile.attributes().devs_min);
        let classes = [(PlacementClass::Fast, fast), (PlacementClass::Bulk, bulk)];
        let (class, found) = classes.into_iter().find(|(_, count)| *count < needed)?;
        Some(Shortage::TooFewDevices { content: Content::Data, profile, class, found })
    };
    profiles.into_iter().find_map(short)
}

/// Ranks of the classes that have as many devices as the data of a pool needs.
pub fn ranks_of_data(pool: &TierPool) -> Vec<u8> {
    let data = pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data && !chunk.is_write_back);
    let needed = data.map(|chunk| chunk.profile().attributes().devs_min).max().unwrap_or(1);
    let count = |rank| pool.devices.iter().filter(|device| device.rank == rank).count();
    let ranks = (0..).zip(pool.classes.all()).map(|(rank, _)| rank);
    ranks.filter(|rank| !pool.classes.is_empty() && count(*rank) >= usize::from(needed)).collect()
}

/// The data block groups by address, if there are enough devices of either class for their profiles. What waits in the
/// write-back tier is in no wrong place.
fn places(pool: &TierPool) -> Vec<BlockGroupRange> {
    let is_data = |content| content == Content::Data;
    let data = || pool.chunks.iter().filter(|chunk| is_data(chunk.content()) && !chunk.is_write_back);
    let (fast, bulk) = (pool.count(PlacementClass::Fast), pool.count(PlacementClass::Bulk));
    if !pool.is_ours || no_tiers_reason(data().map(TierChunk::profile), fast, bulk).is_some() {
        return Vec::new();
    }
    let mut places: Vec<BlockGroupRange> = data()
        .map(|chunk| BlockGroupRange {
            start: chunk.logical.get(),
            end: chunk.logical.get().saturating_add(chunk.length_bytes),
            is_fast: pool.is_of_fast_tier(chunk),
            rank: pool.chunk_rank(chunk),
        })
        .collect();
    places.sort_by_key(|place| place.start);
    places
}

#[cfg(test)]
mod tests;
