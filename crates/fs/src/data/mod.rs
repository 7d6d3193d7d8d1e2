//! Changing the contents of files: what is dirty in memory, writing it back, and editing the extents.

mod allocate;
mod clone;
mod context;
mod edit;
mod enter;
mod in_place;
mod inline;
mod output;
mod piece;
mod plan;
mod promise;
mod ranges;
mod state;
mod truncate;
mod write;
mod writeback;

pub use allocate::AllocateMode;
pub use context::CompressionChoice;
pub(crate) use context::DataContext;
pub(crate) use state::FileState;
