//! Errors of the laboratory.

use crate::model::ModelError;
use brindle_transport::MountError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason for which a modelled disk could not be made, reached or ended.
#[derive(Debug, Error)]
pub enum LabError {
    /// No model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A size that no disk has.
    #[error("{0} bytes: the size of a disk is a multiple of 4096 bytes, from 1 MiB to 8 EiB")]
    Size(u64),
    /// The contents.
    #[error("cannot keep the contents in {place}: {source}")]
    Store {
        /// The path, or memory.
        place: String,
        /// The host's reason.
        source: io::Error,
    },
    /// The place is no directory that can be mounted on.
    #[error("cannot mount on {path}: {source}")]
    Mountpoint {
        /// The path.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// The mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The threads.
    #[error("cannot serve the disk: {0}")]
    Serve(#[source] io::Error),
    /// The loop device.
    #[error("cannot attach a loop device to {path}: {source}")]
    Attach {
        /// The disk.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A property of the loop device.
    #[error("cannot set queue/{property} of {device} to {value}: {source}")]
    Queue {
        /// The loop device.
        device: PathBuf,
        /// Name of the property.
        property: &'static str,
        /// Its value.
        value: &'static str,
        /// The host's reason.
        source: io::Error,
    },
    /// The loop device is in use, or can't be detached.
    #[error("cannot detach {device}: {source}")]
    Detach {
        /// The loop device.
        device: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// No disk there.
    #[error("{0}: no modelled disk is mounted there; \"brindle lab disk\" makes one")]
    NoDisk(PathBuf),
    /// The disk is served no longer.
    #[error("{0}: the process that served this disk is gone; unmount it")]
    Gone(PathBuf),
    /// A command was refused, or the state could not be read.
    #[error("{path}: {source}")]
    Control {
        /// The file.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A state of another version.
    #[error("{path}: line \"{line}\" is not understood: the disk is served by another version")]
    Status {
        /// The file.
        path: PathBuf,
        /// The line.
        line: String,
    },
    /// A workload.
    #[error("cannot run in {path}: {source}")]
    Run {
        /// The directory of the run.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A program that a workload needs.
    #[error("the suite {suite} needs {program}, which is not installed")]
    NoProgram {
        /// Name of the suite.
        suite: &'static str,
        /// The program.
        program: &'static str,
    },
    /// The disk has ended, its server has not.
    #[error("the disk is unmounted, but process {0}, which served it, goes on: it is still in use elsewhere")]
    Lasts(u64),
    /// The power is off.
    #[error("{0}: the power of this disk is off; \"brindle lab restore\" turns it on")]
    IsOff(PathBuf),
    /// The power is on.
    #[error("{0}: the power of this disk is on")]
    IsOn(PathBuf),
}
