//! Writeback of files that are expected to be synced next, together with one that is.

use super::output::Cause;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use brindle_ondisk::item::InodeFlags;
use brindle_policy::writeback::DataPlace;
use brindle_tree::FastTier;
use std::sync::Arc;

/// Dirty bytes above which a file is left to its own sync, and upper bound on those of all files that go along with one.
const FILE_BYTES_MAX: u64 = 1 << 20;
const BYTES_MAX: u64 = 8 << 20;

impl FileData {
    /// Writes back files that were dirty beside `first`, which has been written back for a sync, and had this number among them: at
    /// most `files_max` of its subvolume, of which the sync waits for no device that it does not wait for anyway. Returns them.
    /// Errors are those of the files, and reported through their handles.
    pub(crate) fn write_back_beside(
        &self,
        first: &Arc<Inode>,
        number: u64,
        files_max: usize,
    ) -> Vec<Arc<Inode>> {
        let mut left = BYTES_MAX;
        let mut written = Vec::new();
        let Some(place) = self.sync_place(first, 0).ok().flatten() else { return written };
        let pool = self.core.pool();
        let is_fast_alone = pool.fast_tier() == FastTier::Alone;
        let asks_bulk = match place {
            DataPlace::WriteBack => false,
            DataPlace::Fast => !is_fast_alone,
            DataPlace::Bulk | DataPlace::Class(..) => true,
        };
        // Other files may lie on other bulk devices, and those may sleep.
        if asks_bulk && pool.volume().traffic().iter().any(|device| device.is_asleep) {
            return written;
        }
        let has_tiers = pool.has_tiers();
        for inode in self.context.dirty_beside(number, first.id().tree, files_max) {
            let Some(bytes) = bytes_to_go_along(&inode).filter(|bytes| *bytes <= left) else { continue };
            let is_near = match self.sync_place(&inode, bytes) {
                Ok(Some(_)) if !has_tiers => true,
                Ok(Some(DataPlace::WriteBack)) => pool.has_write_back_room(BYTES_MAX),
                Ok(Some(DataPlace::Fast)) => place == DataPlace::Fast || is_fast_alone,
                Ok(Some(other)) => other == place,
                Ok(None) | Err(_) => false,
            };
            // No sync is to wait for what another program does with a file.
            if is_near && inode.data.try_exclusive().is_some() {
                left -= bytes;
                match self.write_back_inode(&inode, Cause::Sync) {
                    Ok(()) => written.push(inode),
                    Err(error) => tracing::warn!("{error}"),
                }
            }
        }
        written
    }

    /// Place of dirty data of a file that a sync waits for. None if it is written where it is, of which a sync flushes all devices.
    fn sync_place(&self, inode: &Inode, dirty_bytes: u64) -> Result<Option<DataPlace>, FsError> {
        let attributes = self.items.quick_attributes(inode.id())?;
        if attributes.flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
            return Ok(None);
        }
        let size = attributes.size.max(inode.data.size().unwrap_or(0));
        let manner = self.manner(inode.id(), attributes.flags, size, Cause::Sync)?;
        let bytes = if dirty_bytes == 0 { size } else { dirty_bytes };
        Ok(Some(manner.place(bytes, bytes)))
    }
}

/// Dirty bytes of a file, if it may go along: nothing is written already, and no program is in the midst of writing, as far as the host
/// tells.
fn bytes_to_go_along(inode: &Inode) -> Option<u64> {
    let memory = inode.data.memory();
    let bytes = memory.dirty.bytes();
    let is_quiet = memory.is_dirty() && memory.writing.is_empty() && !memory.times.are_provisional();
    (is_quiet && bytes <= FILE_BYTES_MAX).then_some(bytes)
}
