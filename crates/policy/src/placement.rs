//! Choice of the devices of a new chunk.
//!
//! Each device is *fast* or *bulk*. In [`PlacementMode::Preferred`] (`ssd_metadata`) metadata and system chunks
//! prefer fast devices, data chunks bulk ones. If the preferred devices are enough for the profile
//! (`devs_min`), they alone are used; if not, all are, the preferred ones *first*: within a class the order is
//! longest free range, then free space, then devid, but no amount of free space moves a device past a better
//! class. Chunks that hold data and metadata together have no preference.
//!
//! Where the pool stores allocation hints (`dev_item.type`), they say more than the class: `METADATA_ONLY` is never
//! given data, `DATA_ONLY` never metadata. One such hint makes all of them count, for `DATA_PREFERRED`, which is 0, is a
//! hint too. Only `NO_NEW_CHUNKS` says nothing about other devices; and it holds in every mode.
//!
//! Within a class of either kind, devices have ranks where the owner has named [classes](crate::class): the lowest ranks that are
//! enough come first. Content that has to lie on the other side takes what is nearest: metadata the lowest rank of the bulk side,
//! data the highest of the fast side.
//!
//! Data that is to be at hand quickly has chunks of its own, of the *fast tier*: chunks whose stripes all lie on devices
//! that rather hold metadata. Where these are fewer than the copies of a mirrored profile, each of them has a copy, and the other
//! copies lie on bulk devices ([`copies_on_fast`]). That is all there is to them, so that a pool need store nothing about it.

mod hint;

pub use hint::{AllocationHint, UnknownHint};

use brindle_ondisk::{BlockGroupType, DevId, Profile, ProfileAttributes};
use std::cmp::Reverse;
use std::fmt;

/// The unit of lengths on devices: one strip of the striped profiles, in bytes (`BTRFS_STRIPE_LEN`).
pub const STRIP_BYTES: u64 = 64 << 10;

/// Unit to which a chunk's limit for one column is rounded up, in bytes.
const COLUMN_UNIT_BYTES: u64 = 16 << 20;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Pools larger than this have larger metadata chunks, in bytes.
const LARGE_POOL_BYTES: u64 = 50 * GIB;

/// Class of a device, for placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementClass {
    /// Flash: metadata belongs here.
    Fast,
    /// Spindles, or not known: data belongs here.
    #[default]
    Bulk,
}

impl PlacementClass {
    /// The other class.
    pub fn other(self) -> Self {
        match self {
            Self::Fast => Self::Bulk,
            Self::Bulk => Self::Fast,
        }
    }
}

impl fmt::Display for PlacementClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Bulk => "bulk",
        })
    }
}

/// Devices that data is to lie on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataTier {
    /// Their side.
    pub side: PlacementClass,
    /// Rank of their class; `None` for any of the side.
    pub rank: Option<u8>,
}

impl From<PlacementClass> for DataTier {
    fn from(side: PlacementClass) -> Self {
        Self { side, rank: None }
    }
}

impl DataTier {
    /// Worth of a tier where data has several owners, of which the best counts: the fast side before the bulk side; on the fast side the
    /// fastest class, and no wish behind all of them; on the bulk side no wish before all classes but the first.
    pub fn worth(self, first_bulk_rank: u8) -> u16 {
        const FAST: u16 = 1 << 10;
        const BULK: u16 = 1 << 9;
        let from_the_end = |rank: u8| u16::from(u8::MAX - rank);
        match (self.side, self.rank) {
            (PlacementClass::Fast, Some(rank)) => FAST + 1 + from_the_end(rank),
            (PlacementClass::Fast, None) => FAST,
            (PlacementClass::Bulk, Some(rank)) if rank <= first_bulk_rank => BULK + 1,
            (PlacementClass::Bulk, None) => BULK,
            (PlacementClass::Bulk, Some(rank)) => from_the_end(rank),
        }
    }
}

/// Ranks of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The lowest, which is the fastest.
    pub first: u8,
    /// The highest.
    pub last: u8,
}

impl Ranks {
    /// Every rank.
    pub const ALL: Self = Self { first: 0, last: u8::MAX };

    /// Returns true if a rank is one of them.
    pub const fn contains(self, rank: u8) -> bool {
        self.first <= rank && rank <= self.last
    }
}

/// Weight of the preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlacementMode {
    /// Nothing: the classic allocator, most free space first.
    Classic,
    /// Content prefers its class, and takes the others when that is not enough.
    #[default]
    Preferred,
    /// Content gets devices of its class, or none.
    Strict,
}

/// Facts about a device that placement regards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Its id in the pool.
    pub devid: DevId,
    /// Class when the pool stores no hints.
    pub class: PlacementClass,
    /// Stored hint.
    pub hint: AllocationHint,
    /// Rank of its class, 0 for the fastest.
    pub rank: u8,
    /// Its longest free range, in bytes.
    pub max_available_bytes: u64,
    /// All of its free space, in bytes.
    pub total_available_bytes: u64,
}

/// The chunk that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// Content; bits of the profile are not regarded.
    pub content: BlockGroupType,
    /// Profile.
    pub profile: Profile,
    /// Weight of the preference.
    pub mode: PlacementMode,
    /// Tier of a data chunk. One for the fast tier lies on fast devices, or nowhere.
    pub tier: PlacementClass,
    /// Number of copies of a chunk of the fast tier that lie on fast devices, where they are fewer than its copies
    /// ([`copies_on_fast`]): the other copies lie on bulk devices.
    pub copies_on_fast: Option<usize>,
    /// Ranks that the devices may have, where there is a preference. Bulk devices with copies of a chunk of the fast tier may have any.
    pub ranks: Ranks,
    /// The most that one stripe may take, in bytes.
    pub max_stripe_bytes: u64,
    /// The most that the logical range may be, in bytes.
    pub max_chunk_bytes: u64,
    /// Stripes shorter than this are not worth having, in bytes.
    pub min_stripe_bytes: u64,
    /// The most stripes that a chunk item may have.
    pub max_stripes: u16,
}

/// Devices and size of a new chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPlan {
    /// The device of each stripe, in order; with `dup` the same one twice.
    pub stripes: Vec<DevId>,
    /// Bytes that each stripe takes.
    pub stripe_bytes: u64,
    /// The logical range, in bytes.
    pub chunk_bytes: u64,
    /// Number of devices outside the class that the content prefers.
    pub spilled: usize,
}

/// Refusal of a chunk: too few devices have space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace {
    /// The request.
    pub request: ChunkRequest,
    /// Number of devices that could take a stripe.
    pub usable: usize,
    /// Number of devices that the profile needs.
    pub needed: usize,
    /// Number of further devices that could, were they not of the wrong class.
    pub excluded: usize,
}

/// Limits on the size of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// The most that one stripe may take, in bytes.
    pub max_stripe_bytes: u64,
    /// The most that the logical range may be, in bytes (the kernel's rounding up of a column comes on top).
    pub max_chunk_bytes: u64,
}

impl ChunkLimits {
    /// Limits of the kernel in a pool with `pool_bytes` on writable devices.
    pub fn new(content: BlockGroupType, pool_bytes: u64) -> Self {
        let most = if content.contains(BlockGroupType::DATA) {
            10 * GIB
        } else if content.contains(BlockGroupType::SYSTEM) {
            32 * MIB
        } else if pool_bytes > LARGE_POOL_BYTES {
            GIB
        } else {
            256 * MIB
        };
        // No chunk takes more than a tenth, so that none fills a small pool alone.
        Self { max_stripe_bytes: most.min(GIB), max_chunk_bytes: most.min(pool_bytes / 10) }
    }
}

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (content, profile) = (self.request.content.content_name(), self.request.profile);
        write!(f, "no space for a {content} chunk of profile {profile}: it needs {} device", self.needed)?;
        f.write_str(if self.needed == 1 { "" } else { "s" })?;
        write!(f, " with {} bytes to spare, and there ", self.request.least_free())?;
        match self.usable {
            1 => f.write_str("is 1")?,
            usable => write!(f, "are {usable}")?,
        }
        match self.excluded {
            0 => Ok(()),
            1 => f.write_str(" (1 more is of a class that may not hold it)"),
            excluded => write!(f, " ({excluded} more are of a class that may not hold it)"),
        }
    }
}

impl std::error::Error for NoSpace {}

impl ChunkRequest {
    fn attributes(&self) -> &'static ProfileAttributes {
        self.profile.attributes()
    }

    /// Longest free range that a device must have at least, in bytes.
    fn least_free(&self) -> u64 {
        let stripe = self.min_stripe_bytes.max(STRIP_BYTES);
        stripe.saturating_mul(self.attributes().dev_stripes.into())
    }

    /// Returns true if classes and hints are regarded at all.
    fn has_preference(&self) -> bool {
        let is_mixed = self.content.contains(BlockGroupType::DATA | BlockGroupType::METADATA);
        self.mode != PlacementMode::Classic && !is_mixed
    }

    /// Number of copies on fast devices of a chunk that has others on bulk devices.
    fn split(&self) -> Option<usize> {
        let is_fast_data = self.content.contains(BlockGroupType::DATA) && self.tier == PlacementClass::Fast;
        self.copies_on_fast.filter(|_| is_fast_data && self.has_preference())
    }
}

/// Suitability of a device by its hint; the smaller, the better.
type Suitability = u8;
/// Place of a device in the order of preference: its suitability, and then its rank.
type Preference = (Suitability, u8);

/// Returns true if hints count, rather than classes.
fn has_hints(devices: &[DeviceSummary]) -> bool {
    devices.iter().any(|device| device.hint.counts())
}

/// Hint that counts for a device.
fn hint_of(device: &DeviceSummary, has_hints: bool) -> AllocationHint {
    match (has_hints, device.class) {
        (true, _) => device.hint,
        (false, _) if device.hint == AllocationHint::NoNewChunks => device.hint,
        (false, PlacementClass::Fast) => AllocationHint::MetadataPreferred,
        (false, PlacementClass::Bulk) => AllocationHint::DataPreferred,
    }
}

/// The class that each device counts as, hints considered, in the order given. One that is to be emptied is what the
/// host says of it.
pub fn classes(devices: &[DeviceSummary]) -> Vec<PlacementClass> {
    let has_hints = has_hints(devices);
    let class = |device: &DeviceSummary| hint_of(device, has_hints).class().unwrap_or(device.class);
    devices.iter().map(class).collect()
}

/// The part of a chunk that the devices of a class can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// All of it.
    Whole,
    /// This number of its copies, each of them on a device of its own.
    Copies(usize),
    /// No part that would make a difference: no device, or too few for a profile that stripes.
    Nothing,
}

impl Fit {
    /// Part of a chunk of this profile that `found` devices can hold. Of mirrors each copy counts. A stripe set that
    /// has too few devices spreads over all of them, and reads come from the slow ones as often as before.
    pub fn of(profile: Profile, found: usize) -> Self {
        let attributes = profile.attributes();
        if found >= usize::from(attributes.devs_min) {
            Self::Whole
        } else if found > 0 && attributes.devs_max > 1 {
            Self::Copies(found)
        } else {
            Self::Nothing
        }
    }
}

/// Bytes of metadata that fit into new chunks that lie as well as the devices allow: on suitable devices alone, or with as
/// many copies there as there are suitable devices.
pub fn room_at_best(devices: &[DeviceSummary], request: &ChunkRequest) -> u64 {
    let has_hints = has_hints(devices);
    let is_suitable = |device: &&DeviceSummary| {
        suitability(hint_of(device, has_hints), request).is_some_and(|found| found < UNSUITABLE)
    };
    let mode = match Fit::of(request.profile, devices.iter().filter(is_suitable).count()) {
        Fit::Copies(copies) => {
            let spilled_max = usize::from(request.attributes().devs_max) - copies;
            let request = ChunkRequest { mode: PlacementMode::Preferred, ..*request };
            return room(devices, &request, &|plan| plan.spilled <= spilled_max);
        }
        Fit::Whole | Fit::Nothing => PlacementMode::Strict,
    };
    room_for(devices, &ChunkRequest { mode, ..*request })
}

/// Bytes of data or metadata that fit into new chunks of this kind, all together. Nearly exact: chunks of moderate
/// size are placed one after the other.
pub fn room_for(devices: &[DeviceSummary], request: &ChunkRequest) -> u64 {
    room(devices, request, &|_| true)
}

/// Bytes that fit into new chunks, until there is none that is good enough.
fn room(devices: &[DeviceSummary], request: &ChunkRequest, is_good: &dyn Fn(&ChunkPlan) -> bool) -> u64 {
    /// Number of chunks on the roomiest device: enough to show how room is shared out.
    const CHUNKS: u64 = 64;
    let mut devices = devices.to_vec();
    // What lies in several pieces is good for several chunks.
    devices.iter_mut().for_each(|device| device.max_available_bytes = device.total_available_bytes);
    let largest = devices.iter().map(|device| device.max_available_bytes).max().unwrap_or(0);
    let stripe = (largest / CHUNKS).max(request.least_free());
    let request = ChunkRequest { max_stripe_bytes: stripe, max_chunk_bytes: u64::MAX / 2, ..*request };
    let mut bytes = 0u64;
    while let Some(plan) = place_chunk(&devices, &request).ok().filter(is_good) {
        bytes = bytes.saturating_add(plan.chunk_bytes);
        for devid in &plan.stripes {
            let taken = devices.iter_mut().find(|device| device.devid == *devid);
            let device = taken.expect("placement chooses among the devices given");
            for left in [&mut device.max_available_bytes, &mut device.total_available_bytes] {
                *left = left.saturating_sub(plan.stripe_bytes);
            }
        }
    }
    bytes
}

/// Tier of an extent of data that several files share: the best that one of them asks for counts, or else a free copy
/// in a slow directory would slow down the original.
pub fn tier_of_owners(owners: impl IntoIterator<Item = DataTier>, first_bulk_rank: u8) -> DataTier {
    owners.into_iter().max_by_key(|tier| tier.worth(first_bulk_rank)).unwrap_or_default()
}

/// Bytes that new chunks of the fast tier may take of the unallocated space of a fast device: a quarter of the device
/// is for metadata, so that small files never drive that off it.
pub fn room_for_fast_data(total_bytes: u64, metadata_bytes: u64, unallocated_bytes: u64) -> u64 {
    let kept = (total_bytes / 4).saturating_sub(metadata_bytes);
    unallocated_bytes.saturating_sub(kept)
}

/// Number of copies on fast devices that a data chunk of the fast tier has, in a pool of this number of fast and bulk devices, if it
/// has others on bulk devices: of mirrored profiles, with fewer fast devices than copies. `None` where the fast devices are enough
/// for all of it, where half of it there makes no difference (profiles that stripe), and where other data has to lie on fast devices
/// as well, for the bulk devices are too few: then there is no such tier.
pub fn copies_on_fast(profile: Profile, fast: usize, bulk: usize) -> Option<usize> {
    match Fit::of(profile, fast) {
        Fit::Copies(copies) if bulk >= usize::from(profile.attributes().devs_min) => Some(copies),
        _ => None,
    }
}

/// Returns true if a data chunk is of the fast tier, by the number of fast ones among all of its devices: it lies on fast devices alone, or
/// has the [copies on them](copies_on_fast) that chunks of a split tier have.
pub fn is_in_fast_tier(on_fast: usize, all: usize, copies_on_fast: Option<usize>) -> bool {
    on_fast == all || copies_on_fast.is_some_and(|copies| on_fast >= copies)
}

/// Number of devices that data of the fast tier may lie on, were there room.
pub fn fast_data_devices(devices: &[DeviceSummary]) -> usize {
    let has_hints = has_hints(devices);
    devices.iter().filter(|device| hint_of(device, has_hints) == AllocationHint::MetadataPreferred).count()
}

/// Chooses the devices of a chunk. The order in which devices are given does not matter.
pub fn place_chunk(devices: &[DeviceSummary], request: &ChunkRequest) -> Result<ChunkPlan, NoSpace> {
    let has_hints = has_hints(devices);
    let has_room = |device: &&DeviceSummary| device.max_available_bytes >= request.least_free();
    let roomy: Vec<&DeviceSummary> = devices.iter().filter(has_room).collect();
    let preferred =
        roomy.iter().filter_map(|device| Some((preference(device, has_hints, request)?, *device)));
    let mut candidates: Vec<(Preference, &DeviceSummary)> = preferred.collect();
    candidates.sort_by_key(|(place, device)| {
        (*place, Reverse(device.max_available_bytes), Reverse(device.total_available_bytes), device.devid)
    });
    let needed = usize::from(request.attributes().devs_min);
    let (usable, excluded) = (candidates.len(), roomy.len() - candidates.len());
    // The fewest groups that are enough; what lies behind them is not looked at.
    if let Some((enough, _)) = candidates.get(needed.saturating_sub(1)) {
        let enough = *enough;
        candidates.retain(|(place, _)| *place <= enough);
    }
    let devices = choose(&candidates, request);
    let on_fast = devices.iter().filter(|((found, _), _)| *found == 0).count();
    if devices.is_empty() || request.split().is_some_and(|copies| on_fast < copies) {
        return Err(NoSpace { request: *request, usable, needed, excluded });
    }
    Ok(plan(&devices, request))
}

/// Of devices that rather hold what is not wanted.
const UNSUITABLE: Suitability = 3;

/// Place of a device in the order of preference; `None` if it may not hold such a chunk.
fn preference(device: &DeviceSummary, has_hints: bool, request: &ChunkRequest) -> Option<Preference> {
    let found = suitability(hint_of(device, has_hints), request)?;
    if !request.has_preference() {
        return Some((found, 0));
    }
    let is_data = request.content.contains(BlockGroupType::DATA);
    let rank = if is_data && found == UNSUITABLE { u8::MAX - device.rank } else { device.rank };
    let is_further_copy = request.split().is_some() && found > 0;
    (is_further_copy || request.ranks.contains(device.rank)).then_some((found, rank))
}

/// `None` if a device with this hint may not hold such a chunk.
fn suitability(hint: AllocationHint, request: &ChunkRequest) -> Option<Suitability> {
    use AllocationHint::{
        DataOnly, DataPreferred, Indifferent, MetadataOnly, MetadataPreferred, NoNewChunks,
    };
    if hint == NoNewChunks {
        return None;
    }
    if !request.has_preference() {
        return Some(0);
    }
    let is_data = request.content.contains(BlockGroupType::DATA);
    if is_data && request.tier == PlacementClass::Fast {
        return match hint {
            MetadataPreferred => Some(0),
            DataOnly | DataPreferred => request.split().map(|_| 1),
            Indifferent => request.split().map(|_| 2),
            MetadataOnly | NoNewChunks => None,
        };
    }
    let found = match (is_data, hint) {
        (true, MetadataOnly) | (false, DataOnly) | (_, NoNewChunks) => return None,
        // A device for this alone comes before one that would rather hold this.
        (true, DataOnly) | (false, MetadataOnly) => 0,
        (true, DataPreferred) | (false, MetadataPreferred) => 1,
        (_, Indifferent) => 2,
        (true, MetadataPreferred) | (false, DataPreferred) => UNSUITABLE,
    };
    (found < UNSUITABLE || request.mode != PlacementMode::Strict).then_some(found)
}

/// Choice of the profile's number of candidates, from the first on; none if they are too few.
fn choose<'a>(
    candidates: &[(Preference, &'a DeviceSummary)],
    request: &ChunkRequest,
) -> Vec<(Preference, &'a DeviceSummary)> {
    let attributes = request.attributes();
    let mut count = candidates.len().min(usize::from(request.max_stripes / attributes.dev_stripes));
    if attributes.devs_max > 0 {
        count = count.min(attributes.devs_max.into());
    }
    count -= count % usize::from(attributes.devs_increment);
    if count < usize::from(attributes.devs_min) {
        count = 0;
    }
    candidates[..count].to_vec()
}

/// The geometry, on devices that are enough.
fn plan(devices: &[(Preference, &DeviceSummary)], request: &ChunkRequest) -> ChunkPlan {
    let attributes = request.attributes();
    let dev_stripes = u64::from(attributes.dev_stripes);
    let stripes = devices.len() as u64 * dev_stripes;
    let columns = (stripes / u64::from(attributes.ncopies)).saturating_sub(attributes.nparity.into()).max(1);
    let room = devices.iter().map(|(_, device)| device.max_available_bytes / dev_stripes).min();
    let least = request.min_stripe_bytes.max(STRIP_BYTES);
    let stripe_bytes = room
        .unwrap_or(0)
        .min(request.max_stripe_bytes)
        .min((request.max_chunk_bytes / columns).next_multiple_of(COLUMN_UNIT_BYTES))
        // What is too short to be worth having is worse than what is longer than asked.
        .max(least);
    let stripe_bytes = stripe_bytes - stripe_bytes % STRIP_BYTES;
    let twice = |device: &(Preference, &DeviceSummary)| {
        std::iter::repeat_n(device.1.devid, usize::from(attributes.dev_stripes))
    };
    ChunkPlan {
        stripes: devices.iter().flat_map(twice).collect(),
        stripe_bytes,
        chunk_bytes: stripe_bytes * columns,
        spilled: devices.iter().filter(|((found, _), _)| *found == UNSUITABLE).count(),
    }
}

#[cfg(test)]
mod tests;
