//! The other devices of a pool of which some were named. Block devices are found; image files beside the named ones are told of, as
//! they may be copies.

use crate::commands::mount_options::MountOptions;
use brindle_admin::health::{Search, members};
use brindle_cache::is_no_path;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Devices and, if a block device is named, the other block devices of its pool.
pub(crate) fn with_others(named: &[PathBuf]) -> Vec<PathBuf> {
    named.iter().cloned().chain(found(named, &[], Search::WhereIncomplete)).collect()
}

/// The same, unless the options say that the named ones are used alone.
pub(crate) fn with_wanted(named: &[PathBuf], options: &MountOptions) -> Vec<PathBuf> {
    named.iter().cloned().chain(others(named, &[], options)).collect()
}

/// Block devices of the pool of these devices that were not named, but those of `except`: if one of the named is a block device
/// or, with `degraded`, one that lies behind a cache or a server; none if the named ones are used alone.
pub(crate) fn others(named: &[PathBuf], except: &[PathBuf], options: &MountOptions) -> Vec<PathBuf> {
    match (options.named_alone, options.degraded) {
        (true, _) => Vec::new(),
        (false, true) => found(named, except, Search::Always),
        (false, false) => found(named, except, Search::WhereIncomplete),
    }
}

fn found(named: &[PathBuf], except: &[PathBuf], search: Search) -> Vec<PathBuf> {
    let is_block_device =
        |path: &Path| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    // Without `degraded` a pool that lacks a device is refused, and a search would cost a connection to each server.
    let is_beside = |path: &PathBuf| is_block_device(path) || (search == Search::Always && is_no_path(path));
    // Devices that can't be read are told of when the pool is opened.
    let found = named.iter().any(is_beside).then(|| members(named, except, search).ok()).flatten();
    found.map_or(Vec::new(), |members| members.others)
}
