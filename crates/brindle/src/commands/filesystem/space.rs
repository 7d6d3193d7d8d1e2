//! `filesystem df` and `usage`: the space of a mounted pool, asked of the process that serves it.

use crate::cli::JsonOption;
use crate::format::{UnitMode, UnitOptions};
use crate::output;
use anyhow::Result;
use brindle_kernel::Mounted;
use brindle_kernel::message::{DeviceSpace, GroupSpace, SpaceReport};
use brindle_ondisk::BlockGroupType;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem df /mnt
    brindle filesystem usage --json /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show the space of a mounted pool by content and profile
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DfCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Any path of a pool that brindle has mounted
    path: PathBuf,
    #[command(flatten)]
    units: UnitOptions,
}

/// Show the space of a mounted pool by content and profile, and by device
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct UsageCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Any path of a pool that brindle has mounted
    path: PathBuf,
    #[command(flatten)]
    units: UnitOptions,
}

/// Runs `filesystem df`.
pub(crate) fn df(command: &DfCommand) -> Result<ExitCode> {
    let report = Mounted::open(&command.path)?.space()?;
    if command.json.json {
        output::print_json(&groups_json(&report))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    print_groups(&mut out, &report, command.units.mode())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `filesystem usage`.
pub(crate) fn usage(command: &UsageCommand) -> Result<ExitCode> {
    let mounted = Mounted::open(&command.path)?;
    let report = mounted.space()?;
    if command.json.json {
        let device = |device: &DeviceSpace| {
            json!({
                "devid": device.devid,
                "total_bytes": device.total_bytes,
                "unallocated_bytes": device.unallocated_bytes,
            })
        };
        let devices: Vec<Value> = devices(&report).map(device).collect();
        let why = mounted.read_only_reason()?;
        output::print_json(
            &json!({ "groups": groups_json(&report), "devices": devices, "read_only_reason": why }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut out, mode) = (output::stdout(), command.units.mode());
    print_groups(&mut out, &report, mode)?;
    for device in devices(&report) {
        let (total, left) = (mode.format(device.total_bytes), mode.format(device.unallocated_bytes));
        writeln!(out, "devid {}: total={total}, unallocated={left}", device.devid)?;
    }
    if let Some(why) = mounted.read_only_reason()? {
        writeln!(out, "read-only since an error: {why}")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn groups(report: &SpaceReport) -> impl Iterator<Item = &GroupSpace> {
    report.groups.iter().filter(|group| group.kind != 0)
}

fn devices(report: &SpaceReport) -> impl Iterator<Item = &DeviceSpace> {
    report.devices.iter().filter(|device| device.devid != 0)
}

fn print_groups(out: &mut impl Write, report: &SpaceReport, mode: UnitMode) -> io::Result<()> {
    for group in groups(report) {
        let kind = BlockGroupType::from_bits_retain(group.kind);
        let (total, used) = (mode.format(group.total_bytes), mode.format(group.used_bytes));
        writeln!(out, "{kind}: total={total}, used={used}")?;
    }
    writeln!(out, "kept back for deletions: {}", mode.format(report.kept_back_bytes))
}

fn groups_json(report: &SpaceReport) -> Value {
    let group = |group: &GroupSpace| {
        json!({
            "kind": BlockGroupType::from_bits_retain(group.kind).to_string(),
            "total_bytes": group.total_bytes,
            "used_bytes": group.used_bytes,
        })
    };
    Value::Array(groups(report).map(group).collect())
}
