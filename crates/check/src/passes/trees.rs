//! Every tree block, once.

use crate::examination::Examination;
use crate::forest::Forest;
use crate::pass::page;
use crate::{Finding, roots};
use brindle_ondisk::RootId;

/// Trees without which there is no pool.
const NEEDED: [(RootId, &str); 4] = [
    (RootId::EXTENT_TREE, "extent"),
    (RootId::DEV_TREE, "device"),
    (RootId::FS_TREE, "top-level subvolume's"),
    (RootId::CSUM_TREE, "checksum"),
];

pub(crate) fn run(examination: &mut Examination<'_>) {
    let (reader, ledger) = (examination.reader, examination.ledger);
    let trees = roots::find(reader, examination.pool.superblock());
    for (id, name) in NEEDED {
        if trees.iter().all(|tree| tree.id != id) {
            ledger.report(page::TREES, Finding::TreeMissing(name));
        }
    }
    let forest = Forest::find(trees, reader, ledger, examination.options.worker_count());
    examination.progress.total(brindle_ondisk::to_u64(forest.len()));
    ledger.count(page::TREES, reader.statistics());
    examination.forest = Some(forest);
}
