//! Every tree block, once; and whatever the passes behind want to know of them.

use crate::examination::Examination;
use crate::forest::Forest;
use crate::gather::Gather;
use crate::page;
use crate::passes::quotas;
use crate::references::{ReferenceSink, Shape, to_child};
use crate::roots::TreeKind;
use crate::{Finding, Reference, roots};
use brindle_ondisk::{Incompat, RootId, to_u64};

/// Trees without which there is no pool.
const NEEDED: [(RootId, &str); 4] = [
    (RootId::EXTENT_TREE, "extent"),
    (RootId::DEV_TREE, "device"),
    (RootId::FS_TREE, "top-level subvolume's"),
    (RootId::CSUM_TREE, "checksum"),
];

pub(crate) fn run(examination: &mut Examination<'_>) {
    let (reader, ledger) = (examination.reader, examination.ledger);
    let superblock = &examination.pool.superblock();
    let trees = roots::find(reader, superblock);
    for (id, name) in NEEDED {
        if trees.iter().all(|tree| tree.id != id) {
            ledger.report(page::TREES, Finding::TreeMissing(name));
        }
    }
    let forest = Forest::find(trees, reader, ledger, examination.options.worker_count());
    examination.progress.total(to_u64(forest.len()));
    let gather = Gather {
        forest: &forest,
        reader,
        ledger,
        regions: &examination.regions,
        sectors: &examination.sectors,
        no_holes: superblock.incompat().contains(Incompat::NO_HOLES),
        counted_from: quotas::counted_from(&forest, reader),
    };
    let walk = examination.walk(&forest, true);
    // The extent tree says how the others refer to things.
    let mut states = walk.leaves(|tree| tree.kind == TreeKind::Extent, &gather);
    states.extend(walk.leaves(|tree| tree.kind != TreeKind::Extent, &gather));
    let mut gathered = states.pop().expect("a walk has a thread");
    for state in states {
        gathered.merge(state);
    }
    references_of_nodes(&forest, &mut gathered.references);
    for id in forest.ids() {
        if let Some(node) = forest.node(id) {
            gather.owners().check(id, &node.named);
            gather.count_written(&mut gathered, node.named.owner, forest.block(id).generation);
        }
    }
    let mut statistics = reader.statistics();
    statistics.items = gathered.items;
    ledger.count(page::TREES, statistics);
    let bad = forest.ids().filter(|id| forest.block(*id).is_bad()).count();
    if bad > 0 {
        let note =
            "tree blocks can't be read; extents that they refer to may be reported as unused, and more";
        ledger.note(page::TREES, format!("{bad} {note}"));
    }
    examination.forest = Some(forest);
    examination.gathered = Some(gathered);
}

/// Reports the references of roots and nodes.
pub(crate) fn references_of_nodes(forest: &Forest, sink: &mut dyn ReferenceSink) {
    for (tree, root) in forest.trees.iter().zip(&forest.roots) {
        let Some(root) = root.filter(|_| tree.kind.is_accounted()) else { continue };
        let reference = match tree.kind {
            // Its blocks are all filed under their parents, and the root has none but itself.
            TreeKind::Relocation => Reference::SharedTree(tree.root.bytenr),
            _ => Reference::Tree(tree.id),
        };
        sink.used(tree.bytenr(), Shape::Block(forest.block(root).level), reference);
    }
    for id in forest.ids() {
        let block = forest.block(id);
        let Some(node) = forest.node(id) else { continue };
        if !forest.tree_of(id).kind.is_accounted() {
            continue;
        }
        let reference = to_child(block.bytenr, node.named.owner.get(), block.has_full_backref());
        for child in &node.children {
            sink.used(forest.block(*child).bytenr, Shape::Block(block.level - 1), reference);
        }
    }
}
