//! Filling a new filesystem.

use crate::bulk::encode::BulkFormat;
use crate::bulk::writer::BulkWriter;
use crate::bulk::{BulkParts, fill};
use crate::error::FsError;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Parameters for turning contents into pieces, with the options that the filesystem is written with.
    pub fn bulk_format(&self) -> BulkFormat {
        BulkFormat::new(self.parts.core.pool().volume().tree_context(), &self.parts.data.context.settings)
    }

    /// Fills the filesystem, and commits. `data_bytes` is how much data there will be at the most, about: it decides
    /// how much space is asked for at a time.
    pub fn fill<T, E: From<FsError>>(
        &self,
        data_bytes: u64,
        act: impl FnOnce(&mut BulkWriter<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let parts = BulkParts {
            core: &self.parts.core,
            tiers: &self.parts.tiers,
            subvolumes: &self.parts.subvolumes,
        };
        fill(parts, data_bytes, act)
    }
}
