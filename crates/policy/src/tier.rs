//! Tiers: which chunks lie on devices of the wrong class, and how a kernel that knows no classes is brought to move
//! them. Metadata and system chunks belong on fast devices, data chunks on bulk ones; chunks that hold both have
//! no preference.
//!
//! # Too few devices
//!
//! A chunk is well placed if it lies as well as the devices allow ([`Fit`]), and misplaced else. Where the class has as many devices as the profile
//! needs, all of the chunk belongs there. Where it has fewer:
//!
//! - Metadata and system chunks that are mirrored (`raid1`, `raid1c3`, `raid1c4`) are well placed with a copy on each fast device.
//!   One SSD beside two disks holds one copy of all metadata, and that one is read.
//! - Profiles that stripe (`raid10`, `raid5`, `raid6`) would spread over all devices, and have no preference. (`single`,
//!   `dup` and `raid0` need one device; but `raid0` of a mount of the kernel is striped over each device with any room.)
//! - Data has no preference either: a copy on the bulk device saves no room on the fast one. Data of small and marked files is
//!   mirrored like metadata, with a copy on each fast device ([`TierPool::copies_on_fast`]).
//!
//! Where the owner has listed several [classes](crate::class) of fast devices, metadata belongs on the fastest of them that have as many
//! devices as the profile needs, all together; if there are too few fast devices, all of them count, as above.
//!
//! # The walk
//!
//! 1. The caller gathers the facts (the command line by `admin` from a mounted pool, by `tree` from one that is not):
//!    devices, and chunks with their stripes and the bytes used in them. [`classify`] makes a class of what the pool
//!    stores, what the host knows and what the user says; [`TierPool`] holds the result.
//! 2. [`distribution::distributions`] sums up the bytes of each class by content and profile, and the misplaced ones.
//! 3. [`plan::plan`] lists [passes](plan::Pass): metadata to the fast devices, data off them. A pass is the chunks to
//!    be relocated and the *fences* to be put up meanwhile.
//! 4. `admin` carries a plan out, and takes the fences down again whatever happens.
//! 5. So that it stays so, [`watch::is_fence_due`] says when a new metadata chunk is near.
//!
//! # Why a fence works
//!
//! The kernel gives a new chunk to the devices with the longest free range (as far as the chunk can use it), then
//! the most free space. A relocated chunk's blocks go to free space in other chunks of their kind, and then to new
//! chunks. A device that is resized down to the end of its last device extent has nothing unallocated to offer but
//! holes, so new chunks go elsewhere; nothing of it is moved by that, for nothing lies beyond its new end. Holes, which
//! relocation itself leaves behind, are why a plan says whether its fences [hold](plan::Pass::holds), and why
//! its executor looks again afterwards.
//!
//! Where only some copies fit on the fast devices, as many bulk devices stay [open](plan::Move::open) as the other copies
//! need: the roomiest. With all others fenced, each fast device is among the first that the profile takes, however much is
//! free on the open ones. The choice is made anew for each chunk, so that the disks fill evenly.

pub mod distribution;
pub mod files;
pub mod gain;
pub mod missing;
pub mod plan;
pub mod reason;
pub mod shortage;
pub mod strips;
#[cfg(test)]
mod tests;
pub mod watch;

use crate::class::DeviceClasses;
use crate::log::{LogDevice, LogEverywhere, LogPlacement, LogProfile, bulk_before_fast, log_placement};
use crate::placement::{AllocationHint, Fit, PlacementClass, copies_on_fast, is_in_fast_tier};
use brindle_interval::gaps;
use brindle_ondisk::{BlockGroupType, DevId, Logical, Physical, Profile};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// Facts about a device's class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFacts {
    /// The user's choice.
    pub chosen: Option<PlacementClass>,
    /// Number stored in the pool (`dev_item.type`).
    pub stored: u64,
    /// The host's report.
    pub rotates: Option<bool>,
}

/// Reason for a device's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassReason {
    /// The user says so.
    Chosen,
    /// The pool stores it.
    Stored(AllocationHint),
    /// The host says that it rotates, or not.
    Rotates(bool),
    /// Class of the device in the mount.
    Mounted,
    /// No source says anything.
    Unknown,
}

/// The class of each device, and why. Hints that the pool stores count for all of its devices as soon as one is other
/// than 0, as for placement.
pub fn classify(devices: &[ClassFacts]) -> Vec<(PlacementClass, ClassReason)> {
    let hint = |device: &ClassFacts| AllocationHint::from_disk(device.stored).unwrap_or_default();
    let has_hints = devices.iter().any(|device| hint(device).counts());
    let class = |device: &ClassFacts| {
        let stored = Some(hint(device)).filter(|_| has_hints).and_then(|hint| Some((hint.class()?, hint)));
        match (device.chosen, stored, device.rotates) {
            (Some(class), _, _) => (class, ClassReason::Chosen),
            (None, Some((class, hint)), _) => (class, ClassReason::Stored(hint)),
            (None, None, Some(true)) => (PlacementClass::Bulk, ClassReason::Rotates(true)),
            (None, None, Some(false)) => (PlacementClass::Fast, ClassReason::Rotates(false)),
            (None, None, None) => (PlacementClass::Bulk, ClassReason::Unknown),
        }
    };
    devices.iter().map(class).collect()
}

impl fmt::Display for ClassReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("as told"),
            Self::Stored(hint) => write!(f, "hint {hint}"),
            Self::Rotates(true) => f.write_str("rotates"),
            Self::Rotates(false) => f.write_str("does not rotate"),
            Self::Mounted => f.write_str("as mounted"),
            Self::Unknown => f.write_str("not known to be fast"),
        }
    }
}

/// Content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// The trees.
    Metadata,
    /// The chunk tree.
    System,
    /// Contents of files.
    Data,
    /// Data and metadata in one.
    Mixed,
}

impl Content {
    /// Content of a block group of this type.
    pub fn of(kind: BlockGroupType) -> Self {
        match (kind.contains(BlockGroupType::DATA), kind.contains(BlockGroupType::METADATA)) {
            (true, true) => Self::Mixed,
            (true, false) => Self::Data,
            (false, true) => Self::Metadata,
            (false, false) => Self::System,
        }
    }

    /// Class that it belongs on, if it makes a difference.
    pub fn class(self) -> Option<PlacementClass> {
        match self {
            Self::Metadata | Self::System => Some(PlacementClass::Fast),
            Self::Data => Some(PlacementClass::Bulk),
            Self::Mixed => None,
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "metadata",
            Self::System => "system",
            Self::Data => "data",
            Self::Mixed => "mixed",
        })
    }
}

/// A device of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierDevice {
    /// Its id.
    pub devid: DevId,
    /// Its class.
    pub class: PlacementClass,
    /// Rank of its class among those that the owner has listed.
    pub rank: u8,
    /// Its size as the pool has it, in bytes.
    pub total_bytes: u64,
}

/// A chunk's piece of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierStripe {
    /// The device.
    pub devid: DevId,
    /// Start on the device, in bytes.
    pub physical: Physical,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierChunk {
    /// Start address.
    pub logical: Logical,
    /// Length of the logical range, in bytes.
    pub length_bytes: u64,
    /// Used of it, in bytes.
    pub used_bytes: u64,
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Its pieces.
    pub stripes: Vec<TierStripe>,
    /// True if it is of the write-back tier: what lies in it waits there, and will go by itself.
    pub is_write_back: bool,
}

impl TierChunk {
    /// Content.
    pub fn content(&self) -> Content {
        Content::of(self.kind)
    }

    /// Profile.
    pub fn profile(&self) -> Profile {
        self.kind.profile().unwrap_or(Profile::Single)
    }

    /// The length of each of its pieces, in bytes.
    pub fn stripe_bytes(&self) -> u64 {
        let attributes = self.profile().attributes();
        let columns = self.stripes.len() as u64 / u64::from(attributes.ncopies);
        self.length_bytes / columns.saturating_sub(attributes.nparity.into()).max(1)
    }
}

/// A pool, as far as tiers are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierPool {
    /// Its devices, without those that are missing: decisions go by what is there.
    pub devices: Vec<TierDevice>,
    /// All of its devices, those that are missing included, with their classes as they are once none is; empty if none is missing.
    pub members: Vec<TierDevice>,
    /// Its chunks.
    pub chunks: Vec<TierChunk>,
    /// Classes that the owner has listed.
    pub classes: DeviceClasses,
    /// True if brindle places new chunks and moves misplaced ones, and not the kernel: then nothing has to be fenced,
    /// and data on fast devices alone is well placed, for it is that of small files.
    pub is_ours: bool,
    /// True if ranks make no difference to metadata: what is misplaced by them has no room.
    pub is_by_side: bool,
}

impl TierPool {
    /// The class of a device; what is not there holds nothing fast.
    pub fn class(&self, devid: DevId) -> PlacementClass {
        let device = self.devices.iter().find(|device| device.devid == devid);
        device.map_or(PlacementClass::Bulk, |device| device.class)
    }

    /// Rank of a device.
    pub fn rank(&self, devid: DevId) -> u8 {
        self.devices.iter().find(|device| device.devid == devid).map_or(0, |device| device.rank)
    }

    /// Class and rank of a device, missing or not. Decisions go by [`class`](Self::class) and [`rank`](Self::rank).
    pub fn known_class(&self, devid: DevId) -> (PlacementClass, u8) {
        let mut known = self.devices.iter().chain(&self.members);
        let device = known.find(|device| device.devid == devid);
        device.map_or((PlacementClass::Bulk, 0), |device| (device.class, device.rank))
    }

    /// Name of a device's class, missing or not.
    pub fn class_name(&self, devid: DevId) -> String {
        let (class, rank) = self.known_class(devid);
        match self.classes.is_empty() {
            true => class.to_string(),
            false => self.classes.name(rank),
        }
    }

    /// The pool, if what is misplaced has room by the ranks of fast devices; else the same, with all fast devices of one rank.
    #[must_use]
    pub fn settled(self) -> Self {
        let is_fast = |device: &&TierDevice| device.class == PlacementClass::Fast;
        let fastest = self.devices.iter().filter(is_fast).map(|device| device.rank).min().unwrap_or(0);
        if self.devices.iter().filter(is_fast).all(|device| device.rank == fastest) {
            return self;
        }
        let refusals = plan::plan(&self, plan::Wanted { metadata: true, data: false }).refusals;
        if refusals.is_empty() { self } else { self.by_side() }
    }

    /// The same, with all fast devices of one rank for metadata.
    #[must_use]
    fn by_side(mut self) -> Self {
        self.is_by_side = true;
        self
    }

    /// The highest rank of the fast devices that hold metadata of a profile.
    fn metadata_rank_max(&self, profile: Profile) -> u8 {
        let fast = self.devices.iter().filter(|device| device.class == PlacementClass::Fast);
        let mut ranks: Vec<u8> = fast.map(|device| device.rank).collect();
        ranks.sort_unstable();
        let enough = usize::from(profile.attributes().devs_min).saturating_sub(1);
        ranks.get(enough).copied().filter(|_| !self.is_by_side).unwrap_or(u8::MAX)
    }

    /// Devices on which a chunk of a kind is on the class of its content, each with true, and all others.
    fn suited(&self, content: Content, profile: Profile) -> impl Iterator<Item = (&TierDevice, bool)> {
        let rank_max = self.metadata_rank_max(profile);
        self.devices.iter().map(move |device| {
            let is_near = content == Content::Data || device.rank <= rank_max;
            (
                device,
                content.class() == Some(device.class) && (device.class == PlacementClass::Bulk || is_near),
            )
        })
    }

    /// Devices that count as of a class for chunks of a kind: of fast devices, those that such metadata does not belong on count as
    /// bulk.
    pub fn devices_for(&self, kind: BlockGroupType, class: PlacementClass) -> Vec<&TierDevice> {
        let (content, profile) = (Content::of(kind), kind.profile().unwrap_or(Profile::Single));
        let counts_as = |device: &TierDevice, is_suited: bool| match content.class() {
            Some(PlacementClass::Fast) if is_suited => PlacementClass::Fast,
            Some(PlacementClass::Fast) => PlacementClass::Bulk,
            Some(PlacementClass::Bulk) | None => device.class,
        };
        let devices = self
            .suited(content, profile)
            .filter(|(device, is_suited)| counts_as(device, *is_suited) == class);
        devices.map(|(device, _)| device).collect()
    }

    /// Name of the devices that chunks of a kind go to, in words.
    pub fn target_name(&self, kind: BlockGroupType) -> String {
        let (content, profile) = (Content::of(kind), kind.profile().unwrap_or(Profile::Single));
        let Some(class) = content.class() else { return "any".to_owned() };
        if self.classes.is_empty() || class == PlacementClass::Bulk || self.is_by_side {
            return class.to_string();
        }
        let suited = self.suited(content, profile).filter(|(_, is_suited)| *is_suited);
        let ranks: BTreeSet<u8> = suited.map(|(device, _)| device.rank).collect();
        ranks.into_iter().map(|rank| self.classes.name(rank)).collect::<Vec<_>>().join(" and ")
    }

    /// Devices, as far as logs go.
    fn log_candidates(&self) -> Vec<LogDevice> {
        let device = |device: &TierDevice| LogDevice {
            devid: device.devid.get(),
            is_fast: device.class == PlacementClass::Fast,
        };
        self.devices.iter().map(device).collect()
    }

    /// Bulk devices with lower devids than a fast one, which may be in the way of a log on fast devices alone.
    pub fn bulk_before_fast(&self) -> Vec<u64> {
        bulk_before_fast(&self.log_candidates())
    }

    /// The pool, with higher devids for those.
    #[must_use]
    pub fn with_ordered_devids(&self) -> Self {
        let before = self.bulk_before_fast();
        let highest = self.devices.iter().map(|device| device.devid.get()).max().unwrap_or(0);
        let mut ordered = self.clone();
        for device in &mut ordered.devices {
            if before.contains(&device.devid.get()) {
                device.devid = DevId::new(device.devid.get() + highest);
            }
        }
        ordered
    }

    /// Fast devices that hold the log alone, with a profile of it, or the reason for which there are none.
    pub fn log_placement(&self, chosen: LogProfile) -> Result<LogPlacement, LogEverywhere> {
        let devices = self.log_candidates();
        let metadata = self.chunks.iter().filter(|chunk| !chunk.kind.contains(BlockGroupType::DATA));
        let tolerated = metadata.map(|chunk| chunk.profile().attributes().tolerated_failures).max();
        log_placement(&devices, tolerated.unwrap_or(0), chosen)
    }

    /// Number of devices of a class.
    pub fn count(&self, class: PlacementClass) -> usize {
        self.devices.iter().filter(|device| device.class == class).count()
    }

    /// The device extents of a device, by their places.
    pub fn extents(&self, devid: DevId) -> Vec<Range<u64>> {
        let pieces = self.chunks.iter().flat_map(|chunk| {
            let length = chunk.stripe_bytes();
            let here = chunk.stripes.iter().filter(move |stripe| stripe.devid == devid);
            here.map(move |stripe| stripe.physical.get()..stripe.physical.get().saturating_add(length))
        });
        let mut extents: Vec<Range<u64>> = pieces.collect();
        extents.sort_by_key(|extent| extent.start);
        extents
    }

    /// The free ranges of a device that ends at `end`, by their places.
    pub fn gaps(&self, devid: DevId, end: u64) -> Vec<Range<u64>> {
        gaps(RESERVED_BYTES..end, self.extents(devid)).into_iter().map(Range::from).collect()
    }

    /// The part of a chunk that the devices of its content's class can hold.
    pub fn fit(&self, content: Content, profile: Profile) -> Fit {
        if self.is_striped_by_kernel(content, profile) {
            return Fit::Nothing;
        }
        let suited = self.suited(content, profile).filter(|(_, is_suited)| *is_suited).count();
        match content.class().map(|_| Fit::of(profile, suited)) {
            None => Fit::Nothing,
            // Half of the data on a disk saves no room on the SSD, and speeds nothing up.
            Some(Fit::Copies(_)) if content == Content::Data => Fit::Nothing,
            Some(fit) => fit,
        }
    }

    /// Returns true for metadata that the kernel stripes over each device with any room: a fence leaves free ranges between chunks, and
    /// `raid0` takes the shortest of them.
    pub fn is_striped_by_kernel(&self, content: Content, profile: Profile) -> bool {
        let is_mixed = self.count(PlacementClass::Fast) > 0 && self.count(PlacementClass::Bulk) > 0;
        let is_metadata = content.class() == Some(PlacementClass::Fast);
        is_mixed && is_metadata && profile == Profile::Raid0 && !self.is_ours
    }

    /// Returns true if fewer pieces of a chunk lie on devices of its content's class than could.
    pub fn is_misplaced(&self, chunk: &TierChunk) -> bool {
        !self.is_of_fast_tier(chunk) && self.devices_short(chunk) > 0
    }

    /// The number of devices of its content's class that a chunk should lie on, and does not.
    fn devices_short(&self, chunk: &TierChunk) -> usize {
        let devices: BTreeSet<DevId> = chunk.stripes.iter().map(|stripe| stripe.devid).collect();
        let wanted = match self.fit(chunk.content(), chunk.profile()) {
            Fit::Whole => devices.len(),
            Fit::Copies(copies) => copies,
            Fit::Nothing => 0,
        };
        let suited = self.suited(chunk.content(), chunk.profile());
        let found = suited.filter(|(device, is_suited)| *is_suited && devices.contains(&device.devid));
        wanted.saturating_sub(found.count())
    }

    /// The bytes of a chunk that should lie on other devices.
    fn misplaced_bytes(&self, chunk: &TierChunk) -> u64 {
        if !self.is_misplaced(chunk) {
            return 0;
        }
        let pieces = u64::from(chunk.profile().attributes().dev_stripes);
        self.devices_short(chunk) as u64 * pieces * chunk.stripe_bytes()
    }

    /// Rank of a chunk's slowest device; of a chunk of the fast tier, of its slowest fast one.
    pub fn chunk_rank(&self, chunk: &TierChunk) -> u8 {
        let is_in_fast_tier = self.lies_in_fast_tier(chunk);
        let devices = chunk.stripes.iter().map(|stripe| stripe.devid);
        let devices = devices.filter(|devid| !is_in_fast_tier || self.class(*devid) == PlacementClass::Fast);
        devices.map(|devid| self.rank(devid)).max().unwrap_or(0)
    }

    /// Number of copies of small and marked files on fast devices, where data of a profile has its other copies on bulk devices.
    pub fn copies_on_fast(&self, profile: Profile) -> Option<usize> {
        copies_on_fast(profile, self.count(PlacementClass::Fast), self.count(PlacementClass::Bulk))
    }

    /// Returns true if a chunk holds data of small files, and marked data.
    pub fn is_of_fast_tier(&self, chunk: &TierChunk) -> bool {
        self.is_ours && self.lies_in_fast_tier(chunk)
    }

    /// Returns true if a chunk of data lies where brindle has data of small files, and marked data: on fast devices alone, or with a
    /// copy on each fast device where these are fewer than copies. What waits in the write-back tier does so on fast devices alone.
    pub fn lies_in_fast_tier(&self, chunk: &TierChunk) -> bool {
        let devices: BTreeSet<DevId> = chunk.stripes.iter().map(|stripe| stripe.devid).collect();
        let on_fast = devices.iter().filter(|devid| self.class(**devid) == PlacementClass::Fast).count();
        let copies = self.copies_on_fast(chunk.profile()).filter(|_| !chunk.is_write_back);
        chunk.content() == Content::Data && is_in_fast_tier(on_fast, devices.len(), copies)
    }
}

/// The beginning of each device, where nothing is allocated.
const RESERVED_BYTES: u64 = 1 << 20;
