//! `--force`: the end of a connection whose server is dead, and was killed in a way that keeps it from ending.
//!
//! Everything that asks such a mount hangs. An abort frees it; on a live server it would lose what the kernel has not written
//! back yet, so that it is for dead ones alone.

use crate::commands::processes::is_served;
use anyhow::{Context, Result};
use brindle_fuse::Abort;
use brindle_uapi::mount_table::Mount;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Time for an answer of a server, which may be slow, or not seen, as in a container.
const PATIENCE: Duration = Duration::from_secs(10);

/// Aborts the connection of a mount, unless its server lives.
pub(super) fn abort_if_dead(mount: &Mount) -> Result<()> {
    let place = mount.mountpoint.display();
    // In this order: a process that is being killed is seen to serve it for a moment.
    if is_answered(mount) || is_served(mount) {
        tracing::debug!("{place}: not forced, for the mount answers, or its server lives");
        return Ok(());
    }
    let failed =
        || format!("{place}: its server is dead, and the connection can't be aborted; root can do that");
    let connection = mount.connection().with_context(failed)?;
    Abort::open(connection).and_then(|abort| abort.run()).with_context(failed)
}

/// Returns true if the mount answers, be it that its server is gone.
fn is_answered(mount: &Mount) -> bool {
    let (place, (answer, answered)) = (mount.mountpoint.clone(), channel());
    // It ends with the abort.
    std::thread::spawn(move || answer.send(rustix::fs::statfs(&place).is_ok()));
    answered.recv_timeout(PATIENCE).is_ok()
}
