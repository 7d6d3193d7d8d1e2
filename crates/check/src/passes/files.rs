//! Files of every subvolume.

use crate::Finding;
use crate::examination::Examination;
use crate::files::{Judge, Summary, exact};
use crate::forest::{BlockId, Forest};
use crate::gather::{Gathered, LevelOnePart};
use crate::page;
use crate::roots::TreeKind;
use brindle_ondisk::{Incompat, ObjectId, RootId, to_u64};
use std::collections::{BTreeSet, HashMap};

pub(crate) fn run(examination: &mut Examination<'_>) {
    let (Some(forest), Some(gathered)) = (&examination.forest, &examination.gathered) else { return };
    let ledger = examination.ledger;
    let mut suspects: BTreeSet<RootId> = gathered.suspects.clone();
    let mut fold = Fold { forest, gathered, kept: HashMap::new() };
    for (tree, root) in forest.trees.iter().zip(&forest.roots) {
        let Some(root) = root.filter(|_| tree.kind == TreeKind::Files && !tree.is_dead()) else { continue };
        let mut suspect = false;
        let mut report = |finding| ledger.report(page::FILES, finding);
        let mut judge = Judge {
            tree: tree.id,
            no_holes: examination.pool.superblock().incompat().contains(Incompat::NO_HOLES),
            sectorsize: examination.reader.context.sectorsize.into(),
            report: &mut report,
            suspect: &mut || suspect = true,
        };
        let summary = fold.summary(root, &mut judge);
        let closed = summary.close(&mut judge);
        if closed.is_broken {
            let note = "can't be read in full, so its names were not compared";
            ledger.note(page::FILES, format!("tree {} {note}", tree.id));
            continue;
        }
        if closed.first_inode != Some(ObjectId::FIRST_FREE.get()) {
            let (tree, inode) = (tree.id, ObjectId::FIRST_FREE);
            let problem = "the root directory is not there, or not the first";
            ledger.report(page::FILES, Finding::InodeRule { tree, inode, problem });
        }
        if suspect || !closed.names_agree {
            suspects.insert(tree.id);
        }
    }
    for (number, id) in suspects.iter().enumerate() {
        if number >= EXACT_MAX || ledger.errors(page::FILES) >= to_u64(examination.options.max_findings) {
            ledger.report(page::FILES, Finding::Names { tree: *id });
            continue;
        }
        let found = forest.trees.iter().find(|tree| tree.id == *id);
        if let Some(tree) = found {
            exact::look_into(tree, examination.reader, ledger);
        }
    }
}

/// Trees that are looked into.
const EXACT_MAX: usize = 16;

/// Puts summaries together, from the leaves up.
struct Fold<'a> {
    forest: &'a Forest,
    gathered: &'a Gathered,
    /// Summaries of nodes that several trees have.
    kept: HashMap<BlockId, Summary>,
}

impl Fold<'_> {
    fn summary(&mut self, id: BlockId, judge: &mut Judge<'_>) -> Summary {
        if let Some(kept) = self.kept.get(&id) {
            return kept.clone();
        }
        let block = self.forest.block(id);
        let mut summary = Summary::default();
        if block.level <= 1 {
            match self.gathered.nodes.get(&id) {
                Some(parts) => self.append_parts(parts, &mut summary, judge),
                None => summary = Summary::broken(),
            }
        } else {
            match self.forest.node(id) {
                Some(node) => {
                    for child in &node.children {
                        let child = self.summary(*child, judge);
                        summary.append(&child, judge);
                    }
                }
                None => summary = Summary::broken(),
            }
        }
        if block.is_shared() {
            self.kept.insert(id, summary.clone());
        }
        summary
    }

    fn append_parts(&self, parts: &[LevelOnePart], summary: &mut Summary, judge: &mut Judge<'_>) {
        for part in parts {
            match part {
                LevelOnePart::Run(run) => summary.append(run, judge),
                LevelOnePart::Leaf(leaf) => match self.gathered.shared.get(leaf) {
                    Some(shared) => summary.append(shared, judge),
                    None => summary.append(&Summary::broken(), judge),
                },
            }
        }
    }
}
