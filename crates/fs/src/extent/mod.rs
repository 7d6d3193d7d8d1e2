//! Extents of a file: one owned type, one map of a range, and the one place that decodes their items.
//!
//! The walk: [`Filesystem::extent_map`](crate::Filesystem::extent_map) goes through the items of a range with a cursor, and
//! decodes each to a [`FileExtent`], which can be cut, moved and written as an item again. An [`ExtentMap`] has the extents of
//! a range up to a limit, and tells how far it knows; a caller with a longer range takes the next map from there. Its gaps
//! are the parts without an item, or without space.
//!
//! **Readers** (`read`, `seek`, and the look at a sector that is written in part) ask for the map of an open file. It holds
//! data alone, and has been checked ([`ExtentMap::for_reading`]): no two extents overlap, and each is what
//! [`FileExtent::source`] can tell the meaning of. It is kept with the file, labelled with the version that the file's items
//! had before they were read, and the number of times that data has moved; each change of an item raises the one,
//! a relocation the other, and a map with an old label is dropped by its next user. A map whose items changed while it was read has an old
//! label from the beginning.
//!
//! **Writers** have the file's gate alone, or its turn to write back. They look up a map of their own for each step, within
//! the transaction if it depends on their own changes, and take the extents as they are: a file with items that
//! contradict each other can be truncated and deleted. `data::plan` says how extents are cut to make room.

use crate::core::Core;
use std::sync::Arc;

pub(crate) mod cache;
pub(crate) mod checksums;
pub(crate) mod edit;
pub(crate) mod file_extent;
pub(crate) mod map;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

/// Extents of files, as their items and the checksum tree tell them.
#[derive(Debug)]
pub(crate) struct Extents {
    core: Arc<Core>,
}

impl Extents {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

/// The most that one compressed extent holds, in bytes, on disk as well as decompressed
/// (`BTRFS_MAX_COMPRESSED`, `BTRFS_MAX_UNCOMPRESSED`).
pub(crate) const COMPRESSED_MAX_BYTES: u64 = 128 << 10;
