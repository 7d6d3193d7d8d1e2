//! `lab plan`: what an SSD would do, before it is bought.

use super::record::record;
use crate::commands::quantity::parse_size;
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use crate::format::{Align, UnitMode, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_lab::Model;
use brindle_lab::plan::{Demand, Prediction, Role, Trace, replay};
use clap::Args;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const MANUAL: &str = "\
ROLES OF THE SSD
  none        there is none: the disks alone, on which the prediction can be
              compared with the record
  metadata    it has the metadata of the filesystem, as `brindle tier apply` or
              placement give it
  write-back  metadata, and all writes of data, which wait there and are moved
              to the disks later
  cache-thru  copies of what was read or written last; each write also waits for
              the disk (`brindle cache create -p thru`)
  cache-back  the same, but what is written goes to the disk when it makes way,
              or at the end (`-p back`)

  ELAPSED has the pauses of the program in it; WAITED is the sum of the
  latencies of all requests. NO ROOM are bytes that the SSD could not take at
  its size; DESTAGE is the time in which the disks take what waits at the end.

RECORDS
  `brindle lab record` makes one of a mount of brindle; given the mount itself,
  `brindle lab plan` records it for --seconds first. Of anything else, blktrace
  does, or perf:
    blktrace -d /dev/sda -w 600 -o - | blkparse -q -i - > sda.txt
    perf record -a -e block:block_rq_issue -e block:block_rq_complete sleep 600
    perf script --ns > all.txt
  perf records all disks, of which --device chooses; `trace-cmd report` and the
  kernel's trace file have the same events. Both know which requests are
  metadata where the filesystem tells the kernel, as btrfs, ext4 and XFS do.

EXAMPLES
    brindle lab plan --size 200G hour.trace
    brindle lab plan --size 200G --seconds 600 /mnt
    brindle lab plan --size 200G --device 8:0 all.txt
    brindle lab plan --disk hdd,rpm=5400 --ssd nvme --size 500G sda.txt
    brindle lab plan --size 64G --files 2000 --mean-size 40K \\
        --syncs-per-second 20

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Predict the effect of an SSD in front of disks, from a record of requests, a mount, or numbers
///
/// Each request of the record is issued on modelled drives, in virtual time: as long after the one that it had waited for as in the
/// record. The result is that of the modelled drives, and of requests as they were: docs/user/lab.md tells how far off it was
/// of measured runs.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct PlanCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Model line of the disks
    #[arg(long, value_name = "MODEL", default_value = "hdd")]
    disk: String,
    /// Model line of the SSD
    #[arg(long, value_name = "MODEL", default_value = "ssd")]
    ssd: String,
    /// Size of the SSD, with an optional suffix (K, M, G, T); that of its model unless told otherwise
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Disk of the record, by its name there: 8:0 of blktrace and perf, a path of a mount; may be given several times; all
    /// unless told otherwise
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    device: Vec<String>,
    /// Seconds for which a mount is recorded, unless a signal ends it before; 60 unless told otherwise
    #[arg(long, value_name = "N", conflicts_with = "files", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    seconds: Option<u64>,
    /// Number of files that are written, where there is no record
    #[arg(long, value_name = "N", conflicts_with = "record", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    files: Option<u64>,
    /// Mean size of these files
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = parse_size)]
    mean_size: u64,
    /// Files that are synced, a second; 0 for none
    #[arg(long, value_name = "N", default_value = "0")]
    syncs_per_second: u64,
    /// Files that are written for each one that is read; 0 for none
    #[arg(long, value_name = "N", default_value = "0")]
    files_per_read: u64,
    /// Seed of sizes and places
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Record of `brindle lab record`, text of blkparse or perf, or a mount of brindle, which is recorded
    #[arg(value_name = "FILE|MOUNT")]
    record: Option<PathBuf>,
}

/// Time for which a mount is recorded unless told otherwise.
const SECONDS: u64 = 60;

/// Runs the command.
pub(crate) fn run(command: &PlanCommand) -> Result<ExitCode> {
    let disk = Model::parse(&command.disk).or_wrong_usage()?;
    let ssd = Model::parse(&command.ssd).or_wrong_usage()?;
    let size_bytes = command.size.unwrap_or(ssd.size_bytes());
    let (trace, is_recorded) = match (&command.record, command.files) {
        (Some(path), _) => (recorded(command, path)?, true),
        (None, Some(files)) => (demand(command, files).trace(), false),
        (None, None) => return wrong_usage("a record, a mount, or --files".to_owned()),
    };
    let found: Vec<Prediction> =
        Role::ALL.into_iter().map(|role| replay(&trace, role, &disk, &ssd, size_bytes)).collect();
    let recorded_ns = is_recorded.then(|| trace.elapsed_ns());
    if command.json.json {
        output::print_json(&json!({
            "disk": disk.to_string(),
            "ssd": ssd.to_string(),
            "ssd_bytes": size_bytes,
            "requests": trace.requests.len(),
            "lost_requests": trace.lost,
            "recorded_ns": recorded_ns,
            "roles": found.iter().map(prediction).collect::<Vec<_>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    writeln!(out, "modelled {disk}, and {ssd} of {}", UnitMode::DEFAULT.format(size_bytes))?;
    let recorded = recorded_ns.map_or_else(String::new, |ns| format!(", recorded in {}", seconds(ns)));
    writeln!(out, "{} requests{recorded}", trace.requests.len())?;
    if trace.lost > 0 {
        writeln!(out, "the record lacks {} requests", trace.lost)?;
    }
    writeln!(out)?;
    let head =
        ["SSD", "ELAPSED", "WAITED", "MEDIAN", "99 %", "SEEKS", "ON SSD", "NO ROOM", "READS", "DESTAGE"];
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(found.iter().map(row)).collect();
    let mut columns = [Align::Right; 10];
    columns[0] = Align::Left;
    write_table(&mut out, &columns, &rows)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Requests of a file, or of a mount that is recorded now.
fn recorded(command: &PlanCommand, path: &Path) -> Result<Trace> {
    let trace = if path.is_dir() {
        let (header, requests) = record(path, Duration::from_secs(command.seconds.unwrap_or(SECONDS)))?;
        if requests.is_empty() {
            bail!("{}: the mount has asked nothing of its devices meanwhile", path.display());
        }
        Trace::new(header.disks, requests, header.lost)
    } else if command.seconds.is_some() {
        return wrong_usage(format!("--seconds is for a mount, and {} is none", path.display()));
    } else {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let text = String::from_utf8(bytes).ok().with_context(|| {
            format!("{}: no text, and so no record of `brindle lab record`, blkparse or perf", path.display())
        })?;
        Trace::parse(&text).with_context(|| path.display().to_string())?
    };
    if command.device.is_empty() {
        return Ok(trace);
    }
    trace.only(&command.device).with_context(|| path.display().to_string())
}

fn demand(command: &PlanCommand, files: u64) -> Demand {
    Demand {
        files,
        mean_bytes: command.mean_size,
        syncs_per_second: command.syncs_per_second,
        files_per_read: command.files_per_read,
        seed: command.seed,
    }
}

fn seconds(ns: u64) -> String {
    let seconds = Duration::from_nanos(ns).as_secs_f64();
    if seconds < 1.0 { format!("{:.2} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

fn row(found: &Prediction) -> Vec<String> {
    let bytes = |bytes| UnitMode::DEFAULT.format(bytes);
    let has_ssd = found.role != Role::None;
    let if_ssd = |text: String| if has_ssd { text } else { "-".to_owned() };
    vec![
        found.role.name().to_owned(),
        seconds(found.elapsed_ns),
        seconds(found.waited_ns),
        seconds(found.latencies_ns[0]),
        seconds(found.latencies_ns[1]),
        found.disks.seeks.to_string(),
        if_ssd(bytes(found.held_bytes)),
        if_ssd(bytes(found.refused_bytes)),
        found
            .read_share
            .filter(|_| has_ssd)
            .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        found.destage.map_or_else(|| "-".to_owned(), |(_, ns)| seconds(ns)),
    ]
}

fn prediction(found: &Prediction) -> Value {
    let counts = |counts: &brindle_lab::plan::Counts| {
        json!({
            "reads": counts.reads, "read_bytes": counts.read_bytes,
            "writes": counts.writes, "written_bytes": counts.written_bytes,
            "flushes": counts.flushes, "seeks": counts.seeks, "wake_ups": counts.wake_ups,
            "bands": counts.bands,
        })
    };
    json!({
        "role": found.role.name(),
        "elapsed_ns": found.elapsed_ns,
        "waited_ns": found.waited_ns,
        "latency_p50_ns": found.latencies_ns[0],
        "latency_p99_ns": found.latencies_ns[1],
        "latency_max_ns": found.latencies_ns[2],
        "disks": counts(&found.disks),
        "ssd": found.ssd.as_ref().map(counts),
        "held_bytes": found.held_bytes,
        "refused_bytes": found.refused_bytes,
        "read_share": found.read_share,
        "destage_bytes": found.destage.map(|it| it.0),
        "destage_ns": found.destage.map(|it| it.1),
    })
}
