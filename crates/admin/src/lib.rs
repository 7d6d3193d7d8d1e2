//! Administration of a pool: facts that can be asked of it, and changes that can be made to it. [`control`] asks a mount of
//! the kernel or of brindle by the ioctls of `brindle-uapi`; [`search`], [`devices`], [`balance`] and [`streams`] belong to it. [`tier`]
//! moves metadata of a pool that the kernel has mounted, with fences. [`health`] judges what is found of a pool.
//! Must not know: the command line.

pub mod activity;
mod autodefrag;
pub mod balance;
mod caches;
mod call;
mod commits;
pub mod control;
mod defragment;
pub mod devices;
pub mod extents;
pub mod health;
pub mod kernel_receive;
mod kernel_send;
mod log;
mod mounts;
pub mod pool;
pub mod quotas;
pub mod registry;
pub mod scrub;
pub mod search;
mod settings;
pub mod streams;
pub mod subvolumes;
mod sysfs;
pub mod tier;
pub mod trees;
pub mod usage;
pub mod walk;
mod write_back;

/// Names and kinds in what is asked and answered here.
pub use brindle_ondisk::item::{FileType, QgroupStatusFlags};
pub use brindle_ondisk::{BlockGroupType, DevId, Logical, ObjectId, Profile, QgroupId, RootId, Uuid};
pub use caches::CacheLines;
pub use commits::KernelCommits;
pub use control::{ControlError, Mounted, SubvolumeRecord, Synced};
pub use pool::{AdminError, PoolAdmin, PoolFacts, Reach};
pub use write_back::WriteBack;
