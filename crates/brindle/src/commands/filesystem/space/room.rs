//! Facts that brindle has beyond btrfs: classes, the room for each content, placement, devices in trouble.

use super::{Facts, place_name, profile_name};
use crate::commands::health;
use crate::format::UnitMode;
use brindle_admin::usage::Usage;
use brindle_policy::placement::AllocationHint;
use brindle_uapi::message::{DEVICE_STALE, DeviceSpace, SpaceReport};
use std::io::{self, Write};

/// Prints it, behind an empty line.
pub(super) fn print(out: &mut impl Write, facts: &Facts, mode: UnitMode) -> io::Result<()> {
    if facts.usage.has_tiers {
        writeln!(out, "\nBy class:")?;
        print_classes(out, &facts.usage, mode)?;
    }
    if let Some(report) = &facts.usage.report {
        writeln!(out)?;
        for device in report.devices.iter().filter(|device| is_told(report, device)) {
            let (devid, class) = (device.devid, class_name(device));
            match device.stored_type {
                0 => writeln!(out, "devid {devid}: {class}")?,
                stored => writeln!(out, "devid {devid}: {class} ({})", hint_text(stored))?,
            }
        }
        print_room(out, report, mode)?;
    }
    health::print(out, &facts.health, "")?;
    match &facts.read_only {
        Some(why) => writeln!(out, "read-only: {why}"),
        None => Ok(()),
    }
}

/// Prints the part of each class of each profile, where there are two.
fn print_classes(out: &mut impl Write, usage: &Usage, mode: UnitMode) -> io::Result<()> {
    for sum in &usage.kinds {
        for (place, [total, used]) in &sum.classes {
            let (content, profile, place) =
                (sum.kind.content_name(), profile_name(sum.kind), place_name(*place));
            let (total, used) = (mode.format(*total), mode.format(*used));
            writeln!(out, "   {content},{profile} on {place} devices: Size:{total}, Used:{used}")?;
        }
    }
    Ok(())
}

/// Returns true if a device has a class that makes a difference, or a hint.
fn is_told(report: &SpaceReport, device: &DeviceSpace) -> bool {
    report.has_tiers || device.class == 0 || device.stored_type != 0
}

/// Prints the room for each content, each as if nothing else were written.
fn print_room(out: &mut impl Write, report: &SpaceReport, mode: UnitMode) -> io::Result<()> {
    if report.waiting_bytes > 0 {
        writeln!(out, "waiting to be written: {}", mode.format(report.waiting_bytes))?;
    }
    let [data, metadata] = [report.data_room, report.metadata_room].map(|room| room.map(|n| mode.format(n)));
    if !report.has_tiers {
        return writeln!(out, "room for data: {}; for metadata: {}", data[1], metadata[1]);
    }
    writeln!(out, "room for data: {} on bulk devices, {} in all", data[0], data[1])?;
    writeln!(out, "room for metadata: {} on fast devices, {} in all", metadata[0], metadata[1])?;
    let small = match report.small_file_bytes {
        0 => "marked files".to_owned(),
        bytes => format!("marked files, and files up to {}", mode.format(bytes)),
    };
    let fast = mode.format(report.fast_data_room);
    writeln!(out, "room for data on fast devices ({small}): {fast}")?;
    writeln!(out, "placement: {}", mode_name(report.placement))
}

/// Name of the mode as in the mount option.
pub(crate) fn mode_name(mode: u64) -> &'static str {
    match mode {
        0 => "no_ssd_metadata",
        1 => "ssd_metadata",
        _ => "ssd_metadata=strict",
    }
}

/// Class of a device in words.
pub(super) fn class_name(device: &DeviceSpace) -> &'static str {
    match device.class {
        0 if device.state & DEVICE_STALE != 0 => "left out of writes",
        0 => "missing",
        1 => "fast",
        _ => "bulk",
    }
}

/// A stored hint in words.
pub(super) fn hint_text(stored: u64) -> String {
    AllocationHint::from_disk(stored).map_or_else(|| format!("type {stored}"), |hint| hint.to_string())
}
