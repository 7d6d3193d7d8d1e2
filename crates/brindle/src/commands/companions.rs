//! The other devices of a pool of which some were named. Block devices are found; image files beside the named ones are told of, as
//! they may be copies.

use crate::commands::mount_options::MountOptions;
use brindle_admin::health::members;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Devices and, if a block device is named, the other block devices of its pool.
pub(crate) fn with_others(named: &[PathBuf]) -> Vec<PathBuf> {
    named.iter().cloned().chain(found(named)).collect()
}

/// The same, unless the options say that the named ones are used alone.
pub(crate) fn with_wanted(named: &[PathBuf], options: &MountOptions) -> Vec<PathBuf> {
    named.iter().cloned().chain(others(named, options)).collect()
}

/// Block devices of the pool of these devices, one of which is a block device, that were not named; none if the named ones are used
/// alone.
pub(crate) fn others(named: &[PathBuf], options: &MountOptions) -> Vec<PathBuf> {
    if options.named_alone { Vec::new() } else { found(named) }
}

fn found(named: &[PathBuf]) -> Vec<PathBuf> {
    let is_block_device =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    // Devices that can't be read are told of when the pool is opened.
    let found = named.iter().any(is_block_device).then(|| members(named).ok()).flatten();
    found.map_or(Vec::new(), |members| members.others)
}
