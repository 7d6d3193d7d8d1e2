//! Reads of the devices of a mount of ours: pages of what one ioctl has room for, and all of them together.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Reads of a device (ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceReads {
    /// Its id; 0 for an entry that is not used.
    pub devid: u64,
    /// Reads that it has not answered yet.
    pub in_flight: u64,
    /// Ranges that it was told to fetch, and that are not read yet.
    pub expected: u64,
    /// Reads that it has answered.
    pub reads: u64,
    /// Length of these, in bytes.
    pub bytes: u64,
    /// Number of requests to the device.
    pub requests: u64,
    /// Of these, how many began where the one before had ended.
    pub local_requests: u64,
    /// End of the last one, in bytes of the device.
    pub end: u64,
    /// Recent duration of a read, in nanoseconds.
    pub latency_ns: u64,
    /// Recent time for which a read keeps the device from others, in nanoseconds.
    pub service_ns: u64,
    /// Recent speed of a stream; 0 if it is unknown.
    pub bytes_per_second: u64,
}

/// A page of the reads of a mount's devices (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReadsPage {
    /// Asked for: devices of a greater id.
    pub after_device: u64,
    /// 1 if reads are counted now.
    pub is_counted: u64,
    /// By device id; there may be more if all entries are used.
    pub devices: [DeviceReads; 180],
}

/// The reads of a mount's devices, put together from their pages.
#[derive(Clone, Debug)]
pub struct ReadsReport {
    /// Reads are counted now.
    pub is_counted: bool,
    /// By device id.
    pub devices: Vec<DeviceReads>,
}

impl ReadsPage {
    /// Enters the devices that are asked for, as many as have room. Devices are sorted by id.
    pub fn fill(&mut self, devices: &[DeviceReads]) {
        let wanted = devices.iter().filter(|device| device.devid > self.after_device);
        for (entry, device) in self.devices.iter_mut().zip(wanted) {
            *entry = *device;
        }
    }
}

impl ReadsReport {
    /// Asks for page after page, until one has room left.
    pub fn collect<E>(mut ask: impl FnMut(&mut ReadsPage) -> Result<(), E>) -> Result<Self, E> {
        let mut report = Self { is_counted: false, devices: Vec::new() };
        loop {
            let after = report.devices.last().map_or(0, |device: &DeviceReads| device.devid);
            let mut page = ReadsPage::new_zeroed();
            page.after_device = after;
            ask(&mut page)?;
            report.is_counted = page.is_counted != 0;
            let before = report.devices.len();
            report.devices.extend(page.devices.iter().filter(|device| device.devid > after));
            if report.devices.len() - before < page.devices.len() {
                return Ok(report);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn more_devices_than_a_page_holds_are_all_reported_once() {
        for count in [0, 1, 179, 180, 181, 500] {
            let device = |index| DeviceReads { devid: index * 2, reads: index, ..DeviceReads::default() };
            let all: Vec<_> = (1..=count).map(device).collect();
            let report = ReadsReport::collect(|page| {
                page.is_counted = 1;
                page.fill(&all);
                Ok::<(), Infallible>(())
            });
            let Ok(report) = report;
            assert!(report.is_counted);
            assert_eq!(report.devices, all);
        }
    }
}
