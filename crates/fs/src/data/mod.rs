//! Changing the contents of files: what is dirty in memory, writing it back, and editing the extents.

mod allocate;
mod clone;
mod options;
mod state;
mod truncate;
mod write;
mod writeback;

pub use allocate::AllocateMode;
pub use options::CompressionChoice;
pub(crate) use options::DataContext;
pub(crate) use state::FileState;
