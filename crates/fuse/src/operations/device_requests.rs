//! Requests of the devices: counts, records of them, and what readers wanted.

use brindle_fs::Filesystem;
use brindle_uapi::message::{
    DeviceReads, DeviceTraffic, MetadataCache, ReadsPage, RecordPage, RecordedRequest, TRAFFIC_ASLEEP,
    TRAFFIC_COUNTED, TrafficPage,
};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::FromZeros;

/// Requests of the pool's devices.
#[derive(Debug)]
pub(super) struct DeviceRequests {
    filesystem: Arc<Filesystem>,
}

impl DeviceRequests {
    pub(super) fn new(filesystem: Arc<Filesystem>) -> Self {
        Self { filesystem }
    }

    /// Requests of devices of a greater id.
    pub(super) fn traffic_page(&self, after_device: u64) -> TrafficPage {
        let pool = self.filesystem.pool();
        let devices = pool.volume().traffic().into_iter().map(|device| {
            let traffic = device.traffic.unwrap_or_default();
            let flag = |is_set, flag| if is_set { flag } else { 0 };
            DeviceTraffic {
                devid: device.devid.get(),
                flags: flag(device.traffic.is_some(), TRAFFIC_COUNTED)
                    | flag(device.is_asleep, TRAFFIC_ASLEEP),
                requests: traffic.tallies.map(|tally| tally.requests),
                bytes: traffic.tallies.map(|tally| tally.bytes),
                time_ns: traffic.tallies.map(|tally| tally.time_ns),
                in_flight: traffic.in_flight,
                idle_ns: traffic.idle_ns,
            }
        });
        let devices: Vec<DeviceTraffic> = devices.collect();
        let (found, node_bytes) = (pool.cache_statistics(), u64::from(pool.nodesize()));
        let bytes = |nodes: usize| (nodes as u64).saturating_mul(node_bytes);
        let cache = MetadataCache {
            hits: found.hits,
            misses: found.misses,
            used_bytes: bytes(found.nodes),
            capacity_bytes: bytes(found.capacity_nodes),
        };
        let mut page = TrafficPage { after_device, cache, ..TrafficPage::new_zeroed() };
        page.fill(&devices);
        page
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

    /// Begins or ends a record of requests.
    pub(super) fn record(&self, is_on: u64) -> Result<(), Errno> {
        if is_on > 1 {
            return Err(Errno::INVAL);
        }
        self.filesystem.pool().volume().record_requests(is_on == 1);
        Ok(())
    }

    /// Recorded requests of a device, which are forgotten.
    pub(super) fn take_recorded(&self, devid: u64) -> Result<RecordPage, Errno> {
        let mut page = RecordPage { devid, ..RecordPage::new_zeroed() };
        let volume = self.filesystem.pool().volume();
        let device = volume.traffic().into_iter().find(|device| device.devid.get() == devid);
        let taken = device.and_then(|device| volume.take_recorded(device.devid, page.requests.len()));
        let (requests, lost) = taken.ok_or(Errno::NODEV)?;
        page.lost = lost;
        for (entry, request) in page.requests.iter_mut().zip(requests) {
            *entry = RecordedRequest {
                operation: request.operation.number(),
                offset: request.offset,
                length: request.length,
                begin_ns: request.begin_ns,
                end_ns: request.end_ns,
            };
        }
        Ok(page)
    }
}
