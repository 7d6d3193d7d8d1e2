//! Maps of the extents of a range of a file.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::extent::file_extent::FileExtent;
use brindle_interval::{Interval, gaps};
use brindle_ondisk::Defect;
use std::ops::Range;

/// Extents of a file that share something with a range.
#[derive(Debug)]
pub(crate) struct ExtentMap {
    pub(super) range: Interval,
    /// Extents in the order of their items.
    pub(super) extents: Vec<FileExtent>,
    pub(super) sector: u64,
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
