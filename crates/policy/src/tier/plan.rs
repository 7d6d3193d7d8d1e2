//! What is to be moved, and behind which fences.

use super::files::{Amount, FileTiers};
use super::{Content, TierChunk, TierPool};
use crate::placement::{
    AllocationHint, ChunkLimits, ChunkPlan, ChunkRequest, DeviceSummary, PlacementClass, PlacementMode,
    STRIP_BYTES, place_chunk,
};
use brindle_ondisk::{BlockGroupType, DevId, Logical, Profile};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The kernel makes no device smaller than this, in bytes.
pub const DEVICE_BYTES_MIN: u64 = 256 << 20;
/// Sizes of devices are multiples of this, in bytes: no sector is larger.
const SIZE_UNIT_BYTES: u64 = 64 << 10;
/// The most stripes that a chunk of the kernel has.
const STRIPES_MAX: u16 = 1024;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Metadata and system chunks are to go to the fast devices.
    pub metadata: bool,
    /// Data chunks are to go to the bulk devices.
    pub data: bool,
}

/// One direction of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Where to.
    pub target: PlacementClass,
    /// The chunks to be relocated, in this order.
    pub moves: Vec<Move>,
    /// What is put up before, and taken down after.
    pub fences: Vec<Fence>,
    /// Whether the fences are enough: if not, holes in the devices behind them attract new chunks, and some
    /// chunks may have to be moved more than once, or stay.
    pub holds: bool,
}

/// A chunk to be relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where it begins.
    pub logical: Logical,
    /// What it holds.
    pub content: Content,
    /// Used in it, in bytes: so much is copied.
    pub used_bytes: u64,
}

/// A device that is kept from growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The device.
    pub devid: DevId,
    /// Its size, in bytes.
    pub total_bytes: u64,
    /// Its size while the fence stands, in bytes.
    pub fenced_bytes: u64,
}

/// Why something that lies wrong, or might, can't be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All devices are of one class.
    OneClass(PlacementClass),
    /// The profile needs more devices.
    TooFewDevices {
        /// What can't be moved.
        content: Content,
        /// Its profile.
        profile: Profile,
        /// Where it belongs.
        class: PlacementClass,
        /// How many devices there are of that class.
        found: usize,
    },
    /// There is no room for it.
    NoRoom {
        /// Where it belongs.
        class: PlacementClass,
        /// What can't be moved.
        content: Content,
        /// How much is to be moved there, in bytes.
        wanted_bytes: u64,
        /// For how much of that there is room, in bytes.
        room_bytes: u64,
    },
}

/// What is to be done, and what can't be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One after the other. What the first does can't be foreseen to the byte: plan anew before the second.
    pub passes: Vec<Pass>,
    /// Data of files that lies in the wrong tier of data: extents leave block groups that stay.
    pub files: Vec<FileMove>,
    /// What can't be done of what is wanted.
    pub refusals: Vec<Refusal>,
}

/// Data of files to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMove {
    /// Where to.
    pub target: PlacementClass,
    /// How much.
    pub amount: Amount,
}

impl Plan {
    /// Adds what of the data of files is to be moved.
    pub fn add_files(&mut self, pool: &TierPool, tiers: &FileTiers) {
        for (target, amount) in
            [(PlacementClass::Bulk, tiers.bulk_on_fast), (PlacementClass::Fast, tiers.fast_on_bulk)]
        {
            if amount.extents == 0 {
                continue;
            }
            let (wanted_bytes, room_bytes) = (amount.bytes, room_for_data(pool, target, amount.bytes));
            if room_bytes < wanted_bytes {
                let content = Content::Data;
                self.refusals.push(Refusal::NoRoom { class: target, content, wanted_bytes, room_bytes });
            }
            self.files.push(FileMove { target, amount });
        }
    }

    /// Whether nothing is to be moved.
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty() && self.files.is_empty()
    }

    /// How much is copied, in bytes.
    pub fn bytes(&self) -> u64 {
        let of_files: u64 = self.files.iter().map(|files| files.amount.bytes).sum();
        of_files + self.passes.iter().map(Pass::bytes).sum::<u64>()
    }

    /// How many chunks are relocated.
    pub fn chunks(&self) -> usize {
        self.passes.iter().map(|pass| pass.moves.len()).sum()
    }
}

impl Pass {
    /// How much is copied, in bytes.
    pub fn bytes(&self) -> u64 {
        self.moves.iter().map(|chunk| chunk.used_bytes).sum()
    }
}

/// What is to be done to a pool.
pub fn plan(pool: &TierPool, wanted: Wanted) -> Plan {
    let mut plan = Plan::default();
    for class in [PlacementClass::Fast, PlacementClass::Bulk] {
        if pool.count(class) == 0 {
            plan.refusals.push(Refusal::OneClass(other(class)));
            return plan;
        }
    }
    let targets = [(PlacementClass::Fast, wanted.metadata), (PlacementClass::Bulk, wanted.data)];
    let targets = targets.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(class, _)| class);
    // What has no room may have some once the others have moved out.
    let mut left = pool.clone();
    let mut waiting = Vec::new();
    for target in targets {
        plan.refusals.extend(too_few(pool, target));
        match pass(pool, &left, target) {
            Ok(pass) => plan.take(pass, &mut left),
            Err(_) => waiting.push(target),
        }
    }
    for target in waiting {
        match pass(pool, &left, target) {
            Ok(pass) => plan.take(pass, &mut left),
            Err(refusal) => plan.refusals.push(refusal),
        }
    }
    plan
}

impl Plan {
    /// Adds a pass, and takes what it moves out of the pool.
    fn take(&mut self, pass: Pass, left: &mut TierPool) {
        let is_moved = |chunk: &TierChunk| pass.moves.iter().any(|moved| moved.logical == chunk.logical);
        left.chunks.retain(|chunk| !is_moved(chunk));
        if !pass.moves.is_empty() {
            self.passes.push(pass);
        }
    }
}

/// The size to which a device can be made smaller without moving anything; `None` if that is no smaller.
pub fn fence(pool: &TierPool, devid: DevId) -> Option<Fence> {
    let total_bytes = pool.devices.iter().find(|device| device.devid == devid)?.total_bytes;
    let end = pool.extents(devid).last().map_or(0, |extent| extent.end);
    let fenced_bytes = end.max(DEVICE_BYTES_MIN).checked_next_multiple_of(SIZE_UNIT_BYTES)?;
    (fenced_bytes < total_bytes).then_some(Fence { devid, total_bytes, fenced_bytes })
}

/// A fence around each device of a class that has anything to offer.
pub fn fences(pool: &TierPool, class: PlacementClass) -> Vec<Fence> {
    let fenced = pool.devices.iter().filter(|device| device.class == class);
    fenced.filter_map(|device| fence(pool, device.devid)).collect()
}

/// What lies highest on each device of a class, and right, and has a free range below that is as long. Where fences
/// leave too much free space between what they hold, moving that there lets them be drawn closer.
pub fn highest(pool: &TierPool, class: PlacementClass) -> Vec<Move> {
    let mut found: BTreeMap<Logical, Move> = BTreeMap::new();
    for device in pool.devices.iter().filter(|device| device.class == class) {
        let pieces = pool.chunks.iter().flat_map(|chunk| {
            let here = chunk.stripes.iter().filter(|stripe| stripe.devid == device.devid);
            here.map(move |stripe| (stripe.physical, chunk))
        });
        let Some((at, chunk)) = pieces.max_by_key(|(at, _)| *at) else { continue };
        let gaps = pool.gaps(device.devid, at.get());
        let has_room = gaps.iter().any(|gap| gap.end - gap.start >= chunk.stripe_bytes());
        if has_room && !pool.lies_wrong(chunk) {
            let moved =
                Move { logical: chunk.logical, content: chunk.content(), used_bytes: chunk.used_bytes };
            found.insert(chunk.logical, moved);
        }
    }
    found.into_values().collect()
}

/// The other class.
pub fn other(class: PlacementClass) -> PlacementClass {
    match class {
        PlacementClass::Fast => PlacementClass::Bulk,
        PlacementClass::Bulk => PlacementClass::Fast,
    }
}

/// Contents that belong on a class of too few devices, and do not all lie there.
fn too_few(pool: &TierPool, class: PlacementClass) -> Vec<Refusal> {
    let mut found: BTreeMap<(Content, Profile), Refusal> = BTreeMap::new();
    for chunk in &pool.chunks {
        let (content, profile) = (chunk.content(), chunk.profile());
        if content.class() == Some(class) && !pool.has_enough(chunk) {
            let refusal = Refusal::TooFewDevices { content, profile, class, found: pool.count(class) };
            found.insert((content, profile), refusal);
        }
    }
    found.into_values().collect()
}

/// The pass that moves to a class what belongs there, in a pool of which only what is `left` still lies where it did;
/// the fences are those of today.
fn pass(today: &TierPool, left: &TierPool, target: PlacementClass) -> Result<Pass, Refusal> {
    let pool = left;
    let is_meant = |chunk: &&TierChunk| chunk.content().class() == Some(target) && pool.lies_wrong(chunk);
    let mut wrong: Vec<&TierChunk> = pool.chunks.iter().filter(is_meant).collect();
    // The fullest first: what they hold then fills less of the free space in others that are to be moved as well.
    wrong.sort_by_key(|chunk| {
        (chunk.content(), chunk.kind.bits(), std::cmp::Reverse(chunk.used_bytes), chunk.logical)
    });
    let fences = if today.is_ours { Vec::new() } else { fences(today, other(target)) };
    let mut wanted: BTreeMap<(Content, u64), u64> = BTreeMap::new();
    for chunk in &wrong {
        *wanted.entry((chunk.content(), chunk.kind.bits())).or_default() += chunk.used_bytes;
    }
    let mut holds = true;
    let mut space = Space::new(pool, &wrong, target, &fences);
    for ((content, kind), wanted_bytes) in wanted {
        let kind = BlockGroupType::from_bits_retain(kind);
        let in_place = pool.chunks.iter().filter(|chunk| chunk.kind == kind && !pool.lies_wrong(chunk));
        let spare: u64 = in_place.map(|chunk| chunk.length_bytes.saturating_sub(chunk.used_bytes)).sum();
        let mut room_bytes = spare;
        while room_bytes < wanted_bytes {
            let Some(chunk) = space.place(kind, target) else {
                return Err(Refusal::NoRoom { class: target, content, wanted_bytes, room_bytes });
            };
            holds &= pool.is_ours || space.is_as_the_kernel_would(kind, &chunk);
            space.take(&chunk);
            room_bytes = room_bytes.saturating_add(chunk.chunk_bytes);
        }
    }
    let moves = wrong.iter().map(|chunk| Move {
        logical: chunk.logical,
        content: chunk.content(),
        used_bytes: chunk.used_bytes,
    });
    Ok(Pass { target, moves: moves.collect(), fences, holds })
}

/// How much data would fit in a tier of data, as far as that is less than what is wanted.
fn room_for_data(pool: &TierPool, target: PlacementClass, wanted_bytes: u64) -> u64 {
    let is_there = |chunk: &&TierChunk| pool.is_of_fast_tier(chunk) == (target == PlacementClass::Fast);
    let data = || pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data);
    let spare = |chunk: &TierChunk| chunk.length_bytes.saturating_sub(chunk.used_bytes);
    let mut room_bytes: u64 = data().filter(is_there).map(spare).sum();
    let Some(kind) = data().map(|chunk| chunk.kind).next() else { return room_bytes };
    let mut space = Space::new(pool, &[], target, &[]);
    while room_bytes < wanted_bytes {
        let Some(chunk) = space.place(kind, target) else { break };
        space.take(&chunk);
        room_bytes = room_bytes.saturating_add(chunk.chunk_bytes);
    }
    room_bytes
}

/// Free ranges of all devices: of the target's class as they are, of the other class behind fences, and with all
/// holes that relocation will leave.
struct Space<'a> {
    pool: &'a TierPool,
    gaps: BTreeMap<DevId, Vec<Range<u64>>>,
}

impl<'a> Space<'a> {
    fn new(pool: &'a TierPool, wrong: &[&TierChunk], target: PlacementClass, fences: &[Fence]) -> Self {
        let mut afterwards = pool.clone();
        afterwards.chunks.retain(|chunk| wrong.iter().all(|moved| moved.logical != chunk.logical));
        let gaps = pool.devices.iter().map(|device| {
            let fence = fences.iter().find(|fence| fence.devid == device.devid);
            let end = fence.map_or(device.total_bytes, |fence| fence.fenced_bytes);
            let pool = if device.class == target { pool } else { &afterwards };
            (device.devid, pool.gaps(device.devid, end))
        });
        Self { pool, gaps: gaps.collect() }
    }

    /// Where the next chunk would lie if there were only this class.
    fn place(&self, kind: BlockGroupType, class: PlacementClass) -> Option<ChunkPlan> {
        let request = self.request(kind);
        let devices: Vec<DeviceSummary> = self.summaries(u64::MAX, Some(class));
        place_chunk(&devices, &request).ok()
    }

    /// Whether the kernel, which looks at all devices, would choose the same.
    fn is_as_the_kernel_would(&self, kind: BlockGroupType, chunk: &ChunkPlan) -> bool {
        let request = self.request(kind);
        let dev_stripes = u64::from(request.profile.attributes().dev_stripes);
        // The kernel looks no further than for what the chunk can use.
        let devices = self.summaries(request.max_stripe_bytes.saturating_mul(dev_stripes), None);
        let chosen = place_chunk(&devices, &request);
        chosen.is_ok_and(|chosen| chosen.stripes.iter().all(|devid| chunk.stripes.contains(devid)))
    }

    fn request(&self, kind: BlockGroupType) -> ChunkRequest {
        let pool_bytes = self.pool.devices.iter().map(|device| device.total_bytes).sum();
        let limits = ChunkLimits::new(kind, pool_bytes);
        ChunkRequest {
            content: kind & BlockGroupType::CONTENT,
            profile: kind.profile().unwrap_or(Profile::Single),
            mode: PlacementMode::Classic,
            tier: PlacementClass::Bulk,
            max_stripe_bytes: limits.max_stripe_bytes,
            max_chunk_bytes: limits.max_chunk_bytes,
            min_stripe_bytes: STRIP_BYTES,
            max_stripes: STRIPES_MAX,
        }
    }

    fn summaries(&self, most: u64, only: Option<PlacementClass>) -> Vec<DeviceSummary> {
        let devices =
            self.pool.devices.iter().filter(|device| only.is_none_or(|class| device.class == class));
        let summary = |device: &super::TierDevice| {
            let lengths = || self.gaps[&device.devid].iter().map(|gap| gap.end - gap.start);
            DeviceSummary {
                devid: device.devid,
                class: device.class,
                hint: AllocationHint::DataPreferred,
                max_available_bytes: lengths().max().unwrap_or(0).min(most),
                total_available_bytes: lengths().sum(),
            }
        };
        devices.map(summary).collect()
    }

    /// Takes the pieces of a chunk out of the longest free ranges of its devices.
    fn take(&mut self, chunk: &ChunkPlan) {
        for devid in &chunk.stripes {
            let gaps = self.gaps.get_mut(devid).into_iter().flatten();
            if let Some(longest) = gaps.max_by_key(|gap| gap.end - gap.start) {
                longest.start = longest.end.min(longest.start + chunk.stripe_bytes);
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneClass(class) => write!(f, "there are no {} devices, all are {class}", other(*class)),
            Self::TooFewDevices { content, profile, class, found } => {
                let needed = profile.attributes().devs_min;
                write!(f, "{content} of profile {profile} needs {needed} {class} devices, and there ")?;
                match found {
                    1 => f.write_str("is 1"),
                    found => write!(f, "are {found}"),
                }
            }
            Self::NoRoom { class, content, wanted_bytes, room_bytes } => write!(
                f,
                "no room for {content} on the {class} devices: {wanted_bytes} bytes are to be moved there, \
                 and {room_bytes} would fit"
            ),
        }
    }
}
