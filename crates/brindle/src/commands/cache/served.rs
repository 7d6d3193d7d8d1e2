//! A cache in use, by the directory that it is served in.

use anyhow::{Result, bail};
use brindle_lab::{Client, LabError};
use std::path::Path;

/// The cache that is served in a directory.
pub(super) fn client_at(mountpoint: &Path) -> Result<Client> {
    match Client::of_any(mountpoint) {
        Err(LabError::NoDisk(path)) => bail!(
            "{}: no cache is served there: give the directory of `brindle cache load`, which is /run/brindle/cache/NAME \
             unless told otherwise, or the mount point of a pool with cached disks",
            path.display()
        ),
        client => Ok(client?),
    }
}

/// Settings and counters of the cache that is served in a directory.
pub(super) fn lines_at(mountpoint: &Path) -> Result<Vec<(String, String)>> {
    let text = client_at(mountpoint)?.status_text()?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}
