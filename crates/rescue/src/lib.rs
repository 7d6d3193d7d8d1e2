//! Repairs of a sick pool: rehearsed in memory, judged by the examiner, and only then written, with a file that takes them back.
//! Must not know: files, FUSE, the command line.
//!
//! This crate stands above the examiner (`check`) and the writers (`tree`), which know nothing of each other: the examiner names what
//! is wrong, a plan turns findings into changes, and the examiner judges the changed pool before a byte of it is on a device.
//!
//! The walk of a repair:
//!
//! 1. [`Patient::new`] puts an overlay in memory over each device, and refuses devices that another system holds.
//! 2. A treatment changes the overlays: superblocks alone ([`superblocks`]), or trees by one transaction ([`transaction`]). The
//!    devices are only read.
//! 3. [`Patient::patches`] are the pages that differ. A dry run ends here.
//! 4. [`Patient::carry_out`] makes the [undo file](undo) durable: old contents of each page, and a checksum of the new ones. Then it writes
//!    pages that hold no superblock, flush, first superblocks, flush, the other superblocks, flush.
//!
//! A crash before 4 leaves the devices alone. A transaction writes to free space only, so that a crash before the first superblock
//! leaves the old state, and one after it the new one; a second transaction would take space that the first one freed, and so
//! [`transaction`] refuses to make two. A crash at any point is also undone by the file, which takes each page for whole if it has
//! either contents.
//!
//! Nothing is guessed. What one fact alone says is left as it is, and named.

pub mod chunks;
mod error;
mod patch;
mod patient;
pub mod plan;
pub mod readmit;
pub mod repair;
pub mod superblocks;
pub mod transaction;
pub mod trees;
pub mod undo;

pub use error::RescueError;
pub use patch::{Patch, Written};
pub use patient::Patient;

/// A change that a treatment makes, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The change.
    pub change: String,
    /// The finding that it answers.
    pub reason: String,
}

impl Step {
    pub(crate) fn new(change: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { change: change.into(), reason: reason.into() }
    }
}
