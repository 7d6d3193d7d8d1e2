//! What is done while nobody waits for it, and what makes things durable.

use crate::{Filesystem, FsError};

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// More: call again soon.
    More,
    /// Nothing, until something changes.
    Nothing,
}

impl Filesystem {
    /// Makes everything durable that was done before the call: contents are written back, then the transaction
    /// is committed.
    pub fn sync(&self) -> Result<(), FsError> {
        todo!()
    }

    /// Commits the running transaction. Contents that are dirty in memory stay there.
    pub fn commit(&self) -> Result<(), FsError> {
        todo!()
    }

    /// A small piece of the work that nobody waits for: orphans, deleted subvolumes, discards. To be called by one
    /// thread, again and again while there is more, else from time to time.
    pub fn background_step(&self) -> Result<Remaining, FsError> {
        todo!()
    }

    /// Makes everything durable before the filesystem is dropped.
    pub fn shutdown(&self) -> Result<(), FsError> {
        todo!()
    }
}
