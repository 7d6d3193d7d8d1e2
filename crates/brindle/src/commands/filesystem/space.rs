//! `filesystem df` and `usage`: the space of a mounted pool, asked of the process that serves it.

use crate::cli::JsonOption;
use crate::commands::health::{self, Health};
use crate::format::{UnitMode, UnitOptions};
use crate::output;
use anyhow::Result;
use brindle_admin::Mounted;
use brindle_ondisk::BlockGroupType;
use brindle_policy::placement::AllocationHint;
use brindle_uapi::message::{DEVICE_STALE, DeviceSpace, GroupSpace, SpaceReport};
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
    let health = health::of_mounted(&mounted)?;
    if command.json.json {
        let device = |device: &DeviceSpace| {
            json!({
                "devid": device.devid,
                "total_bytes": device.total_bytes,
                "unallocated_bytes": device.unallocated_bytes,
                "class": class_name(device),
                "allocation_hint": hint_text(device.stored_type),
                "health": health.get(&device.devid).map(Health::json),
            })
        };
        let devices: Vec<Value> = report.devices.iter().map(device).collect();
        let why = mounted.read_only_reason()?;
        output::print_json(&json!({
            "placement": mode_name(report.placement),
            "groups": groups_json(&report),
            "waiting_bytes": report.waiting_bytes,
            "room": room_json(&report),
            "small_file_bytes": report.small_file_bytes,
            "devices": devices,
            "read_only_reason": why,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut out, mode) = (output::stdout(), command.units.mode());
    print_groups(&mut out, &report, mode)?;
    for device in &report.devices {
        let (total, left) = (mode.format(device.total_bytes), mode.format(device.unallocated_bytes));
        write!(out, "devid {}: total={total}, unallocated={left}", device.devid)?;
        if report.has_tiers || device.class == 0 {
            write!(out, ", {}", class_name(device))?;
        }
        match hint_text(device.stored_type) {
            hint if device.stored_type != 0 => writeln!(out, " ({hint})")?,
            _ => writeln!(out)?,
        }
    }
    health::print(&mut out, &health, "")?;
    print_room(&mut out, &report, mode)?;
    if let Some(why) = mounted.read_only_reason()? {
        writeln!(out, "read-only: {why}")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print_groups(out: &mut impl Write, report: &SpaceReport, mode: UnitMode) -> io::Result<()> {
    for group in &report.groups {
        let kind = BlockGroupType::from_bits_retain(group.kind);
        let (total, used) = (mode.format(group.total_bytes), mode.format(group.used_bytes));
        writeln!(out, "{kind}{}: total={total}, used={used}", spread_text(report, group))?;
    }
    if report.waiting_bytes > 0 {
        writeln!(out, "waiting to be written: {}", mode.format(report.waiting_bytes))?;
    }
    writeln!(out, "kept back for deletions: {}", mode.format(report.kept_back_bytes))
}

fn groups_json(report: &SpaceReport) -> Value {
    let group = |group: &GroupSpace| {
        json!({
            "kind": BlockGroupType::from_bits_retain(group.kind).to_string(),
            "total_bytes": group.total_bytes,
            "used_bytes": group.used_bytes,
            "devices": match group.spread {
                1 => "fast",
                2 => "bulk",
                _ => "any",
            },
        })
    };
    Value::Array(report.groups.iter().map(group).collect())
}

/// Over which devices groups lie, where that makes a difference.
fn spread_text(report: &SpaceReport, group: &GroupSpace) -> &'static str {
    match (report.has_tiers, group.spread) {
        (false, _) => "",
        (_, 1) => " (fast)",
        (_, 2) => " (bulk)",
        _ => " (fast and bulk)",
    }
}

/// Prints the room for each content, each as if nothing else were written.
fn print_room(out: &mut impl Write, report: &SpaceReport, mode: UnitMode) -> io::Result<()> {
    let [data, metadata] = [report.data_room, report.metadata_room].map(|room| room.map(|n| mode.format(n)));
    if !report.has_tiers {
        return writeln!(out, "room for data: {}; for metadata: {}", data[1], metadata[1]);
    }
    writeln!(out, "room for data: {} on bulk devices, {} in all", data[0], data[1])?;
    writeln!(out, "room for metadata: {} on fast devices, {} in all", metadata[0], metadata[1])?;
    let small = match report.small_file_bytes {
        0 => "no small files".to_owned(),
        bytes => format!("files up to {}", mode.format(bytes)),
    };
    let fast = mode.format(report.fast_data_room);
    writeln!(out, "room for data on fast devices ({small}, and marked files): {fast}")?;
    writeln!(out, "placement: {}", mode_name(report.placement))
}

fn room_json(report: &SpaceReport) -> Value {
    let room = |[preferred, all]: [u64; 2]| json!({ "preferred_bytes": preferred, "bytes": all });
    json!({
        "data": room(report.data_room),
        "metadata": room(report.metadata_room),
        "fast_data_bytes": report.fast_data_room,
    })
}

/// Name of the mode as in the mount option.
pub(crate) fn mode_name(mode: u64) -> &'static str {
    match mode {
        0 => "no_ssd_metadata",
        1 => "ssd_metadata",
        _ => "ssd_metadata=strict",
    }
}

fn class_name(device: &DeviceSpace) -> &'static str {
    match device.class {
        0 if device.state & DEVICE_STALE != 0 => "left out of writes",
        0 => "missing",
        1 => "fast",
        _ => "bulk",
    }
}

fn hint_text(stored: u64) -> String {
    AllocationHint::from_disk(stored).map_or_else(|| format!("type {stored}"), |hint| hint.to_string())
}
