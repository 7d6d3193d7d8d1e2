//! Tiers of a pool that the kernel has mounted: a kernel that knows no classes of devices is made to put metadata on
//! the fast ones. Which chunks are to be moved, and why a *fence* brings that about, is the business of
//! [`brindle_policy::tier`]; here it is looked and done.
//!
//! # The walk
//!
//! 1. [`inventory`] looks: `TREE_SEARCH` lists devices, chunks and block groups, `DEV_INFO` paths and sizes, and sysfs
//!    ([`sysfs`](crate::sysfs)) says whether the pool is busy, and how full its chunks are.
//! 2. [`apply`](apply::apply) plans, puts up the fences of the first pass, and has the kernel relocate one chunk after
//!    the other, by a balance whose filter is the chunk's first address. One chunk a call is the unit of
//!    the rate limit; progress within one is estimated (`progress`). Then the fences are taken down, and it looks again, until nothing lies
//!    wrong or nothing gets better.
//! 3. [`watch`](watch::watch) puts a fence up when a new metadata chunk is near, takes it down when it is there,
//!    and applies where one has gone wrong all the same.
//!    The loop, and the rule of trying again after a failure, are those of [`brindle_care::tier::keep`].
//! 4. [`fence`] resizes. Before the first resize, [`journal`] writes down, and makes durable, what the sizes were.
//!
//! A mount of brindle places what is new by itself, and moves chunks by itself: [`pool::tiers`](crate::pool::tiers) has the same keeper ask it to.
//!
//! # Why a crash at any point is safe
//!
//! A relocation is the kernel's own, with its own transactions; what was moved stays moved. What a crash can leave
//! behind is a fence: devices that are smaller than they were. No byte of data is in danger by that; the pool
//! has less room until the devices are resized. The journal says to what:
//!
//! | crash | what is there |
//! |---|---|
//! | before the journal is durable | sizes as before |
//! | after that, before the last size is restored | the journal; each device has its old size or one of the fences in the journal |
//! | before the journal is deleted | the journal; all sizes as before, so that restoring them again changes nothing |
//!
//! A process that takes a fence down changes a size only where it finds one that the journal has as a fence: a size that
//! was set by another program meanwhile stays. One process at a time works on a pool: a lock beside the journal. A
//! killed process holds it until the kernel has let go of it.

pub mod apply;
pub mod classes;
pub mod error;
pub mod fence;
pub mod inventory;
pub mod journal;
mod progress;
pub mod watch;

pub use apply::{Applied, ApplyOptions, Observer, apply};
pub use classes::{ClassifiedDevice, classes_of_mount, classified, require_no_seed};
pub use error::TierError;
pub use fence::{FencedPool, Fences, Restored, recover};
pub use inventory::{Inventory, MountedDevice};
pub use journal::{FencedDevice, Journal, StateDirectory};
pub use watch::{WatchOptions, watch};
