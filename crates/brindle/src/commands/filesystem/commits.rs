//! `filesystem commit-stats`: what the commits of a mounted pool did, asked of the process that serves it.

use crate::format::{UnitMode, UnitOptions};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::{KernelCommits, Mounted};
use brindle_fs::{CommitPhase, SyncMeasure, TreeKind, Unlogged};
use brindle_uapi::message::{CommitReport, CommitsReport, Histogram};
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem commit-stats /mnt
    brindle filesystem commit-stats --json /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show the counters of commits of a mounted pool since it was mounted
///
/// The first four lines are those of the kernel's /sys/fs/btrfs/FSID/commit_stats; of a mount of the kernel there are no others. Of tree blocks each is counted
/// once, whatever the number of its copies. The last lines tell how often a log was written for fsyncs instead of a
/// commit, how many blocks that were, in how many runs of adjacent ones, and why it could not be: notreelog (off), items that no log
/// holds (kind), subvolumes that got or lost a name (names), extents that a log can't tell (extents), new chunks, moved data or a snapshot (layout), a log
/// that has grown large (space), a device that failed (devices). Histograms by powers of two follow: time of fsyncs and other syncs
/// of a file or directory (sync_us), time for which those that wrote the log kept others from it (lock_held_us), time for
/// which an entry into the log in memory kept others waiting (entry_held_us), fsyncs that a write of the log was for (fsyncs_per_log), and
/// its size (log_bytes).
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CommitStatsCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Any path of a mounted pool
    path: PathBuf,
    #[command(flatten)]
    units: UnitOptions,
}

/// Runs `filesystem commit-stats`.
pub(crate) fn run(command: &CommitStatsCommand) -> Result<ExitCode> {
    let mounted = Mounted::open(&command.path)?;
    if mounted.is_of_kernel() {
        return run_on_kernel(&mounted.commits_of_kernel()?, command);
    }
    let report = mounted.commits()?;
    if command.json.json {
        output::print_json(&all_json(&report))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    print(&mut out, &report, command.units.mode())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the counters of the kernel.
fn run_on_kernel(counted: &KernelCommits, command: &CommitStatsCommand) -> Result<ExitCode> {
    let values = [
        ("commits", counted.commits),
        ("last_commit_ms", counted.last_ms),
        ("max_commit_ms", counted.longest_ms),
        ("total_commit_ms", counted.total_ms),
    ];
    if command.json.json {
        let object: Map<String, Value> =
            values.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        output::print_json(&object.into())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    values.iter().try_for_each(|(name, value)| writeln!(out, "{name} {value}"))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn milliseconds(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000_000
}

fn time(report: &CommitReport) -> u64 {
    report.phases_ns.iter().fold(0, |sum, phase| sum.saturating_add(*phase))
}

fn all_json(report: &CommitsReport) -> Value {
    json!({
        "commits": report.commits,
        "last_commit_ms": milliseconds(time(&report.last)),
        "max_commit_ms": milliseconds(report.longest_ns),
        "total_commit_ms": milliseconds(time(&report.total)),
        "last": report_json(&report.last),
        "total": report_json(&report.total),
        "log": log_json(report),
        "histograms": histograms_json(report),
    })
}

fn log_json(report: &CommitsReport) -> Value {
    let commits: Map<String, Value> = Unlogged::ALL
        .iter()
        .zip(report.log_commits)
        .map(|(why, count)| (why.name().to_owned(), json!(count)))
        .collect();
    let [syncs, fsyncs, items, blocks, runs] = report.log;
    json!({
        "syncs": syncs,
        "fsyncs": fsyncs,
        "items": items,
        "blocks": blocks,
        "runs": runs,
        "commits_instead": commits,
    })
}

fn histograms_json(report: &CommitsReport) -> Value {
    let bucket = |(from, to, count)| json!({ "from": from, "to": to, "count": count });
    let histogram = |(of, counts): (&SyncMeasure, &Histogram)| {
        let buckets: Vec<Value> = used_buckets(counts).map(bucket).collect();
        let value = json!({ "count": number_of(counts), "sum": counts.sum, "buckets": buckets });
        (of.name().to_owned(), value)
    };
    SyncMeasure::ALL.iter().zip(&report.histograms).map(histogram).collect::<Map<_, _>>().into()
}

/// Number of values of a histogram.
fn number_of(histogram: &Histogram) -> u64 {
    histogram.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Buckets that are not empty, each with its least and greatest value and the number of values; the last one has no
/// greatest.
fn used_buckets(histogram: &Histogram) -> impl Iterator<Item = (u64, Option<u64>, u64)> {
    let last = histogram.buckets.len() - 1;
    let bucket = move |(index, count): (usize, &u64)| {
        let from = if index == 0 { 0 } else { 1 << (index - 1) };
        (from, (index < last).then_some((1 << index) - 1), *count)
    };
    histogram.buckets.iter().enumerate().map(bucket).filter(|(_, _, count)| *count > 0)
}

fn report_json(report: &CommitReport) -> Value {
    let blocks: Map<String, Value> = TreeKind::ALL
        .iter()
        .zip(&report.blocks)
        .map(|(kind, levels)| (kind.name().replace(' ', "_"), json!(levels)))
        .collect();
    let phases: Map<String, Value> = CommitPhase::ALL
        .iter()
        .zip(report.phases_ns)
        .map(|(phase, nanoseconds)| (phase.name().to_owned(), json!(nanoseconds)))
        .collect();
    json!({
        "blocks_by_level": blocks,
        "metadata_bytes": report.metadata_bytes,
        "references": report.references,
        "rounds": report.rounds,
        "phases_ns": phases,
    })
}

fn print(out: &mut impl Write, report: &CommitsReport, mode: UnitMode) -> io::Result<()> {
    writeln!(out, "commits {}", report.commits)?;
    writeln!(out, "last_commit_ms {}", milliseconds(time(&report.last)))?;
    writeln!(out, "max_commit_ms {}", milliseconds(report.longest_ns))?;
    writeln!(out, "total_commit_ms {}", milliseconds(time(&report.total)))?;
    writeln!(out, "\n{:<16} {:>12} {:>12}", "", "last", "total")?;
    for (index, kind) in TreeKind::ALL.iter().enumerate() {
        let sum = |report: &CommitReport| report.blocks[index].iter().sum::<u64>();
        let name = format!("{} blocks", kind.name());
        writeln!(out, "{name:<20} {:>8} {:>12}", sum(&report.last), sum(&report.total))?;
    }
    let bytes = |report: &CommitReport| mode.format(report.metadata_bytes);
    writeln!(out, "{:<16} {:>12} {:>12}", "metadata", bytes(&report.last), bytes(&report.total))?;
    let (last, total) = (&report.last, &report.total);
    writeln!(out, "{:<16} {:>12} {:>12}", "references", last.references, total.references)?;
    writeln!(out, "{:<16} {:>12} {:>12}", "rounds", last.rounds, total.rounds)?;
    for (index, phase) in CommitPhase::ALL.iter().enumerate() {
        let shown = |report: &CommitReport| format!("{} us", report.phases_ns[index] / 1000);
        writeln!(out, "{:<16} {:>12} {:>12}", phase.name(), shown(last), shown(total))?;
    }
    print_log(out, report)
}

fn print_log(out: &mut impl Write, report: &CommitsReport) -> io::Result<()> {
    writeln!(out)?;
    let counts =
        ["logs written", "fsyncs logged", "items", "blocks", "runs of blocks"].into_iter().zip(report.log);
    for (name, count) in counts {
        writeln!(out, "{name:<16} {count:>25}")?;
    }
    for (why, count) in Unlogged::ALL.iter().zip(report.log_commits).filter(|(_, count)| *count > 0) {
        let name = format!("commits ({})", why.name());
        writeln!(out, "{name:<16} {count:>25}")?;
    }
    print_histograms(out, report)
}

fn print_histograms(out: &mut impl Write, report: &CommitsReport) -> io::Result<()> {
    for (of, counts) in SyncMeasure::ALL.iter().zip(&report.histograms) {
        let number = number_of(counts);
        let Some(mean) = counts.sum.checked_div(number) else { continue };
        writeln!(out, "\n{:<16} {number:>25}  mean {mean}", of.name())?;
        for (from, to, count) in used_buckets(counts) {
            let range = to.map_or_else(|| format!("from {from}"), |to| format!("{from} to {to}"));
            writeln!(out, "{range:>16} {count:>25}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_the_range_of_their_power_of_two() {
        let mut histogram = Histogram { buckets: [0; 32], sum: 0 };
        for (bucket, count) in [(0, 4), (1, 3), (5, 2), (31, 1)] {
            histogram.buckets[bucket] = count;
        }
        let used: Vec<_> = used_buckets(&histogram).collect();
        assert_eq!(used, [(0, Some(0), 4), (1, Some(1), 3), (16, Some(31), 2), (1 << 30, None, 1)]);
        assert_eq!(number_of(&histogram), 10);
    }
}
