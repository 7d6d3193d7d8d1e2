//! SpaceSums by address: how much of each region is allocated, and whether what is allocated and what is free
//! tile it.

use crate::Finding;
use crate::fingerprint::{Sum, range};
use crate::ledger::Ledger;
use crate::page;
use crate::regions::Regions;
use crate::sectors::{Mark, SectorMap, runs};
use brindle_ondisk::{BlockGroupType, Key, Logical, to_u64};

/// Sums of the space in one region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionSpace {
    /// Bytes of extents.
    pub(crate) used: u64,
    /// Fingerprint of what is allocated.
    pub(crate) allocated: Sum,
    /// Fingerprint of what is free, by the free space tree.
    pub(crate) free: Sum,
    /// Free ranges in the free space tree.
    pub(crate) free_count: u64,
    /// Block group and number of free extents in its free space info; there should be one.
    pub(crate) info: Option<(u64, u64)>,
    /// Number of infos.
    pub(crate) infos: u64,
}

/// SpaceSums seen by one thread.
#[derive(Debug)]
pub(crate) struct SpaceSums {
    pub(crate) regions: Vec<RegionSpace>,
    /// For each leaf of the extent tree: where its first extent begins and its last one ends.
    pub(crate) edges: Vec<(u64, u64)>,
    /// Starts of bitmaps that begin with free space, and ends of bitmaps that end with it.
    pub(crate) joins: (Vec<u64>, Vec<u64>),
    /// Items of the free space tree about places that are in no region.
    pub(crate) strays: u64,
    /// The region that was last looked at.
    recent: usize,
}

impl SpaceSums {
    pub(crate) fn new(regions: &Regions) -> Self {
        Self {
            regions: vec![RegionSpace::default(); regions.len()],
            edges: Vec::new(),
            joins: (Vec::new(), Vec::new()),
            strays: 0,
            recent: 0,
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (region, other) in self.regions.iter_mut().zip(other.regions) {
            region.used = region.used.saturating_add(other.used);
            region.allocated = region.allocated.wrapping_add(other.allocated);
            region.free = region.free.wrapping_add(other.free);
            region.free_count += other.free_count;
            region.info = region.info.or(other.info);
            region.infos += other.infos;
        }
        self.edges.extend(other.edges);
        self.joins.0.extend(other.joins.0);
        self.joins.1.extend(other.joins.1);
        self.strays += other.strays;
    }

    /// An extent is allocated.
    pub(crate) fn allocated(
        &mut self,
        (start, length): (u64, u64),
        is_data: bool,
        regions: &Regions,
        sectors: &SectorMap,
        ledger: &Ledger,
    ) {
        let refuse = |problem| {
            let finding = Finding::ExtentPlace { at: Logical::new(start), length, problem };
            ledger.report(page::EXTENTS, finding);
        };
        let Some((index, region)) = self.locate(start, regions) else {
            return refuse("lies in no chunk");
        };
        let end = start.saturating_add(length);
        if end > region.end() {
            refuse("passes the end of its block group");
        }
        let holds_data = region.kind.contains(BlockGroupType::DATA);
        let holds_blocks = region.kind.intersects(BlockGroupType::METADATA | BlockGroupType::SYSTEM);
        if is_data && !holds_data {
            refuse("data in a block group that holds none");
        } else if !is_data && !holds_blocks {
            refuse("a tree block in a block group that holds none");
        }
        let end = end.min(region.end());
        if is_data && !sectors.mark(Mark::Allocated, start, end - start) {
            refuse("lies beyond the addresses that can be tracked");
        }
        let space = &mut self.regions[index];
        space.used = space.used.saturating_add(length);
        space.allocated = space.allocated.wrapping_add(range(start, end));
    }

    /// The free space tree says how many free ranges a block group has.
    pub(crate) fn free_info(&mut self, key: &Key, count: u64, regions: &Regions, ledger: &Ledger) {
        let (start, length) = (key.objectid.get(), key.offset());
        match self.locate(start, regions) {
            Some((index, region)) if region.start == start && region.length == length => {
                self.regions[index].info = Some((start, count));
                self.regions[index].infos += 1;
            }
            _ => self.stray(start, length, "free space info of no block group", regions, ledger),
        }
    }

    /// A range is free.
    pub(crate) fn free(&mut self, start: u64, length: u64, regions: &Regions, ledger: &Ledger) {
        let end = start.saturating_add(length);
        match self.locate(start, regions) {
            Some((index, region)) if end <= region.end() => {
                let space = &mut self.regions[index];
                space.free = space.free.wrapping_add(range(start, end));
                space.free_count += 1;
            }
            _ => self.stray(start, length, "free space in no block group", regions, ledger),
        }
    }

    /// A bitmap says what is free.
    pub(crate) fn free_bitmap(
        &mut self,
        key: &Key,
        bitmap: &[u8],
        sectorsize: u64,
        regions: &Regions,
        ledger: &Ledger,
    ) {
        let start = key.objectid.get();
        let end = start.saturating_add(key.offset());
        let inside = self.locate(start, regions).filter(|(_, region)| end <= region.end());
        let Some((index, _)) = inside else {
            let problem = "free space bitmap in no block group";
            return self.stray(start, key.offset(), problem, regions, ledger);
        };
        let mut count = 0;
        let mut sum: Sum = 0;
        let mut open: Option<(u64, u64)> = None;
        for_runs(bitmap, |first, length| {
            let place = |sector: u64| start.saturating_add(sector.saturating_mul(sectorsize));
            let (from, to) = (place(first), place(first + length));
            match &mut open {
                Some((_, last)) if *last == from => *last = to,
                _ => {
                    if let Some((from, to)) = open.replace((from, to)) {
                        sum = sum.wrapping_add(range(from, to));
                    }
                    if from == start {
                        self.joins.0.push(start);
                    }
                    count += 1;
                }
            }
        });
        if let Some((from, to)) = open {
            sum = sum.wrapping_add(range(from, to.min(end)));
            if to >= end {
                self.joins.1.push(end);
            }
        }
        let space = &mut self.regions[index];
        space.free = space.free.wrapping_add(sum);
        space.free_count += count;
    }

    /// An item about no block group: what mkfs left behind of block groups that it used for a while, if
    /// there is none at the place, and wrong if there is one.
    fn stray(&mut self, start: u64, length: u64, problem: &'static str, regions: &Regions, ledger: &Ledger) {
        if regions.is_empty_range(start, start.saturating_add(length)) {
            self.strays += 1;
        } else {
            let start = Logical::new(start);
            ledger.report(page::FREE_SPACE, Finding::FreeSpace { start, length, problem });
        }
    }

    fn locate<'r>(
        &mut self,
        address: u64,
        regions: &'r Regions,
    ) -> Option<(usize, &'r crate::regions::Region)> {
        let holds = |index: usize| {
            let region = regions.get(index)?;
            (region.start <= address && address < region.end()).then_some((index, region))
        };
        if let Some(found) = holds(self.recent) {
            return Some(found);
        }
        self.recent = regions.find(address)?;
        holds(self.recent)
    }
}

/// The runs of set bits of a bitmap; one that crosses 64 bits comes in several pieces.
pub(crate) fn for_runs(bitmap: &[u8], mut found: impl FnMut(u64, u64)) {
    for (word, bytes) in bitmap.chunks(8).enumerate() {
        let mut whole = [0; 8];
        for (target, source) in whole.iter_mut().zip(bytes) {
            *target = *source;
        }
        for (first, length) in runs(u64::from_le_bytes(whole)) {
            found(to_u64(word) * 64 + first, length);
        }
    }
}
