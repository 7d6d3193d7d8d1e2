//! The passes themselves.

pub(crate) mod chunks;
pub(crate) mod superblocks;
pub(crate) mod trees;
