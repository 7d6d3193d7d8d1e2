//! Limit on changed blocks, and its early warning.
//!
//! At half of the limit a listener is called, so that it can commit while operations go on; an operation that finds the limit
//! itself exceeded commits before it changes anything more. So memory is bounded by twice the limit: what is changed,
//! and what a commit is writing.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Changed blocks take this share of the node cache's budget before operations wait for a commit.
const DIRTY_SHARE: usize = 2;
/// Lower bound on the limit of dirty blocks, however small the budget.
const DIRTY_NODES_MIN: usize = 1024;
/// At this share of the limit it is time for a commit.
const EARLY_SHARE: usize = 2;

/// Called when it is time for a commit; must not take long, nor join or commit.
pub type PressureListener = Box<dyn Fn() + Send + Sync>;

/// Degree of memory use that operations find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Degree {
    /// Below half of the limit.
    Low,
    /// Time for a commit.
    Noticeable,
    /// Commit required first.
    Full,
}

/// The changed blocks of a pool, counted.
pub(crate) struct Pressure {
    nodes: AtomicUsize,
    nodes_max: usize,
    is_told: AtomicBool,
    listener: OnceLock<PressureListener>,
}

impl Pressure {
    /// For a node cache with this budget.
    pub(crate) fn new(cache_bytes: usize, nodesize: usize) -> Self {
        Self {
            nodes: AtomicUsize::new(0),
            nodes_max: (cache_bytes / DIRTY_SHARE / nodesize).max(DIRTY_NODES_MIN),
            is_told: AtomicBool::new(false),
            listener: OnceLock::new(),
        }
    }

    /// Number of blocks in the `dirty` maps of all trees.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Counts one more block.
    pub(crate) fn dirtied(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts from the number of blocks.
    pub(crate) fn vanished(&self, count: usize) {
        self.nodes.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn degree(&self) -> Degree {
        match self.nodes() {
            nodes if nodes > self.nodes_max => Degree::Full,
            nodes if nodes > self.nodes_max / EARLY_SHARE => Degree::Noticeable,
            _ => Degree::Low,
        }
    }

    /// Says once for each transaction that it is time.
    pub(crate) fn tell(&self) {
        if let Some(listener) = self.listener.get() {
            if !self.is_told.swap(true, Ordering::Relaxed) {
                listener();
            }
        }
    }

    /// A transaction begins.
    pub(crate) fn begin(&self) {
        self.is_told.store(false, Ordering::Relaxed);
    }

    pub(crate) fn listen(&self, listener: PressureListener) {
        // A second listener would find done what it is told of.
        self.listener.set(listener).ok();
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressure")
            .field("nodes", &self.nodes)
            .field("nodes_max", &self.nodes_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_listener_is_told_once_for_each_transaction() {
        let pressure = Pressure::new(0, 16384);
        let told = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&told);
        pressure.listen(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let mut degrees = Vec::new();
        for _ in 0..=DIRTY_NODES_MIN {
            pressure.dirtied();
            match pressure.degree() {
                Degree::Noticeable => pressure.tell(),
                degree => degrees.push(degree),
            }
        }
        assert_eq!((degrees.first(), degrees.last()), (Some(&Degree::Low), Some(&Degree::Full)));
        assert_eq!(degrees.len(), DIRTY_NODES_MIN / EARLY_SHARE + 1);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        pressure.begin();
        pressure.tell();
        assert_eq!(told.load(Ordering::Relaxed), 2);
        pressure.vanished(DIRTY_NODES_MIN + 1);
        assert_eq!(pressure.degree(), Degree::Low);
    }
}
