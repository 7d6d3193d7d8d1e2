//! The passes themselves.

pub(crate) mod block_groups;
pub(crate) mod checksums;
pub(crate) mod chunks;
pub(crate) mod data;
pub(crate) mod extents;
pub(crate) mod files;
pub(crate) mod free_space;
pub(crate) mod parity;
pub(crate) mod quotas;
pub(crate) mod subvolumes;
pub(crate) mod superblocks;
pub(crate) mod trees;
