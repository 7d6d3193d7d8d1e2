//! `filesystem df`, `filesystem usage` and `device usage`: the space of a pool, mounted or not, in the shape of btrfs-progs.

mod by_device;
mod json;
mod overall;
mod room;
mod table;

pub(crate) use by_device::{DeviceUsageCommand, device_usage};
pub(crate) use room::mode_name;

use crate::commands::health;
use crate::commands::pool::open_pool;
use crate::format::{ShortUnits, UnitMode};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::usage::{DeviceUsage, KindUsage, Place, Usage};
use brindle_admin::{BlockGroupType, Mounted, Profile, Reach};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem df /mnt
    brindle filesystem usage -T /mnt
    brindle filesystem usage --json a.img b.img

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

const EXAMPLES_OF_DEVICES: &str = "\
EXAMPLES
    brindle device usage /mnt
    brindle device usage --json a.img b.img

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show the space of a pool by content and profile
///
/// The lines are those of btrfs. Where the pool has devices of two classes, each is followed by the part of each class.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, disable_help_flag = true)]
pub(crate) struct DfCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Any path of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    units: ShortUnits,
}

/// Show the space of a pool: in all, by content and profile, and by device
///
/// The shape and the numbers are those of btrfs. Behind them follow, of a mount of brindle and of unmounted devices, the room
/// for each content, and devices in trouble.
///
/// `Used` counts every copy. `Free (estimated)` is the data that could still be written in the present profile; `min` if
/// unallocated space went to the most redundant of the present profiles. Of an unmounted pool it is as of the last commit.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, disable_help_flag = true)]
pub(crate) struct UsageCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Show devices and profiles as a table
    #[arg(short = 'T')]
    table: bool,
    /// Any path of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    units: ShortUnits,
}

/// Space of a pool, and what is wrong with its devices.
struct Facts {
    usage: Usage,
    health: health::AllHealth,
    read_only: Option<String>,
}

impl Facts {
    /// Asks the mount, or opens the devices to read them.
    fn gather(places: &[PathBuf]) -> Result<Self> {
        let reach = match places {
            // Any path of a mount will do.
            [path] => match Mounted::open(path) {
                Ok(mounted) => Reach::from(mounted),
                Err(_) => Reach::of(places)?,
            },
            places => Reach::of(places)?,
        };
        if let Some(mounted) = reach.mounted() {
            let usage = Usage::of_mount(mounted)?;
            if !usage.is_detailed {
                tracing::warn!("only root and the mounting user see which contents lie on which device");
            }
            let (health, read_only) = (health::of_mounted(mounted)?, mounted.read_only_reason()?);
            return Ok(Self { usage, health, read_only });
        }
        let pool = open_pool(places)?;
        Ok(Self { usage: Usage::of_pool(&pool)?, health: health::of_pool(&pool)?, read_only: None })
    }
}

/// Runs `filesystem df`.
pub(crate) fn df(command: &DfCommand) -> Result<ExitCode> {
    let facts = Facts::gather(&command.places)?;
    if command.json.json {
        output::print_json(&json::df(&facts.usage))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    print_kinds(&mut out, &facts.usage, command.units.mode())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `filesystem usage`.
pub(crate) fn usage(command: &UsageCommand) -> Result<ExitCode> {
    let facts = Facts::gather(&command.places)?;
    if command.json.json {
        output::print_json(&json::usage(&facts))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut out, mode) = (output::stdout(), command.units.mode());
    overall::print(&mut out, &facts.usage, mode)?;
    writeln!(out)?;
    if command.table {
        table::print(&mut out, &facts.usage, mode)?;
    } else {
        by_device::print_profiles(&mut out, &facts.usage, mode)?;
    }
    room::print(&mut out, &facts, mode)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the lines of `df`: data, system, metadata, and the reserve.
fn print_kinds(out: &mut impl Write, usage: &Usage, mode: UnitMode) -> io::Result<()> {
    let mut kinds: Vec<&KindUsage> = usage.kinds.iter().collect();
    kinds.sort_by_key(|sum| sum.kind.bits());
    for sum in kinds {
        let (total, used) = (mode.format(sum.total_bytes), mode.format(sum.used_bytes));
        writeln!(out, "{}, {}: total={total}, used={used}", sum.kind.content_name(), profile_name(sum.kind))?;
        for (place, [total, used]) in &sum.classes {
            let (total, used) = (mode.format(*total), mode.format(*used));
            writeln!(out, "    {}: total={total}, used={used}", place_name(*place))?;
        }
    }
    if let Some([total, used]) = usage.reserve {
        writeln!(out, "GlobalReserve, single: total={}, used={}", mode.format(total), mode.format(used))?;
    }
    match &usage.report {
        Some(report) if report.waiting_bytes > 0 => {
            writeln!(out, "waiting to be written: {}", mode.format(report.waiting_bytes))
        }
        _ => Ok(()),
    }
}

/// Name of a profile as btrfs has it: capital letters, but `single`.
fn profile_name(kind: BlockGroupType) -> String {
    match kind.profile() {
        Some(Profile::Single) => "single".to_owned(),
        Some(profile) => profile.to_string().to_uppercase(),
        None => "unknown".to_owned(),
    }
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Fast => "fast",
        Place::Bulk => "bulk",
        Place::Both => "fast and bulk",
    }
}

/// The pieces of a device: data, metadata, system.
fn pieces_of(device: &DeviceUsage) -> Vec<((BlockGroupType, usize), u64)> {
    let piece = |((kind, stripes), bytes): (&(u64, usize), &u64)| {
        ((BlockGroupType::from_bits_retain(*kind), *stripes), *bytes)
    };
    let mut pieces: Vec<_> = device.pieces.iter().map(piece).collect();
    let is_system = |kind: BlockGroupType| kind.contains(BlockGroupType::SYSTEM);
    pieces.sort_by_key(|((kind, stripes), _)| (is_system(*kind), kind.bits(), *stripes));
    pieces
}
