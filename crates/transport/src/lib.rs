//! Requests of the kernel's FUSE, and their answers.
//! Must not know: anything of btrfs, of pools, or of what a request means.
//!
//! A mount is a descriptor of `/dev/fuse` (`descriptor`), with what was agreed on and the requests under way ([`Channel`]). The handshake (`handshake`) agrees on features, sizes and limits.
//! Then threads ([`Session`]) read one message at a time into a buffer of their own, `decode` makes a [`Request`] of it
//! that borrows names and data from that buffer, and the [`Server`] answers by the [`Reply`] that came with the operation:
//! at once, or later and from any thread. A reply has methods only for what its operation may be answered with; dropped
//! without an answer it answers with EIO, so that no process waits for ever. An answer is one vectored write of a
//! header, a fixed part, and bytes that are not copied.
//!
//! [`connect`] makes a mount, by itself as root, with the help of `fusermount3` otherwise; [`connect_on`] makes one on a block
//! device, and [`join`] a further one of the same filesystem; [`unmount`] ends it.
//! A caller that is killed while it waits is told EINTR, unless something was changed for it (`interrupt`).
//! `turns` chooses the thread that waits for the next request. [`Notifier`] tells the kernel what to forget.
//!
//! Requests come by rings instead (`ring`) where that was agreed on, to threads of their own (`ring_threads`) and the same decoder.
//!
//! Messages are trusted as little as bytes on a disk: a message that is too short, or a name without an end, is refused
//! with EINVAL and a line in the log; operations that are not in [`Operation`] are answered with ENOSYS, which the
//! kernel remembers. The layout is that of the kernel's public header `linux/fuse.h` (protocol 7.31 to 7.45), in the
//! byte order of the host; `wire` holds its structures, each with its size.

mod channel;
mod decode;
mod descriptor;
mod flags;
mod handshake;
mod interrupt;
mod mount;
mod notify;
mod operation;
mod reply;
mod ring;
mod ring_threads;
mod server;
mod session;
mod turns;
mod way;
mod wire;

pub use channel::Channel;
pub use flags::{Features, OpenAnswers, WriteKind};
pub use handshake::{Agreement, RingUse, Wishes};
pub use interrupt::{Effects, Waiter};
pub use mount::{
    Abort, Connection, DetachedMount, Guard, MountError, MountOptions, connect, connect_on, join, unmount,
};
pub use notify::Notifier;
pub use operation::{
    AttributeChange, Caller, CopyRequest, DesiredTime, DirectoryOperation, FileOperation, InodeOperation,
    MountOperation, NameOperation, NewNode, Operation, Request, WriteRequest,
};
pub use reply::{Attributes, Entry, Extended, FilesystemSpace, Listed, Opened, Reply, Time, kind};
#[cfg(fuzzing)]
pub use ring_threads::RingThread;
pub use server::Server;
pub use session::Session;
pub use turns::{DeviceWaits, Pace};
