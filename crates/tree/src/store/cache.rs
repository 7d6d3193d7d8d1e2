//! The node cache: checked nodes by address, within a budget of bytes.
//!
//! Sharded, so that threads seldom meet; each shard is a ring that the clock algorithm sweeps. A leaf comes
//! in unreferenced and earns its second chance by being asked for again, a node has one from the start, so that
//! one long scan of leaves does not push out the upper levels.

use brindle_ondisk::{IdMap, Logical, Node};
use brindle_sync::{Rank, Ranked, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SHARDS: usize = 16;
/// However small the budget, a shard keeps a path's worth of nodes.
const LEAST_NODES_PER_SHARD: usize = 8;

/// Hit and miss counters of the node cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Nodes found.
    pub hits: u64,
    /// Nodes that were not found, and read.
    pub misses: u64,
    /// Nodes held now.
    pub nodes: usize,
    /// Nodes that can be held.
    pub capacity_nodes: usize,
}

pub(crate) struct NodeCache {
    shards: [RwLock<Shard>; SHARDS],
    capacity_per_shard: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default)]
struct Shard {
    slots: IdMap<Logical, usize>,
    ring: Vec<Entry>,
    hand: usize,
}

struct Entry {
    at: Logical,
    node: Arc<Node>,
    referenced: AtomicBool,
}

impl Ranked for Shard {
    const RANK: Rank = Rank::NodeCache;
}

impl NodeCache {
    /// A cache of at most `budget_bytes` of nodes.
    pub(crate) fn new(budget_bytes: usize, nodesize: u32) -> Self {
        let nodes = budget_bytes / brindle_ondisk::to_usize(nodesize.max(1).into());
        Self {
            shards: Default::default(),
            capacity_per_shard: (nodes / SHARDS).max(LEAST_NODES_PER_SHARD),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn get(&self, at: Logical) -> Option<Arc<Node>> {
        let shard = self.shard(at).read();
        let found = shard.slots.get(&at).map(|slot| {
            let entry = &shard.ring[*slot];
            // Upper nodes are asked for all the time: a store that changes nothing would still be shared.
            if !entry.referenced.load(Ordering::Relaxed) {
                entry.referenced.store(true, Ordering::Relaxed);
            }
            Arc::clone(&entry.node)
        });
        if found.is_some() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Counts a node that was not found and is read. After a miss a reader looks once more before it reads.
    pub(crate) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if a node is held; counts as no use.
    pub(crate) fn contains(&self, at: Logical) -> bool {
        self.shard(at).read().slots.contains_key(&at)
    }

    pub(crate) fn insert(&self, at: Logical, node: Arc<Node>) {
        let mut shard = self.shard(at).write();
        shard.insert(at, node, self.capacity_per_shard);
    }

    pub(crate) fn statistics(&self) -> CacheStatistics {
        let held = |shard: &RwLock<Shard>| shard.read().ring.len();
        CacheStatistics {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            nodes: self.shards.iter().map(held).sum(),
            capacity_nodes: self.capacity_per_shard * SHARDS,
        }
    }

    fn shard(&self, at: Logical) -> &RwLock<Shard> {
        // Nodes lie at multiples of 4 KiB or more; the multiplication spreads what is left over the top bits.
        let hash = (at.get() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[brindle_ondisk::to_usize(hash) % SHARDS]
    }
}

impl Shard {
    fn insert(&mut self, at: Logical, node: Arc<Node>, capacity: usize) {
        if let Some(slot) = self.slots.get(&at) {
            self.ring[*slot].node = node;
            return;
        }
        let referenced = AtomicBool::new(!node.is_leaf());
        let entry = Entry { at, node, referenced };
        if self.ring.len() < capacity {
            self.slots.insert(at, self.ring.len());
            self.ring.push(entry);
            return;
        }
        // Ends after two rounds at the latest: the first clears every mark.
        while std::mem::take(self.ring[self.hand].referenced.get_mut()) {
            self.hand = (self.hand + 1) % capacity;
        }
        let evicted = std::mem::replace(&mut self.ring[self.hand], entry);
        self.slots.remove(&evicted.at);
        self.slots.insert(at, self.hand);
        self.hand = (self.hand + 1) % capacity;
    }
}

impl std::fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCache").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}
