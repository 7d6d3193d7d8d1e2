//! The interface between a mounted pool and the programs that ask it: btrfs' own ioctls, as far as one block of fixed size
//! holds all they say, and a few of brindle for the rest. [`verb`] is the table of them, [`message`] has their arguments, and
//! [`mount_table`] reads the kernel's table of mounts. Both sides use this crate: the client (`admin`) and the server (`fuse`).
//! Must not know: any engine, or the meaning of what lies on a disk.
//!
//! Libraries of these ioctls exist (`btrfs-uapi`). They bring a second set of on-disk structures, a second wrapper of system
//! calls, and a C header that libclang translates on each machine that builds brindle.

pub mod message;
pub mod mount_table;
pub mod verb;
