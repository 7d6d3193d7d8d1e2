//! Settings of the mount, and what readers wanted of the devices.

use super::Operations;
use brindle_uapi::message::{DeviceReads, ReadsPage, Setting, field, text};
use rustix::io::Errno;
use zerocopy::FromZeros;

impl Operations {
    pub(super) fn setting(&self, mut asked: Setting) -> Result<Setting, Errno> {
        let name = std::str::from_utf8(text(&asked.name)).map_err(|_| Errno::INVAL)?;
        let value = match name {
            "metadata_defrag" => Some(self.auto_defragment.to_string()),
            _ => {
                self.remountable_setting(name).or_else(|| self.filesystem.pool().volume().read_setting(name))
            }
        };
        let value = value.ok_or(Errno::OPNOTSUPP)?;
        asked.value = field(value.as_bytes()).ok_or(Errno::OVERFLOW)?;
        Ok(asked)
    }

    pub(super) fn set_setting(&self, wanted: &Setting) -> Result<(), Errno> {
        let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| Errno::INVAL);
        let (name, value) = (utf8(text(&wanted.name))?, utf8(text(&wanted.value))?);
        if self.set_remountable_setting(name, value)? {
            return Ok(());
        }
        let volume = self.filesystem.pool().volume();
        let changed = volume.set_read_setting(name, value).ok_or(Errno::OPNOTSUPP)?;
        changed.map_err(|error| {
            tracing::warn!("{name}: {error}");
            Errno::INVAL
        })
    }

    /// The reads of devices of a greater id.
    pub(super) fn reads_page(&self, after_device: u64) -> ReadsPage {
        let (devices, is_counted) = self.filesystem.pool().volume().read_statistics();
        let reads = devices.iter().map(|(devid, found)| DeviceReads {
            devid: devid.get(),
            in_flight: found.in_flight.into(),
            expected: found.expected.into(),
            reads: found.reads,
            bytes: found.bytes,
            requests: found.requests,
            local_requests: found.local_requests,
            end: found.end,
            latency_ns: found.latency_ns,
            service_ns: found.service_ns,
            bytes_per_second: found.bytes_per_second,
        });
        let mut devices: Vec<DeviceReads> = reads.collect();
        devices.sort_by_key(|device| device.devid);
        let mut page = ReadsPage { after_device, is_counted: is_counted.into(), ..ReadsPage::new_zeroed() };
        page.fill(&devices);
        page
    }
}
