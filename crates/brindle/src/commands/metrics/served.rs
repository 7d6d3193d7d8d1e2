//! Metrics of a mount of brindle: write-back, commits and fsyncs since it was made.

use super::exposition::{Exposition, Kind, Number};
use brindle_admin::WriteBack;
use brindle_admin::health::PoolHealth;
use brindle_fs::{CommitPhase, SyncMeasure, Unlogged};
use brindle_uapi::message::{CommitsReport, Histogram};

/// Adds the metrics that only pools of brindle have.
pub(super) fn add_served(out: &mut Exposition, uuid: &str, health: &PoolHealth) {
    if let Some(tier) = &health.write_back {
        add_write_back(out, uuid, tier);
    }
    if let Some(report) = &health.commits {
        add_commits(out, uuid, report);
        for (measure, histogram) in SyncMeasure::ALL.into_iter().zip(&report.histograms) {
            add_histogram(out, uuid, measure, histogram);
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
            "Time for which fsyncs held the lock of the log.",
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
