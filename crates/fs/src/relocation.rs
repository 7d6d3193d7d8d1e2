//! Ending a relocation that the kernel was interrupted in: its trees are dropped, and so is what it had copied of data.
//!
//! The kernel keeps the data that it moves in files of a tree of their own, the data relocation tree, without names and
//! marked as orphans. Subvolumes that refer to a copy have references of their own, so that the files go as any orphan
//! does. A crash here leaves what there was, or less of it; a balance goes on by its own item.

use crate::attributes::InodeId;
use crate::core::Core;
use crate::error::FsError;
use crate::orphan::Orphans;
use brindle_ondisk::RootId;
use brindle_tree::{Need, TreeDropper, TreeError};

/// Blocks that are dropped in one step. Each may take a change of the extent tree.
const BLOCKS_PER_STEP: usize = 64;
/// Number of steps after which there is a commit, so that freed space can be used.
const STEPS_PER_COMMIT: usize = 64;

/// Ends what a relocation of the kernel's left, and makes that durable. To be called when the log is replayed, before
/// anything else uses the filesystem.
pub(crate) fn end_relocations(core: &Core, orphans: &Orphans) -> Result<(), FsError> {
    let trees = drop_relocation_trees(core)?;
    let files = remove_relocated_data(core, orphans)?;
    if trees + files > 0 {
        core.pool().commit()?;
        tracing::info!(
            "ended a relocation that was interrupted: {trees} relocation trees and {files} copies of data were dropped"
        );
    }
    Ok(())
}

/// Drops the relocation trees; returns their number.
fn drop_relocation_trees(core: &Core) -> Result<usize, FsError> {
    let (mut count, mut steps, mut blocks) = (0, 0, BLOCKS_PER_STEP);
    let mut has_committed = false;
    while let Some(tree) = core.pool().next_relocation_tree()? {
        match core.change(Need::rescuing(blocks), |edit| {
            TreeDropper::of(&edit.editor).drop_part_of_relocation(tree, blocks)
        }) {
            Ok(is_gone) => {
                count += usize::from(is_gone);
                has_committed = false;
            }
            // A small pool keeps back less than a step of full size may take; what was freed counts after a commit.
            Err(FsError::Tree(TreeError::NoSpace(_))) if blocks > 1 => blocks /= 4,
            Err(FsError::Tree(TreeError::NoSpace(_))) if !has_committed => {
                core.pool().commit()?;
                has_committed = true;
            }
            Err(error) => return Err(error),
        }
        steps += 1;
        if steps % STEPS_PER_COMMIT == 0 {
            core.pool().commit()?;
        }
    }
    Ok(count)
}

/// Removes the files of the data relocation tree; returns their number.
fn remove_relocated_data(core: &Core, orphans: &Orphans) -> Result<usize, FsError> {
    let tree = match core.subvolume_state(RootId::DATA_RELOC_TREE) {
        Ok(tree) => tree,
        Err(FsError::NoSubvolume(_) | FsError::DeletedSubvolume(_)) => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut count = 0;
    loop {
        let found = orphans.orphans_of(&tree)?;
        if found.is_empty() {
            return Ok(count);
        }
        for number in found {
            orphans.remove_unnamed(&core.inode(InodeId { tree: RootId::DATA_RELOC_TREE, number }))?;
            count += 1;
        }
    }
}
