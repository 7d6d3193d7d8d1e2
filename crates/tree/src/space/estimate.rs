//! Estimate of the blocks that a commit will have to write on top of those that are changed already: applying
//! references, bringing free space and block groups up to date, and all of that again for the blocks which that
//! takes.

use super::{BLOCKS_PER_ITEM, RESCUE_ITEMS};
use brindle_ondisk::to_u64;

/// Sizes of the trees that a commit changes by itself, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeSizes {
    pub(super) extents: u64,
    pub(super) free_space: u64,
    pub(super) block_groups: u64,
    pub(super) checksums: u64,
}

/// Changes that wait to be committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Blocks that are changed, or will be by what was promised.
    pub(super) blocks: u64,
    /// Extents whose references have changed.
    pub(super) references: u64,
    /// Trees that have been asked for.
    pub(super) trees: u64,
    /// Block groups.
    pub(super) groups: u64,
}

/// Bytes that an extent with its references takes of a leaf.
const EXTENT_BYTES: u64 = 96;
/// Bytes that an item of the free space tree takes of a leaf; a range taken from the middle of another adds one.
const FREE_EXTENT_BYTES: u64 = 25;
/// Blocks from a root to a leaf.
const PATH: u64 = 4;
/// Rounds of references that come of writing references.
const ROUNDS: usize = 4;

/// The blocks that a commit writes on top of `waiting.blocks`.
pub(super) fn commit_blocks(waiting: Waiting, sizes: TreeSizes, nodesize: u64) -> u64 {
    // Each changed leaf is at worst one of its own, and no tree has more than all of its blocks. Leaves that grow
    // are split in the middle.
    let touched = |changes: u64, size: u64| changes.min(size) + changes.min(PATH);
    let grown = |changes: u64, bytes: u64| (changes * bytes).div_ceil(nodesize / 2);
    let block_groups = touched(waiting.groups, sizes.block_groups);
    let checksums = touched(waiting.references, sizes.checksums);
    let roots = waiting.trees + PATH;
    let mut own = 0;
    for _ in 0..ROUNDS {
        // A changed block is one more extent, and the block before the change one less.
        let changes = waiting.references + 2 * (waiting.blocks + own);
        let extents = touched(changes, sizes.extents) + grown(changes, EXTENT_BYTES);
        let free_space = touched(changes, sizes.free_space) + grown(changes, FREE_EXTENT_BYTES);
        own = extents + free_space + block_groups + checksums + roots;
    }
    own
}

/// Reserves of metadata space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptBack {
    /// For operations that free space.
    pub(super) freeing: u64,
    /// For operations that get a full pool out of that state.
    pub(super) rescue: u64,
    /// For the commit.
    pub(super) commit: u64,
}

impl KeptBack {
    /// All reserves together.
    pub(super) const fn bytes(self) -> u64 {
        self.freeing + self.rescue + self.commit
    }
}

/// Blocks that an operation of the last reserve changes, at most.
pub(super) const RESCUE_BLOCKS: u64 = to_u64(RESCUE_ITEMS) * BLOCKS_PER_ITEM;
/// Bytes of a leaf for each reference that goes or changes when the leaf is dropped: one is removed and another added
/// for an extent, the items of which take twice as much.
const LEAF_BYTES_PER_REFERENCE: u64 = 32;
/// Least reserve for the commit, in blocks.
pub(super) const COMMIT_BLOCKS_MIN: u64 = 12;

/// Reserves of a pool with `bytes` bytes of metadata space: enough for the little that a file's deletion changes, for one
/// operation of the last reserve with its commit, and for an estimate that was wrong; and never a large part of it.
/// `idle` is what a commit without changes finds.
pub(super) fn kept_back(bytes: u64, idle: Waiting, sizes: TreeSizes, nodesize: u64) -> KeptBack {
    const MIB: u64 = 1 << 20;
    let part = |share: u64, least: u64, most: u64| {
        (bytes / share).clamp(least * nodesize, most.max(least * nodesize))
    };
    let alone = Waiting { blocks: RESCUE_BLOCKS, references: nodesize / LEAF_BYTES_PER_REFERENCE, ..idle };
    let rescue = (RESCUE_BLOCKS + commit_blocks(alone, sizes, nodesize)) * nodesize;
    KeptBack {
        freeing: part(20, 24, 32 * MIB),
        rescue: part(8, COMMIT_BLOCKS_MIN, rescue),
        commit: part(40, COMMIT_BLOCKS_MIN, 16 * MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: TreeSizes = TreeSizes { extents: 40, free_space: 3, block_groups: 1, checksums: 10 };

    fn waiting(blocks: u64, references: u64) -> Waiting {
        Waiting { blocks, references, trees: 8, groups: 5 }
    }

    #[test]
    fn a_small_change_is_cheap_and_no_tree_is_written_more_than_once() {
        assert!(commit_blocks(waiting(4, 2), SIZES, 16384) < 80);
        // A thousand changed blocks add at most what their items take.
        assert!(commit_blocks(waiting(1000, 1000), SIZES, 16384) < 150);
    }

    #[test]
    fn little_is_kept_back_of_small_pools() {
        const MIB: u64 = 1 << 20;
        for (bytes, nodesize) in [(8 * MIB, 16384), (32 * MIB, 16384), (64 * MIB, 4096), (1 << 40, 16384)] {
            let kept = kept_back(bytes, waiting(0, 0), SIZES, nodesize);
            assert!(kept.freeing >= 24 * nodesize && kept.commit >= 12 * nodesize);
            assert!((kept.freeing + kept.commit) * 13 <= bytes, "{kept:?} of {bytes}");
            assert!(kept.rescue >= 12 * nodesize && kept.rescue * 8 <= bytes, "{kept:?} of {bytes}");
        }
    }

    #[test]
    fn the_last_reserve_is_enough_for_one_operation_and_its_commit() {
        for nodesize in [4096, 16384] {
            let kept = kept_back(64 << 20, waiting(0, 0), SIZES, nodesize);
            let blocks = RESCUE_BLOCKS + commit_blocks(waiting(RESCUE_BLOCKS, 100), SIZES, nodesize);
            assert!(kept.rescue >= blocks * nodesize, "{kept:?} for {blocks} blocks");
        }
    }

    proptest! {
        #[test]
        fn more_to_do_is_never_less(blocks in 0u64..10000, references in 0u64..10000, more in 0u64..100) {
            let less = commit_blocks(waiting(blocks, references), SIZES, 16384);
            prop_assert!(commit_blocks(waiting(blocks + more, references), SIZES, 16384) >= less);
            prop_assert!(commit_blocks(waiting(blocks, references + more), SIZES, 16384) >= less);
        }
    }
}
