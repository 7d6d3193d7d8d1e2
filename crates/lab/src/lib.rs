//! The laboratory: a modelled disk that any program can use, as one file of a FUSE mount, with a loop device on it if
//! that is wanted. Any other device can be shown in the same way ([`show`], [`ShownDevice`]).
//!
//! The walk of a request: the kernel sends it to [`server`], which hands it to the [`Disk`]. The disk keeps the contents
//! ([`Store`], sparse, in memory or in a file) and asks the modelled drive for the time; when the drive has done it, its thread
//! answers the kernel. Reads and writes of the contents cost no modelled time, and requests wait for none of it.
//! [`volatile`] notes what a power cut could still take, and makes the cut. A [`Client`] in another process reads the state of a
//! running disk and commands it by two further files of the mount.
//!
//! A figure that was measured here is that of a *modelled* drive, and says so with the line of its model.
//!
//! [`run()`] does a workload on a directory, [`compare`] many of them on filesystems in turn, and [`Report`] makes a page of
//! their results. These are left out without the feature `work`.
//! Must not know: the inside of any filesystem. They are made, mounted and examined by their own programs, brindle among them.

mod activity;
mod client;
#[cfg(feature = "work")]
pub mod compare;
mod disk;
mod error;
mod model;
#[cfg(feature = "work")]
pub mod plan;
#[cfg(test)]
mod rates;
#[cfg(feature = "work")]
mod report;
#[cfg(feature = "work")]
mod run;
mod serve;
mod server;
mod shown;
mod status;
mod store;
mod volatile;

pub use activity::{Activity, Touched};
pub use client::Client;
pub use disk::{Answer, Disk};
pub use error::LabError;
pub use model::{KEYS, Key, Model, ModelError, PRESETS, Preset};
#[cfg(feature = "work")]
pub use report::Report;
#[cfg(feature = "work")]
pub use run::{
    Case, Defaults, Direction, DiskCounts, DiskRecord, EMPTY_FILES, FileKind, Mode, Order, Phase,
    PhaseRecord, Remount, RunOptions, RunRecord, Suite, is_poor, run,
};
pub use serve::{DiskOptions, Ending, ServedDisk, ShowOptions, serve, show};
pub use shown::{ShownDevice, ShownDisk};
pub use status::{Command, Cut, Status};
pub use store::Store;
pub use volatile::{CutMode, CutReport};
