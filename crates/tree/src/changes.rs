//! Changes that no commit has made durable: what operations have left behind in memory, for the next commit.

use crate::log::Log;
use crate::options::WriterOptions;
use crate::pressure::Pressure;
use crate::quota::state::Quotas;
use crate::refs::delayed::DelayedRefs;
use crate::space::Space;
use crate::space::metadata::Load;
use crate::statistics::Statistics;
use crate::store::Store;
use crate::tree::virtual_address;
use brindle_ondisk::{Incompat, Logical, to_u64};
use brindle_sync::atomic::{AtomicU64, Ordering};
use brindle_sync::{Mutex, Rank};
use std::fmt;
use std::sync::Arc;

/// Changes that no commit has made durable, apart from those of trees.
pub(crate) struct Changes {
    pub(crate) refs: DelayedRefs,
    pub(crate) space: Arc<Space>,
    pub(crate) statistics: Statistics,
    pub(crate) quotas: Quotas,
    pub(crate) pressure: Pressure,
    pub(crate) log: Log,
    /// Features that the next superblock is to have.
    pub(crate) features: Mutex<Incompat>,
    /// The label that the next superblock is to have, if another.
    pub(crate) label: Mutex<Option<Box<[u8; 256]>>>,
    next_virtual: AtomicU64,
    pub(crate) options: WriterOptions,
}

impl Changes {
    /// No changes yet.
    pub(crate) fn new(
        space: Arc<Space>,
        statistics: Statistics,
        quotas: Quotas,
        pressure: Pressure,
        options: &WriterOptions,
    ) -> Self {
        Self {
            refs: DelayedRefs::default(),
            space,
            statistics,
            quotas,
            pressure,
            log: Log::default(),
            features: Mutex::new(Rank::Features, Incompat::empty()),
            label: Mutex::new(Rank::Label, None),
            next_virtual: 0.into(),
            options: options.clone(),
        }
    }

    /// An address for a block that has no place yet.
    pub(crate) fn next_virtual(&self, nodesize: u32) -> Logical {
        virtual_address(self.next_virtual.fetch_add(1, Ordering::Relaxed), nodesize)
    }

    /// Pending changes, as far as space for them is concerned.
    pub(crate) fn load(&self, store: &Store) -> Load {
        Load {
            dirty: to_u64(self.pressure.nodes()).saturating_add(self.quotas.blocks()),
            references: to_u64(self.refs.len()),
            trees: to_u64(store.known_tree_count()),
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("pressure", &self.pressure).finish_non_exhaustive()
    }
}
