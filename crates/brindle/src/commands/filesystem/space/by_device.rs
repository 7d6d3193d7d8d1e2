//! Profiles with the devices that they lie on, and devices with the profiles that lie on them.

use super::{EXAMPLES_OF_DEVICES, Facts, json, pieces_of, profile_name};
use crate::format::{ShortUnits, UnitMode};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::usage::{DeviceUsage, KindUsage, Usage};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the space of a pool by device
///
/// For each device its size, the bytes of each content and profile, with the number of devices of striped profiles, and the
/// unallocated rest.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES_OF_DEVICES, disable_help_flag = true)]
pub(crate) struct DeviceUsageCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Any path of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    units: ShortUnits,
}

/// Runs `device usage`.
pub(crate) fn device_usage(command: &DeviceUsageCommand) -> Result<ExitCode> {
    let facts = Facts::gather(&command.places)?;
    if command.json.json {
        output::print_json(&json::devices(&facts))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut out, mode) = (output::stdout(), command.units.mode());
    for device in &facts.usage.devices {
        print_device(&mut out, device, facts.usage.has_tiers, mode)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Name of a device in the lists.
pub(super) fn name(device: &DeviceUsage) -> String {
    if device.is_missing { "missing".to_owned() } else { device.path.display().to_string() }
}

/// Prints each profile with its devices, and what is unallocated of each.
pub(super) fn print_profiles(out: &mut impl Write, usage: &Usage, mode: UnitMode) -> io::Result<()> {
    for sum in &usage.kinds {
        let (content, profile) = (sum.kind.content_name(), profile_name(sum.kind));
        let (size, used) = (mode.format(sum.total_bytes), mode.format(sum.used_bytes));
        writeln!(out, "{content},{profile}: Size:{size}, Used:{used} ({})", percentage(sum))?;
        for device in usage.devices.iter().filter(|device| device.of_kind(sum.kind) > 0) {
            line(out, device, device.of_kind(sum.kind), mode)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "Unallocated:")?;
    usage.devices.iter().try_for_each(|device| line(out, device, device.unallocated_bytes(), mode))
}

fn line(out: &mut impl Write, device: &DeviceUsage, bytes: u64, mode: UnitMode) -> io::Result<()> {
    writeln!(out, "   {}\t{:>10}", name(device), mode.format(bytes))
}

/// The used share, with two decimals.
fn percentage(sum: &KindUsage) -> String {
    let total = u128::from(sum.total_bytes).max(1);
    let hundredths = (u128::from(sum.used_bytes) * 10_000 + total / 2) / total;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

fn print_device(
    out: &mut impl Write,
    device: &DeviceUsage,
    has_tiers: bool,
    mode: UnitMode,
) -> io::Result<()> {
    writeln!(out, "{}, ID: {}", name(device), device.devid)?;
    let mut line = |name: &str, value: &str| writeln!(out, "   {:<20}{value:>12}", format!("{name}:"));
    line("Device size", &mode.format(device.total_bytes))?;
    line("Device slack", &mode.format(device.slack_bytes))?;
    for ((kind, stripes), bytes) in pieces_of(device) {
        let profile = profile_name(kind);
        let is_striped = kind.profile().is_some_and(|profile| profile.attributes().devs_max == 0);
        let content = kind.content_name();
        match is_striped {
            true => line(&format!("{content},{profile}/{stripes}"), &mode.format(bytes))?,
            false => line(&format!("{content},{profile}"), &mode.format(bytes))?,
        }
    }
    line("Unallocated", &mode.format(device.unallocated_bytes()))?;
    match &device.listed_class {
        Some((name, rank)) => line("Class", &format!("{rank} {name}"))?,
        None if has_tiers => line("Class", &device.class.to_string())?,
        None => {}
    }
    Ok(())
}
