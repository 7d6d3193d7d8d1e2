//! Filling a new filesystem from outside, all at once: far fewer steps than one operation after the other.
//!
//! The caller knows every name, every number and every link before it begins. So nothing has to be looked up, and
//! inodes come in ascending order of their numbers, subvolume by subvolume: the items of a tree are a sorted stream,
//! which goes to the end of it in runs of hundreds.
//!
//! What goes where: [`BulkFormat::encode`] turns contents into pieces, compressed and with checksums, in as many
//! threads as the caller has. One [`BulkWriter`] takes them in order: `space.rs` gives them consecutive places out of
//! a window of reserved space, `stream.rs` writes what lies side by side in one go, in a thread of its own,
//! `inode.rs` has the items. Everything that is decided is decided by the one writer in the order of what it is given,
//! so the same input gives the same bytes.
//!
//! Nothing else may change the filesystem meanwhile. A failure leaves parts: the pool takes no more changes then, and
//! is on disk as of its last commit. That may have come in the middle (more metadata than fits the memory, or space
//! that ran out), and what was being filled is not sound then: it is to be made anew.

mod encode;
mod inode;
mod space;
mod stream;
mod writer;

pub use encode::{BulkFormat, BulkPiece};
pub use inode::{BulkEntry, BulkInode, BulkName, BulkTarget};
pub use writer::BulkWriter;

use crate::error::FsError;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Parameters for turning contents into pieces, with the options that the filesystem is written with.
    pub fn bulk_format(&self) -> BulkFormat {
        let context = self.core.pool().volume().tree_context();
        BulkFormat {
            sectorsize: context.sectorsize,
            checksum: context.checksum_type,
            compression: self.data.context.settings.compression,
            max_inline_bytes: self.data.context.settings.max_inline_bytes,
        }
    }

    /// Fills the filesystem, and commits. `data_bytes` is how much data there will be at the most, about: it decides
    /// how much space is asked for at a time.
    pub fn fill<T, E: From<FsError>>(
        &self,
        data_bytes: u64,
        act: impl FnOnce(&mut BulkWriter<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let done = std::thread::scope(|scope| {
            let mut writer = BulkWriter::new(self, scope, data_bytes)?;
            let done = act(&mut writer)?;
            writer.finish()?;
            Ok(done)
        });
        match &done {
            Ok(_) => self.core.pool().commit().map_err(FsError::from)?,
            Err(_) => self.core.pool().abort(&"it was not filled to the end"),
        }
        done
    }
}
