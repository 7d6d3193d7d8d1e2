//! A view as an object of JSON, in one line.

use super::view::{CacheView, DeviceView, FlashCacheView, SyncView, View, WriteBackView};
use crate::output;
use brindle_device::Operation;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The line of a view.
pub(super) fn line(view: &View) -> String {
    let line = json!({
        "time": view.now,
        "interval_seconds": view.interval.as_secs_f64(),
        "uuid": view.uuid,
        "name": view.name,
        "state": view.state,
        "mountpoint": view.place,
        "server": view.server,
        "devices": view.devices.iter().map(device).collect::<Vec<_>>(),
        "groups": view.groups.iter().map(crate::commands::status::json::group).collect::<Vec<_>>(),
        "metadata_cache": view.cache.as_ref().map(cache),
        "flash_caches": view.flash_caches.iter().map(flash_cache).collect::<Vec<_>>(),
        "write_back": view.write_back.as_ref().map(write_back),
        "syncs": view.syncs.as_ref().map(syncs),
        "jobs": view.jobs.iter().map(crate::commands::status::json::job).collect::<Vec<_>>(),
    });
    output::with_header(line).to_string()
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

fn device(device: &DeviceView) -> Value {
    let operations = Operation::ALL.iter().zip(&device.rates).map(|(operation, rate)| {
        let value = json!({
            "requests_per_second": rate.requests,
            "bytes_per_second": rate.bytes,
            "latency_seconds": seconds(rate.latency),
        });
        (operation.name().to_owned(), value)
    });
    json!({
        "devid": device.devid,
        "path": (!device.path.is_empty()).then_some(&device.path),
        "class": device.class,
        "state": device.state,
        "idle_seconds": seconds(device.idle),
        "counted_by": device.counted_by.name(),
        "operations": operations.collect::<Map<_, _>>(),
        "in_flight": device.in_flight,
        "total_bytes": device.total_bytes,
        "unallocated_bytes": device.unallocated_bytes,
        "data_bytes": device.contents.map(|contents| contents.data_bytes),
        "metadata_bytes": device.contents.map(|contents| contents.metadata_bytes),
        "write_back_bytes": device.contents.map(|contents| contents.write_back_bytes),
    })
}

fn cache(cache: &CacheView) -> Value {
    json!({
        "lookups_per_second": cache.lookups,
        "hit_ratio": cache.hit_ratio,
        "hit_ratio_since_mount": cache.hit_ratio_ever,
        "used_bytes": cache.used_bytes,
        "capacity_bytes": cache.capacity_bytes,
    })
}

fn flash_cache(cache: &FlashCacheView) -> Value {
    json!({
        "devid": cache.devid,
        "read_bytes_per_second": cache.read,
        "hit_ratio": cache.hit_ratio,
        "hit_ratio_since_open": cache.hit_ratio_ever,
        "used_bytes": cache.used_bytes,
        "capacity_bytes": cache.capacity_bytes,
        "dirty_bytes": cache.dirty_bytes,
        "cleaned_bytes_per_second": cache.cleaned,
    })
}

fn write_back(tier: &WriteBackView) -> Value {
    json!({
        "mode": tier.mode,
        "waiting_bytes": tier.waiting_bytes,
        "capacity_bytes": tier.capacity_bytes,
        "oldest_seconds": seconds(tier.age),
        "destaged_bytes_per_second": tier.destaged,
    })
}

fn syncs(syncs: &SyncView) -> Value {
    json!({
        "fsyncs_by_log_per_second": syncs.by_log,
        "fsyncs_by_commit_per_second": syncs.by_commit,
        "log_writes_per_second": syncs.log_writes,
        "fsync_seconds_p50": seconds(syncs.percentiles.map(|it| it[0])),
        "fsync_seconds_p99": seconds(syncs.percentiles.map(|it| it[1])),
        "commits_per_second": syncs.commits,
        "longest_commit_seconds": syncs.longest_commit.as_secs_f64(),
    })
}
