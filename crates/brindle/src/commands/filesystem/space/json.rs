//! The same as JSON.

use super::room::{class_name, hint_text, mode_name};
use super::{Facts, pieces_of};
use crate::commands::health::Health;
use brindle_admin::BlockGroupType;
use brindle_admin::usage::{DeviceUsage, KindUsage, Place, Usage};
use brindle_policy::tier::Content;
use brindle_uapi::message::SpaceReport;
use serde_json::{Value, json};

/// Document of `filesystem df`.
pub(super) fn df(usage: &Usage) -> Value {
    json!({ "uuid": usage.fsid.to_string(), "groups": kinds(usage), "global_reserve": reserve(usage) })
}

/// Document of `filesystem usage`.
pub(super) fn usage(facts: &Facts) -> Value {
    let usage = &facts.usage;
    let overall = usage.overall();
    let report = usage.report.as_ref();
    json!({
        "uuid": usage.fsid.to_string(),
        "overall": {
            "total_bytes": overall.size,
            "allocated_bytes": overall.allocated,
            "unallocated_bytes": overall.unallocated,
            "missing_bytes": overall.missing,
            "slack_bytes": overall.slack,
            "used_bytes": overall.used,
            "free_estimated_bytes": overall.free,
            "free_estimated_min_bytes": overall.free_min,
            "free_statfs_bytes": usage.free_statfs,
            "data_ratio": overall.ratios.data,
            "metadata_ratio": overall.ratios.metadata,
            "global_reserve": reserve(usage),
            "multiple_profiles": usage.contents_of_several_profiles(),
        },
        "groups": kinds(usage),
        "devices": usage.devices.iter().map(|device| device_json(device, facts)).collect::<Vec<_>>(),
        "placement": report.map(|report| mode_name(report.placement)),
        "waiting_bytes": report.map(|report| report.waiting_bytes),
        "room": report.map(room),
        "small_file_bytes": report.map(|report| report.small_file_bytes),
        "read_only_reason": facts.read_only,
    })
}

/// Document of `device usage`.
pub(super) fn devices(facts: &Facts) -> Value {
    let devices: Vec<Value> = facts.usage.devices.iter().map(|device| device_json(device, facts)).collect();
    json!({ "uuid": facts.usage.fsid.to_string(), "devices": devices })
}

fn kinds(usage: &Usage) -> Value {
    let sum = |sum: &KindUsage| {
        let place = |(place, [total, used]): (&_, &[u64; 2])| json!({ "class": class_of(*place), "total_bytes": total, "used_bytes": used });
        json!({
            "content": Content::of(sum.kind).to_string(),
            "profile": profile_of(sum.kind),
            "total_bytes": sum.total_bytes,
            "used_bytes": sum.used_bytes,
            "raw_bytes": sum.raw_bytes,
            "classes": sum.classes.iter().map(place).collect::<Vec<_>>(),
        })
    };
    Value::Array(usage.kinds.iter().map(sum).collect())
}

/// A profile, in the word of all reports.
fn profile_of(kind: BlockGroupType) -> Option<String> {
    kind.profile().map(|profile| profile.to_string())
}

/// The class of block groups; `None` if they lie on devices of both.
fn class_of(place: Place) -> Option<&'static str> {
    match place {
        Place::Fast => Some("fast"),
        Place::Bulk => Some("bulk"),
        Place::Both => None,
    }
}

fn reserve(usage: &Usage) -> Value {
    usage.reserve.map_or(Value::Null, |[total, used]| json!({ "total_bytes": total, "used_bytes": used }))
}

fn device_json(device: &DeviceUsage, facts: &Facts) -> Value {
    let devid = device.devid.get();
    let reported = facts.usage.report.iter().flat_map(|report| &report.devices);
    let reported = reported.into_iter().find(|reported| reported.devid == devid);
    let piece = |((kind, stripes), bytes): ((BlockGroupType, usize), u64)| {
        json!({
            "content": Content::of(kind).to_string(),
            "profile": profile_of(kind),
            "stripes": stripes,
            "allocated_bytes": bytes,
        })
    };
    json!({
        "devid": devid,
        "path": (!device.path.as_os_str().is_empty()).then(|| device.path.display().to_string()),
        "missing": device.is_missing,
        "total_bytes": device.total_bytes,
        "slack_bytes": device.slack_bytes,
        "allocated_bytes": device.allocated_bytes,
        "unallocated_bytes": device.unallocated_bytes(),
        "class": reported.map_or_else(|| device.class.to_string(), |device| class_name(device).to_owned()),
        "class_name": device.listed_class.as_ref().map(|(name, _)| name),
        "rank": device.listed_class.as_ref().map(|(_, rank)| rank),
        "allocation_hint": reported.map(|device| hint_text(device.stored_type)),
        "groups": pieces_of(device).into_iter().map(piece).collect::<Vec<_>>(),
        "health": facts.health.get(&devid).map(Health::json),
    })
}

fn room(report: &SpaceReport) -> Value {
    let room = |[preferred, all]: [u64; 2]| json!({ "preferred_room_bytes": preferred, "room_bytes": all });
    json!({
        "data": room(report.data_room),
        "metadata": room(report.metadata_room),
        "fast_data_room_bytes": report.fast_data_room,
    })
}
