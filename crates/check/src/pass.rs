//! The table of passes. To add one: a line here, a function in `passes`, and, if it looks at leaves, a
//! collector that `gather` calls.

use crate::examination::Examination;
use crate::{page, passes};

/// One thing to examine.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name, one word.
    pub name: &'static str,
    /// Subject, in a sentence.
    pub about: &'static str,
    /// Its precondition.
    pub needs: Needs,
    pub(crate) run: fn(&mut Examination<'_>),
}

/// Precondition of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Devices with superblocks, without which nothing runs.
    Superblocks,
    /// The chunk tree, so that every address can be found.
    ChunkTree,
    /// The walk over all trees.
    Walk,
    /// The walk, and the option to check data.
    DataOption,
}

/// Every pass, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: page::SUPERBLOCKS,
        about: "every copy of the superblock on every device, and whether all devices are there",
        needs: Needs::Superblocks,
        run: passes::superblocks::run,
    },
    Pass {
        name: page::TREES,
        about: "every tree block, once: checksum, place, order, bounds, and every field of every item",
        needs: Needs::ChunkTree,
        run: passes::trees::run,
    },
    Pass {
        name: page::CHUNKS,
        about: "chunks, device items and device extents, each against the others",
        needs: Needs::Walk,
        run: passes::chunks::run,
    },
    Pass {
        name: page::EXTENTS,
        about: "every back reference against every reference, to tree blocks and to data",
        needs: Needs::Walk,
        run: passes::extents::run,
    },
    Pass {
        name: page::BLOCK_GROUPS,
        about: "block groups against chunks, and their used bytes against the extents",
        needs: Needs::Walk,
        run: passes::block_groups::run,
    },
    Pass {
        name: page::FREE_SPACE,
        about: "the free space tree against the extents",
        needs: Needs::Walk,
        run: passes::free_space::run,
    },
    Pass {
        name: page::CHECKSUMS,
        about: "which data has checksums, against which data needs them",
        needs: Needs::Walk,
        run: passes::checksums::run,
    },
    Pass {
        name: page::FILES,
        about: "inodes, names, directories and file extents of every subvolume",
        needs: Needs::Walk,
        run: passes::files::run,
    },
    Pass {
        name: page::SUBVOLUMES,
        about: "root items, how subvolumes hang together, and the UUID tree",
        needs: Needs::Walk,
        run: passes::subvolumes::run,
    },
    Pass {
        name: page::QUOTAS,
        about: "quota groups: that every subvolume has one, and their numbers against the references",
        needs: Needs::Walk,
        run: passes::quotas::run,
    },
    Pass {
        name: page::DATA,
        about: "all data that has checksums, every copy of it",
        needs: Needs::DataOption,
        run: passes::data::run,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_has_a_page_of_its_own() {
        assert!(PASSES.iter().map(|pass| pass.name).eq(page::ALL));
    }
}
