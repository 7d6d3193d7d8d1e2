//! Metrics of pools: state, space, devices, jobs and scrubs.

use super::activity::add_activity;
use super::exposition::{Exposition, Kind, Number};
use super::served::add_served;
use crate::commands::device_contents::{DeviceContents, contents_of};
use crate::commands::status::gather::Judged;
use crate::commands::status::json;
use brindle_admin::health::{
    DeviceHealth, ERROR_KINDS, Finding, PoolHealth, PoolServer, Severity, State, Writing, less_redundant,
};
use brindle_care::scrub::ScrubRecord;
use brindle_policy::tier::Content;
use std::collections::BTreeSet;

/// All metrics of these pools; of several with the same UUID, of the first.
pub(super) fn of_pools(pools: &[Judged]) -> String {
    let mut out = Exposition::default();
    let mut seen = BTreeSet::new();
    for judged in pools {
        let (name, state) = (judged.name(), judged.state());
        match judged {
            Judged::Known { health, findings, .. } => {
                let uuid = health.fsid.to_string();
                if seen.insert(uuid.clone()) {
                    add_pool(&mut out, &uuid, state, health, findings);
                }
            }
            Judged::Unknown(_) if seen.insert(name.clone()) => {
                let info = (
                    "brindle_pool_unknown",
                    Kind::Gauge,
                    "Pools that can't be asked, by UUID or mount point.",
                );
                out.add(info, &[("name", &name), ("state", state.name())], 1);
            }
            Judged::Unknown(_) => {}
        }
    }
    out.text()
}

fn add_pool(out: &mut Exposition, uuid: &str, state: State, health: &PoolHealth, findings: &[Finding]) {
    let places: Vec<String> = health.mountpoints.iter().map(|path| path.display().to_string()).collect();
    let labels = [
        ("uuid", uuid),
        ("label", &health.label),
        ("server", json::server(health.server)),
        ("mountpoint", places.first().map_or("", String::as_str)),
    ];
    out.add(("brindle_pool_info", Kind::Gauge, "Names of a pool."), &labels, 1);
    for other in State::ALL {
        let of_state = ("brindle_pool_state", Kind::Gauge, "1 for the state of a pool, 0 for the others.");
        out.add(of_state, &[("uuid", uuid), ("state", other.name())], other == state);
    }
    for severity in [Severity::Note, Severity::Attention, Severity::Risk] {
        let count = findings.iter().filter(|finding| finding.severity() == severity).count();
        let of_severity =
            ("brindle_pool_findings", Kind::Gauge, "Number of findings about a pool by severity.");
        out.add(of_severity, &[("uuid", uuid), ("severity", severity.name())], count as u64);
    }
    let written = ("brindle_pool_written", Kind::Gauge, "1 if a pool may be written.");
    out.add(written, &[("uuid", uuid)], health.writing == Writing::Allowed);
    add_space(out, uuid, health);
    add_redundancy(out, uuid, health);
    health.devices.iter().for_each(|device| add_device(out, uuid, device));
    for job in &health.jobs {
        let labels = [("uuid", uuid), ("job", job.name.as_str())];
        out.add(
            ("brindle_job_running", Kind::Gauge, "1 for a job that runs, 0 for one that is paused."),
            &labels,
            job.is_running,
        );
        if let Some(percent) = job.percent() {
            out.add(
                ("brindle_job_done_ratio", Kind::Gauge, "Share of a job that is done."),
                &labels,
                Number::percent(percent),
            );
        }
    }
    if let Some((record, is_running)) = &health.scrub {
        add_scrub(out, uuid, record, *is_running);
    }
    add_served(out, uuid, health);
    if let Some(activity) = &health.activity {
        add_activity(out, uuid, activity);
    }
    // A mount of the kernel may have to read its devices for that.
    let place = health.mountpoints.first().filter(|_| health.server == PoolServer::Brindle);
    for (devid, contents) in place.and_then(|place| contents_of(place)).into_iter().flatten() {
        add_contents(out, uuid, devid, contents);
    }
}

fn add_space(out: &mut Exposition, uuid: &str, health: &PoolHealth) {
    let space = &health.space;
    for (content, room) in [("data", space.data), ("metadata", space.metadata)] {
        let labels = [("uuid", uuid), ("content", content)];
        out.add(
            ("brindle_pool_used_bytes", Kind::Gauge, "Bytes that a content takes, each copy counted once."),
            &labels,
            room.used_bytes,
        );
        out.add(
            ("brindle_pool_room_bytes", Kind::Gauge, "Room for a content, as if nothing else were written."),
            &labels,
            room.room_bytes,
        );
    }
    for group in &space.groups {
        let (content, profile) = (group.content_name(), group.profile_name());
        let class = group.class.map_or_else(|| "any".to_owned(), |class| class.to_string());
        let labels = [("uuid", uuid), ("content", &content), ("profile", &profile), ("class", &class)];
        out.add(
            ("brindle_block_groups_size_bytes", Kind::Gauge, "Logical length of block groups."),
            &labels,
            group.total_bytes,
        );
        out.add(
            ("brindle_block_groups_used_bytes", Kind::Gauge, "Used bytes of block groups."),
            &labels,
            group.used_bytes,
        );
    }
}

/// Contents without the copies that the profile has, and superblocks that are bad.
fn add_redundancy(out: &mut Exposition, uuid: &str, health: &PoolHealth) {
    let less = less_redundant(health);
    for content in [Content::Data, Content::Metadata, Content::System, Content::Mixed] {
        let bytes: u64 =
            less.iter().filter(|groups| groups.content == content).map(|groups| groups.used_bytes).sum();
        out.add(
            (
                "brindle_pool_less_redundant_bytes",
                Kind::Gauge,
                "Bytes in block groups with less redundancy than others of the content.",
            ),
            &[("uuid", uuid), ("content", &content.to_string())],
            bytes,
        );
    }
    if health.server == PoolServer::None {
        out.add(
            ("brindle_pool_bad_superblocks", Kind::Gauge, "Copies of superblocks that are bad."),
            &[("uuid", uuid)],
            health.bad_superblocks.len() as u64,
        );
    }
}

fn add_device(out: &mut Exposition, uuid: &str, device: &DeviceHealth) {
    let devid = device.devid.to_string();
    let class = device.class.map_or_else(|| "unknown".to_owned(), |class| class.to_string());
    let labels = [("uuid", uuid), ("devid", &devid)];
    let info = [&labels[..], &[("path", &device.path), ("class", &class)]].concat();
    out.add(("brindle_device_info", Kind::Gauge, "Path and class of a device."), &info, 1);
    out.add(
        ("brindle_device_size_bytes", Kind::Gauge, "Size of a device as the pool has it."),
        &labels,
        device.total_bytes,
    );
    out.add(
        ("brindle_device_allocated_bytes", Kind::Gauge, "Bytes of a device that belong to chunks."),
        &labels,
        device.allocated_bytes,
    );
    let states = [
        (("brindle_device_missing", Kind::Gauge, "1 if a device is not there."), device.is_missing),
        (
            (
                "brindle_device_left_out",
                Kind::Gauge,
                "1 if a device has missed transactions, and is not written.",
            ),
            device.is_stale,
        ),
        (
            ("brindle_device_behind", Kind::Gauge, "1 if a device lacks writes that it failed to take."),
            device.is_behind,
        ),
    ];
    states.into_iter().for_each(|(family, is_so)| out.add(family, &labels, is_so));
    for (kind, count) in ERROR_KINDS.iter().zip(device.errors.into_iter().flatten()) {
        let errors = (
            "brindle_device_errors_total",
            Kind::Counter,
            "Errors of a device since its counters were reset.",
        );
        out.add(errors, &[("uuid", uuid), ("devid", &devid), ("kind", kind)], count);
    }
}

fn add_contents(out: &mut Exposition, uuid: &str, devid: u64, contents: DeviceContents) {
    let devid = devid.to_string();
    let DeviceContents { data_bytes, metadata_bytes, write_back_bytes } = contents;
    for (content, bytes) in
        [("data", data_bytes), ("metadata", metadata_bytes), ("write_back", write_back_bytes)]
    {
        out.add(
            (
                "brindle_device_content_bytes",
                Kind::Gauge,
                "Bytes of a device that belong to chunks, by content; system chunks count as metadata.",
            ),
            &[("uuid", uuid), ("devid", &devid), ("content", content)],
            bytes,
        );
    }
}

fn add_scrub(out: &mut Exposition, uuid: &str, record: &ScrubRecord, is_running: bool) {
    let labels = [("uuid", uuid)];
    let sum = |of: fn(&brindle_care::scrub::DeviceProgress) -> u64| {
        record.report.devices.iter().map(of).sum::<u64>()
    };
    let millis = u64::try_from(record.duration().as_micros()).unwrap_or(u64::MAX);
    out.add(("brindle_scrub_running", Kind::Gauge, "1 while a scrub runs."), &labels, is_running);
    out.add(
        ("brindle_scrub_started_timestamp_seconds", Kind::Gauge, "Begin of the last scrub."),
        &labels,
        record.started,
    );
    out.add(
        ("brindle_scrub_duration_seconds", Kind::Gauge, "Time that the last scrub has taken."),
        &labels,
        Number::millionths(millis),
    );
    out.add(
        ("brindle_scrub_size_bytes", Kind::Gauge, "Bytes of devices that the last scrub is for."),
        &labels,
        sum(|it| it.total_bytes),
    );
    out.add(
        ("brindle_scrub_done_bytes", Kind::Gauge, "Bytes of these that it has passed."),
        &labels,
        sum(|it| it.done_bytes),
    );
    let counts = record.report.counts();
    let results = [
        ("corrected", counts.corrected_errors),
        ("correctable", counts.correctable_errors),
        ("uncorrectable", counts.uncorrectable_errors),
    ];
    for (result, count) in results {
        let errors =
            ("brindle_scrub_errors", Kind::Gauge, "Errors that the last scrub found, by its result.");
        out.add(errors, &[("uuid", uuid), ("result", result)], count);
    }
}
