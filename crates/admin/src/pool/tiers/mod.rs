//! Tiers of a pool that places what is new by itself: one that a mount of brindle serves, or that is not mounted.

mod files;
mod keep;

pub use files::{FileFacts, files_of_mount, files_of_pool};
pub use keep::{ServedObserver, ServedOptions, keep_served};
