//! Devices of a pool that are made of others, a flash cache say: their facts, settings and counters.

use crate::Volume;
use brindle_device::{Device, DeviceError};
use brindle_ondisk::DevId;
use std::sync::Arc;

impl Volume {
    /// Facts, settings and counters of a device that is made of others; none of a plain one. `None` if there is no such device.
    pub fn device_report(&self, devid: &str) -> Option<Vec<(String, String)>> {
        Some(self.device_of(devid)?.report())
    }

    /// Changes a setting of such a device; `None` if there is no such device.
    pub fn change_device(&self, devid: &str, name: &str, value: &str) -> Option<Result<(), DeviceError>> {
        Some(self.device_of(devid)?.change(name, value))
    }

    /// The device of an id as a text.
    fn device_of(&self, devid: &str) -> Option<Arc<dyn Device>> {
        let devid = DevId::new(devid.parse().ok()?);
        let pool = self.snapshot();
        let found = pool.devices.iter().find(|device| device.devid == devid && !device.is_intruder)?;
        found.device.clone()
    }
}
