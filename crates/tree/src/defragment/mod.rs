//! Defragmentation: writes the leaves of a tree anew where they lie scattered, so that siblings lie side by side again.
//!
//! A piece at a time: [`survey`] goes through the blocks above the leaves, in the order of keys, and reads no leaf for
//! that; `policy` says which leaves are worth it, given where they lie and how long the runs are that free space has;
//! these are copied, with their paths, as any change of them would, in one transaction; and its commit gives them
//! addresses in the order of their keys, side by side. The start of the next piece is returned as a key, so that the caller
//! may stop between any two pieces, go on the next day, or not at all.
//!
//! What holds:
//! - Items do not change, nor do the times that a subvolume says of itself.
//! - A block that another tree has too is left where it is: to copy it would double it. Of blocks as old as the last
//!   snapshot the extent tree is asked, for the snapshot may be gone.
//! - A crash leaves the pool of the last commit, as after any other change. Nothing has to be remembered.
//! - Where free space has no run that would make it better, nothing is written.

pub(crate) mod survey;

use crate::error::TreeError;
use crate::store::Store;
use crate::transaction::{Need, Transactions};
use crate::tree::Tree;
use brindle_ondisk::{Key, Logical, to_u64};
use brindle_policy::defragment::{GOOD_RUN_BYTES, worth_moving};
use std::sync::Arc;
use survey::Stretch;

/// One piece of a tree, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Number of leaves that were looked at.
    pub leaves: u64,
    /// Number of them that were written anew.
    pub moved: u64,
    /// Start of the next piece; `None` after the last.
    pub next: Option<Key>,
}

/// Writes leaves of trees anew, side by side.
#[derive(Clone, Copy)]
pub(crate) struct Defragmenter<'p> {
    store: &'p Store,
    transactions: &'p Transactions,
}

impl<'p> Defragmenter<'p> {
    pub(crate) fn of(transactions: &'p Transactions) -> Self {
        Self { store: transactions.store(), transactions }
    }

    /// Defragments the leaves of a tree from a key on, one piece of it: `leaves` of them, and the others that share a
    /// parent with them. Commits if it has changed anything; not to be called within a transaction, nor for a tree
    /// that is being dropped.
    pub(crate) fn defragment(
        &self,
        tree: &Arc<Tree>,
        from: &Key,
        leaves: usize,
    ) -> Result<Defragmented, TreeError> {
        let mut piece = Stretch::default();
        let mut next = Some(*from);
        while let Some(from) = next.filter(|_| piece.leaves.len() < leaves) {
            next = self.look_over(tree, &from, &mut piece)?;
        }
        let nodesize = u64::from(self.store.nodesize());
        let enough = GOOD_RUN_BYTES.max(to_u64(piece.leaves.len()) * nodesize);
        let room = self.transactions.changes().space.longest_run(self.store, tree.id(), enough)?;
        let mut moved = 0;
        for range in worth_moving(&piece.leaves, nodesize, room) {
            let leaves = &piece.places[range];
            self.store.prefetch_nodes(leaves.iter().map(|(at, _)| *at));
            for (at, first_key) in leaves {
                moved += u64::from(self.copy_leaf(tree, *at, first_key)?);
            }
        }
        if moved > 0 {
            self.transactions.commit()?;
        }
        Ok(Defragmented { leaves: to_u64(piece.leaves.len()), moved, next })
    }

    fn copy_leaf(&self, tree: &Tree, at: Logical, first_key: &Key) -> Result<bool, TreeError> {
        /// The items whose change would copy as much as one path.
        const ITEMS_PER_PATH: usize = 2;
        self.transactions.join(Need::items(ITEMS_PER_PATH))?.copy_unshared_path(tree, at, first_key)
    }
}
