//! Summaries of files: what a run of leaves says of its inodes, such that summaries of neighbours can be put
//! together.
//!
//! All items of an inode follow each other, so a leaf holds some inodes whole, and parts of at most two
//! others, the first and the last. Whole inodes are judged where they are found and leave nothing but what
//! they add to the names of the tree; the parts at the edges wait for the neighbours. Putting together is
//! associative. So the summary of a node is that of its children put together, and one that several trees
//! share is made once, and kept: the cost of a snapshot is that of the blocks that it does not share.

pub(crate) mod exact;
pub(crate) mod inode;

use crate::Finding;
use crate::fingerprint::Sum;
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use inode::InodePart;

/// Summary of the inodes of a run of leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// The first inode, whose items may begin before.
    first: Option<Box<InodePart>>,
    /// The last, if it is another: its items may go on.
    last: Option<Box<InodePart>>,
    /// Contribution of the inodes between to the tree's names.
    names: Sum,
    /// Inodes that should have orphan items.
    orphans: Vec<u64>,
    /// Inodes that have.
    orphan_items: Vec<u64>,
    /// LevelOnePart of the run can't be read.
    pub(crate) is_broken: bool,
}

/// Judges inodes when all of their items are there.
pub(crate) struct Judge<'a> {
    /// The tree to name.
    pub(crate) tree: RootId,
    /// True if holes have no extents (`NO_HOLES`).
    pub(crate) no_holes: bool,
    pub(crate) sectorsize: u64,
    pub(crate) report: &'a mut dyn FnMut(Finding),
    /// Callback for a directory with kinds of entries that disagree.
    pub(crate) suspect: &'a mut dyn FnMut(),
}

impl Summary {
    /// The summary of a run that can't be read.
    pub(crate) fn broken() -> Self {
        Self { is_broken: true, ..Self::default() }
    }

    /// Appends the next inode of the same leaf.
    fn push(&mut self, part: InodePart, judge: &mut Judge<'_>) {
        if self.first.is_none() {
            self.first = Some(Box::new(part));
        } else if let Some(before) = self.last.replace(Box::new(part)) {
            self.settle(&before, judge);
        }
    }

    /// Appends the summary of the leaves that follow.
    pub(crate) fn append(&mut self, next: &Self, judge: &mut Judge<'_>) {
        self.names = self.names.wrapping_add(next.names);
        self.orphans.extend(&next.orphans);
        self.orphan_items.extend(&next.orphan_items);
        // Parts next to a place that can't be read are not to be judged: their rest is missing.
        self.is_broken |= next.is_broken;
        let Some(first) = &next.first else { return };
        let edge = self.last.as_mut().or(self.first.as_mut());
        match edge {
            Some(edge) if edge.inode == first.inode => {
                let joined = InodePart::clone(edge).then(first);
                **edge = joined;
            }
            Some(_) => {
                if let Some(before) = self.last.replace(first.clone()) {
                    self.settle(&before, judge);
                }
            }
            None => self.first = Some(first.clone()),
        }
        if let Some(last) = &next.last {
            if let Some(before) = self.last.replace(last.clone()) {
                self.settle(&before, judge);
            }
        }
    }

    /// Nothing precedes and nothing follows: judges what is left. Whether the names of the tree agree.
    pub(crate) fn close(mut self, judge: &mut Judge<'_>) -> Closed {
        let first_inode = self.first.as_ref().map(|part| part.inode);
        for part in [self.first.take(), self.last.take()].into_iter().flatten() {
            self.settle(&part, judge);
        }
        self.orphan_items.sort_unstable();
        let has_item = |inode: &u64| self.orphan_items.binary_search(inode).is_ok();
        if !self.is_broken {
            for inode in self.orphans.iter().filter(|inode| !has_item(inode)) {
                let (tree, inode) = (judge.tree, ObjectId::new(*inode));
                let problem = "has no names and no orphan item";
                (judge.report)(Finding::InodeRule { tree, inode, problem });
            }
        }
        Closed { names_agree: self.names == 0, first_inode, is_broken: self.is_broken }
    }

    /// An inode of which all items are here.
    fn settle(&mut self, part: &InodePart, judge: &mut Judge<'_>) {
        if self.is_broken {
            return;
        }
        part.judge(judge.tree, judge.no_holes, judge.report);
        if !part.entries_agree() {
            (judge.suspect)();
        }
        self.names = self.names.wrapping_add(part.names_balance());
        if part.is_orphan() {
            self.orphans.push(part.inode);
        }
    }
}

/// Makes the summary of one leaf, item by item.
#[derive(Debug, Default)]
pub(crate) struct LeafSummary {
    summary: Summary,
    current: Option<InodePart>,
}

impl LeafSummary {
    /// Adds the next item.
    pub(crate) fn note(&mut self, key: &Key, item: &Item<'_>, judge: &mut Judge<'_>) {
        if key.objectid == ObjectId::ORPHAN {
            if key.item_type == KeyType::ORPHAN_ITEM {
                self.summary.orphan_items.push(key.offset());
            }
            return;
        }
        let inode = key.objectid.get();
        match &mut self.current {
            Some(part) if part.inode == inode => part.note(key, item, judge.sectorsize),
            current => {
                let mut part = InodePart::new(inode);
                part.note(key, item, judge.sectorsize);
                if let Some(before) = current.replace(part) {
                    self.summary.push(before, judge);
                }
            }
        }
    }

    /// The summary, when there are no more items.
    pub(crate) fn finish(mut self, judge: &mut Judge<'_>) -> Summary {
        if let Some(part) = self.current.take() {
            self.summary.push(part, judge);
        }
        self.summary
    }
}

/// Results for a tree as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) names_agree: bool,
    pub(crate) first_inode: Option<u64>,
    pub(crate) is_broken: bool,
}
