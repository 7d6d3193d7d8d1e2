//! Pools by the operands of a command, opened where nothing has mounted them.

use crate::commands::companions::{others, with_wanted};
use crate::commands::device_word::{possible_devices, refuse_twice, with_those_of_options};
use crate::commands::mount_options::MountOptions;
use crate::commands::pool::open_writable;
use crate::commands::usage::wrong_usage;
use anyhow::Result;
use brindle_admin::pool::OpenPool;
use brindle_admin::{PoolAdmin, Reach};
use brindle_cache::open_pool_device_to_write;
use brindle_fs::{Filesystem, PlacementClass};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Data that is lost with missing devices, to a command that writes the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A reason not to write it.
    Refused,
    /// Accepted: the devices come back, or are replaced.
    Accepted,
}

/// Administration of the pool of a mounted directory, or of devices.
pub(crate) fn administer(paths: &[PathBuf]) -> Result<Box<dyn PoolAdmin>> {
    administer_reached(Reach::of(paths)?)
}

/// The same; devices that are not mounted have these classes, by their names.
pub(crate) fn administer_as(
    paths: &[PathBuf],
    classes: BTreeMap<String, PlacementClass>,
) -> Result<Box<dyn PoolAdmin>> {
    let mut options = MountOptions::default();
    options.write.classes = classes;
    Reach::of(paths)?.administer(|devices| open(&devices, &options))
}

/// The pool on devices that are not mounted, with these classes.
pub(crate) fn open_as(paths: &[PathBuf], classes: BTreeMap<String, PlacementClass>) -> Result<OpenPool> {
    let mut options = MountOptions::default();
    options.write.classes = classes;
    open(paths, &options)
}

/// Administration of a pool that was reached.
pub(crate) fn administer_reached(reach: Reach) -> Result<Box<dyn PoolAdmin>> {
    reach.administer(|devices| open(&devices, &MountOptions::default()))
}

/// Administration of the pool on these devices. Those of the words that are `apart` are no members of it, by what is about to be done
/// with them.
pub(crate) fn administer_devices(
    paths: &[PathBuf],
    options: &[String],
    apart: &[PathBuf],
    loss: Loss,
) -> Result<Box<dyn PoolAdmin>> {
    Ok(Box::new(open_but(paths, options, apart, loss)?))
}

/// The pool on these devices, to be written.
pub(crate) fn open_named(paths: &[PathBuf], options: &[String]) -> Result<OpenPool> {
    open_but(paths, options, &[], Loss::Refused)
}

fn open_but(paths: &[PathBuf], options: &[String], apart: &[PathBuf], loss: Loss) -> Result<OpenPool> {
    let mut options = MountOptions::parse(options)?;
    options.accepts_loss = loss == Loss::Accepted;
    if let Some(option) = options.first_of_mount() {
        return wrong_usage(format!("unknown option '{option}': here -o takes degraded and device=PATH"));
    }
    let paths = with_those_of_options(paths, &options.devices);
    refuse_twice(paths.iter().map(PathBuf::as_path))?;
    let apart: Vec<PathBuf> = apart.iter().flat_map(|word| possible_devices(word)).collect();
    let others = others(&paths, &apart, &options);
    let all: Vec<PathBuf> = paths.into_iter().chain(others).collect();
    Ok(OpenPool(Box::new(open_named_to_write(&all, &options)?)))
}

fn open(paths: &[PathBuf], options: &MountOptions) -> Result<OpenPool> {
    Ok(OpenPool(Box::new(open_devices_to_write(paths, options)?)))
}

/// The filesystem on these devices, to be written.
pub(crate) fn open_devices_to_write(paths: &[PathBuf], options: &MountOptions) -> Result<Filesystem> {
    refuse_twice(paths.iter().map(PathBuf::as_path))?;
    open_named_to_write(&with_wanted(paths, options), options)
}

fn open_named_to_write(paths: &[PathBuf], options: &MountOptions) -> Result<Filesystem> {
    let devices = paths.iter().map(|path| open_pool_device_to_write(path)).collect::<Result<Vec<_>, _>>()?;
    open_writable(devices, options)
}
