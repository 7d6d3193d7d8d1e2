//! Extents of a file: one owned type, one map of a range, and the one place that decodes their items.
//!
//! The walk: [`Extents::extent_map`] goes through the items of a range with a cursor, and
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
//! contradict each other can be truncated and deleted. `plan` says how extents are cut to make room.

use crate::attributes::InodeId;
use crate::core::Core;
use crate::core::inodes::Inode;
use crate::error::FsError;
use crate::extent::cache::Version;
use crate::extent::file_extent::FileExtent;
use crate::extent::map::ExtentMap;
use crate::extent::open_file::OpenFile;
use crate::pages::state::Memory;
use brindle_interval::runs;
use brindle_ondisk::{Defect, Item, Key, KeyType};
use brindle_tree::{Readahead, Tree};
use std::ops::Range;
use std::sync::Arc;

pub(crate) mod cache;
pub(crate) mod checksums;
pub(crate) mod edit;
pub(crate) mod file_extent;
pub(crate) mod map;
pub(crate) mod open_file;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

/// The most that one compressed extent holds, in bytes, on disk as well as decompressed
/// (`BTRFS_MAX_COMPRESSED`, `BTRFS_MAX_UNCOMPRESSED`).
pub(crate) const COMPRESSED_MAX_BYTES: u64 = 128 << 10;
/// Upper bound on the extents that are looked up at a time.
const BATCH: usize = 64;

/// Upper bound on the extents that an open file keeps, so that a file of millions costs no more memory than any other.
const CACHED_EXTENTS_MAX: usize = 512;

/// Extents of files, as their items and the checksum tree tell them.
#[derive(Debug)]
pub(crate) struct Extents {
    core: Arc<Core>,
}

impl Extents {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The map of a range, up to the first extent after `limit` of them.
    pub(crate) fn extent_map(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        limit: usize,
    ) -> Result<ExtentMap, FsError> {
        match self.known_extents(tree, file, range, limit)? {
            (map, None) => Ok(map),
            (_, Some(error)) => Err(error),
        }
    }

    /// The map of a range, up to the first extent after `limit` of them or to a tree block that can't be read: what is behind
    /// the end of a file need not be there.
    fn readable_map(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        limit: usize,
    ) -> Result<ExtentMap, FsError> {
        match self.known_extents(tree, file, range, limit)? {
            (map, Some(error)) if map.range.end <= map.range.start => Err(error),
            (map, _) => Ok(map),
        }
    }

    /// The map of a range as far as it can be read, and the error that ended it.
    fn known_extents(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        limit: usize,
    ) -> Result<(ExtentMap, Option<FsError>), FsError> {
        let mut map = ExtentMap::of(range.clone(), Vec::new(), self.core.sector());
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek_last(&file.key(KeyType::EXTENT_DATA, range.start))?;
        if cursor.key().is_none_or(|key| !is_extent(file, key)) {
            cursor.seek(&file.key(KeyType::EXTENT_DATA, 0))?;
        }
        while let Some((key, data)) = cursor.item().filter(|(key, _)| is_extent(file, *key)) {
            if key.offset() >= range.end {
                break;
            }
            // The next map begins after this one, also where extents overlap.
            if map.extents.len() >= limit && key.offset() > range.start {
                map.range.end = key.offset();
                break;
            }
            let extent = parse(file, key, data)?;
            if extent.end(map.sector) > range.start {
                map.extents.push(extent);
            }
            if let Err(error) = cursor.next() {
                // What lies behind the last extent is unknown: a hole, or the next one.
                let end = map.extents.last().map_or(range.start, |last| last.end(map.sector));
                map.range.end = end.min(range.end);
                return Ok((map, Some(error.into())));
            }
        }
        Ok((map, None))
    }

    /// All extents that share something with a range, in order.
    pub(crate) fn extents(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
    ) -> Result<Vec<FileExtent>, FsError> {
        Ok(self.extent_map(tree, file, range, usize::MAX)?.extents)
    }

    /// The extent that holds a byte.
    pub(crate) fn extent_at(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        offset: u64,
    ) -> Result<Option<FileExtent>, FsError> {
        Ok(self.extents(tree, file, &(offset..offset.saturating_add(1)))?.into_iter().next())
    }

    /// The last extents of a file that end after `from`, in order, at most `limit`.
    pub(crate) fn last_extents(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<FileExtent>, FsError> {
        let (mut found, sector) = (Vec::new(), self.core.sector());
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek_last(&file.key(KeyType::EXTENT_DATA, u64::MAX))?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| is_extent(file, *key)) {
            let extent = parse(file, key, data)?;
            if extent.end(sector) <= from || found.len() == limit {
                break;
            }
            found.push(extent);
            cursor.previous()?;
        }
        found.reverse();
        Ok(found)
    }

    /// The parts of a range that have no space, in order.
    pub(crate) fn holes(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        range: &Range<u64>,
    ) -> Result<Vec<Range<u64>>, FsError> {
        let (mut at, mut holes) = (range.start, Vec::new());
        while at < range.end {
            let map = self.extent_map(tree, inode.id(), &(at..range.end), BATCH)?;
            holes.extend(map.without_space());
            at = map.end();
        }
        Ok(runs(holes).into_iter().map(Range::from).collect())
    }

    /// The version of a file's items for lookups, `None` while they are being changed; with what `look` sees of the
    /// file's memory at the same moment.
    pub(crate) fn versioned<T>(
        &self,
        file: &OpenFile,
        look: impl FnOnce(&Memory) -> T,
    ) -> (Option<Version>, T) {
        let moves = self.core.pool().moves();
        let memory = file.inode().data.memory();
        let version = memory.settled_version().map(|items| Version { items, moves });
        (version, look(&memory))
    }

    /// The map of the data of an open file that covers `offset`: the one that it keeps, or a new one. Without a version it
    /// is looked up, and not kept.
    pub(crate) fn data_map(
        &self,
        file: &OpenFile,
        version: Option<Version>,
        offset: u64,
    ) -> Result<Arc<ExtentMap>, FsError> {
        if let Some(map) = version.and_then(|version| file.cache().map(version, offset)) {
            return Ok(map);
        }
        let tree = self.core.tree(file.id().tree)?;
        let map = self.readable_map(&tree, file.id(), &(offset..u64::MAX), CACHED_EXTENTS_MAX)?;
        let map = Arc::new(map.for_reading(file.id())?);
        if let Some(version) = version {
            file.cache().keep_map(version, Arc::clone(&map));
        }
        Ok(map)
    }
}

fn is_extent(file: InodeId, key: Key) -> bool {
    (key.objectid, key.item_type) == (file.number, KeyType::EXTENT_DATA)
}

fn parse(file: InodeId, key: Key, data: &[u8]) -> Result<FileExtent, FsError> {
    let refuse = |defect| FsError::Item { file, key, defect };
    match Item::parse(&key, data).map_err(refuse)? {
        Item::FileExtent(extent) => Ok(FileExtent::from_item(key.offset(), &extent)),
        _ => Err(refuse(Defect::new("item of another type", 0))),
    }
}
