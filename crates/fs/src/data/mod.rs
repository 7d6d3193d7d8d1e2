//! Changing the contents of files.
//!
//! The walk of a write: `write` has space promised and copies the bytes into the file's dirty ranges
//! ([`pages`](crate::pages), whose `state` tells of locks and order). Writeback, at `fsync`, at a commit's wish or when too much
//! is dirty (`context`), takes all of them (`writeback`) and makes them extents: in the item (`inline`), where the file
//! has space already (`in_place`), or new ones, compressed and checksummed on all cores (`output`). When these are on
//! the devices, transactions change the file's items (`enter`, by [`extent::edit`](crate::extent::edit)). Contents in many
//! pieces are laid together again when that is wanted (`defragment`). What takes contents away or moves them (`truncate`,
//! `allocate`, `clone`) has the file alone.

use crate::core::Core;
use crate::data::context::DataContext;
use crate::extent::Extents;
use crate::items::InodeItems;
use crate::read::Reader;
use crate::tier::Tiers;
use std::sync::Arc;

mod ahead;
pub(crate) mod allocate;
mod asleep;
pub(crate) mod clone;
mod confirm;
pub(crate) mod context;
pub(crate) mod defragment;
mod enter;
mod in_place;
mod inline;
pub(crate) mod output;
mod promise;
pub(crate) mod torn;
mod truncate;
mod verify;
mod write;
pub(crate) mod writeback;

/// Changes the contents of files: writes, writeback, truncation, preallocation, clones.
#[derive(Debug)]
pub(crate) struct FileData {
    pub(crate) core: Arc<Core>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) items: Arc<InodeItems>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) tiers: Arc<Tiers>,
    /// The files with dirty contents, and how contents are written.
    pub(crate) context: DataContext,
}
