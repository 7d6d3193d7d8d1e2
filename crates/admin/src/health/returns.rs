//! Devices that were away, and whose return to the pool did not come to its end.

use super::PoolHealth;
use super::find::block_devices;
use super::members::{block_device_numbers, files_beside, open_to_look};
use crate::pool::target_mark;
use brindle_cache::look_at_device;
use brindle_care::device::{DeviceCareError, refusal_of_rejoin};
use std::path::{Path, PathBuf};

impl PoolHealth {
    /// Looks for devices that a `device rejoin` was interrupted with, or a replacement of a device that is missing: they have lost
    /// their superblocks, and have a mark instead. Where no device is missing, nothing is looked at; otherwise image files beside
    /// the devices of the pool are, and block devices if one of them is: this wakes sleeping disks.
    pub fn look_for_begun_returns(&mut self) {
        let missing: Vec<_> = self.devices.iter().filter(|device| device.is_missing).collect();
        if missing.is_empty() || self.jobs.iter().any(|job| job.is_running && job.name.starts_with("device "))
        {
            return;
        }
        let there = self.devices.iter().filter(|device| !device.path.is_empty());
        let there: Vec<&Path> = there.map(|device| Path::new(&device.path)).collect();
        let is_block_device = |path: &&Path| !block_device_numbers(path).is_empty();
        let devices = if there.iter().any(is_block_device) { block_devices() } else { Vec::new() };
        let marked = files_beside(&there)
            .into_iter()
            .chain(devices)
            .filter_map(|path| Some((target_mark(&path)?, path)));
        let mut found: Vec<_> = marked
            .filter(|(mark, _)| {
                let is_meant = missing.iter().any(|it| (it.devid, it.uuid) == (mark.devid, mark.uuid));
                mark.fsid == self.fsid && is_meant
            })
            .map(|(mark, path)| (mark.devid, path))
            .collect();
        found.sort();
        self.begun_returns = found;
    }

    /// Refusal of a missing device that was found, if it would not rejoin the pool because of what it alone has: by what can be read of
    /// the devices that are there.
    pub fn refusal_of_rejoin(&self, path: &Path) -> Option<DeviceCareError> {
        let there = self.devices.iter().filter(|device| !device.path.is_empty());
        let there: Vec<PathBuf> = there.map(|device| PathBuf::from(&device.path)).collect();
        let pool = open_to_look(&self.fsid, there.iter())?;
        refusal_of_rejoin(&pool, &look_at_device(path).ok()?)
    }
}
