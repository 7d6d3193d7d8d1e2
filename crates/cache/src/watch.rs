//! A cache that is open to be read only: what is known of it here is old as soon as another process uses it.

use crate::engine::Cache;
use crate::superblock::read_superblock;
use brindle_device::DeviceError;
use std::io;

impl Cache {
    /// Refuses what was read of a cache that is open to be read only, if another process has begun to write it since: its superblock
    /// tells of each use before a block changes.
    pub(crate) fn check_unused_by_others(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let sequence = self.lock().superblock.sequence;
        let failed = |why: String| DeviceError::Read {
            device: self.name.clone(),
            offset,
            length,
            source: io::Error::other(why),
        };
        let found = read_superblock(self.flash.first().device.as_device())
            .map_err(|error| failed(error.to_string()))?;
        if found.sequence == sequence {
            return Ok(());
        }
        Err(failed(
            "another process has used the cache since it was opened to be read: open it anew".to_owned(),
        ))
    }
}
