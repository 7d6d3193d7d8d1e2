//! Checksums: what needs one has one, and there is none of nothing.

use crate::Finding;
use crate::examination::Examination;
use crate::gather::summed_range;
use crate::page;
use crate::roots::TreeKind;
use crate::sectors::Mark;
use crate::walk::{Leaf, Visitor};
use brindle_ondisk::{Item, KeyType, Logical, ObjectId, RootId};

/// Ranges whose users are looked for.
const EXACT_MAX: usize = 1000;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let (ledger, sectors) = (examination.ledger, &examination.sectors);
    sectors.difference(Mark::Summed, Mark::Allocated, |start, length| {
        let start = Logical::new(start);
        ledger.report(page::CHECKSUMS, Finding::ChecksumUnused { start, length });
    });
    let mut missing: Vec<(u64, u64)> = Vec::new();
    let mut more = 0;
    sectors.difference(Mark::Needed, Mark::Summed, |start, length| {
        if missing.len() < EXACT_MAX {
            missing.push((start, length));
        } else {
            more += 1;
        }
    });
    if missing.is_empty() {
        return;
    }
    let Some(forest) = &examination.forest else { return };
    let mut users: Vec<Option<(RootId, ObjectId, u64)>> = vec![None; missing.len()];
    let walk = examination.walk(forest, false);
    let wanted = |kind| matches!(kind, TreeKind::Files | TreeKind::Relocation | TreeKind::Root);
    for state in walk.leaves(|tree| wanted(tree.kind), &Users { missing: &missing }) {
        for (index, user) in state {
            users[index] = users[index].min(Some(user)).or(Some(user));
        }
    }
    for ((start, length), user) in missing.into_iter().zip(users) {
        let start = Logical::new(start);
        ledger.report(page::CHECKSUMS, Finding::ChecksumMissing { start, length, user });
    }
    if more > 0 {
        ledger.note(page::CHECKSUMS, format!("{more} more ranges have no checksums"));
    }
}

/// Search for files that use data without checksums.
struct Users<'a> {
    missing: &'a [(u64, u64)],
}

impl Visitor for Users<'_> {
    type State = Vec<(usize, (RootId, ObjectId, u64))>;

    fn start(&self) -> Self::State {
        Vec::new()
    }

    fn leaf(&self, state: &mut Self::State, leaf: &Leaf<'_>) {
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            if key.item_type != KeyType::EXTENT_DATA {
                continue;
            }
            let Ok(Item::FileExtent(extent)) = Item::parse(&key, data) else { continue };
            let Some((start, length)) = summed_range(&extent) else { continue };
            let end = start.saturating_add(length);
            let first = self.missing.partition_point(|(from, length)| from + length <= start);
            for (index, (from, _)) in self.missing.iter().enumerate().skip(first) {
                if *from >= end {
                    break;
                }
                if state.len() < EXACT_MAX * 4 {
                    state.push((index, (leaf.tree.id, key.objectid, key.offset())));
                }
            }
        }
    }
}
