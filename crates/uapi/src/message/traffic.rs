//! Requests of the devices of a mount of ours, and the cache of its metadata.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Requests of a device since it was opened (ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceTraffic {
    /// Its id; 0 for an entry that is not used.
    pub devid: u64,
    /// [`TRAFFIC_COUNTED`], [`TRAFFIC_ASLEEP`].
    pub flags: u64,
    /// Requests that have ended: reads, writes, flushes, discards.
    pub requests: [u64; 4],
    /// Length of these, in bytes.
    pub bytes: [u64; 4],
    /// Time of these, in nanoseconds.
    pub time_ns: [u64; 4],
    /// Requests without an answer.
    pub in_flight: u64,
    /// Time since the last request, in nanoseconds.
    pub idle_ns: u64,
}

/// The device counts its requests.
pub const TRAFFIC_COUNTED: u64 = 1;
/// Commits leave the device alone while they have nothing for it.
pub const TRAFFIC_ASLEEP: u64 = 2;

/// The cache of metadata (ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MetadataCache {
    /// Nodes that were found in it.
    pub hits: u64,
    /// Nodes that were not, and were read.
    pub misses: u64,
    /// Its nodes now, in bytes.
    pub used_bytes: u64,
    /// Upper bound on them.
    pub capacity_bytes: u64,
}

/// A page of the requests of a mount's devices (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TrafficPage {
    /// Asked for: devices of a greater id.
    pub after_device: u64,
    /// The cache of metadata.
    pub cache: MetadataCache,
    /// By device id; there may be more if all entries are used.
    pub devices: [DeviceTraffic; 120],
}

/// Requests of a mount's devices, put together from their pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficReport {
    /// The cache of metadata.
    pub cache: MetadataCache,
    /// By device id.
    pub devices: Vec<DeviceTraffic>,
}

impl TrafficPage {
    /// Enters the devices that are asked for, as many as have room. Devices are sorted by id.
    pub fn fill(&mut self, devices: &[DeviceTraffic]) {
        let wanted = devices.iter().filter(|device| device.devid > self.after_device);
        for (entry, device) in self.devices.iter_mut().zip(wanted) {
            *entry = *device;
        }
    }
}

impl TrafficReport {
    /// Asks for page after page, until one has room left.
    pub fn collect<E>(mut ask: impl FnMut(&mut TrafficPage) -> Result<(), E>) -> Result<Self, E> {
        let mut report = Self::default();
        loop {
            let after = report.devices.last().map_or(0, |device| device.devid);
            let mut page = TrafficPage::new_zeroed();
            page.after_device = after;
            ask(&mut page)?;
            report.cache = page.cache;
            let before = report.devices.len();
            report.devices.extend(page.devices.iter().filter(|device| device.devid > after));
            if report.devices.len() - before < page.devices.len() {
                return Ok(report);
            }
        }
    }
}

/// A request of a device that was recorded (ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordedRequest {
    /// Operation: 1 read, 2 write, 3 flush, 4 discard; 0 for an entry that is not used.
    pub operation: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Begin, in nanoseconds since a moment that all devices share.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
}

/// Some recorded requests of a device, which are forgotten once they were told (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordPage {
    /// Asked for: the device.
    pub devid: u64,
    /// Requests that were lost since the last page, for they were not taken in time.
    pub lost: u64,
    /// By their ends; there may be more if all entries are used.
    pub requests: [RecordedRequest; 400],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn more_devices_than_a_page_holds_are_all_reported_once() {
        for count in [0, 1, 119, 120, 121, 500] {
            let device =
                |index| DeviceTraffic { devid: index * 2, in_flight: index, ..DeviceTraffic::default() };
            let all: Vec<_> = (1..=count).map(device).collect();
            let report = TrafficReport::collect(|page| {
                page.cache.hits = 5;
                page.fill(&all);
                Ok::<(), Infallible>(())
            });
            let Ok(report) = report;
            assert_eq!((report.cache.hits, report.devices), (5, all), "{count}");
        }
    }
}
