//! Metrics of a mounted pool at work: requests of its devices, and its cache of metadata.

use super::exposition::{Exposition, Kind, Number};
use brindle_admin::activity::{Activity, CountedBy, DeviceActivity};
use brindle_device::Operation;

/// Adds them.
pub(super) fn add_activity(out: &mut Exposition, uuid: &str, activity: &Activity) {
    activity.devices.iter().for_each(|device| add_device(out, uuid, device));
    let Some(cache) = activity.cache else { return };
    let labels = [("uuid", uuid)];
    let mut count = |name, help, value: u64| out.add((name, Kind::Counter, help), &labels, value);
    count("brindle_metadata_cache_hits_total", "Tree blocks that were found in memory.", cache.hits);
    count("brindle_metadata_cache_misses_total", "Tree blocks that were read.", cache.misses);
    let mut gauge = |name, help, value: u64| out.add((name, Kind::Gauge, help), &labels, value);
    gauge("brindle_metadata_cache_used_bytes", "Tree blocks in memory.", cache.used_bytes);
    gauge(
        "brindle_metadata_cache_capacity_bytes",
        "Upper bound on tree blocks in memory.",
        cache.capacity_bytes,
    );
}

fn add_device(out: &mut Exposition, uuid: &str, device: &DeviceActivity) {
    if device.counted_by == CountedBy::Nothing {
        return;
    }
    let devid = device.devid.to_string();
    let labels = [("uuid", uuid), ("devid", devid.as_str())];
    for (operation, tally) in Operation::ALL.iter().zip(&device.tallies) {
        // The kernel's are of all processes.
        let labels =
            [&labels[..], &[("operation", operation.name()), ("counted_by", device.counted_by.name())]]
                .concat();
        let requests =
            "Requests of a device by operation: those of the kernel, or those that the mount made.";
        out.add(("brindle_device_requests_total", Kind::Counter, requests), &labels, tally.requests);
        let bytes = "Bytes of the requests of a device.";
        out.add(("brindle_device_request_bytes_total", Kind::Counter, bytes), &labels, tally.bytes);
        let time = "Time of the requests of a device; those at the same time add up.";
        let seconds = Number::nanoseconds(tally.time_ns);
        out.add(("brindle_device_request_seconds_total", Kind::Counter, time), &labels, seconds);
    }
    let in_flight = ("brindle_device_in_flight", Kind::Gauge, "Requests of a device without an answer.");
    out.add(in_flight, &labels, device.in_flight);
    let asleep = "1 if commits leave a device alone while they have nothing for it.";
    out.add(("brindle_device_asleep", Kind::Gauge, asleep), &labels, device.is_asleep);
}
