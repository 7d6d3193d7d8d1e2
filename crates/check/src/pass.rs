//! The table of passes. To add one: a line here, a function in `passes`, and, if it looks at leaves, a
//! collector that `gather` calls.

use crate::examination::Examination;
use crate::passes;

/// One thing to examine.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name, one word.
    pub name: &'static str,
    /// What it looks at, in a sentence.
    pub about: &'static str,
    /// What must be there for it to make sense.
    pub needs: Needs,
    pub(crate) run: fn(&mut Examination<'_>),
}

/// What a pass needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Devices with superblocks, without which nothing runs.
    Superblocks,
    /// The chunk tree, so that every address can be found.
    ChunkTree,
    /// The walk over all trees.
    Walk,
    /// The walk, and that somebody asked for it.
    DataOption,
}

/// Every pass, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "superblocks",
        about: "every copy of the superblock on every device, and whether all devices are there",
        needs: Needs::Superblocks,
        run: passes::superblocks::run,
    },
    Pass {
        name: "trees",
        about: "every tree block, once: checksum, place, order, bounds, and every field of every item",
        needs: Needs::ChunkTree,
        run: passes::trees::run,
    },
    Pass {
        name: "chunks",
        about: "chunks, device items and device extents, each against the others",
        needs: Needs::Walk,
        run: passes::chunks::run,
    },
];

/// The pages on which the walk writes what it finds for others.
pub(crate) mod page {
    pub(crate) const SUPERBLOCKS: &str = "superblocks";
    pub(crate) const CHUNKS: &str = "chunks";
    pub(crate) const TREES: &str = "trees";
}
