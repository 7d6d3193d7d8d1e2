//! Basis of the tests of every other crate: golden images made by the Linux kernel, the means to damage
//! them, manifests that say in words how two directory trees differ, a plain model of a filesystem with the
//! operations that are done to it, the harness that crashes one at every write, and what `btrfs check` says
//! of a pool. Development only; no shipped crate depends on it.
//! Must not know: how brindle reads or writes a pool. What it says about a tree or an image comes from
//! the kernel or the model alone, so that it can be held against us.

pub mod crash;
pub mod damage;
pub mod golden;
pub mod manifest;
pub mod model;
pub mod operations;
pub mod referee;
