//! Much that is written, around the host's caches of the devices.

use crate::Volume;
use brindle_device::WritableDevice;
use std::sync::Arc;

/// Large writes go around the host's caches of the devices until it is dropped, where that can be.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct CacheBypass(Vec<Arc<dyn WritableDevice>>);

impl Volume {
    /// Has large writes go around the host's caches ([`WritableDevice::bypass_cache`]) of the devices that are there now.
    pub fn bypass_caches(&self) -> CacheBypass {
        let pool = self.snapshot();
        let devices: Vec<_> = pool.devices.iter().filter_map(|device| device.writable.clone()).collect();
        devices.iter().for_each(|device| device.bypass_cache());
        CacheBypass(devices)
    }
}

impl Drop for CacheBypass {
    fn drop(&mut self) {
        self.0.iter().for_each(|device| device.return_to_cache());
    }
}
