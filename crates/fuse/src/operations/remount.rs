//! Changes that a remount makes of a mount that is served.
//!
//! A mount that is remounted read-only *rests*: the kernel lets no change through, and what is done without a request ends,
//! too: commits, deletions in the background, defragmentation, times of access. What ioctls would change is refused. The pool stays
//! open to be written, so that a remount may make it writable again.

use super::durability::Durability;
use super::jobs::Jobs;
use super::mode::MountMode;
use super::streams::Streams;
use crate::errno::number;
use crate::options::MountOptions;
use brindle_fs::{Filesystem, FsError, UpkeepOwner};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Remounts of a mount that is served.
#[derive(Debug)]
pub(crate) struct Remount {
    filesystem: Arc<Filesystem>,
    mode: Arc<MountMode>,
    durability: Arc<Durability>,
    jobs: Arc<Jobs>,
    streams: Arc<Streams>,
}

impl UpkeepOwner for Remount {
    fn commit_interval(&self) -> Duration {
        self.mode.commit_interval()
    }

    fn rests(&self) -> bool {
        self.mode.is_resting()
    }

    fn is_occupied(&self) -> bool {
        self.jobs.is_any_running()
    }

    fn sync(&self) -> Result<(), FsError> {
        self.durability.sync_all()
    }
}

impl Remount {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        mode: Arc<MountMode>,
        durability: Arc<Durability>,
        jobs: Arc<Jobs>,
        streams: Arc<Streams>,
    ) -> Self {
        Self { filesystem, mode, durability, jobs, streams }
    }

    /// The value of a setting that a remount changes; `None` if it is none of those.
    pub(super) fn setting(&self, name: &str) -> Option<String> {
        match name {
            "commit" => Some(self.mode.commit_interval().as_secs().to_string()),
            "autodefrag" => Some(self.filesystem.is_autodefrag().to_string()),
            "read_only" => Some((!self.mode.is_written() || self.mode.is_resting()).to_string()),
            _ => None,
        }
    }

    /// Changes such a setting; false if it is none of those.
    pub(super) fn set(&self, name: &str, value: &str) -> Result<bool, Errno> {
        match (name, value) {
            ("commit", seconds) => {
                let interval = match seconds.parse().map_err(|_| Errno::INVAL)? {
                    0 => MountOptions::default().commit_interval,
                    seconds => Duration::from_secs(seconds),
                };
                self.mode.set_commit_interval(interval);
            }
            ("autodefrag", "true") => self.filesystem.set_autodefrag(true),
            ("autodefrag", "false") => self.filesystem.set_autodefrag(false),
            ("read_only", "true") => self.rest()?,
            ("read_only", "false") if self.mode.is_written() => {
                self.mode.set_resting(false);
            }
            ("read_only", "false") => return Err(Errno::ROFS),
            ("autodefrag" | "read_only", _) => return Err(Errno::INVAL),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes everything durable, and does nothing more by itself.
    fn rest(&self) -> Result<(), Errno> {
        if !self.mode.is_written() {
            return Ok(());
        }
        if self.streams.is_receiving() {
            return Err(Errno::BUSY);
        }
        self.jobs.rest()?;
        // From here on the upkeep begins nothing; a piece that it has begun takes nothing away that a crash would miss.
        let rested = self.mode.set_resting(true);
        // Destaging stops after the batch under way, and does not begin again.
        let alone = self.filesystem.pool().begin_exclusive("remount");
        let sync = || self.durability.sync_all().and_then(|()| self.filesystem.shutdown());
        let synced = number(alone.map(drop).map_err(Into::into).and_then(|()| sync()));
        if synced.is_err() {
            self.mode.set_resting(rested);
        }
        synced
    }
}
