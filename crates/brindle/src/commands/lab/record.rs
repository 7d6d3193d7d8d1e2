//! `lab record`: the requests that a mount makes to its devices, for `lab plan`.

use crate::commands::stop::Stop;
use crate::output;
use anyhow::{Context, Result};
use brindle_admin::{DevId, Mounted};
use brindle_device::{Operation, RecordedRequest};
use brindle_lab::plan::{TraceDisk, TraceHeader, TraceOperation, TraceRequest};
use brindle_policy::tier::Content;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
EXAMPLES
    brindle lab record --seconds 3600 --output hour.trace /mnt
    brindle lab plan --size 200G hour.trace

EXIT STATUS
  0  success
  1  failure: no mount of brindle, or it has ended
  2  wrong usage";

/// Interval at which requests are taken from the mount, whose record has room for 65536 of each device.
const TAKE_EVERY: Duration = Duration::from_millis(200);

/// Record the requests of a mount to its devices
///
/// Ctrl-C ends the record, and writes what there is.
///
/// A line of JSON for each request: device, operation, place, length, begin and end, and whether it is metadata. No contents and no names
/// are recorded. The mount has to be one of brindle; of the kernel's mounts, blktrace or perf makes
/// a record that `brindle lab plan` reads.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RecordCommand {
    /// Seconds that are recorded, unless a signal ends it before
    #[arg(short, long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    seconds: u64,
    /// Write this file; it is replaced as a whole
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Any path of the mount
    mount: PathBuf,
}

/// A record that ends with this.
struct Recording<'m>(&'m Mounted);

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.record_requests(false) {
            tracing::warn!("the record goes on: {error}");
        }
    }
}

/// Runs the command.
pub(crate) fn run(command: &RecordCommand) -> Result<ExitCode> {
    let (header, requests) = record(&command.mount, Duration::from_secs(command.seconds))?;
    let mut text = serde_json::to_string(&header)? + "\n";
    for request in requests {
        text += &serde_json::to_string(&request)?;
        text.push('\n');
    }
    output::print_or_replace(Some(&command.output), &text).context("the record is lost")?;
    Ok(ExitCode::SUCCESS)
}

/// The requests that a mount makes in this time, or until a signal comes.
pub(super) fn record(mount: &Path, time: Duration) -> Result<(TraceHeader, Vec<TraceRequest>)> {
    let stop = Stop::on_signals()?;
    let mounted = Mounted::open(mount)?;
    let devices: Vec<DevId> = mounted.activity()?.devices.iter().map(|device| device.devid).collect();
    mounted.record_requests(true)?;
    let recording = Recording(&mounted);
    let mut taken: Vec<(usize, RecordedRequest)> = Vec::new();
    let mut lost = 0;
    let end = Instant::now() + time;
    loop {
        let left = if stop.is_set() { Duration::ZERO } else { end.saturating_duration_since(Instant::now()) };
        std::thread::sleep(left.min(TAKE_EVERY));
        for (disk, devid) in devices.iter().enumerate() {
            let (requests, missed) = mounted.take_recorded(*devid)?;
            taken.extend(requests.into_iter().map(|request| (disk, request)));
            lost += missed;
        }
        if left.is_zero() {
            break;
        }
    }
    drop(recording);
    Ok((header(&mounted, &devices, lost)?, requests(&mounted, &devices, taken)?))
}

fn header(mounted: &Mounted, devices: &[DevId], lost: u64) -> Result<TraceHeader> {
    let space = mounted.space()?;
    let infos = mounted.device_infos()?;
    let disk = |devid: &DevId| {
        let info = infos.iter().find(|info| info.devid == devid.get());
        let told = space.devices.iter().find(|told| told.devid == devid.get());
        TraceDisk {
            name: info.map_or_else(String::new, |info| {
                String::from_utf8_lossy(brindle_uapi::message::text(&info.path)).into_owned()
            }),
            size_bytes: info.map_or(0, |info| info.total_bytes),
            is_fast: told.is_some_and(|told| told.class == 1),
        }
    };
    Ok(TraceHeader { kind: TraceHeader::KIND.to_owned(), disks: devices.iter().map(disk).collect(), lost })
}

/// Requests by their begin, from the first one on, each with its content.
fn requests(
    mounted: &Mounted,
    devices: &[DevId],
    mut taken: Vec<(usize, RecordedRequest)>,
) -> Result<Vec<TraceRequest>> {
    let metadata = metadata_of(mounted, devices)?;
    taken.sort_by_key(|(_, request)| (request.begin_ns, request.end_ns));
    let first_ns = taken.first().map_or(0, |(_, request)| request.begin_ns);
    let request = |(disk, request): (usize, RecordedRequest)| TraceRequest {
        disk,
        operation: operation(request.operation),
        offset: request.offset,
        length: request.length,
        begin_ns: request.begin_ns - first_ns,
        end_ns: request.end_ns - first_ns,
        is_metadata: request.operation == Operation::Flush
            || metadata[disk].iter().any(|(begin, end)| (*begin..*end).contains(&request.offset)),
    };
    Ok(taken.into_iter().map(request).collect())
}

fn operation(operation: Operation) -> TraceOperation {
    match operation {
        Operation::Read => TraceOperation::Read,
        Operation::Write => TraceOperation::Write,
        Operation::Flush => TraceOperation::Flush,
        Operation::Discard => TraceOperation::Discard,
    }
}

/// Bytes at the begin of a device that hold superblocks, and no chunks.
const RESERVED_BYTES: u64 = 1 << 20;

/// Ranges of each device that hold metadata, superblocks among them.
fn metadata_of(mounted: &Mounted, devices: &[DevId]) -> Result<Vec<Vec<(u64, u64)>>> {
    let chunks = mounted.inventory()?.chunks;
    let of_one = |devid: &DevId| {
        let mut ranges = vec![(0, RESERVED_BYTES)];
        for chunk in chunks.iter().filter(|chunk| !matches!(chunk.content(), Content::Data)) {
            let own = chunk.stripes.iter().filter(|stripe| stripe.devid == *devid);
            ranges.extend(own.map(|stripe| {
                let begin = stripe.physical.get();
                (begin, begin + chunk.stripe_bytes())
            }));
        }
        ranges
    };
    Ok(devices.iter().map(of_one).collect())
}
