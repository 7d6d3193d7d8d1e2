//! The holder of a pool by its lease, in words and as JSON.

use crate::format::Civil;
use brindle_admin::Uuid;
use brindle_cache::look_at_device;
use brindle_care::device::{LeaseFound, find_leases};
use brindle_device::Device;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Later times are none, in seconds since 1970.
const YEAR_9999: i64 = 253_370_764_800;

/// The lease by which a system holds the pool on devices; those that can't be read have none.
pub(crate) fn holder_of<'p>(devices: impl IntoIterator<Item = &'p Path>) -> Option<LeaseFound> {
    let devices: Vec<Arc<dyn Device>> =
        devices.into_iter().filter_map(|path| look_at_device(path).ok()).collect();
    let found = find_leases(devices.iter().map(AsRef::as_ref));
    found.into_iter().find(|found| found.record.is_held())
}

/// Machine and process of a holder, and since when it is one.
pub(crate) fn in_words(found: &LeaseFound) -> String {
    let record = &found.record;
    let since = i64::try_from(record.since.get()).ok().filter(|since| *since < YEAR_9999);
    let since =
        since.map_or_else(String::new, |since| format!(", since {} by its clock", Civil::from_epoch(since)));
    format!("{record}{since}")
}

/// A holder, with the device that has its record.
pub(crate) fn as_json(found: &LeaseFound) -> Value {
    let record = &found.record;
    json!({
        "device": found.device,
        "host": record.host(),
        "process": record.process.pid.get(),
        "holder": Uuid(record.holder).to_string(),
        "since": record.since.get(),
        "sequence": record.sequence.get(),
        "interval_ms": record.interval_ms.get(),
    })
}
