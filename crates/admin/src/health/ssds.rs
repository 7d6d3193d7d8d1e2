//! The SSDs of flash caches that the host has.

use super::find::block_devices;
use super::members::files_beside;
use brindle_cache::{CacheFacts, inspect};
use brindle_device::FileDevice;
use std::path::{Path, PathBuf};

/// SSDs with a wanted cache: of all block devices, and of the files in the directories of those that are named.
pub fn find_ssds(
    named: &[&Path],
    is_wanted: impl Fn(&Path, &CacheFacts) -> bool,
) -> Vec<(PathBuf, CacheFacts)> {
    let facts = |path: PathBuf| {
        let facts = inspect(&FileDevice::open(&path).ok()?).ok()?;
        is_wanted(&path, &facts).then_some((path, facts))
    };
    let mut found: Vec<_> =
        block_devices().into_iter().chain(files_beside(named)).filter_map(facts).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found.dedup_by(|one, other| one.0 == other.0);
    found
}
