//! Logical blocks to B-trees: opening a pool (chunk tree, then the tree of roots), a bounded node cache,
//! search, and cursors that walk forward and backward with sibling readahead.
//! Must not know: files.
//!
//! The walk of a read: a [`TreeRoot`] says where a root lies; [`Pool::read_node`] takes each node on the way
//! down from the cache or, through `volume`, from the copy that passes the tree checker; a [`Cursor`] keeps the
//! path. A node, once checked, is shared and never changes, so nothing here holds a lock while it reads, and
//! a cursor outlives whatever the cache forgets.
//!
//! Invariants of a descent, which bound every walk whatever the bytes say:
//! - each child lies exactly one level below its parent, so no path is longer than eight;
//! - each child begins with the key, and carries the generation, that its parent has for it;
//! - each block belongs to the tree that is read, or both to some subvolume;
//! - no key of a child reaches the key of the parent's next slot, so no block is met twice in one walk.

mod cache;
mod cursor;
mod defragment;
mod editor;
mod error;
mod log;
mod pool;
mod refs;
mod relocate;
mod root;
mod settings;
mod space;
mod statistics;
mod transaction;
mod tree;

pub use cache::CacheStatistics;
pub use cursor::{Cursor, Readahead};
pub use defragment::Defragmented;
pub use editor::{Editor, Verdict};
pub use error::TreeError;
pub use log::{LogChange, LogExtents, LogStatistics, LogTicket, LogTree, Logging, Unlogged};
pub use pool::{DEFAULT_CACHE_BYTES, OpenOptions, Pool};
pub use refs::DataRange;
pub use relocate::{Moved, Observer, Relocation};
pub use root::TreeRoot;
pub use settings::PoolSettings;
pub use space::{
    DeviceSpace, DiscardMode, FreedSpaceHold, GroupStatus, GroupSummary, JoiningDevice, Parted,
    ReservedExtent, Room, SpaceSummary, Spread, Urgency, Withheld,
};
pub use transaction::{
    Clock, CommitPhase, CommitReport, CommitStatistics, ExclusiveOperation, LEVELS, Need, PressureListener,
    Transaction, TreeKind, WriterOptions,
};
pub use tree::Tree;
