//! Looks into a pool without a change: walks of its trees, and statistics of them.

mod statistics;
mod walk;

pub use statistics::{Distances, TreeStatistics};
pub use walk::{Order, TreeWalk};
