//! Delayed references: references to extents, collected in memory, merged, and applied to the extent tree.
//!
//! An extent, of data or a tree block, lives as long as it is referred to, and the extent tree lists its references. Each
//! operation changes a few of these references. Changing the extent tree for each at once would change, with every
//! block of it that is copied, further references without end; so changes wait in [`DelayedRefs`], one head for
//! an extent, where those of one referrer add up to one number, and are applied in the order of addresses: by the
//! commit, and in part before it, while operations go on.
//!
//! The life of a head: the first change makes it; later ones are added to it; [`ExtentTree::apply`](crate::extent_tree::ExtentTree::apply)
//! takes it out and applies it as a whole. An extent whose references are all gone is freed then, not before: between two
//! operations an extent must never be without references if it is to live, so *a caller that replaces a reference adds the
//! new one first*, and one that takes a reference out of a leaf drops it after that: if a snapshot has the leaf too, the
//! references that follow from copying it come with the change. A new extent that is applied without references never had an item; its space is given up like
//! that of any other.
//!
//! The number of references is that of the extent tree plus that of the waiting changes
//! ([`References::of_block`]). A gate keeps a runner from moving changes from one
//! to the other meanwhile. Its place in the order of locks ([`Rank::ReferenceGate`](brindle_sync::Rank)) is
//! behind a subvolume's tree and the decision on a shared block, and before the extent tree and the checksum tree.
//!
//! A crash loses what waits together with the operations that it came from: heads are empty at the end of each
//! commit. A reference that is to be dropped and is not there means that the pool was corrupt before; the error
//! ends the transaction, and the last commit stays whole.

pub(crate) mod delayed;
pub(crate) mod lookup;
pub(crate) mod record;
pub(crate) mod sharing;
#[cfg(test)]
mod tests;

use delayed::{DelayedRefs, Extent, ExtentKind, Referrer};

use crate::quota::state::Quotas;
use crate::space::Space;
use crate::store::Store;
use brindle_ondisk::item::{ExtentDataRef, ExtentFlags};
use brindle_ondisk::{Generation, Key, Logical, Node, RootId};

/// A range of data on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
}

/// References to a block, as the extent tree will have them once everything delayed is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockReferences {
    pub(crate) count: u64,
    pub(crate) flags: ExtentFlags,
}

/// References to extents, as a transaction sees and changes them: those in the extent tree, and those that wait.
#[derive(Clone, Copy, Debug)]
pub struct References<'p> {
    pub(crate) store: &'p Store,
    pub(crate) delayed: &'p DelayedRefs,
    space: &'p Space,
    quotas: &'p Quotas,
    /// The running transaction.
    generation: Generation,
}

impl<'p> References<'p> {
    pub(crate) fn new(
        store: &'p Store,
        delayed: &'p DelayedRefs,
        space: &'p Space,
        quotas: &'p Quotas,
        generation: Generation,
    ) -> Self {
        Self { store, delayed, space, quotas, generation }
    }

    /// A file of a subvolume refers to an extent: `reference.count` times more. `is_new`: the extent was reserved
    /// and never referred to before.
    pub fn add_data(&self, range: DataRange, reference: &ExtentDataRef, is_new: bool) {
        let (extent, who) = (Extent::data(range), Referrer::of_data(reference));
        let count = reference.count.get().into();
        if is_new {
            self.quotas.enter(reference.root, range.length);
            self.delayed.create(&extent, who, count);
        } else {
            self.delayed.change(&extent, who, count);
        }
    }

    /// A file of a subvolume refers to an extent `reference.count` times less. The last one frees it, with its
    /// checksums; so what takes the place of a reference is added before it is dropped.
    pub fn drop_data(&self, range: DataRange, reference: &ExtentDataRef) {
        let count = i64::from(reference.count.get());
        self.delayed.change(&Extent::data(range), Referrer::of_data(reference), -count);
    }

    /// Drops the reference to a block with a real address that leaves its tree, after it has been copied (so that it
    /// is not shared).
    pub(crate) fn block_dropped(&self, tree: RootId, block: &Node) {
        self.delayed.change(&self.extent_of(block), Referrer::Tree(tree), -1);
    }

    /// A new block has got its real address.
    pub(crate) fn block_assigned(&self, tree: RootId, block: &Node) {
        self.delayed.create(&self.extent_of(block), Referrer::Tree(tree), 1);
    }

    pub(crate) fn extent_of(&self, block: &Node) -> Extent {
        let header = block.header();
        let extent = self.block_extent(header.bytenr, block.level(), block.key(0).unwrap_or_default());
        Extent { owner: Some(header.owner), ..extent }
    }

    pub(crate) fn block_extent(&self, start: Logical, level: u8, first_key: Key) -> Extent {
        let length = self.store.nodesize().into();
        Extent { start, length, kind: ExtentKind::Block { level, first_key }, owner: None }
    }
}

impl Extent {
    pub(crate) fn data(range: DataRange) -> Self {
        Self { start: range.start, length: range.length, kind: ExtentKind::Data, owner: None }
    }
}
