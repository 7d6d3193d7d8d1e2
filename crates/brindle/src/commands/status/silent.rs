//! Mounts whose server does not answer: stopped, or waiting for a disk that never answers itself.
//!
//! A process that asks such a server waits without an end, and can't be killed. So another process asks each mount for its label
//! first, and is left behind if it does not end.

use super::gather::{self, Judged};
use anyhow::Result;
use brindle_uapi::mount_table::{self, KERNEL_TYPE, Mount};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time that a server has for an answer. It answers from memory, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval of looking.
const PAUSE: Duration = Duration::from_millis(2);

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
        silent.iter().map(|mount| Judged::without_answer(&mount.mountpoint)).collect();
    if !others.is_empty() {
        judged.extend(gather::pools(&others)?);
    }
    Ok(judged)
}

/// Returns true if a path is on a mount, by its words alone: to look at it is to ask the server.
fn is_on(path: &Path, mount: &Mount, mounts: &[Mount]) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    mount_table::holding(mounts, &path).is_some_and(|holding| holding.device == mount.device)
}

/// Those of these mounts that do not answer, one of each filesystem.
fn silent_among<'m>(mounts: impl Iterator<Item = &'m Mount>) -> Vec<&'m Mount> {
    let mut seen = BTreeSet::new();
    let first = mounts.filter(|mount| seen.insert(&mount.device));
    let mut asked: Vec<(&Mount, Child)> = first.filter_map(|mount| Some((mount, ask(mount)?))).collect();
    let end = Instant::now() + PATIENCE;
    loop {
        // What can't be waited for has not been silent.
        asked.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        if asked.is_empty() || Instant::now() >= end {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for (_, child) in &mut asked {
        // It ends with the silence, if not now.
        let _ = child.kill();
    }
    asked.into_iter().map(|(mount, _)| mount).collect()
}

/// A process that asks a mount for its label.
fn ask(mount: &Mount) -> Option<Child> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["-q", "filesystem", "label"]).arg(&mount.mountpoint);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}
