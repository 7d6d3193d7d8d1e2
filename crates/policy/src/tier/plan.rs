//! Plans: chunks to be moved, and the fences meanwhile.

use super::files::{Amount, FileTiers};
use super::shortage::{Shortage, shortages};
use super::{Content, TierChunk, TierPool};
use crate::class::NamedClass;
use crate::placement::{DataTier, Fit, PlacementClass};
use brindle_ondisk::{BlockGroupType, DevId, Logical};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod space;

use space::DeviceGaps;

/// The kernel makes no device smaller than this, in bytes.
pub const DEVICE_BYTES_MIN: u64 = 256 << 20;
/// Sizes of devices are multiples of this, in bytes: no sector is larger.
const SIZE_UNIT_BYTES: u64 = 64 << 10;

/// Wanted moves.
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
    /// Target class.
    pub target: PlacementClass,
    /// Name of the devices that they go to.
    pub target_name: String,
    /// The chunks to be relocated, in this order.
    pub moves: Vec<Move>,
    /// The fences that stand meanwhile. Where devices stay [open](Move::open), these are the fences for the
    /// first chunk, and each later one has its own.
    pub fences: Vec<Fence>,
    /// True if the fences are enough: if not, holes in the devices behind them attract new chunks, and some chunks
    /// may have to be moved more than once, or stay.
    pub holds: bool,
}

/// A chunk to be relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Start address.
    pub logical: Logical,
    /// Content.
    pub content: Content,
    /// Its content and profile, as the format has them.
    pub kind: BlockGroupType,
    /// Used bytes in it, all of which are copied.
    pub used_bytes: u64,
    /// The number of devices of the other class that are not fenced meanwhile, for the copies that the target has no
    /// devices for.
    pub open: usize,
}

impl Move {
    fn new(pool: &TierPool, chunk: &TierChunk) -> Self {
        Self {
            logical: chunk.logical,
            content: chunk.content(),
            kind: chunk.kind,
            used_bytes: chunk.used_bytes,
            open: open_count(pool, chunk.kind),
        }
    }
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

/// A lack of room for a misplaced chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The class of the devices that have no room.
    pub class: PlacementClass,
    /// Name of the devices.
    pub name: String,
    /// The content that can't be moved.
    pub content: Content,
    /// Bytes to be moved.
    pub wanted_bytes: u64,
    /// Bytes of that for which there is room.
    pub room_bytes: u64,
}

/// Moves to be made, and refusals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One after the other. What the first does can't be foreseen to the byte: plan anew before the second.
    pub passes: Vec<Pass>,
    /// Data of files that lies in the wrong tier of data: extents leave block groups that stay.
    pub files: Vec<FileMove>,
    /// Wanted moves that are not possible.
    pub refusals: Vec<NoRoom>,
    /// Shortages that prevent a better placement, where more devices of a class would make a difference.
    pub shortages: Vec<Shortage>,
}

/// Data of files to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMove {
    /// Target tier.
    pub target: DataTier,
    /// Its name.
    pub target_name: String,
    /// Amount of data.
    pub amount: Amount,
}

impl Plan {
    /// Adds what of the data of files is to be moved.
    pub fn add_files(&mut self, pool: &TierPool, tiers: &FileTiers) {
        let sides = [(PlacementClass::Bulk, tiers.bulk_on_fast), (PlacementClass::Fast, tiers.fast_on_bulk)];
        let sides = sides.into_iter().map(|(side, amount)| (DataTier::from(side), amount));
        let all = pool.classes.all();
        let of_class = |(rank, class): (u8, &NamedClass)| {
            (DataTier { side: class.side, rank: Some(rank) }, tiers.by_class[usize::from(rank)])
        };
        for (target, amount) in sides.chain((0..).zip(&all).map(of_class)) {
            if amount.extents == 0 {
                continue;
            }
            let name = target.rank.map_or_else(|| target.side.to_string(), |rank| pool.classes.name(rank));
            let (wanted_bytes, room_bytes) = (amount.bytes, room_for_data(pool, target, amount.bytes));
            if room_bytes < wanted_bytes {
                let (class, name, content) = (target.side, name.clone(), Content::Data);
                self.refusals.push(NoRoom { class, name, content, wanted_bytes, room_bytes });
            }
            self.files.push(FileMove { target, target_name: name, amount });
        }
    }

    /// Returns true if there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty() && self.files.is_empty()
    }

    /// Bytes that are copied.
    pub fn bytes(&self) -> u64 {
        let of_files: u64 = self.files.iter().map(|files| files.amount.bytes).sum();
        of_files + self.passes.iter().map(Pass::bytes).sum::<u64>()
    }

    /// Number of chunks that are relocated.
    pub fn chunks(&self) -> usize {
        self.passes.iter().map(|pass| pass.moves.len()).sum()
    }
}

impl Pass {
    /// Bytes that are copied.
    pub fn bytes(&self) -> u64 {
        self.moves.iter().map(|chunk| chunk.used_bytes).sum()
    }
}

/// Plan for a pool.
pub fn plan(pool: &TierPool, wanted: Wanted) -> Plan {
    let mut plan = Plan::default();
    for class in [PlacementClass::Fast, PlacementClass::Bulk] {
        if pool.count(class) == 0 {
            plan.shortages.push(Shortage::OneClass(class.other()));
            return plan;
        }
    }
    let targets = [(PlacementClass::Fast, wanted.metadata), (PlacementClass::Bulk, wanted.data)];
    let targets = targets.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(class, _)| class);
    // What has no room may have some once the others have moved out.
    let mut left = pool.clone();
    let mut waiting = Vec::new();
    for target in targets {
        plan.shortages.extend(shortages(pool, target));
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

/// A fence around each device that has anything to offer and counts as of a class for chunks of a kind.
pub fn fences(pool: &TierPool, kind: BlockGroupType, class: PlacementClass) -> Vec<Fence> {
    let fenced = pool.devices_for(kind, class).into_iter();
    fenced.filter_map(|device| fence(pool, device.devid)).collect()
}

/// The fences that make a new chunk of a kind lie where its content belongs: around the devices of the other class, but for
/// the roomiest ones if copies belong there.
pub fn fences_for(pool: &TierPool, kind: BlockGroupType) -> Vec<Fence> {
    let Some(class) = Content::of(kind).class() else { return Vec::new() };
    let space = DeviceGaps::behind_fences(pool, pool, &BTreeSet::new());
    let open = space.open(kind, class, open_count(pool, kind));
    let mut fences = fences(pool, kind, class.other());
    fences.retain(|fence| !open.contains(&fence.devid));
    fences
}

/// The number of devices of the other class that have to hold a copy, where the class has too few for all.
fn open_count(pool: &TierPool, kind: BlockGroupType) -> usize {
    let Some(profile) = kind.profile() else { return 0 };
    match pool.fit(Content::of(kind), profile) {
        Fit::Copies(copies) => usize::from(profile.attributes().devs_max).saturating_sub(copies),
        Fit::Whole | Fit::Nothing => 0,
    }
}

/// The number of devices of its content's class with room that a new chunk needs to be well placed; `None` if none of them makes a
/// difference.
pub fn devices_needed(pool: &TierPool, kind: BlockGroupType) -> Option<usize> {
    let profile = kind.profile()?;
    match pool.fit(Content::of(kind), profile) {
        Fit::Whole => Some(profile.attributes().devs_min.into()),
        Fit::Copies(copies) => Some(copies),
        Fit::Nothing => None,
    }
}

/// Highest well placed chunk on each device that counts as of a class for chunks of a kind, with a free range below it that is as long. Where fences
/// leave too much free space between their chunks, moving these there lets the fences be drawn closer.
pub fn highest(pool: &TierPool, kind: BlockGroupType, class: PlacementClass) -> Vec<Move> {
    let mut found: BTreeMap<Logical, Move> = BTreeMap::new();
    for device in pool.devices_for(kind, class) {
        let pieces = pool.chunks.iter().flat_map(|chunk| {
            let here = chunk.stripes.iter().filter(|stripe| stripe.devid == device.devid);
            here.map(move |stripe| (stripe.physical, chunk))
        });
        let Some((at, chunk)) = pieces.max_by_key(|(at, _)| *at) else { continue };
        let gaps = pool.gaps(device.devid, at.get());
        let has_room = gaps.iter().any(|gap| gap.end - gap.start >= chunk.stripe_bytes());
        if has_room && !pool.is_misplaced(chunk) {
            // All of the class is fenced meanwhile: the holes are to be filled.
            found.insert(chunk.logical, Move { open: 0, ..Move::new(pool, chunk) });
        }
    }
    found.into_values().collect()
}

/// The pass that moves to a class what belongs there, in a pool of which only what is `left` still lies where it did;
/// the fences are those of today.
fn pass(today: &TierPool, left: &TierPool, target: PlacementClass) -> Result<Pass, NoRoom> {
    let pool = left;
    let is_meant = |chunk: &&TierChunk| chunk.content().class() == Some(target) && pool.is_misplaced(chunk);
    let mut wrong: Vec<&TierChunk> = pool.chunks.iter().filter(is_meant).collect();
    // The fullest first: what they hold then fills less of the free space in others that are to be moved as well.
    wrong.sort_by_key(|chunk| {
        (chunk.content(), chunk.kind.bits(), std::cmp::Reverse(chunk.used_bytes), chunk.logical)
    });
    let fences = match wrong.first() {
        Some(first) if !today.is_ours => fences_for(today, first.kind),
        _ => Vec::new(),
    };
    let mut wanted: BTreeMap<(Content, u64), u64> = BTreeMap::new();
    for chunk in &wrong {
        *wanted.entry((chunk.content(), chunk.kind.bits())).or_default() += chunk.used_bytes;
    }
    let mut holds = true;
    let moved: BTreeSet<Logical> = wrong.iter().map(|chunk| chunk.logical).collect();
    let mut space = DeviceGaps::behind_fences(today, pool, &moved);
    // Chunks of contents that have a place: theirs is free when the next one moves. (The kernel, behind fences, may not use it.)
    let mut vacated: Vec<&TierChunk> = Vec::new();
    for ((content, kind), wanted_bytes) in wanted {
        let kind = BlockGroupType::from_bits_retain(kind);
        let least = kind.profile().map_or(1, |profile| profile.attributes().devs_min);
        if pool.devices.len() < usize::from(least) {
            // With devices missing, it would lose copies.
            let (class, name) = (target, pool.target_name(kind));
            return Err(NoRoom { class, name, content, wanted_bytes, room_bytes: 0 });
        }
        let in_place = pool.chunks.iter().filter(|chunk| chunk.kind == kind && !pool.is_misplaced(chunk));
        let spare: u64 = in_place.map(|chunk| chunk.length_bytes.saturating_sub(chunk.used_bytes)).sum();
        let mut room_bytes = spare;
        while room_bytes < wanted_bytes {
            let open = space.open(kind, target, open_count(pool, kind));
            let Some(chunk) = space.place(kind, target, &open) else {
                if pool.is_ours && !vacated.is_empty() {
                    space.vacate(&std::mem::take(&mut vacated));
                    continue;
                }
                let class = space.class_without_room(kind, target, open.len());
                let name = if class == target { pool.target_name(kind) } else { class.to_string() };
                return Err(NoRoom { class, name, content, wanted_bytes, room_bytes });
            };
            holds &= pool.is_ours || space.is_right_by_the_kernel(kind, target, &open);
            space.take(&chunk);
            room_bytes = room_bytes.saturating_add(chunk.chunk_bytes);
        }
        vacated.extend(wrong.iter().filter(|chunk| chunk.kind == kind));
    }
    let moves = wrong.iter().map(|chunk| Move::new(pool, chunk));
    let target_name = wrong.first().map_or_else(|| target.to_string(), |chunk| pool.target_name(chunk.kind));
    Ok(Pass { target, target_name, moves: moves.collect(), fences, holds })
}

/// Bytes that would fit in a tier of data, if that is less than wanted.
fn room_for_data(pool: &TierPool, target: DataTier, wanted_bytes: u64) -> u64 {
    let is_there = |chunk: &&TierChunk| {
        pool.is_of_fast_tier(chunk) == (target.side == PlacementClass::Fast)
            && target.rank.is_none_or(|rank| rank == pool.chunk_rank(chunk))
    };
    let data = || pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data);
    let spare = |chunk: &TierChunk| chunk.length_bytes.saturating_sub(chunk.used_bytes);
    let mut room_bytes: u64 = data().filter(is_there).map(spare).sum();
    let Some(kind) = data().map(|chunk| chunk.kind).next() else { return room_bytes };
    let mut space = DeviceGaps::today(pool);
    while room_bytes < wanted_bytes {
        let Some(chunk) = space.place_data(kind, target) else { break };
        space.take(&chunk);
        room_bytes = room_bytes.saturating_add(chunk.chunk_bytes);
    }
    room_bytes
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, content, wanted_bytes, room_bytes, .. } = self;
        write!(
            f,
            "no room for {content} on the {name} devices: {wanted_bytes} bytes are to be moved, and \
             {room_bytes} would fit"
        )
    }
}
