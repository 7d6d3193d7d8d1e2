//! Contents of files in memory: what is dirty or being written back of each, and which files those are.

pub(crate) mod context;
pub(crate) mod ranges;
pub(crate) mod state;
pub(crate) mod times;
pub(crate) mod unallocated;
