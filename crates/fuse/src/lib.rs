//! Files to a mount: serves a [`Filesystem`](brindle_fs::Filesystem) over FUSE. errno is made here.
//! Must not know: anything under `fs`.
//!
//! `mount` is the life of a mount. `operations` answers requests in terms of the filesystem; it knows nothing of the
//! transport. `adapter` carries requests and answers between it and the crate `transport`.
//!
//! What the kernel caches it keeps, for the pool changes through the mount only: names, attributes, missing names,
//! links and contents are asked for once, and `negotiation` says what else is agreed. A change behind
//! the kernel's back (subvolumes, by ioctls; the space that a file takes, when its data is written back) is told to it.
//! A mount that is only read is not even told of opened files; the state of its readers lives in a bounded cache.
//!
//! The upkeep of `fs` commits from time to time. What was written is durable after `fsync`, a commit, or the end of
//! [`MountHandle::wait`]; on a block device ([`MountOptions::block_device`]) also after `sync` and `syncfs`, which the kernel
//! does not pass on elsewhere, and after umount(2). What asks for durability beforehand (`O_DSYNC`, mounts with `sync`, `chattr +S`) is in
//! `operations/durability.rs`.

mod adapter;
mod attributes;
mod control_thread;
mod convert;
mod directory_handles;
mod ending;
mod errno;
mod flags;
mod handles;
mod inode_number;
mod mount;
mod nameless;
mod negotiation;
mod open_files;
mod operations;
mod options;
mod permission;
mod recent_writes;
mod refusals;

pub use brindle_fs::AtimeMode;
pub use brindle_transport::{Abort, RingUse};
pub use mount::{MountError, MountHandle, UnmountHandle, mount, mount_further};
pub use options::{MountOptions, Synchronous};
