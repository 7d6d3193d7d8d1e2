//! Quotas: every subvolume has its group.

use crate::Finding;
use crate::examination::Examination;
use crate::page;
use crate::roots::TreeKind;
use brindle_ondisk::RootId;
use std::collections::HashSet;

/// `BTRFS_QGROUP_STATUS_FLAG_ON`
const ON: u64 = 1;
/// `BTRFS_QGROUP_STATUS_FLAG_RESCAN`
const RESCAN: u64 = 2;
/// `BTRFS_QGROUP_STATUS_FLAG_INCONSISTENT`
const INCONSISTENT: u64 = 4;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let (Some(gathered), Some(forest)) = (&examination.gathered, &examination.forest) else { return };
    let facts = &gathered.facts;
    let Some(status) = facts.quota_status.filter(|status| status.flags & ON != 0) else {
        return ledger.note(page::QUOTAS, "quotas are off".into());
    };
    if status.flags & (RESCAN | INCONSISTENT) != 0 {
        let state =
            if status.flags & RESCAN != 0 { "being counted anew" } else { "known to be inconsistent" };
        return ledger.note(page::QUOTAS, format!("quotas are {state}"));
    }
    if status.generation != examination.pool.superblock().generation {
        ledger.note(page::QUOTAS, format!("quotas are of generation {}", status.generation));
    }
    let infos: HashSet<u64> = facts.quota_infos.iter().copied().collect();
    let limits: HashSet<u64> = facts.quota_limits.iter().copied().collect();
    let subvolumes = forest
        .trees
        .iter()
        .filter(|tree| tree.kind == TreeKind::Files && tree.id != RootId::DATA_RELOC_TREE && !tree.is_dead());
    for tree in subvolumes {
        let (subvolume, id) = (tree.id, tree.id.get());
        if !infos.contains(&id) {
            let problem = "the subvolume has no quota group";
            ledger.report(page::QUOTAS, Finding::Quota { subvolume, problem });
        } else if !limits.contains(&id) {
            let problem = "has no limit item";
            ledger.report(page::QUOTAS, Finding::Quota { subvolume, problem });
        }
    }
}
