//! `lab run`: a workload on a directory, with its times and the counts of the modelled disks below.

use super::stats::{counts_json, has_late_answers};
use crate::cli::JsonOption;
use crate::commands::mkfs::parse_size;
use crate::commands::usage::wrong_usage;
use crate::format::{Align, UnitMode, write_table};
use crate::output;
use anyhow::{Context, Result};
use brindle_lab::{Client, Phase, RunOptions, Status, Suite, run as run_suite};
use brindle_uapi::mount_table;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const MANUAL: &str = "\
SUITES
  fsync  each job makes --count files of 4 KiB: written, fsync, renamed, fsync of the directory
  files  each job makes --count empty files, 10000 a directory, and removes them; with a sync after each
  reads  a file of --size is written with an fsync; then each job reads all of it in order, in pieces of 64 KiB,
         and --count blocks of 4 KiB anywhere
  objects  each job puts --count objects of 512 KiB, as an object store that journals does: a record of the object in
         a journal of 256 MiB that all jobs share, with fdatasync; then the object, 147 bytes at the end of a log
         and 496 bytes of a state overwritten, without a sync; a sync of all every 5 s, and when the journal is full.
         The latency is that of the journal

  The run works in DIRECTORY/brindle-lab-run, which it makes and removes. Before reads, the pages of the file
  are dropped; a filesystem in userspace may have caches of its own, and --drop-caches drops all that the kernel has.
  Compare filesystems by the same disks, options and seed, several times in turn, and tell the model lines.

EXAMPLES
    brindle lab run fsync --disk /run/ssd --disk /run/disk /mnt
    brindle lab run files --count 100000 --json --disk /run/disk /mnt
    brindle lab run objects --count 200 --jobs 4 --journal /ssd --disk /run/disk /mnt
    brindle lab run reads --jobs 8 --size 4G --drop-caches --disk /run/disk /mnt

EXIT STATUS
  0  success
  1  failure; the directory of the run is removed where that is possible
  2  wrong usage";

/// Run a workload on a directory, and show its times and the counts of the disks below
///
/// The directory may be on any filesystem. The counts of the disks are set to 0 before the run.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Directory on which a modelled disk is mounted, whose counts are wanted; may be given several times
    #[arg(long, value_name = "MOUNTPOINT")]
    disk: Vec<PathBuf>,
    /// Files of each job, or random reads
    #[arg(short, long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: u64,
    /// Jobs that run side by side
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: u64,
    /// Size of the file that is read, with an optional suffix (K, M, G, T)
    #[arg(short, long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size: u64,
    /// Directory for the journal of `objects`, where it is not that of the run
    #[arg(long, value_name = "DIRECTORY")]
    journal: Option<PathBuf>,
    /// Seed of contents and places
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Drop all caches of the host before each phase (root)
    #[arg(long)]
    drop_caches: bool,
    /// fsync, files, reads or objects
    suite: Suite,
    /// Directory to work in
    directory: PathBuf,
}

/// The smallest file to read.
const SIZE_MIN: u64 = 64 << 10;

/// Runs the command.
pub(crate) fn run(command: &RunCommand) -> Result<ExitCode> {
    if command.size < SIZE_MIN {
        return wrong_usage(format!("--size {}: the file has 64K or more", command.size));
    }
    if command.journal.is_some() && command.suite != Suite::Objects {
        return wrong_usage(format!("--journal: the suite {} has no journal", command.suite));
    }
    let disks = command.disk.iter().map(|path| Client::at(path)).collect::<Result<Vec<_>, _>>()?;
    disks.iter().try_for_each(Client::reset)?;
    let options = RunOptions {
        directory: command.directory.clone(),
        journal: command.journal.clone(),
        count: command.count,
        jobs: command.jobs,
        file_bytes: command.size,
        seed: command.seed,
        drops_caches: command.drop_caches,
    };
    let phases = run_suite(command.suite, &options)?;
    let statuses = disks.iter().map(Client::status).collect::<Result<Vec<_>, _>>()?;
    let kind = filesystem_of(&command.directory)?;
    if command.json.json {
        output::print_json(&to_json(command, &kind, &phases, &statuses))?;
    } else {
        let mut out = output::stdout();
        print(&mut out, command, &kind, &phases, &statuses)?;
        out.flush()?;
    }
    for (status, path) in statuses.iter().zip(&command.disk).filter(|(status, _)| has_late_answers(status)) {
        let (late, answers) = (status.lateness.late, status.lateness.answers);
        tracing::warn!(
            "{}: {late} of {answers} answers were more than 1 ms late: measure again on a quieter machine",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Type of the filesystem that holds a directory.
fn filesystem_of(directory: &Path) -> Result<String> {
    let failed = || format!("cannot tell the filesystem of {}", directory.display());
    let path = directory.canonicalize().with_context(failed)?;
    let mounts = mount_table::read().with_context(failed)?;
    let mount = path.ancestors().find_map(|above| mount_table::at(&mounts, above));
    Ok(mount.map_or_else(|| "unknown".to_owned(), |mount| String::from_utf8_lossy(&mount.kind).into_owned()))
}

fn to_json(command: &RunCommand, kind: &str, phases: &[Phase], disks: &[Status]) -> Value {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let phase = |phase: &Phase| {
        json!({
            "name": phase.name,
            "operations": phase.operations,
            "bytes": phase.bytes,
            "elapsed_ns": nanoseconds(phase.elapsed),
            "operations_per_second": phase.rate(),
            "bytes_per_second": phase.byte_rate(),
            "latency_p50_ns": phase.latency(50).map(nanoseconds),
            "latency_p99_ns": phase.latency(99).map(nanoseconds),
            "latency_max_ns": phase.latency(100).map(nanoseconds),
        })
    };
    json!({
        "suite": command.suite.name(),
        "filesystem": kind,
        "count": command.count,
        "jobs": command.jobs,
        "size": command.size,
        "seed": command.seed,
        "caches_dropped": command.drop_caches,
        "phases": phases.iter().map(phase).collect::<Vec<_>>(),
        "disks": disks.iter().map(counts_json).collect::<Vec<_>>(),
    })
}

fn print(
    out: &mut dyn Write,
    command: &RunCommand,
    kind: &str,
    phases: &[Phase],
    disks: &[Status],
) -> io::Result<()> {
    let (suite, count, jobs, seed) = (command.suite, command.count, command.jobs, command.seed);
    writeln!(out, "suite {suite} on {kind}: count {count}, jobs {jobs}, seed {seed}")?;
    let head = ["PHASE", "OPERATIONS", "SECONDS", "PER SECOND", "MB/S", "P50 MS", "P99 MS", "MAX MS"];
    let row = |phase: &Phase| {
        let latency = |percent| {
            let told = phase.latency(percent).map(|time| format!("{:.3}", time.as_secs_f64() * 1e3));
            told.unwrap_or_else(|| "-".to_owned())
        };
        let rate = if phase.bytes > 0 { format!("{:.1}", phase.byte_rate() / 1e6) } else { "-".to_owned() };
        vec![
            phase.name.to_owned(),
            phase.operations.to_string(),
            format!("{:.3}", phase.elapsed.as_secs_f64()),
            format!("{:.1}", phase.rate()),
            rate,
            latency(50),
            latency(99),
            latency(100),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(phases.iter().map(row)).collect();
    let mut columns = [Align::Right; 8];
    columns[0] = Align::Left;
    write_table(out, &columns, &rows)?;
    if disks.is_empty() {
        return Ok(());
    }
    let head = ["MODELLED DISK", "READS", "READ", "WRITES", "WRITTEN", "FLUSHES", "SEEKS", "WAKE-UPS"];
    let size = |bytes| UnitMode::DEFAULT.format(bytes);
    let row = |status: &Status| {
        let counts = &status.counts;
        vec![
            status.model.clone(),
            counts.reads.to_string(),
            size(counts.read_bytes),
            counts.writes.to_string(),
            size(counts.written_bytes),
            counts.flushes.to_string(),
            counts.seeks.to_string(),
            counts.wake_ups.to_string(),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(disks.iter().map(row)).collect();
    writeln!(out)?;
    write_table(out, &columns, &rows)
}
