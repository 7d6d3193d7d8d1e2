//! Tests of the cache over devices in memory: against a plain disk, over crashes and failures, by several threads.

mod cleaning;
mod crash;
mod faults;
mod growth;
mod loading;
mod mirror;
mod model;
mod published;
mod remote;
mod threads;
mod veil;
mod wear;
mod world;
