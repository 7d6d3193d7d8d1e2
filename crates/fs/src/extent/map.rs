//! Maps of the extents of a range of a file.

use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::error::FsError;
use crate::extent::Extents;
use crate::extent::file_extent::FileExtent;
use brindle_interval::{Interval, gaps, runs};
use brindle_ondisk::{Defect, Item, Key, KeyType};
use brindle_tree::{Readahead, Tree};
use std::ops::Range;
use std::sync::Arc;

/// Upper bound on the extents that are looked up at a time.
const BATCH: usize = 64;

/// Extents of a file that share something with a range.
#[derive(Debug)]
pub(crate) struct ExtentMap {
    range: Interval,
    /// Extents in the order of their items.
    extents: Vec<FileExtent>,
    sector: u64,
}

impl ExtentMap {
    /// The map of a range with these extents.
    pub(super) fn of(range: Range<u64>, extents: Vec<FileExtent>, sector: u64) -> Self {
        Self { range: range.into(), extents, sector }
    }

    /// Returns true if the map covers `offset`.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        self.range.contains(offset)
    }

    /// The first byte that the map tells nothing of.
    pub(crate) fn end(&self) -> u64 {
        self.range.end
    }

    /// The extents in order. The first and the last may reach out of the range.
    pub(crate) fn extents(&self) -> &[FileExtent] {
        &self.extents
    }

    /// The extents with contents that end after `offset`, in order; of a map [for reading](Self::for_reading).
    pub(crate) fn from(&self, offset: u64) -> &[FileExtent] {
        let first = self.extents.partition_point(|extent| extent.contents_end() <= offset);
        &self.extents[first..]
    }

    /// The parts of the range that no item tells of, in order.
    pub(crate) fn without_item(&self) -> Vec<Interval> {
        gaps(self.range, self.extents.iter().map(|extent| extent.interval(self.sector)))
    }

    /// The parts of the range that have no space, in order: no item, or one of a hole.
    pub(crate) fn without_space(&self) -> Vec<Interval> {
        let extents = self.extents.iter().filter(|extent| !extent.is_hole());
        gaps(self.range, extents.map(|extent| extent.interval(self.sector)))
    }

    /// The map of the data in the range; an error if a reader can't take an extent for what it says.
    pub(crate) fn for_reading(self, file: InodeId) -> Result<Self, FsError> {
        let mut data: Vec<FileExtent> = Vec::with_capacity(self.extents.len());
        for extent in self.extents.into_iter().filter(|extent| !extent.is_zeros()) {
            let refuse = |defect| FsError::Item { file, key: extent.key(file), defect };
            extent.check().map_err(refuse)?;
            let previous_end = data.last().map_or(0, FileExtent::contents_end);
            // Data that is joined with what comes before it is in both for a moment.
            if data.last().is_some_and(|previous| previous.has_all_of(&extent)) {
                continue;
            }
            if extent.start < previous_end {
                let why = "file extent begins before the previous one ends";
                return Err(refuse(Defect::expected(why, previous_end, extent.start)));
            }
            data.push(extent);
        }
        Ok(Self { extents: data, ..self })
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

impl Extents {
    /// The map of a range, up to the first extent after `limit` of them.
    pub(crate) fn extent_map(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        range: &Range<u64>,
        limit: usize,
    ) -> Result<ExtentMap, FsError> {
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
            cursor.next()?;
        }
        Ok(map)
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
}
