//! Mounts whose server does not answer: stopped, or waiting for a disk that never answers itself.
//!
//! A process that asks such a server waits without an end, and can't be killed. So another process asks each mount for its label
//! first, and is left behind if it does not end.

use brindle_uapi::mount_table::{self, Mount};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time that a server has for an answer. It answers from memory, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval of looking.
const PAUSE: Duration = Duration::from_millis(2);

/// Mounts that did not answer this process: they are waited for once.
static SILENT: OnceLock<Vec<Mount>> = OnceLock::new();

/// The table of mounts without those of brindle that do not answer, which are warned of: for commands that look for a pool among all
/// mounts. A path that the caller names is asked all the same.
pub(crate) fn answering() -> Vec<Mount> {
    let mut mounts = mount_table::read().unwrap_or_default();
    let silent = SILENT.get_or_init(|| {
        let silent = silent_among(mounts.iter().filter(|mount| mount.is_ours()));
        for mount in &silent {
            tracing::warn!(
                "{}: left out, for the process that serves the mount does not answer",
                mount.mountpoint.display()
            );
        }
        silent.into_iter().cloned().collect()
    });
    mounts.retain(|mount| !silent.iter().any(|other| mount.is_of(other)));
    mounts
}

/// Those of these mounts that do not answer, one of each filesystem.
pub(super) fn silent_among<'m>(mounts: impl Iterator<Item = &'m Mount>) -> Vec<&'m Mount> {
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
