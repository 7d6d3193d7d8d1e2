//! Facts of pools as JSON: the vocabulary of `status`, and of the labels of `metrics`.

use super::gather::Judged;
use super::words;
use crate::commands::holder;
use brindle_admin::health::{
    DeviceHealth, ERROR_KINDS, Finding, GroupHealth, Job, PoolHealth, PoolServer, RoomHealth, Severity,
    Writing,
};
use brindle_care::scrub::ScrubRecord;
use serde_json::{Value, json};

/// All pools.
pub(super) fn document(pools: &[Judged]) -> Value {
    let worst = pools.iter().map(Judged::severity).max().unwrap_or(Severity::Note);
    json!({
        "severity": worst.name(),
        "pools": pools.iter().map(pool).collect::<Vec<_>>(),
    })
}

fn pool(judged: &Judged) -> Value {
    let (health, found, held, options) = match judged {
        Judged::Known { health, findings, holder, mount_options } => {
            (health, findings, holder, mount_options)
        }
        Judged::Unknown(unknown) => {
            return json!({
                "uuid": null,
                "name": unknown.name,
                "state": unknown.state.name(),
                "severity": unknown.severity.name(),
                "mountpoints": unknown.mountpoints.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
                "findings": [{
                    "name": "unknown",
                    "severity": unknown.severity.name(),
                    "text": unknown.text,
                    "remedy": unknown.remedy,
                }],
            });
        }
    };
    json!({
        "uuid": health.fsid.to_string(),
        "label": health.label,
        "state": judged.state().name(),
        "severity": judged.severity().name(),
        "server": server(health.server),
        "mountpoints": health.mountpoints.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "mount_options": options,
        "is_written": health.writing == Writing::Allowed,
        "read_only_reason": match &health.writing {
            Writing::Refused(why) => Some(why),
            Writing::Allowed | Writing::Declined => None,
        },
        "devices": health.devices.iter().map(device).collect::<Vec<_>>(),
        "groups": health.space.groups.iter().map(group).collect::<Vec<_>>(),
        "data": room(&health.space.data),
        "metadata": room(&health.space.metadata),
        "fast_data_room_bytes": health.space.fast_data_bytes,
        "jobs": health.jobs.iter().map(job).collect::<Vec<_>>(),
        "scrub": health.scrub.as_ref().map(|(record, is_running)| scrub(record, *is_running)),
        "write_back": health.write_back.as_ref().map(|tier| json!({
            "waiting_bytes": tier.waiting_bytes,
            "capacity_bytes": tier.capacity_bytes,
            "waiting_since": tier.since,
            "obstacle": tier.obstacle,
        })),
        "holder": held.as_deref().map(holder::as_json),
        "findings": found.iter().map(|it| finding(it, health)).collect::<Vec<_>>(),
    })
}

/// Name of a server.
pub(crate) fn server(server: PoolServer) -> &'static str {
    match server {
        PoolServer::Kernel => "kernel",
        PoolServer::Brindle => "brindle",
        PoolServer::None => "none",
    }
}

/// State of a device in a word.
pub(crate) fn device_state(device: &DeviceHealth) -> &'static str {
    match () {
        () if device.is_missing => "missing",
        () if device.is_stale => "left_out",
        () if device.is_behind => "failing",
        () if device.errors.is_some_and(|errors| errors != [0; 5]) => "failing",
        () => "ok",
    }
}

fn device(device: &DeviceHealth) -> Value {
    let mut value = json!({
        "devid": device.devid.get(),
        "uuid": device.uuid.to_string(),
        "path": (!device.path.is_empty()).then_some(&device.path),
        "state": device_state(device),
        "class": device.class.map(|class| class.to_string()),
        "total_bytes": device.total_bytes,
        "allocated_bytes": device.allocated_bytes,
    });
    for (index, name) in ERROR_KINDS.iter().enumerate() {
        value[format!("{name}_errors")] = device.errors.map(|errors| errors[index]).into();
    }
    value
}

/// Block groups of one content, profile and class.
pub(crate) fn group(group: &GroupHealth) -> Value {
    json!({
        "content": group.content_name(),
        "profile": group.profile_name(),
        "class": group.class.map(|class| class.to_string()),
        "total_bytes": group.total_bytes,
        "used_bytes": group.used_bytes,
    })
}

fn room(room: &RoomHealth) -> Value {
    json!({
        "used_bytes": room.used_bytes,
        "room_bytes": room.room_bytes,
        "preferred_room_bytes": room.preferred_bytes,
        "used_percent": room.percent(),
    })
}

/// A job.
pub(crate) fn job(job: &Job) -> Value {
    json!({ "name": job.name, "state": if job.is_running { "running" } else { "paused" }, "percent": job.percent() })
}

fn scrub(record: &ScrubRecord, is_running: bool) -> Value {
    let counts = record.report.counts();
    json!({
        "started": record.started,
        "is_running": is_running,
        "duration_seconds": record.duration().as_secs_f64(),
        "total_bytes": record.report.devices.iter().map(|device| device.total_bytes).sum::<u64>(),
        "done_bytes": record.report.devices.iter().map(|device| device.done_bytes).sum::<u64>(),
        "corrected_errors": counts.corrected_errors,
        "correctable_errors": counts.correctable_errors,
        "uncorrectable_errors": counts.uncorrectable_errors,
    })
}

fn finding(finding: &Finding, health: &PoolHealth) -> Value {
    json!({
        "name": finding.name(),
        "severity": finding.severity().name(),
        "text": words::finding(finding),
        "remedy": words::remedy(finding, health),
    })
}
