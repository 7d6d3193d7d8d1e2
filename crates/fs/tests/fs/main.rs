//! Whole pools, read back: the kernel's golden images, damaged ones, and pools that the kernel makes now.

mod bounds;
mod contents;
mod crash;
mod damaged;
mod extremes;
mod fragmentation;
mod golden;
mod interrupted;
mod kernel;
mod logged;
mod model;
#[cfg(debug_assertions)]
mod panics;
mod pingpong;
mod placement;
mod races;
mod shared;
mod simulated;
mod threads;
mod walk;
