//! Filling a new pool with the contents of a directory.
//!
//! 1. **`scan.rs`**: the directory is walked, level by level, names in order: what there is, and how large.
//! 2. **`layout.rs`**: subvolumes, and a number for each inode, in the order of the walk; links to one inode meet.
//! 3. **`read.rs`**: threads read contents and extended attributes, compress and compute checksums, ahead of the
//!    writer by a bounded number of bytes; what they have read comes out in order.
//! 4. **`fill.rs`**: one writer puts everything into the pool in that order ([`brindle_fs::BulkWriter`]).
//!
//! Meanwhile **`veil.rs`** can keep back the superblocks: what is not filled to the end is no filesystem.
//!
//! The same directory, options and pool give the same bytes, however many threads there are.

mod error;
mod fill;
mod host;
mod layout;
mod options;
mod read;
mod scan;
mod veil;

pub use error::PopulateError;
pub use fill::{PopulateReport, populate};
pub use options::{InodeFlagRule, PopulateOptions, SubvolumeKind, SubvolumeRule};
pub use scan::Source;
pub use veil::Veiled;
