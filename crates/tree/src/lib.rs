//! Logical blocks to B-trees, read and written: opening a pool (chunk tree, then the tree of roots), a bounded node cache,
//! cursors, copy-on-write editing, delayed references, transactions and their commit, the log of fsyncs, space, relocation.
//! Must not know: files.
//!
//! The parts of a pool, each above those that it knows:
//!
//! ```text
//! pool          Pool: the face; what it does is done by the parts
//! ──────────────────────────────────────────────────────────────────────────────────────────────
//! log_writer    LogWriter, LogReplay          relocate  Relocator        defragment, devices, quota_changes
//! transaction   Transactions: the gate, the commit, its superblocks; Roots: trees come; Placer: blocks get addresses
//! dropping      TreeDropper: trees go         extent_tree  ExtentTree: references are applied
//! accounting    Accounting: numbers of quota groups          checksums   ChecksumTree
//! editor        Editor: items of trees
//! changes       what waits in memory for the next commit: references, space, log, counts
//! refs          References: of extents, recorded and waiting             log  state of the log
//! quota         Quotas: groups, and what has changed since their numbers were right
//! space         block groups, chunks and what of them is free: told of changes, reads trees, never joins or commits
//! store         blocks and trees, to be read; told what became of them
//! tree, stop    the state of one tree; the end of all writing
//! ```
//!
//! A part is made of what it works with (`ChecksumTree::of(&editor)`), and knows nothing of a row above its own: `cargo xtask tidy`
//! refuses modules that import each other.
//!
//! The walk of a read: a [`TreeRoot`] says where a root lies; a [`Cursor`] goes down from it through blocks in memory with
//! the [`Tree`] locked for reading, and keeps the path. A block that is not in memory is read with the lock given
//! back ([`Store::read_node`], from the copy that passes the tree checker), and the descent begins anew. A node on disk never
//! changes, so a cursor outlives whatever the cache forgets. The walk of a change: [`Pool::join`], then the [`Editor`], which
//! copies blocks that are not the running transaction's; the essay on commits is in `transaction`.
//!
//! Invariants of a descent, which bound every walk whatever the bytes say:
//! - each child lies exactly one level below its parent, so no path is longer than eight;
//! - each child begins with the key, and carries the generation, that its parent has for it;
//! - each block belongs to the tree that is read, or both to some subvolume;
//! - no key of a child reaches the key of the parent's next slot, so no block is met twice in one walk.

mod accounting;
mod changes;
mod checksums;
mod committed;
mod defragment;
mod devices;
mod difference;
mod dropping;
mod editor;
mod error;
mod extent_tree;
mod habit;
mod histogram;
mod log;
mod log_writer;
mod options;
mod pool;
mod pressure;
mod quota;
mod quota_changes;
mod quota_error;
mod refs;
mod relocate;
mod root;
mod settings;
mod space;
mod statistics;
mod stop;
mod store;
mod transaction;
mod tree;

pub use checksums::ChecksumTree;
pub use committed::{Committed, CommittedExtent};
pub use defragment::Defragmented;
pub use devices::replace::Replacing;
pub use devices::{JoiningDevice, Parted};
pub use difference::{Difference, DifferenceCounts, Differing, ItemPlace};
pub use dropping::TreeDropper;
pub use dropping::relocations::RelocationTree;
pub use editor::{Editor, Verdict};
pub use error::{TreeError, tree_name};
pub use histogram::{BUCKETS, HistogramCounts, Timing};
pub use log::{LogStatistics, LogTicket, SyncMeasure, Unlogged};
pub use log_writer::enter::{LogChange, LogRange, Logging};
pub use log_writer::replayed::LogReplay;
pub use options::{
    Clock, DEFAULT_CACHE_BYTES, DiscardMode, OpenOptions, Recount, WriteBackWish, WriterOptions,
};
pub use pool::Pool;
pub use pool::quota::QuotaClaim;
pub use pressure::PressureListener;
pub use quota::summary::{QuotaGroup, QuotaSummary};
pub use quota_error::QuotaError;
pub use refs::{DataRange, References};
pub use relocate::destage::{Destaging, PlaceOf, WaitingExtent};
pub use relocate::{Moved, Observer, Relocation};
pub use root::TreeRoot;
pub use settings::PoolSettings;
pub use space::close::GroupStatus;
pub use space::data::{RangeLengths, ReservedExtent};
pub use space::membership::Withheld;
pub use space::state::FastTier;
pub use space::summary::{DeviceSpace, GroupSummary, Room, SpaceSummary, Spread};
pub use space::writeback_space::{InTransit, WriteBackStatus};
pub use space::writeback_tier::WriteBackSettings;
pub use space::{RESCUE_ITEMS, Urgency};
pub use stop::StopOnPanic;
pub use store::Store;
pub use store::cache::CacheStatistics;
pub use store::cursor::{Cursor, Readahead};
pub use store::hold::FreedSpaceHold;
pub use store::logs::LogTree;
pub use transaction::exclusive::ExclusiveOperation;
pub use transaction::roots::Roots;
pub use transaction::statistics::{CommitPhase, CommitReport, CommitStatistics, LEVELS, TreeKind};
pub use transaction::{Need, SoleEditor, Transaction};
pub use tree::Tree;
