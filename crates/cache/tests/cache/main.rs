//! Tests of the cache over devices in memory: against a plain disk, over crashes and failures, by several threads.

mod crash;
mod model;
mod threads;
mod world;
