//! Relations between subvolumes: root items, the links between them, their names, their UUIDs.

use crate::Finding;
use crate::examination::Examination;
use crate::facts::{RootLink, TreeFacts};
use crate::files::exact::has_entry;
use crate::ledger::Ledger;
use crate::page;
use crate::roots::{Tree, TreeKind};
use brindle_ondisk::{RootId, Superblock, Uuid};
use std::collections::{HashMap, HashSet};

pub(crate) fn run(examination: &mut Examination<'_>) {
    let (Some(forest), Some(gathered)) = (&examination.forest, &examination.gathered) else { return };
    let ledger = examination.ledger;
    let facts = &gathered.facts;
    for tree in forest.trees.iter().filter(|tree| matches!(tree.kind, TreeKind::Extent | TreeKind::Other)) {
        if tree.item.as_ref().is_some_and(|(_, offset)| *offset != 0) {
            let problem = "the key of its root item has an offset, and it is no subvolume";
            ledger.report(page::SUBVOLUMES, Finding::Root { subvolume: tree.id, problem });
        }
    }
    let subvolumes: HashMap<RootId, &Tree> = forest
        .trees
        .iter()
        .filter(|tree| tree.kind == TreeKind::Files && tree.id != RootId::DATA_RELOC_TREE)
        .map(|tree| (tree.id, tree))
        .collect();
    let report = |link: &RootLink, problem| {
        let (subvolume, parent) = (link.child, link.parent);
        ledger.report(page::SUBVOLUMES, Finding::RootRef { subvolume, parent, problem });
    };
    compare(&facts.root_refs, &facts.root_backrefs, "ROOT_REF without equal ROOT_BACKREF", &report);
    compare(&facts.root_backrefs, &facts.root_refs, "ROOT_BACKREF without equal ROOT_REF", &report);
    let mut linked: HashSet<RootId> = HashSet::new();
    for link in &facts.root_refs {
        if !linked.insert(link.child) {
            report(link, "has more than one name");
        }
        if subvolumes.get(&link.child).is_none_or(|tree| tree.is_dead()) {
            report(link, "there is no such subvolume");
        }
        let Some(parent) = subvolumes.get(&link.parent) else {
            report(link, "there is no such parent");
            continue;
        };
        let place = (link.index, link.name.as_slice());
        if !has_entry(parent, examination.reader, link.directory, place, link.child) {
            report(link, "the parent's directory does not have it");
        }
    }
    for (id, tree) in &subvolumes {
        if *id != RootId::FS_TREE && !tree.is_dead() && !linked.contains(id) {
            let problem = "has no name";
            ledger.report(page::SUBVOLUMES, Finding::Root { subvolume: *id, problem });
        }
    }
    check_uuids(&subvolumes, facts, &examination.pool.superblock(), ledger);
}

fn compare(
    from: &[RootLink],
    to: &[RootLink],
    problem: &'static str,
    report: &dyn Fn(&RootLink, &'static str),
) {
    let mut sorted: Vec<&RootLink> = to.iter().collect();
    sorted.sort_unstable();
    for link in from.iter().filter(|link| sorted.binary_search(link).is_err()) {
        report(link, problem);
    }
}

/// Entries of the UUID tree and what root items say. Kernels that do not keep the tree leave its generation
/// behind; it is then made anew at the next mount.
fn check_uuids(
    subvolumes: &HashMap<RootId, &Tree>,
    facts: &TreeFacts,
    superblock: &Superblock,
    ledger: &Ledger,
) {
    if superblock.uuid_tree_generation.get() != superblock.generation.get() {
        return ledger
            .note(page::SUBVOLUMES, "the UUID tree is out of date, and will be checked anew".into());
    }
    let uuids = |tree: &Tree| {
        let item = tree.item.as_ref().map(|(item, _)| item);
        item.map_or((Uuid::NIL, Uuid::NIL), |item| (item.uuid, item.received_uuid))
    };
    let mut known: HashSet<(RootId, Uuid, bool)> = HashSet::new();
    for fact in &facts.uuids {
        known.insert((fact.subvolume, fact.uuid, fact.is_received));
        let problem = match subvolumes.get(&fact.subvolume) {
            None => Some("there is no such subvolume"),
            Some(tree) => {
                let (own, received) = uuids(tree);
                let expected = if fact.is_received { received } else { own };
                (expected != fact.uuid && !tree.is_dead()).then_some("the subvolume has another")
            }
        };
        if let Some(problem) = problem {
            let (uuid, subvolume) = (fact.uuid, fact.subvolume);
            ledger.report(page::SUBVOLUMES, Finding::UuidEntry { uuid, subvolume, problem });
        }
    }
    for (id, tree) in subvolumes.iter().filter(|(_, tree)| !tree.is_dead()) {
        let (own, received) = uuids(tree);
        for (uuid, is_received) in [(own, false), (received, true)] {
            // The top level has got a UUID later than the other trees, and no entry with it.
            let is_optional = *id == RootId::FS_TREE;
            if !uuid.is_nil() && !is_optional && !known.contains(&(*id, uuid, is_received)) {
                let problem = "has no entry";
                ledger.report(page::SUBVOLUMES, Finding::UuidEntry { uuid, subvolume: *id, problem });
            }
        }
    }
}
