//! Long jobs of the mount.

use super::balance::BalanceService;
use super::devices::DeviceService;
use super::mode::MountMode;
use super::scrub::ScrubService;
use brindle_fs::Filesystem;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;

/// Jobs of a mount, each by a thread of its own.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) balance: BalanceService,
    pub(super) devices: DeviceService,
    pub(super) scrub: ScrubService,
}

impl Jobs {
    /// Records of scrubs are kept in `scrub_directory`.
    pub(super) fn new(
        filesystem: &Arc<Filesystem>,
        mode: Arc<MountMode>,
        scrub_directory: Option<PathBuf>,
    ) -> Self {
        Self {
            balance: BalanceService::new(filesystem.clone()),
            devices: DeviceService::new(filesystem.clone()),
            scrub: ScrubService::new(filesystem.clone(), mode, scrub_directory),
        }
    }

    /// Returns true while one of them runs.
    pub(super) fn is_any_running(&self) -> bool {
        self.balance.is_running() || self.devices.is_running() || self.scrub.is_running()
    }

    /// Ends a job that can be resumed while the mount rests; another one is not interrupted.
    pub(super) fn rest(&self) -> Result<(), Errno> {
        if self.balance.is_running() || self.devices.is_running() {
            return Err(Errno::BUSY);
        }
        // A scrub may be resumed; from here on it only looks.
        self.scrub.end();
        Ok(())
    }

    /// Stops what runs, for the mount ends.
    pub(super) fn end(&self) {
        self.balance.end();
        self.devices.end();
        self.scrub.end();
    }
}
