//! Pools of which some may be on mounts whose server does not answer.

use super::gather::{self, Judged};
use crate::commands::silent::silent_among;
use anyhow::Result;
use brindle_uapi::mount_table::{self, KERNEL_TYPE, Mount};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pools behind directories and on devices, or all that are found, as [`gather::pools`] has them. Mounts that do not answer are told; of
/// the others, where all are meant, those that are mounted.
pub(crate) fn pools(paths: &[PathBuf]) -> Result<Vec<Judged>> {
    let mounts = mount_table::read().unwrap_or_default();
    let meant = |mount: &&Mount| paths.is_empty() || paths.iter().any(|path| is_on(path, mount, &mounts));
    let silent = silent_among(mounts.iter().filter(|mount| mount.is_ours()).filter(meant));
    if silent.is_empty() {
        return gather::pools(paths);
    }
    let is_silent = |mount: &Mount| silent.iter().any(|other| other.device == mount.device);
    let others: Vec<PathBuf> = match paths {
        [] => {
            let pools = mounts.iter().filter(|mount| mount.is_ours() || mount.kind == KERNEL_TYPE);
            let mut seen = BTreeSet::new();
            let first = pools.filter(|mount| !is_silent(mount) && seen.insert(&mount.device));
            first.map(|mount| mount.mountpoint.clone()).collect()
        }
        paths => {
            let answers =
                |path: &&PathBuf| !mounts.iter().any(|mount| is_silent(mount) && is_on(path, mount, &mounts));
            paths.iter().filter(answers).cloned().collect()
        }
    };
    let mut judged: Vec<Judged> =
        silent.iter().map(|mount| Judged::without_answer(places_of(mount, &mounts))).collect();
    if !others.is_empty() {
        judged.extend(gather::pools(&others)?);
    }
    Ok(judged)
}

/// The mount points of the filesystem of a mount.
fn places_of(mount: &Mount, mounts: &[Mount]) -> Vec<PathBuf> {
    let of_server = mounts.iter().filter(|other| other.device == mount.device);
    of_server.map(|mount| mount.mountpoint.clone()).collect()
}

/// Returns true if a path is on a mount, by its words alone: to look at it is to ask the server.
fn is_on(path: &Path, mount: &Mount, mounts: &[Mount]) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    mount_table::holding(mounts, &path).is_some_and(|holding| holding.device == mount.device)
}
