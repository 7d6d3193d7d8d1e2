//! Requests of the devices, as their meters count and record them.

use crate::Volume;
use crate::device::PoolDevice;
use brindle_device::{Meter, RecordedRequest, Traffic};
use brindle_ondisk::DevId;
use std::sync::atomic::Ordering::Relaxed;

/// Requests of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTraffic {
    /// The device.
    pub devid: DevId,
    /// Counts; `None` if it is missing, or does not count.
    pub traffic: Option<Traffic>,
    /// True if the last commits had nothing for it: its superblock is older than that of others.
    pub is_asleep: bool,
}

impl Volume {
    /// Requests of each device since it was opened, by devid.
    pub fn traffic(&self) -> Vec<DeviceTraffic> {
        let pool = self.snapshot();
        let members = pool.devices.iter().filter(|device| !device.is_intruder);
        let generation = |device: &PoolDevice| device.superblock_generation.load(Relaxed);
        let newest = members.clone().map(generation).max().unwrap_or(0);
        let of_one = |device: &PoolDevice| DeviceTraffic {
            devid: device.devid,
            traffic: device.device.as_ref().and_then(|device| device.meter()).map(Meter::traffic),
            is_asleep: device.device.is_some()
                && !device.has_missed_transactions()
                && generation(device) < newest,
        };
        let mut all: Vec<_> = members.map(of_one).collect();
        all.sort_by_key(|device| device.devid);
        all
    }

    /// Begins a record of the requests of all devices that are there now, or ends it.
    pub fn record_requests(&self, is_recording: bool) {
        for device in self.snapshot().devices.iter().filter_map(|device| device.device.as_ref()) {
            if let Some(meter) = device.meter() {
                meter.record(is_recording);
            }
        }
    }

    /// Takes at most this many recorded requests of a device, and the number of those that were lost for want of room.
    /// `None` if it is missing, or does not count.
    pub fn take_recorded(&self, devid: DevId, most: usize) -> Option<(Vec<RecordedRequest>, u64)> {
        let pool = self.snapshot();
        let device = pool.devices.iter().find(|device| device.devid == devid && !device.is_intruder)?;
        Some(device.device.as_ref()?.meter()?.take_recorded(most))
    }
}
