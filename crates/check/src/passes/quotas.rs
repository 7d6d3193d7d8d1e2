//! Quotas: every subvolume has its group, and the numbers of groups are those of the references.

use crate::Finding;
use crate::examination::Examination;
use crate::forest::Forest;
use crate::page;
use crate::reach;
use crate::roots::TreeKind;
use brindle_ondisk::item::{QgroupStatusFlags, QuotaTable};
use brindle_ondisk::{Generation, QgroupId, RootId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let (Some(gathered), Some(forest)) = (&examination.gathered, &examination.forest) else { return };
    let table = &gathered.facts.quotas;
    let flags = table
        .status
        .map_or(QgroupStatusFlags::empty(), |status| QgroupStatusFlags::from_bits_retain(status.flags));
    let Some(status) = table.status.filter(|_| flags.contains(QgroupStatusFlags::ON)) else {
        return ledger.note(page::QUOTAS, "quotas are off".into());
    };
    if flags.intersects(QgroupStatusFlags::RESCAN | QgroupStatusFlags::INCONSISTENT) {
        let is_rescan = flags.contains(QgroupStatusFlags::RESCAN);
        let state = if is_rescan { "being counted anew" } else { "known to be inconsistent" };
        return ledger.note(page::QUOTAS, format!("quotas are {state}"));
    }
    every_subvolume_has_a_group(examination, forest, table);
    let is_current = Generation::new(status.generation) == examination.pool.superblock().generation;
    let obstacle = if !is_current {
        Some(format!("quotas are of generation {}", status.generation))
    } else if flags.contains(QgroupStatusFlags::SIMPLE) {
        Some("the numbers of simple quotas are not compared".into())
    } else if forest.ids().any(|id| forest.block(id).is_bad()) {
        Some("the numbers are not compared: not all tree blocks are readable".into())
    } else {
        None
    };
    match obstacle {
        Some(obstacle) => ledger.note(page::QUOTAS, obstacle),
        None => compare(examination, forest, table),
    }
}

fn every_subvolume_has_a_group(examination: &Examination<'_>, forest: &Forest, table: &QuotaTable) {
    let subvolumes = forest
        .trees
        .iter()
        .filter(|tree| tree.kind == TreeKind::Files && tree.id != RootId::DATA_RELOC_TREE && !tree.is_dead());
    for tree in subvolumes {
        let (subvolume, id) = (tree.id, QgroupId::of_subvolume(tree.id));
        let problem = match (table.infos.contains_key(&id), table.limits.contains_key(&id)) {
            (true, true) => continue,
            (true, false) => "has no limit item",
            (false, _) => "the subvolume has no quota group",
        };
        examination.ledger.report(page::QUOTAS, Finding::Quota { subvolume, problem });
    }
}

/// Compares the numbers of all groups.
fn compare(examination: &Examination<'_>, forest: &Forest, table: &QuotaTable) {
    let ledger = examination.ledger;
    let Some(reached) = reach::bytes(examination, forest) else {
        let note = "the numbers are not compared: too many different sets of subvolumes share extents";
        return ledger.note(page::QUOTAS, note.into());
    };
    let expected = numbers(&reached, table);
    let is_dropping = forest.trees.iter().any(|tree| tree.dropped_to.is_some());
    for (group, info) in &table.infos {
        let expected = expected.get(group).copied().unwrap_or_default();
        let found = (info.rfer.get(), info.excl.get());
        if found == expected {
            continue;
        }
        let finding = Finding::QuotaNumbers { group: *group, expected, found };
        if is_dropping {
            // Of a subvolume that is half gone the kernel counts less than is there.
            ledger.note(page::QUOTAS, format!("{finding}, while a subvolume is being dropped"));
        } else {
            ledger.report(page::QUOTAS, finding);
        }
    }
}

/// Referenced and exclusive bytes of each group that has some.
fn numbers(reached: &reach::Reached, table: &QuotaTable) -> BTreeMap<QgroupId, (u64, u64)> {
    let mut groups_of: HashMap<RootId, BTreeSet<QgroupId>> = HashMap::new();
    let mut numbers: BTreeMap<QgroupId, (u64, u64)> = BTreeMap::new();
    for (subvolumes, bytes) in reached {
        let mut members: BTreeMap<QgroupId, usize> = BTreeMap::new();
        for subvolume in subvolumes.iter() {
            let groups = groups_of
                .entry(*subvolume)
                .or_insert_with(|| table.above(QgroupId::of_subvolume(*subvolume)));
            for group in groups.iter() {
                *members.entry(*group).or_default() += 1;
            }
        }
        for (group, count) in members {
            let (referenced, exclusive) = numbers.entry(group).or_default();
            *referenced = referenced.saturating_add(*bytes);
            if count == subvolumes.len() {
                *exclusive = exclusive.saturating_add(*bytes);
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two subvolumes of a group and one outside: bytes shared within the group are exclusive to it.
    #[test]
    fn bytes_that_members_share_are_exclusive_to_their_group() {
        let [one, two, outside] = [256, 257, 258].map(RootId::new);
        let group = QgroupId::new(1 << 48 | 1);
        let mut table = QuotaTable::default();
        table.relations.extend([one, two].map(|id| (QgroupId::of_subvolume(id), group)));
        let reached = vec![
            ([one].into(), 1),
            ([one, two].into(), 10),
            ([two, outside].into(), 100),
            ([outside].into(), 1000),
        ];
        let of = |id| QgroupId::of_subvolume(id);
        let expected =
            [(of(one), (11, 1)), (of(two), (110, 0)), (of(outside), (1100, 1000)), (group, (111, 11))];
        assert_eq!(numbers(&reached, &table), BTreeMap::from(expected));
    }
}
