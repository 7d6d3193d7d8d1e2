//! Crashes, at every write and flush.
//!
//! A run of random operations is done once on a filesystem whose devices write everything down, and beside it on
//! the model. Then, for crash points all over the record, the devices are made as a crash there leaves them: what
//! was flushed is there, of the rest some is lost, torn or reordered. Each such state is examined, mounted and held
//! against the model's states:
//!
//! - The last commit that had returned before the crash, or the one that was being made, is what must be found,
//!   to the byte ([`CrashGuarantees`] says what the filesystem promises beyond, or short of, that).
//! - A file whose fsync had returned is as it was then, or as a later fsync or commit would have it.
//! - Now and then the crash comes twice: mounting writes too (it cleans up), so its writes are recorded and cut.
//! - Now and then the mount is used on: what can be mounted must also be able to go on.
//! - A sample goes to another implementation, where there is one ([`Subject::referee`]): the tree that it finds is held
//!   against the same states of the model.
//!
//! A state follows from the seed, the crash point and its number at that point, so a failure can be seen again by
//! the command that its message ends with; if the filesystem writes with several threads, points may move, and only
//! the whole run of that seed shows it again.
//!
//! [`FaultTest`] does the same with devices that fail in the course of the run.

mod allowed;
mod faults;
mod history;
mod names;
mod state;
mod tally;
mod test;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy;

pub use faults::{FaultKind, FaultTest};
pub use test::{CrashTest, Summary};

use crate::manifest::Manifest;
use crate::operations::Target;
use brindle_device::{DeviceClass, WritableDevice};
use brindle_sim::Image;
use std::sync::Arc;

/// The filesystem under test, as the harness makes and opens it.
pub trait Subject: Sync {
    /// An open one. [`Operation::Remount`](crate::operations::Operation::Remount) never reaches it, for that is
    /// [`close`](Self::close) and [`open`](Self::open).
    type Target: Target;

    /// The devices of a new, empty pool.
    fn make(&self) -> Vec<NewDevice>;

    /// Opens the pool that is on these devices.
    fn open(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Self::Target, String>;

    /// Makes everything durable, and lets go of the devices. One that is dropped instead writes nothing more.
    fn close(&self, target: Self::Target) -> Result<(), String>;

    /// Examines the pool as it lies on its devices, without opening it.
    fn check(&self, _devices: &[Arc<dyn WritableDevice>]) -> Result<(), String> {
        Ok(())
    }

    /// Name of the pool in a tally.
    fn pool(&self) -> String {
        String::new()
    }

    /// The tree that another implementation finds on copies of the devices; none if it has no say. Asked of a sample of
    /// states, if the environment wants one (`BRINDLE_CRASH_KERNEL`).
    fn referee(&self, _devices: &[Arc<dyn WritableDevice>]) -> Result<Option<Manifest>, String> {
        Ok(None)
    }

    /// Guarantees after a crash.
    fn guarantees(&self) -> CrashGuarantees {
        CrashGuarantees::default()
    }
}

/// A device of a new pool.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// Name in messages.
    pub name: String,
    /// Contents.
    pub image: Image,
    /// Class.
    pub class: DeviceClass,
}

/// Guarantees of a filesystem about the state after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashGuarantees {
    /// An fsync makes everything durable, not only its file.
    pub fsync_commits: bool,
    /// A snapshot makes everything durable.
    pub snapshot_commits: bool,
    /// Commits happen only on request, so that every state after a crash is a requested one. Otherwise each path may
    /// be as it was at any time since, and bytes that were written since may be there or not.
    pub commits_only_when_asked: bool,
    /// The names found are those of some operations, none without those before that it builds on, and among them all that
    /// fsyncs made durable. Otherwise each name may be as it was at a time of its own.
    pub names_follow_operations: bool,
    /// An fsync that is no commit makes its file durable. Otherwise, as after the loss of a device that alone held the log,
    /// everything is as it was at one moment, not before the last commit.
    pub fsyncs_are_kept: bool,
}

impl Default for CrashGuarantees {
    /// Nothing is durable that was not asked for, and an fsync is a commit.
    fn default() -> Self {
        Self {
            fsync_commits: true,
            snapshot_commits: false,
            commits_only_when_asked: true,
            names_follow_operations: false,
            fsyncs_are_kept: true,
        }
    }
}
