//! The second way of requests and answers: rings (FUSE over `io_uring`, Linux 6.14).
//!
//! The kernel has a queue for each processor, and puts the request of a process into that of its processor. An *entry* of a queue
//! ([`Slot`]) is memory for one request and its answer. It is registered once; from then on each submission commits an answer and
//! fetches the next request, which is one system call where `/dev/fuse` takes two. Once each queue has an entry, all requests come so;
//! FORGET, INTERRUPT and notifications keep to `/dev/fuse`, whose threads ([`Session`](crate::Session)) are there in any case.
//!
//! A thread waits for one entry, by a ring of its own ([`Ring`]): a request that waits for a disk keeps no other one waiting, as a queue
//! has several entries and threads. The kernel takes the entry that was given back last, so that as few threads run as
//! suffice. [`Desk`] has what becomes of answers that are given later, and of killed callers; [`Crew`] the threads.
//!
//! Once it was agreed on, the kernel holds all requests back until the entries are there. So memory, rings and threads are made first,
//! and the way is given up by an invalid registration if any of them can't be had.

mod crew;
mod desk;
mod shared;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use crew::Crew;
pub(crate) use desk::{Desk, Left, LentSlot};
pub(crate) use shared::{Received, Ring};
pub(crate) use slot::Slot;

use std::io;

/// Processors with queues, at most: each has threads and memory of its own.
const QUEUES_MAX: u16 = 64;

/// Number of queues, one for each processor that there may ever be.
///
/// # Errors
/// A host without `io_uring`, or that does not tell its processors, or with too many of them.
pub(crate) fn queues() -> io::Result<u16> {
    Ring::new()?;
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let queues = count(&possible).ok_or(io::ErrorKind::InvalidData)?;
    if queues > QUEUES_MAX {
        return Err(io::Error::other(format!("{queues} processors are more than {QUEUES_MAX}")));
    }
    Ok(queues)
}

/// One more than the last of a list of ranges.
fn count(ranges: &str) -> Option<u16> {
    let last = ranges.trim().rsplit([',', '-']).next()?;
    last.parse::<u16>().ok()?.checked_add(1)
}
