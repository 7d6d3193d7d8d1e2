//! Activity of a mounted pool: requests of its devices, and the cache of metadata.
//!
//! Of a block device the kernel counts the requests that reach it, of all processes and with the latency of the device. An image file has
//! no such counters; a mount of ours counts what it asks of the host there.

use crate::{ControlError, Mounted, call};
use brindle_device::host::block_traffic;
use brindle_device::{Operation, RecordedRequest, Tally, Traffic};
use brindle_ondisk::DevId;
use brindle_uapi::message::{
    DeviceTraffic, MetadataCache, RecordPage, TRAFFIC_ASLEEP, TRAFFIC_COUNTED, TrafficReport, text,
};
use brindle_uapi::verb;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use zerocopy::FromZeros;

/// Source of the counters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBy {
    /// The kernel: requests of all processes that reached the device.
    Kernel,
    /// The mount: its requests to the host, which may answer from memory.
    Mount,
    /// None.
    Nothing,
}

impl CountedBy {
    /// Name of the source.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Mount => "mount",
            Self::Nothing => "none",
        }
    }
}

/// Activity of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceActivity {
    /// The device.
    pub devid: DevId,
    /// Source of its counters.
    pub counted_by: CountedBy,
    /// Requests by [`Operation`], since the device was attached or opened.
    pub tallies: [Tally; 4],
    /// Requests without an answer.
    pub in_flight: u64,
    /// Time since the last request of the mount; `None` of the kernel's mounts.
    pub idle: Option<Duration>,
    /// True if commits of brindle leave the device alone while they have nothing for it.
    pub is_asleep: bool,
}

/// Activity of a mounted pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its devices, by their ids.
    pub devices: Vec<DeviceActivity>,
    /// The cache of metadata of a mount of brindle.
    pub cache: Option<MetadataCache>,
}

impl Mounted {
    /// Requests of the devices until now, and the cache of metadata. No device is woken.
    ///
    /// # Errors
    /// A mount that does not answer.
    pub fn activity(&self) -> Result<Activity, ControlError> {
        let what = "activity of devices";
        let report = if self.is_of_kernel() {
            None
        } else {
            let ask =
                |page: &mut _| self.explain(what, call::update::<verb::ReportTraffic>(&self.file, page));
            Some(TrafficReport::collect(ask)?)
        };
        let mut devices = Vec::new();
        for info in self.device_infos()? {
            let told = report.iter().flat_map(|report| &report.devices);
            let told = told.into_iter().find(|device| device.devid == info.devid);
            let path = Path::new(OsStr::from_bytes(text(&info.path)));
            devices.push(activity_of(DevId::new(info.devid), block_traffic(path), told));
        }
        devices.sort_by_key(|device| device.devid);
        Ok(Activity { devices, cache: report.map(|report| report.cache) })
    }

    /// Begins a record of the requests of all devices of a mount of ours, or ends it.
    ///
    /// # Errors
    /// A mount of the kernel.
    pub fn record_requests(&self, is_on: bool) -> Result<(), ControlError> {
        let what = "record of requests";
        self.only_ours(what)?;
        self.explain(what, call::set::<verb::RecordRequests>(&self.file, u64::from(is_on)))
    }

    /// Takes the requests of a device that were recorded since the last call, and the number of those that were lost because this
    /// call came too late.
    ///
    /// # Errors
    /// A mount of the kernel; a device that is missing, or does not count its requests.
    pub fn take_recorded(&self, devid: DevId) -> Result<(Vec<RecordedRequest>, u64), ControlError> {
        let what = "record of requests";
        let (mut all, mut lost) = (Vec::new(), 0);
        loop {
            let mut page = RecordPage { devid: devid.get(), ..RecordPage::new_zeroed() };
            self.explain(what, call::update::<verb::TakeRecorded>(&self.file, &mut page))?;
            lost += page.lost;
            let before = all.len();
            all.extend(page.requests.iter().filter_map(request_of));
            if all.len() - before < page.requests.len() {
                return Ok((all, lost));
            }
        }
    }
}

fn activity_of(devid: DevId, host: Option<Traffic>, told: Option<&DeviceTraffic>) -> DeviceActivity {
    let flag = |flag| told.is_some_and(|told| told.flags & flag != 0);
    let counted = told.filter(|_| flag(TRAFFIC_COUNTED));
    let of_mount = counted.map(|told| Traffic {
        tallies: std::array::from_fn(|number| Tally {
            requests: told.requests[number],
            bytes: told.bytes[number],
            time_ns: told.time_ns[number],
        }),
        in_flight: told.in_flight,
        idle_ns: told.idle_ns,
    });
    let (counted_by, traffic) = match (host, of_mount) {
        (Some(host), _) => (CountedBy::Kernel, host),
        (None, Some(mount)) => (CountedBy::Mount, mount),
        (None, None) => (CountedBy::Nothing, Traffic::default()),
    };
    DeviceActivity {
        devid,
        counted_by,
        tallies: traffic.tallies,
        in_flight: traffic.in_flight,
        idle: counted.map(|told| Duration::from_nanos(told.idle_ns)),
        is_asleep: flag(TRAFFIC_ASLEEP),
    }
}

fn request_of(told: &brindle_uapi::message::RecordedRequest) -> Option<RecordedRequest> {
    let operation = Operation::ALL.into_iter().find(|operation| operation.number() == told.operation)?;
    let (offset, length) = (told.offset, told.length);
    Some(RecordedRequest { operation, offset, length, begin_ns: told.begin_ns, end_ns: told.end_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_win_over_those_of_a_mount() {
        let told = DeviceTraffic {
            devid: 3,
            flags: TRAFFIC_COUNTED | TRAFFIC_ASLEEP,
            requests: [5, 0, 0, 0],
            idle_ns: 7,
            ..DeviceTraffic::default()
        };
        let mut host = Traffic { in_flight: 2, ..Traffic::default() };
        host.tallies[0].requests = 9;
        let both = activity_of(DevId::new(3), Some(host), Some(&told));
        assert_eq!((both.counted_by, both.tallies[0].requests, both.in_flight), (CountedBy::Kernel, 9, 2));
        assert_eq!((both.idle, both.is_asleep), (Some(Duration::from_nanos(7)), true));
        let mount = activity_of(DevId::new(3), None, Some(&told));
        assert_eq!((mount.counted_by, mount.tallies[0].requests), (CountedBy::Mount, 5));
        let uncounted = DeviceTraffic { flags: 0, ..told };
        let nothing = activity_of(DevId::new(3), None, Some(&uncounted));
        assert_eq!((nothing.counted_by, nothing.tallies[0].requests), (CountedBy::Nothing, 0));
        assert_eq!(activity_of(DevId::new(3), None, None).idle, None);
    }
}
