//! Devices of a pool that are made of others, a flash cache say: their facts, settings and counters.

use crate::Volume;
use brindle_device::{Device, DeviceError};
use brindle_ondisk::DevId;
use std::sync::Arc;

impl Volume {
    /// Facts, settings and counters of a device that is made of others; none of a plain one, or one that is missing. `None` if the
    /// pool has no such device.
    pub fn device_report(&self, devid: &str) -> Option<Vec<(String, String)>> {
        Some(self.member(devid)?.map(|device| device.report()).unwrap_or_default())
    }

    /// Changes a setting of such a device; `None` if there is no such device, or it is missing.
    pub fn change_device(&self, devid: &str, name: &str, value: &str) -> Option<Result<(), DeviceError>> {
        Some(self.member(devid)??.change(name, value))
    }

    /// The member of an id as a text, and its device, if that is there.
    fn member(&self, devid: &str) -> Option<Option<Arc<dyn Device>>> {
        let devid = DevId::new(devid.parse().ok()?);
        let pool = self.snapshot();
        let found = pool.devices.iter().find(|device| device.devid == devid && !device.is_intruder)?;
        Some(found.device.clone())
    }
}
