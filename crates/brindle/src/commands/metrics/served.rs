//! Metrics of a mount of brindle: write-back, commits and fsyncs since it was made.

use super::exposition::{Exposition, Kind, Number};
use brindle_admin::health::PoolHealth;
use brindle_admin::{CacheLines, WriteBack};
use brindle_cache::CacheCounters;
use brindle_fs::{CommitPhase, SyncMeasure, Unlogged};
use brindle_uapi::message::{CommitsReport, Histogram};

/// Adds the metrics that only pools of brindle have.
pub(super) fn add_served(out: &mut Exposition, uuid: &str, health: &PoolHealth) {
    if let Some(tier) = &health.write_back {
        add_write_back(out, uuid, tier);
    }
    add_caches(out, uuid, &health.caches);
    add_autodefrag(out, uuid, &health.autodefrag);
    if let Some(report) = &health.commits {
        add_commits(out, uuid, report);
        for (measure, histogram) in SyncMeasure::ALL.into_iter().zip(&report.histograms) {
            add_histogram(out, uuid, measure, histogram);
        }
    }
}

/// Lines of a cache that tell a state; other numbers are counters, or settings.
const CACHE_GAUGES: [(&str, &str, &str); 3] = [
    ("blocks", "brindle_cache_blocks", "Blocks that the cache of a device has room for."),
    ("cached_blocks", "brindle_cache_cached_blocks", "Blocks in the cache of a device."),
    ("dirty_blocks", "brindle_cache_dirty_blocks", "Blocks in the cache of a device that its disk lacks."),
];

fn add_caches(out: &mut Exposition, uuid: &str, caches: &[(u64, CacheLines)]) {
    for (devid, lines) in caches {
        let devid = devid.to_string();
        let number = |name: &str| {
            let line = lines.iter().find(|(found, _)| found == name);
            line.and_then(|(_, value)| value.parse::<u64>().ok())
        };
        for (name, gauge, help) in CACHE_GAUGES {
            if let Some(value) = number(name) {
                out.add((gauge, Kind::Gauge, help), &[("uuid", uuid), ("devid", &devid)], value);
            }
        }
        for (name, _) in CacheCounters::default().list() {
            if let Some(value) = number(name) {
                let events = "Counters of the cache of a device, by the names of `brindle cache stat`.";
                let labels = [("uuid", uuid), ("devid", devid.as_str()), ("name", name)];
                out.add(("brindle_cache_events_total", Kind::Counter, events), &labels, value);
            }
        }
    }
}

/// Numbers of `autodefrag`, by their names in the report.
const AUTODEFRAG: [(&str, &str, Kind, &str); 6] = [
    (
        "waiting_files",
        "brindle_autodefrag_waiting_files",
        Kind::Gauge,
        "Files with small writes that wait to be laid together.",
    ),
    (
        "parts",
        "brindle_autodefrag_parts_total",
        Kind::Counter,
        "Parts of files that autodefrag has looked at.",
    ),
    (
        "moved_extents",
        "brindle_autodefrag_moved_extents_total",
        Kind::Counter,
        "Extents that autodefrag has written anew.",
    ),
    (
        "moved_bytes",
        "brindle_autodefrag_moved_bytes_total",
        Kind::Counter,
        "Bytes of files that autodefrag has written anew.",
    ),
    (
        "shared_extents",
        "brindle_autodefrag_shared_extents_total",
        Kind::Counter,
        "Torn extents that autodefrag has left, for they are shared.",
    ),
    (
        "unnoted_writes",
        "brindle_autodefrag_unnoted_writes_total",
        Kind::Counter,
        "Small writes that autodefrag had no memory to note.",
    ),
];

fn add_autodefrag(out: &mut Exposition, uuid: &str, numbers: &[(String, u64)]) {
    for (name, metric, kind, help) in AUTODEFRAG {
        if let Some((_, value)) = numbers.iter().find(|(found, _)| found == name) {
            out.add((metric, kind, help), &[("uuid", uuid)], *value);
        }
    }
}

fn add_write_back(out: &mut Exposition, uuid: &str, tier: &WriteBack) {
    let labels = [("uuid", uuid)];
    let waiting = ("brindle_write_back_waiting_bytes", Kind::Gauge, "Data that waits on fast devices.");
    out.add(waiting, &labels, tier.waiting_bytes);
    let capacity =
        ("brindle_write_back_capacity_bytes", Kind::Gauge, "Data that could wait on fast devices.");
    out.add(capacity, &labels, tier.capacity_bytes);
    if let Some(since) = tier.since {
        let oldest = "Time since which the oldest data has waited.";
        out.add(("brindle_write_back_since_timestamp_seconds", Kind::Gauge, oldest), &labels, since);
    }
    if let Some((bytes, _)) = tier.destaged {
        let destaged = "Data that was moved from fast devices to bulk ones.";
        out.add(("brindle_write_back_destaged_bytes_total", Kind::Counter, destaged), &labels, bytes);
    }
}

fn add_commits(out: &mut Exposition, uuid: &str, report: &CommitsReport) {
    let labels = [("uuid", uuid)];
    let mut count = |name, help, value: u64| out.add((name, Kind::Counter, help), &labels, value);
    count("brindle_commits_total", "Commits.", report.commits);
    count(
        "brindle_commit_metadata_bytes_total",
        "Tree blocks of commits, each counted once.",
        report.total.metadata_bytes,
    );
    let [syncs, fsyncs, ..] = report.log;
    count("brindle_log_writes_total", "Writes of the log.", syncs);
    count("brindle_log_fsyncs_total", "Fsyncs that the log was written for.", fsyncs);
    let longest = ("brindle_commit_longest_seconds", Kind::Gauge, "Time of the longest commit.");
    out.add(longest, &labels, Number::nanoseconds(report.longest_ns));
    for (phase, nanoseconds) in CommitPhase::ALL.iter().zip(report.total.phases_ns) {
        let phases = ("brindle_commit_seconds_total", Kind::Counter, "Time of commits by phase.");
        out.add(phases, &[("uuid", uuid), ("phase", phase.name())], Number::nanoseconds(nanoseconds));
    }
    for (why, commits) in Unlogged::ALL.iter().zip(report.log_commits) {
        let instead = ("brindle_fsync_commits_total", Kind::Counter, "Fsyncs that were commits, by reason.");
        out.add(instead, &[("uuid", uuid), ("reason", why.name())], commits);
    }
}

fn add_histogram(out: &mut Exposition, uuid: &str, measure: SyncMeasure, histogram: &Histogram) {
    let (name, help, number): (_, _, fn(u64) -> Number) = match measure {
        SyncMeasure::Time => {
            ("brindle_fsync_seconds", "Time of fsyncs and other syncs of a file.", Number::millionths)
        }
        SyncMeasure::LockHeld => (
            "brindle_log_lock_seconds",
            "Time for which fsyncs that wrote the log kept others from it.",
            Number::millionths,
        ),
        SyncMeasure::EntryHeld => (
            "brindle_log_entry_seconds",
            "Time for which entries into the log kept others waiting.",
            Number::millionths,
        ),
        SyncMeasure::Callers => {
            ("brindle_log_write_fsyncs", "Fsyncs that a write of the log was for.", Number::from)
        }
        SyncMeasure::Bytes => ("brindle_log_write_bytes", "Size of writes of the log.", Number::from),
    };
    // Bucket N holds values below the power N of two.
    let bucket = |(index, count): (usize, &u64)| (number((1u64 << index) - 1), *count);
    let buckets: Vec<(Number, u64)> = histogram.buckets.iter().enumerate().map(bucket).collect();
    out.add_histogram((name, help), &[("uuid", uuid)], &buckets, &number(histogram.sum));
}
