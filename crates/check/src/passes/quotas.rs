//! Quotas: every subvolume has its group, and the numbers of groups are those of the references; with simple quotas, those
//! of the extents that each subvolume wrote first, since quotas were turned on.

use crate::Finding;
use crate::examination::Examination;
use crate::forest::Forest;
use crate::page;
use crate::reach;
use crate::read::Reader;
use crate::roots::TreeKind;
use brindle_ondisk::item::{QgroupStatusFlags, QuotaTable};
use brindle_ondisk::{Generation, Item, Key, KeyType, ObjectId, QgroupId, RootId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let (Some(gathered), Some(forest)) = (&examination.gathered, &examination.forest) else { return };
    let table = &gathered.facts.quotas;
    let flags = table
        .status
        .map_or(QgroupStatusFlags::empty(), |status| QgroupStatusFlags::from_bits_retain(status.flags));
    let Some(status) = table.status.filter(|_| flags.contains(QgroupStatusFlags::ON)) else {
        return ledger.skip(page::QUOTAS, "quotas are off".into());
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
    } else if forest.ids().any(|id| forest.block(id).is_bad()) {
        Some("the numbers are not compared: not all tree blocks are readable".into())
    } else {
        None
    };
    match obstacle {
        Some(obstacle) => ledger.note(page::QUOTAS, obstacle),
        None if flags.contains(QgroupStatusFlags::SIMPLE) => {
            compare_simple(examination, &gathered.written, table);
        }
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

/// Simple quotas: the transaction from which on extents count; `None` if there are none.
pub(crate) fn counted_from(forest: &Forest, reader: &Reader<'_>) -> Option<u64> {
    let key = Key::new(ObjectId::new(0), KeyType::QGROUP_STATUS, 0);
    let tree = forest.trees_of(RootId::QUOTA_TREE).next()?;
    let leaf = reader.leaf_of(&tree.root, &key)?;
    let (key, data) = leaf.item(leaf.search(&key).ok()?)?;
    let Ok(Item::QgroupStatus(status)) = Item::parse(&key, data) else { return None };
    let is_simple = QgroupStatusFlags::from_bits_retain(status.flags).contains(QgroupStatusFlags::SIMPLE);
    is_simple.then(|| status.enable_gen.unwrap_or(0))
}

/// Compares the numbers of simple quotas.
fn compare_simple(examination: &Examination<'_>, written: &BTreeMap<RootId, u64>, table: &QuotaTable) {
    let ledger = examination.ledger;
    let (expected, ambiguous) = simple_numbers(written, table);
    for subvolume in without_group(written, table) {
        let problem = "there are extents that count for it, and no such group";
        ledger.report(page::QUOTAS, Finding::Quota { subvolume, problem });
    }
    for (group, info) in &table.infos {
        let bytes = expected.get(group).copied().unwrap_or_default();
        let (expected, found) = ((bytes, bytes), (info.rfer.get(), info.excl.get()));
        if found == expected {
            continue;
        }
        let finding = Finding::QuotaNumbers { group: *group, expected, found };
        if ambiguous.contains(group) {
            // The kernel takes in a new member's bytes once for each way to it.
            ledger.note(page::QUOTAS, format!("{finding}; a group is part of it by two ways"));
        } else {
            ledger.report(page::QUOTAS, finding);
        }
    }
}

/// First writers that have no group: a kernel ends all writing when one of their extents goes.
fn without_group(written: &BTreeMap<RootId, u64>, table: &QuotaTable) -> Vec<RootId> {
    let has_group = |owner: &RootId| table.infos.contains_key(&QgroupId::of_subvolume(*owner));
    written.keys().copied().filter(|owner| !has_group(owner)).collect()
}

/// Bytes of each group that has some; and groups of which another one is part by more than one way.
fn simple_numbers(
    written: &BTreeMap<RootId, u64>,
    table: &QuotaTable,
) -> (BTreeMap<QgroupId, u64>, BTreeSet<QgroupId>) {
    let mut numbers: BTreeMap<QgroupId, u64> = BTreeMap::new();
    for (subvolume, bytes) in written {
        for group in table.above(QgroupId::of_subvolume(*subvolume)) {
            let number = numbers.entry(group).or_default();
            *number = number.saturating_add(*bytes);
        }
    }
    let mut ambiguous = BTreeSet::new();
    for child in table.relations.iter().map(|(child, _)| *child).collect::<BTreeSet<_>>() {
        let mut seen = BTreeSet::new();
        for (_, parent) in table.relations.range((child, QgroupId::new(0))..=(child, QgroupId::new(u64::MAX)))
        {
            ambiguous.extend(table.above(*parent).into_iter().filter(|group| !seen.insert(*group)));
        }
    }
    (numbers, ambiguous)
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
    use brindle_ondisk::item::QgroupInfo;
    use zerocopy::FromZeros;

    /// Bytes count for all groups that the first writer's is part of, once; a group with two ways to a member is named.
    #[test]
    fn simple_numbers_are_sums_of_first_writers() {
        let [one, two] = [256, 257].map(RootId::new);
        let [left, right, top] = [1 << 48 | 1, 1 << 48 | 2, 2 << 48 | 1].map(QgroupId::new);
        let of = QgroupId::of_subvolume;
        let mut table = QuotaTable::default();
        table.relations.extend([(of(one), left), (of(two), left), (left, top)]);
        let written = BTreeMap::from([(one, 1), (two, 10), (RootId::FS_TREE, 100)]);
        let (numbers, ambiguous) = simple_numbers(&written, &table);
        let expected = [(of(RootId::FS_TREE), 100), (of(one), 1), (of(two), 10), (left, 11), (top, 11)];
        assert_eq!((numbers, ambiguous), (BTreeMap::from(expected), BTreeSet::new()));
        table.relations.extend([(of(one), right), (right, top)]);
        let (numbers, ambiguous) = simple_numbers(&written, &table);
        assert_eq!((numbers.get(&top), numbers.get(&right)), (Some(&11), Some(&1)));
        assert_eq!(ambiguous, BTreeSet::from([top]));
    }

    #[test]
    fn first_writers_without_a_group_are_found() {
        let [one, two] = [256, 257].map(RootId::new);
        let mut table = QuotaTable::default();
        table.infos.insert(QgroupId::of_subvolume(one), QgroupInfo::new_zeroed());
        assert_eq!(without_group(&BTreeMap::from([(one, 1), (two, 10)]), &table), [two]);
    }

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
