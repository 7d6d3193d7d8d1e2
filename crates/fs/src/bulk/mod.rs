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

pub(crate) mod encode;
pub(crate) mod inode;
mod queue;
mod space;
mod stream;
pub(crate) mod writer;

use crate::bulk::writer::BulkWriter;
use crate::core::Core;
use crate::error::FsError;
use crate::subvolume::Subvolumes;
use crate::tier::Tiers;

/// Fills the filesystem by `act`, and commits.
pub(crate) fn fill<T, E: From<FsError>>(
    parts: BulkParts<'_>,
    data_bytes: u64,
    act: impl FnOnce(&mut BulkWriter<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let done = std::thread::scope(|scope| {
        let mut writer = BulkWriter::new(parts, scope, data_bytes)?;
        let done = act(&mut writer)?;
        writer.finish()?;
        Ok(done)
    });
    match &done {
        Ok(_) => parts.core.pool().commit().map_err(FsError::from)?,
        Err(_) => parts.core.pool().give_up("it was not filled to the end"),
    }
    done
}

/// Parts of a filesystem that filling it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkParts<'f> {
    pub(crate) core: &'f Core,
    pub(crate) tiers: &'f Tiers,
    pub(crate) subvolumes: &'f Subvolumes,
}
