//! Block groups: each chunk has one, and it knows what is used.

use crate::Finding;
use crate::examination::Examination;
use crate::page;
use brindle_ondisk::{CompatRo, Logical, RootId};
use std::collections::BTreeMap;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let Some(gathered) = &examination.gathered else { return };
    let superblock = examination.pool.superblock();
    let has_own_tree = superblock.compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
    let home = if has_own_tree { RootId::BLOCK_GROUP_TREE } else { RootId::EXTENT_TREE };
    let mut groups = BTreeMap::new();
    let report = |start, length, problem| {
        let start = Logical::new(start);
        ledger.report(page::BLOCK_GROUPS, Finding::BlockGroup { start, length, problem });
    };
    for group in &gathered.facts.block_groups {
        if group.tree != home {
            report(group.start, group.length, "its item is in the wrong tree");
        }
        if groups.insert(group.start, *group).is_some() {
            report(group.start, group.length, "there are two of it");
        }
    }
    let mut total = 0u64;
    for (region, space) in examination.regions.iter().zip(&gathered.space.regions) {
        let Some(group) = groups.remove(&region.start) else {
            report(region.start, region.length, "chunk without block group");
            continue;
        };
        total = total.saturating_add(group.used);
        let start = Logical::new(region.start);
        if group.length != region.length {
            report(group.start, group.length, "its chunk has another length");
        }
        if group.kind != region.kind {
            let (expected, found) = (region.kind, group.kind);
            ledger.report(page::BLOCK_GROUPS, Finding::BlockGroupType { start, expected, found });
        }
        if group.used != space.used {
            let (expected, found) = (space.used, group.used);
            ledger.report(page::BLOCK_GROUPS, Finding::BlockGroupUsed { start, expected, found });
        }
    }
    for group in groups.values() {
        report(group.start, group.length, "block group without chunk");
        total = total.saturating_add(group.used);
    }
    let found = superblock.bytes_used.get();
    if total != found {
        let (field, expected) = ("bytes_used", total);
        ledger.report(page::BLOCK_GROUPS, Finding::SuperblockTotal { field, expected, found });
    }
}
