//! Free ranges of all devices, and where new chunks would lie on them.

use super::fence;
use crate::placement::{
    AllocationHint, ChunkLimits, ChunkPlan, ChunkRequest, DataTier, DeviceSummary, PlacementClass,
    PlacementMode, Ranks, STRIP_BYTES, place_chunk,
};
use crate::tier::{TierChunk, TierDevice, TierPool};
use brindle_ondisk::{BlockGroupType, DevId, Logical, Profile};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The most stripes that a chunk of the kernel has.
const STRIPES_MAX: u16 = 1024;

/// Free ranges of devices.
type Gaps = BTreeMap<DevId, Vec<Range<u64>>>;

/// Free ranges of all devices.
pub(super) struct DeviceGaps<'a> {
    pool: &'a TierPool,
    /// Free ranges as they are now.
    gaps: Gaps,
    /// Behind a fence around each device, with all holes that relocation will leave: what a fenced device offers at the most.
    fenced: Gaps,
}

impl<'a> DeviceGaps<'a> {
    /// The space of a pool in which nothing is moved, without fences.
    pub(super) fn today(pool: &'a TierPool) -> Self {
        let gaps =
            pool.devices.iter().map(|device| (device.devid, pool.gaps(device.devid, device.total_bytes)));
        Self { pool, gaps: gaps.collect(), fenced: Gaps::new() }
    }

    /// The space of what is `left` of a pool, in which these chunks will be moved, behind the fences of today.
    pub(super) fn behind_fences(today: &TierPool, left: &'a TierPool, moved: &BTreeSet<Logical>) -> Self {
        let mut afterwards = left.clone();
        afterwards.chunks.retain(|chunk| !moved.contains(&chunk.logical));
        let gaps_of = |device: &TierDevice| {
            let end = fence(today, device.devid).map_or(device.total_bytes, |fence| fence.fenced_bytes);
            (device.devid, afterwards.gaps(device.devid, end))
        };
        Self { fenced: left.devices.iter().map(gaps_of).collect(), ..Self::today(left) }
    }

    /// The devices of the other class to be left open for the copies that this class has no devices for: the roomiest, unless
    /// holes behind the fences of the others would then attract the chunk; then those with the most holes.
    pub(super) fn open(&self, kind: BlockGroupType, class: PlacementClass, count: usize) -> Vec<DevId> {
        if count == 0 {
            return Vec::new();
        }
        let roomiest = self.first(kind, class.other(), count, &self.gaps);
        if self.is_right_by_the_kernel(kind, class, &roomiest) {
            return roomiest;
        }
        self.first(kind, class.other(), count, &self.fenced)
    }

    /// The first devices of a class as the kernel would choose among them.
    fn first(&self, kind: BlockGroupType, class: PlacementClass, count: usize, gaps: &Gaps) -> Vec<DevId> {
        let most = self.most(kind);
        let of_class = self.pool.devices_for(kind, class).into_iter();
        let mut devices: Vec<DeviceSummary> =
            of_class.filter_map(|device| Some(summary_of(device, gaps.get(&device.devid)?, most))).collect();
        devices.sort_by_key(|device| {
            (Reverse(device.max_available_bytes), Reverse(device.total_available_bytes), device.devid)
        });
        devices.iter().take(count).map(|device| device.devid).collect()
    }

    /// Places the next chunk as if there were only this class, and open devices of the other one.
    pub(super) fn place(
        &self,
        kind: BlockGroupType,
        class: PlacementClass,
        open: &[DevId],
    ) -> Option<ChunkPlan> {
        let of_class = self.devids(kind, class);
        self.place_on(kind, &|device| of_class.contains(&device.devid) || open.contains(&device.devid))
    }

    /// Places the next chunk of a tier of data.
    pub(super) fn place_data(&self, kind: BlockGroupType, tier: DataTier) -> Option<ChunkPlan> {
        let profile = kind.profile().unwrap_or(Profile::Single);
        let copies = self.pool.copies_on_fast(profile).filter(|_| tier.side == PlacementClass::Fast);
        if let Some(copies) = copies {
            let others = usize::from(profile.attributes().devs_max).saturating_sub(copies);
            let others = self.first(kind, PlacementClass::Bulk, others, &self.gaps);
            let is_there =
                |device: &TierDevice| device.class == PlacementClass::Fast || others.contains(&device.devid);
            return self.place_on(kind, &is_there);
        }
        self.place_on(kind, &|device| {
            device.class == tier.side && tier.rank.is_none_or(|rank| rank == device.rank)
        })
    }

    fn place_on(&self, kind: BlockGroupType, is_there: &dyn Fn(&TierDevice) -> bool) -> Option<ChunkPlan> {
        let devices = self.pool.devices.iter().filter(|device| is_there(device));
        let devices: Vec<DeviceSummary> = devices.map(|device| self.summary(device, u64::MAX)).collect();
        place_chunk(&devices, &self.request(kind)).ok()
    }

    /// Devices that count as of a class.
    fn devids(&self, kind: BlockGroupType, class: PlacementClass) -> BTreeSet<DevId> {
        self.pool.devices_for(kind, class).into_iter().map(|device| device.devid).collect()
    }

    /// The class whose devices have no room for a chunk that could not be placed.
    pub(super) fn class_without_room(
        &self,
        kind: BlockGroupType,
        class: PlacementClass,
        open: usize,
    ) -> PlacementClass {
        let has_room =
            |device: &&&TierDevice| self.summary(device, u64::MAX).max_available_bytes >= STRIP_BYTES;
        let needed = usize::from(self.request(kind).profile.attributes().devs_max).saturating_sub(open);
        let of_class = self.pool.devices_for(kind, class);
        let is_enough = open > 0 && of_class.iter().filter(has_room).count() >= needed;
        if is_enough { class.other() } else { class }
    }

    /// Returns true if the kernel, which looks at all devices, would put the next chunk where it is well placed: these devices of the
    /// other class are open, and the others fenced.
    pub(super) fn is_right_by_the_kernel(
        &self,
        kind: BlockGroupType,
        class: PlacementClass,
        open: &[DevId],
    ) -> bool {
        let request = self.request(kind);
        let most = self.most(kind);
        let of_class = self.devids(kind, class);
        let is_fenced =
            |device: &TierDevice| !of_class.contains(&device.devid) && !open.contains(&device.devid);
        let summary = |device: &TierDevice| match self.fenced.get(&device.devid) {
            Some(gaps) if is_fenced(device) => summary_of(device, gaps, most),
            _ => self.summary(device, most),
        };
        let devices: Vec<DeviceSummary> = self.pool.devices.iter().map(summary).collect();
        place_chunk(&devices, &request).is_ok_and(|chosen| {
            let others = chosen.stripes.iter().filter(|devid| !of_class.contains(devid));
            others.count() <= open.len()
        })
    }

    /// The kernel looks no further on a device than for what a chunk can use.
    fn most(&self, kind: BlockGroupType) -> u64 {
        let request = self.request(kind);
        request.max_stripe_bytes.saturating_mul(request.profile.attributes().dev_stripes.into())
    }

    fn request(&self, kind: BlockGroupType) -> ChunkRequest {
        let pool_bytes = self.pool.devices.iter().map(|device| device.total_bytes).sum();
        let limits = ChunkLimits::new(kind, pool_bytes);
        ChunkRequest {
            content: kind & BlockGroupType::CONTENT,
            profile: kind.profile().unwrap_or(Profile::Single),
            mode: PlacementMode::Classic,
            tier: PlacementClass::Bulk,
            copies_on_fast: None,
            ranks: Ranks::ALL,
            max_stripe_bytes: limits.max_stripe_bytes,
            max_chunk_bytes: limits.max_chunk_bytes,
            min_stripe_bytes: STRIP_BYTES,
            max_stripes: STRIPES_MAX,
        }
    }

    fn summary(&self, device: &TierDevice, most: u64) -> DeviceSummary {
        summary_of(device, &self.gaps[&device.devid], most)
    }

    /// Gives back the places of chunks that have moved.
    pub(super) fn vacate(&mut self, chunks: &[&TierChunk]) {
        for chunk in chunks {
            for stripe in &chunk.stripes {
                let begin = stripe.physical.get();
                let place = begin..begin.saturating_add(chunk.stripe_bytes());
                self.gaps.entry(stripe.devid).or_default().push(place);
            }
        }
    }

    /// Takes the pieces of a chunk out of the longest free ranges of its devices.
    pub(super) fn take(&mut self, chunk: &ChunkPlan) {
        for devid in &chunk.stripes {
            let gaps = self.gaps.get_mut(devid).into_iter().flatten();
            if let Some(longest) = gaps.max_by_key(|gap| gap.end - gap.start) {
                longest.start = longest.end.min(longest.start + chunk.stripe_bytes);
            }
        }
    }
}

/// The free space of a device, as placement wants it.
fn summary_of(device: &TierDevice, gaps: &[Range<u64>], most: u64) -> DeviceSummary {
    let lengths = || gaps.iter().map(|gap| gap.end - gap.start);
    DeviceSummary {
        devid: device.devid,
        class: device.class,
        hint: AllocationHint::DataPreferred,
        rank: device.rank,
        max_available_bytes: lengths().max().unwrap_or(0).min(most),
        total_available_bytes: lengths().sum(),
    }
}
