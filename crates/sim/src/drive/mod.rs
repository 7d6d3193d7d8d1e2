//! Drives that are modelled: when a hard disk, a SATA SSD or an NVMe drive would answer, in virtual time.
//!
//! A model has neither clock nor contents. It is told of requests with the time of their arrival, says when something
//! happens next, and is moved on to there. The caller decides what a moment is; the same requests at the same times
//! have the same answers, to the nanosecond, on every machine. A figure made with it is that of a *modelled* drive, and has
//! to say so.

mod counts;
mod geometry;
mod hard_disk;
mod hard_disk_parameters;
mod shingles;
mod solid;
mod write_cache;

#[cfg(test)]
mod liveness;
#[cfg(test)]
mod shingled;
#[cfg(test)]
mod tests;

pub use counts::DriveCounts;
pub use hard_disk::HardDisk;
pub use hard_disk_parameters::{HardDiskParameters, ShingleParameters};
pub use solid::{Solid, SolidParameters};

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Request to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRequest {
    /// Number that the answer carries.
    pub id: u64,
    /// Operation.
    pub kind: DriveRequestKind,
    /// Time of arrival, in nanoseconds; no earlier than that of the request before.
    pub at_ns: u64,
}

/// Operation of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveRequestKind {
    /// Reads from an offset: offset and length in bytes.
    Read(u64, u64),
    /// Writes from an offset, into its cache if there is room: offset and length in bytes.
    Write(u64, u64),
    /// Makes durable what was written.
    Flush,
    /// Forgets a range, whose space is free: offset and length in bytes.
    Discard(u64, u64),
}

/// A request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// The request's number.
    pub id: u64,
}

/// A drive.
#[derive(Clone, Debug)]
pub enum Drive {
    /// One with platters.
    HardDisk(Box<HardDisk>),
    /// One without.
    Solid(Box<Solid>),
}

impl Drive {
    /// A hard disk of 7200 revolutions a minute and 2 TB.
    pub fn hard_disk() -> Self {
        Self::HardDisk(Box::new(HardDisk::new(HardDiskParameters::default())))
    }

    /// An older one, of 250 GB.
    pub fn old_hard_disk() -> Self {
        Self::HardDisk(Box::new(HardDisk::new(HardDiskParameters::old())))
    }

    /// A shingled one, of 8 TB, that manages its bands itself.
    pub fn shingled_disk() -> Self {
        Self::HardDisk(Box::new(HardDisk::new(HardDiskParameters::shingled())))
    }

    /// A SATA SSD.
    pub fn sata_ssd() -> Self {
        Self::Solid(Box::new(Solid::new(SolidParameters::sata())))
    }

    /// An NVMe drive.
    pub fn nvme() -> Self {
        Self::Solid(Box::new(Solid::new(SolidParameters::nvme())))
    }

    /// Returns true if it rotates.
    pub fn is_rotating(&self) -> bool {
        matches!(self, Self::HardDisk(_))
    }

    /// Returns true if its platters stand still at a moment, if it was asked for nothing until then.
    pub fn is_asleep(&self, now_ns: u64) -> bool {
        match self {
            Self::HardDisk(drive) => drive.is_asleep(now_ns),
            Self::Solid(_) => false,
        }
    }

    /// Counts since the drive was made, or since they were last reset.
    pub fn counts(&self) -> DriveCounts {
        match self {
            Self::HardDisk(drive) => drive.counts(),
            Self::Solid(drive) => drive.counts(),
        }
    }

    /// Sets all counts to 0.
    pub fn reset_counts(&mut self) {
        match self {
            Self::HardDisk(drive) => drive.reset_counts(),
            Self::Solid(drive) => drive.reset_counts(),
        }
    }

    /// Takes a request.
    pub fn submit(&mut self, request: DriveRequest) {
        match self {
            Self::HardDisk(drive) => drive.submit(request),
            Self::Solid(drive) => drive.submit(request),
        }
    }

    /// When something happens next, if nothing else arrives.
    pub fn next_event_ns(&self) -> Option<u64> {
        match self {
            Self::HardDisk(drive) => drive.next_event_ns(),
            Self::Solid(drive) => drive.next_event_ns(),
        }
    }

    /// Moves on to a moment; what was answered until then is added to `answered`.
    pub fn advance(&mut self, now_ns: u64, answered: &mut Vec<Completion>) {
        match self {
            Self::HardDisk(drive) => drive.advance(now_ns, answered),
            Self::Solid(drive) => drive.advance(now_ns, answered),
        }
    }
}

/// Answers whose time is known.
#[derive(Clone, Debug, Default)]
struct Answers(BinaryHeap<Reverse<Completion>>);

impl Answers {
    fn add(&mut self, at_ns: u64, id: u64) {
        self.0.push(Reverse(Completion { at_ns, id }));
    }

    fn next_ns(&self) -> Option<u64> {
        self.0.peek().map(|Reverse(first)| first.at_ns)
    }

    fn take_until(&mut self, now_ns: u64, answered: &mut Vec<Completion>) {
        while self.next_ns().is_some_and(|at| at <= now_ns) {
            answered.extend(self.0.pop().map(|Reverse(first)| first));
        }
    }
}

/// Time of a transfer at a rate, in nanoseconds.
fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let time = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}
