//! Blocks that have places, and may not be on their devices: final blocks of a transaction that is being committed, and
//! blocks of the log.

use brindle_ondisk::{IdMap, Logical, Node};
use brindle_sync::{Rank, RwLock};
use std::sync::Arc;

/// Blocks by their places.
pub(crate) type Blocks = IdMap<Logical, Arc<Node>>;

/// Blocks that have places, and may not be on their devices.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// Blocks that are final and not written yet.
    pub(crate) frozen: RwLock<Blocks>,
    /// Blocks of the log; copies that have been replaced stay until the commit.
    pub(crate) log: RwLock<Blocks>,
}

impl Default for Unwritten {
    fn default() -> Self {
        Self {
            frozen: RwLock::new(Rank::FrozenBlocks, Blocks::default()),
            log: RwLock::new(Rank::LogBlocks, Blocks::default()),
        }
    }
}

impl Unwritten {
    /// The block at a place.
    pub(super) fn block(&self, at: Logical) -> Option<Arc<Node>> {
        let frozen = self.frozen.read().get(&at).map(Arc::clone);
        frozen.or_else(|| self.block_of_log(at))
    }

    /// The block of the log at a place.
    pub(crate) fn block_of_log(&self, at: Logical) -> Option<Arc<Node>> {
        self.log.read().get(&at).map(Arc::clone)
    }
}
