//! Extents of a file for the log.

use super::items::Items;
use crate::attributes::InodeId;
use crate::error::FsError;
use crate::extent::file_extent::FileExtent;
use crate::log::FsLog;
use brindle_ondisk::item::InodeFlags;
use brindle_ondisk::{Generation, KeyType, Logical, to_usize};
use brindle_tree::{LogRange, Tree};
use brindle_volume::DeviceSet;
use std::ops::Range;
use std::sync::Arc;

/// A log with more extents of one file than this is not faster than a commit.
const EXTENTS_MAX: usize = 1 << 16;

/// Extents of a file, for the log.
#[derive(Debug)]
pub(super) struct LoggedExtents {
    /// Ranges of keys with their items.
    pub(super) ranges: Vec<LogRange>,
    /// Checksums of their data, by the start of the data.
    pub(super) checksums: Vec<(Logical, Vec<u8>)>,
    /// Devices with data of the file that may not be durable.
    pub(super) data_on: DeviceSet,
}

impl FsLog {
    /// Present extents in the changed ranges of a file; `None` if a log can't hold them.
    pub(super) fn extents_to_log(
        &self,
        tree: &Arc<Tree>,
        log: Option<&Arc<Tree>>,
        inode: &Items,
        (generation, changed): (Generation, Vec<Range<u64>>),
    ) -> Result<Option<LoggedExtents>, FsError> {
        let (file, inode) = (inode.id, &inode.inode);
        let end = inode.size.get().next_multiple_of(self.core.sector());
        let mut changed = changed;
        // A replay begins with cutting off at the end.
        if !self.extents.last_extents(tree, file, end, 1)?.is_empty() {
            let behind = changed.iter().position(|range| range.end > end).unwrap_or(changed.len());
            let start = changed.get(behind).map_or(end, |range| range.start.min(end));
            changed.truncate(behind);
            changed.push(start..u64::MAX);
        }
        let has_checksums = !inode.inode_flags().contains(InodeFlags::NODATASUM);
        let is_overwritten = inode.inode_flags().contains(InodeFlags::NODATACOW);
        let mut data_on = if is_overwritten { DeviceSet::ALL } else { DeviceSet::default() };
        let (mut ranges, mut checksums) = (Vec::new(), Vec::new());
        let (mut done, mut count) = (0, 0);
        for range in changed {
            let range = range.start.max(done)..range.end;
            if range.is_empty() {
                continue;
            }
            let (range, pieces) = self.widened(tree, log, file, range)?;
            done = range.end;
            count += pieces.len();
            if count > EXTENTS_MAX {
                return Ok(None);
            }
            for piece in pieces.iter().filter(|piece| has_checksums && piece.generation >= generation) {
                let Some(range) = piece.checksummed() else { continue };
                let found = self.extents.checksums(range.start, range.length)?;
                if found.found != to_usize(range.length / self.core.sector()) {
                    return Ok(None);
                }
                checksums.push((range.start, found.bytes));
            }
            data_on = data_on.union(&self.devices_of_data(&pieces));
            let items = self.with_holes(&pieces, range.start..range.end.min(end), generation);
            let items = items.iter().map(|piece| (piece.key(file), piece.to_item())).collect();
            let key = |offset| file.key(KeyType::EXTENT_DATA, offset);
            ranges.push(LogRange { first: key(range.start), last: key(range.end - 1), items });
        }
        Ok(Some(LoggedExtents { ranges, checksums, data_on }))
    }

    /// Devices with the data of extents; all if the pool does not know. Nothing was written to preallocated ones.
    fn devices_of_data(&self, extents: &[FileExtent]) -> DeviceSet {
        let data = extents.iter().filter_map(FileExtent::checksummed);
        let data = data.map(|data| (data.start, data.length));
        self.core.pool().volume().devices_of(data).unwrap_or(DeviceSet::ALL)
    }

    /// A range so wide that no extent, of the file or of what the log has of it, lies in it in part; with the file's.
    fn widened(
        &self,
        tree: &Arc<Tree>,
        log: Option<&Arc<Tree>>,
        file: InodeId,
        range: Range<u64>,
    ) -> Result<(Range<u64>, Vec<FileExtent>), FsError> {
        let mut range = range;
        loop {
            let now = self.extents.extents(tree, file, &range)?;
            let logged = match log {
                Some(log) => self.extents.extents(log, file, &range)?,
                None => Vec::new(),
            };
            let all = || now.iter().chain(&logged);
            let start = all().map(|piece| piece.start).min().unwrap_or(range.start).min(range.start);
            let end =
                all().map(|piece| piece.end(self.core.sector())).max().unwrap_or(range.end).max(range.end);
            if (start..end) == range {
                return Ok((range, now));
            }
            range = start..end;
        }
    }

    /// Pieces with what lies between them in a range.
    fn with_holes(
        &self,
        pieces: &[FileExtent],
        range: Range<u64>,
        generation: Generation,
    ) -> Vec<FileExtent> {
        let (mut all, mut at) = (Vec::new(), range.start);
        for piece in pieces {
            if piece.start > at {
                all.push(FileExtent::hole(at, piece.start - at, generation));
            }
            at = piece.end(self.core.sector());
            all.push(piece.clone());
        }
        if at < range.end {
            all.push(FileExtent::hole(at, range.end - at, generation));
        }
        all
    }
}
