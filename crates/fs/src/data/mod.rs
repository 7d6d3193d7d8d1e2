//! Changing the contents of files.
//!
//! The walk of a write: `write` has space promised and copies the bytes into the file's dirty ranges (`ranges`, held by
//! its `state`, whose text tells of locks and order). Writeback, at `fsync`, at a commit's wish or when too much is
//! dirty (`context`), takes all of them (`writeback`) and makes them extents: in the item (`inline`), where the file
//! has space already (`in_place`), or new ones, compressed and checksummed on all cores (`output`). When these are on
//! the devices, transactions change the file's items (`enter`, by `edit`, which follows a `plan` of what becomes
//! of the extents that were there). What waits on flash moves to bulk devices later (`merge`). What takes contents away or moves them (`truncate`, `allocate`, `clone`) has the
//! file alone.

mod allocate;
mod clone;
mod confirm;
mod edit;
mod enter;
mod in_place;
mod inline;
mod merge;
mod output;
mod plan;
mod promise;
mod replayed;
mod truncate;
mod verify;
mod write;
pub(crate) mod writeback;

pub use allocate::AllocateMode;
pub use clone::RangePair;
