//! `device reads`: what readers wanted of the devices of a mounted pool.

use crate::commands::path::shown_name;
use crate::format::UnitOptions;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::Mounted;
use brindle_uapi::message::{DeviceReads, text};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device reads /mnt
    brindle property set /mnt read_statistics 1
    brindle device reads --json /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show the reads of the devices of a mounted pool
///
/// It is counted while the read policy needs it (roundrobin, latency, queue, auto), or while the property
/// read_statistics is 1. A request is *local* if it begins where the one before on the same device ended; *announced* are
/// ranges that were prefetched from the device and not read yet.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ReadsCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Any path of a pool that brindle has mounted
    path: PathBuf,
    #[command(flatten)]
    units: UnitOptions,
}

/// Runs it.
pub(crate) fn run(command: &ReadsCommand) -> Result<ExitCode> {
    let mounted = Mounted::open(&command.path)?;
    let report = mounted.reads()?;
    let infos = mounted.device_infos()?;
    let name = |devid| {
        let info = infos.iter().find(|info| info.devid == devid);
        info.map(|info| text(&info.path).to_vec()).unwrap_or_default()
    };
    let devices: Vec<(Vec<u8>, &DeviceReads)> =
        report.devices.iter().map(|device| (name(device.devid), device)).collect();
    let (policy, is_counted) = (mounted.setting("read_policy")?, report.is_counted);
    if command.json.json {
        let all: Vec<Value> = devices.iter().map(|(name, device)| device_json(name, device)).collect();
        output::print_json(&json!({ "read_policy": policy, "is_counted": is_counted, "devices": all }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    writeln!(out, "read_policy {policy}")?;
    if !is_counted {
        writeln!(out, "not counted now: the policy does not need it, and read_statistics is 0")?;
    }
    let mode = command.units.mode();
    for (name, device) in devices {
        out.write_all(b"\n")?;
        out.write_all(&shown_name(&name))?;
        writeln!(out, " (devid {})", device.devid)?;
        let local = percent(device.local_requests, device.requests);
        writeln!(out, "  read       {} in {} reads", mode.format(device.bytes), device.reads)?;
        writeln!(out, "  requests   {}, {local} % of them local", device.requests)?;
        writeln!(out, "  open       {} in flight, {} announced", device.in_flight, device.expected)?;
        writeln!(
            out,
            "  latency    {} us, of which {} us alone",
            device.latency_ns / 1000,
            device.service_ns / 1000
        )?;
        if device.bytes_per_second > 0 {
            writeln!(out, "  streams    {} a second", mode.format(device.bytes_per_second))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

fn device_json(name: &[u8], device: &DeviceReads) -> Value {
    json!({
        "path": String::from_utf8_lossy(name),
        "devid": device.devid,
        "reads": device.reads,
        "bytes": device.bytes,
        "requests": device.requests,
        "local_requests": device.local_requests,
        "in_flight": device.in_flight,
        "announced": device.expected,
        "last_end": device.end,
        "latency_ns": device.latency_ns,
        "service_ns": device.service_ns,
        "bytes_per_second": device.bytes_per_second,
    })
}
