//! Free space: with what is allocated it tiles every block group.

use crate::Finding;
use crate::examination::Examination;
use crate::fingerprint::range;
use crate::page;
use crate::regions::Region;
use crate::roots::TreeKind;
use crate::space::for_runs;
use crate::walk::{Leaf, Visitor};
use brindle_ondisk::{CompatRo, Item, KeyType, Logical, RootId, to_u64};

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let Some(gathered) = &mut examination.gathered else { return };
    let superblock = examination.pool.superblock();
    let compat_ro = superblock.compat_ro();
    if !compat_ro.contains(CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID) {
        let (cache, pool) = (superblock.cache_generation.get(), superblock.generation.get());
        let note = if compat_ro.contains(CompatRo::FREE_SPACE_TREE) {
            "the free space tree is not valid, and will be made anew".into()
        } else if cache == pool {
            "the free space cache (version 1) is of the last transaction".into()
        } else {
            format!("no free space tree; the free space cache (version 1) is of generation {cache}")
        };
        return ledger.note(page::FREE_SPACE, note);
    }
    if gathered.space.strays > 0 {
        let note = "items of the free space tree are about block groups that there are no more";
        ledger.note(page::FREE_SPACE, format!("{} {note}", gathered.space.strays));
    }
    let joins = &mut gathered.space.joins;
    joins.0.sort_unstable();
    joins.1.sort_unstable();
    let mut wrong = Vec::new();
    for (region, space) in examination.regions.iter().zip(&gathered.space.regions) {
        if space.infos != 1 {
            let (start, length) = (Logical::new(region.start), region.length);
            let problem =
                if space.infos == 0 { "no free space info" } else { "more than one free space info" };
            ledger.report(page::FREE_SPACE, Finding::FreeSpace { start, length, problem });
        }
        // A free range that goes on from one bitmap to the next is one.
        let from = joins.0.partition_point(|at| *at <= region.start);
        let to = joins.0.partition_point(|at| *at < region.end()).max(from);
        let joined = joins.0[from..to].iter().filter(|at| joins.1.binary_search(at).is_ok()).count();
        let expected = space.free_count.saturating_sub(to_u64(joined));
        if let Some((start, found)) = space.info.filter(|(_, found)| *found != expected) {
            let start = Logical::new(start);
            ledger.report(page::FREE_SPACE, Finding::FreeSpaceCount { start, expected, found });
        }
        if space.allocated.wrapping_add(space.free) != range(region.start, region.end()) {
            wrong.push(*region);
        }
    }
    for region in wrong.iter().take(EXACT_MAX) {
        look_into(examination, region);
    }
    if wrong.len() > EXACT_MAX {
        ledger.note(page::FREE_SPACE, format!("{} block groups disagree", wrong.len()));
    }
}

/// Block groups that are looked into.
const EXACT_MAX: usize = 16;

/// Names what is wrong in one block group.
fn look_into(examination: &Examination<'_>, region: &Region) {
    let Some(forest) = &examination.forest else { return };
    let (nodesize, sectorsize) =
        (examination.reader.context.nodesize.into(), examination.reader.context.sectorsize.into());
    let exact = Exact { region, nodesize, sectorsize };
    let wanted = |id| id == RootId::EXTENT_TREE || id == RootId::FREE_SPACE_TREE;
    let walk = examination.walk(forest, false);
    let states = walk.leaves(|tree| wanted(tree.id) && tree.kind != TreeKind::Log, &exact);
    let mut ranges: Vec<(u64, u64, bool)> = states.into_iter().flatten().collect();
    ranges.sort_unstable();
    let report = |start, length, problem| {
        let start = Logical::new(start);
        examination.ledger.report(page::FREE_SPACE, Finding::FreeSpace { start, length, problem });
    };
    let mut end = region.start;
    let mut was_free = false;
    for (start, stop, is_free) in ranges {
        if start > end {
            report(end, start - end, "neither allocated nor free");
        } else if start < end {
            let problem = match (was_free, is_free) {
                (true, true) => "free twice",
                (false, false) => "allocated twice",
                _ => "both allocated and free",
            };
            report(start, end.min(stop) - start, problem);
        }
        if stop > end {
            end = stop;
            was_free = is_free;
        }
    }
    if end < region.end() {
        report(end, region.end() - end, "neither allocated nor free");
    }
}

/// Collects the ranges of one block group, allocated and free.
struct Exact<'a> {
    region: &'a Region,
    nodesize: u64,
    sectorsize: u64,
}

impl Exact<'_> {
    fn push(&self, state: &mut Vec<(u64, u64, bool)>, start: u64, end: u64, is_free: bool) {
        if start < self.region.end() && end > self.region.start {
            match state.last_mut() {
                Some((_, last, free)) if *free && is_free && *last == start => *last = end,
                _ => state.push((start, end, is_free)),
            }
        }
    }
}

impl Visitor for Exact<'_> {
    type State = Vec<(u64, u64, bool)>;

    fn start(&self) -> Self::State {
        Vec::new()
    }

    fn leaf(&self, state: &mut Self::State, leaf: &Leaf<'_>) {
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            let start = key.objectid.get();
            let end = match key.item_type {
                KeyType::METADATA_ITEM => start.saturating_add(self.nodesize),
                _ => start.saturating_add(key.offset()),
            };
            if end <= self.region.start || start >= self.region.end() {
                continue;
            }
            match key.item_type {
                KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => self.push(state, start, end, false),
                KeyType::FREE_SPACE_EXTENT => self.push(state, start, end, true),
                KeyType::FREE_SPACE_BITMAP => {
                    if let Ok(Item::FreeSpaceBitmap(bits)) = Item::parse(&key, data) {
                        for_runs(bits, |first, length| {
                            let from = start.saturating_add(first * self.sectorsize);
                            self.push(state, from, from.saturating_add(length * self.sectorsize), true);
                        });
                    }
                }
                _ => {}
            }
        }
    }
}
