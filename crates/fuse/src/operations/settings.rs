//! Settings of the mount, and what readers wanted of the devices.

use super::Operations;
use brindle_uapi::message::{DeviceReads, ReadsPage, Setting, field, text};
use rustix::io::Errno;
use zerocopy::FromZeros;

/// The beginning of names of settings of devices that are made of others: their id and the name proper follow.
const OF_DEVICE: &str = "device/";
/// Bytes of a page of a report: what a value has room for, with a zero at its end.
const PAGE_BYTES: usize = 1000;

/// The device of a setting, and its name there.
fn of_device(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(OF_DEVICE)?.split_once('/')
}

impl Operations {
    pub(super) fn setting(&self, mut asked: Setting) -> Result<Setting, Errno> {
        let name = std::str::from_utf8(text(&asked.name)).map_err(|_| Errno::INVAL)?;
        let value = match name {
            "metadata_defrag" => Some(self.auto_defragment.to_string()),
            _ if name.starts_with(OF_DEVICE) => self.report_page(name),
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
        if let Some((devid, of_device)) = of_device(name) {
            let changed = volume.change_device(devid, of_device, value).ok_or(Errno::NODEV)?;
            return changed.map_err(|error| {
                tracing::warn!("{error}");
                Errno::INVAL
            });
        }
        let changed = volume.set_read_setting(name, value).ok_or(Errno::OPNOTSUPP)?;
        changed.map_err(|error| {
            tracing::warn!("{name}: {error}");
            Errno::INVAL
        })
    }

    /// Lines of the report of a device that is made of others, from the one on whose number the name ends with; as many as the
    /// answer has room for.
    fn report_page(&self, name: &str) -> Option<String> {
        let (devid, first) = of_device(name)?;
        let lines = self.filesystem.pool().volume().device_report(devid)?;
        let mut page = String::new();
        for (name, value) in lines.iter().skip(first.parse().ok()?) {
            if page.len() + name.len() + value.len() + 2 > PAGE_BYTES {
                break;
            }
            page.extend([name, " ", value, "\n"]);
        }
        Some(page)
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
