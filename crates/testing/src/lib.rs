//! What the tests of every other crate stand on: golden images made by the Linux kernel, the means to damage
//! them, and manifests that say in words how two directory trees differ. Development only; no shipped crate
//! depends on it.
//! Must not know: how brindle reads or writes a pool. What it says about a tree or an image comes from
//! the kernel alone, so that it can be held against us.

pub mod damage;
pub mod golden;
pub mod manifest;
