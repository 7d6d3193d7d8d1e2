//! The names of passes, under which anyone can report.

pub(crate) const SUPERBLOCKS: &str = "superblocks";
pub(crate) const TREES: &str = "trees";
pub(crate) const CHUNKS: &str = "chunks";
pub(crate) const EXTENTS: &str = "extents";
pub(crate) const BLOCK_GROUPS: &str = "block_groups";
pub(crate) const FREE_SPACE: &str = "free_space";
pub(crate) const CHECKSUMS: &str = "checksums";
pub(crate) const FILES: &str = "files";
pub(crate) const SUBVOLUMES: &str = "subvolumes";
pub(crate) const QUOTAS: &str = "quotas";
pub(crate) const DATA: &str = "data";

/// All of them, in the order in which the passes run.
pub(crate) const ALL: [&str; 11] = [
    SUPERBLOCKS,
    TREES,
    CHUNKS,
    EXTENTS,
    BLOCK_GROUPS,
    FREE_SPACE,
    CHECKSUMS,
    FILES,
    SUBVOLUMES,
    QUOTAS,
    DATA,
];
