//! Contents of files in memory: what is dirty of each, or being written back.

pub(crate) mod failures;
pub(crate) mod piece;
pub(crate) mod ranges;
pub(crate) mod state;
pub(crate) mod times;
pub(crate) mod unallocated;
