//! Files to a mount: serves a [`Filesystem`](brindle_fs::Filesystem) over FUSE, read-only. errno is made here.
//! Must not know: anything under `fs`.
//!
//! `mount` gets a connection from the kernel, by itself as root, with the help of `fusermount3` otherwise, and
//! ends it. `operations` answers requests in terms of the filesystem; it knows nothing of the transport.
//! `adapter` carries requests and answers between it and `fuser`.
//!
//! What the kernel caches it keeps, for the pool does not change while it is mounted: names, attributes, missing
//! names, links and contents are asked for once. Files and directories are opened without asking us at all, so
//! the state of an open file lives in a bounded cache of our own.

mod adapter;
mod attributes;
mod convert;
mod errno;
mod flags;
mod inode_number;
mod mount;
mod open_files;
mod operations;
mod options;

pub use mount::{MountError, MountHandle, UnmountHandle, mount};
pub use options::MountOptions;
