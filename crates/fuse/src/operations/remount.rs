//! Changes that a remount makes of a mount that is served.
//!
//! A mount that is remounted read-only *rests*: the kernel lets no change through, and what is done without a request ends,
//! too: commits, deletions in the background, defragmentation, times of access. What ioctls would change is refused. The pool stays
//! open to be written, so that a remount may make it writable again.

use super::{Operations, number};
use crate::MountOptions;
use brindle_fs::{FsError, UpkeepOwner};
use brindle_uapi::verb::Effect;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The part of the options of a mount that a remount changes.
#[derive(Debug)]
pub(super) struct Remountable {
    commit_interval_ms: AtomicU64,
    rests: AtomicBool,
}

impl Remountable {
    pub(super) fn new(commit_interval: Duration) -> Self {
        let remountable = Self { commit_interval_ms: AtomicU64::new(0), rests: AtomicBool::new(false) };
        remountable.set_commit_interval(commit_interval);
        remountable
    }

    fn set_commit_interval(&self, interval: Duration) {
        let milliseconds = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.commit_interval_ms.store(milliseconds, Ordering::Relaxed);
    }
}

impl UpkeepOwner for Operations {
    fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.remountable.commit_interval_ms.load(Ordering::Relaxed))
    }

    fn rests(&self) -> bool {
        self.is_resting()
    }

    fn sync(&self) -> Result<(), FsError> {
        self.sync_all()
    }
}

impl Operations {
    /// Returns true if the mount was remounted read-only.
    pub(crate) fn is_resting(&self) -> bool {
        self.remountable.rests.load(Ordering::Relaxed)
    }

    /// Refuses an ioctl that would change something of a mount that rests.
    pub(super) fn require_awake(&self, effect: Effect) -> Result<(), Errno> {
        if self.is_resting() && effect != Effect::Nothing { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// The value of a setting that a remount changes; `None` if it is none of those.
    pub(super) fn remountable_setting(&self, name: &str) -> Option<String> {
        match name {
            "commit" => Some(self.commit_interval().as_secs().to_string()),
            "read_only" => Some((!self.is_written() || self.is_resting()).to_string()),
            _ => None,
        }
    }

    /// Changes such a setting; false if it is none of those.
    pub(super) fn set_remountable_setting(&self, name: &str, value: &str) -> Result<bool, Errno> {
        match (name, value) {
            ("commit", seconds) => {
                let interval = match seconds.parse().map_err(|_| Errno::INVAL)? {
                    0 => MountOptions::default().commit_interval,
                    seconds => Duration::from_secs(seconds),
                };
                self.remountable.set_commit_interval(interval);
            }
            ("read_only", "true") => self.rest()?,
            ("read_only", "false") if self.is_written() => {
                self.remountable.rests.store(false, Ordering::Relaxed);
            }
            ("read_only", "false") => return Err(Errno::ROFS),
            ("read_only", _) => return Err(Errno::INVAL),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes everything durable, and does nothing more by itself.
    fn rest(&self) -> Result<(), Errno> {
        if !self.is_written() {
            return Ok(());
        }
        if self.balance.is_running() || self.devices.is_running() {
            return Err(Errno::BUSY);
        }
        // A scrub may be resumed; from here on it only looks.
        self.scrub.end();
        // From here on the upkeep begins nothing; a piece that it has begun takes nothing away that a crash would miss.
        let rested = self.remountable.rests.swap(true, Ordering::Relaxed);
        // Destaging stops after the batch under way, and does not begin again.
        let alone = self.filesystem.pool().begin_exclusive("remount");
        let sync = || self.sync_all().and_then(|()| self.filesystem.shutdown());
        let synced = number(alone.map(drop).map_err(Into::into).and_then(|()| sync()));
        if synced.is_err() {
            self.remountable.rests.store(rested, Ordering::Relaxed);
        }
        synced
    }
}
