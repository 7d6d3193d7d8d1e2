//! Flash caches among the devices of a mount of ours: facts, settings and counters, as the caches have them.

use crate::{ControlError, Mounted};

/// Facts, settings and counters of a cache, by name.
pub type CacheLines = Vec<(String, String)>;

impl Mounted {
    /// Ids of the devices that are caches, with what the caches report of themselves.
    ///
    /// # Errors
    /// A mount of the kernel; those of the mount.
    pub fn caches(&self) -> Result<Vec<(u64, CacheLines)>, ControlError> {
        let mut caches = Vec::new();
        for device in self.device_infos()? {
            let mut lines = CacheLines::new();
            // A page has as many lines as fit.
            loop {
                let page = self.setting(&format!("device/{}/{}", device.devid, lines.len()))?;
                let found = page.lines().filter_map(|line| line.split_once(' '));
                let found: CacheLines =
                    found.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                if found.is_empty() {
                    break;
                }
                lines.extend(found);
            }
            if !lines.is_empty() {
                caches.push((device.devid, lines));
            }
        }
        Ok(caches)
    }

    /// Changes a setting of one of them.
    ///
    /// # Errors
    /// A mount of the kernel; those of the mount.
    pub fn set_cache(&self, devid: u64, name: &str, value: &str) -> Result<(), ControlError> {
        self.set_setting(&format!("device/{devid}/{name}"), value)
    }
}
