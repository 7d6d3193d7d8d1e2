//! `brindle check`: whether a pool is sound.

mod files;
mod repair;

use crate::commands::damaged_list::DamagedFilesOption;
use crate::commands::examination_bar::Bar;
use crate::commands::in_use::warn_if_used;
use crate::commands::mount_options::MountOptions;
use crate::commands::no_pool::without_pool;
use crate::commands::pool::{all_named, explain_missing, open_to_look, warn_of_leases};
use crate::commands::rescue::consent::ConsentOptions;
use crate::commands::usage::wrong_usage;
use crate::damage;
use crate::format::UnitMode;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, anyhow};
use brindle_check::{CheckOptions, PASSES, PassReport, Report};
use brindle_device::Device;
use brindle_volume::Rescue;
use clap::Args;
use files::Named;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
EXAMPLES
  Is the pool sound?
    brindle check a.img b.img

  Repair counts and free space; first see what would be written:
    brindle check --repair --dry-run a.img b.img
    brindle check --repair --undo /root/undo a.img b.img

  Is every byte of data still what was written, on every disk?
    brindle check --check-data-csum /dev/sdb /dev/sdc

  Which files are lost? Fetch them from a backup:
    brindle check --check-data-csum --damaged-files lost /dev/sdb /dev/sdc
    rsync -a -0 --files-from=lost backup:/pool/ /mnt/

EXIT STATUS
  0  nothing is wrong (any more)
  1  something is wrong, or there is no pool to examine
  2  wrong usage";

/// Check a pool, and list its errors
///
/// Reads every tree block, and compares all records of the same fact: chunks and device
/// extents, extents and their backrefs, names and inodes, checksums and data. Nothing is written
/// without --repair. The pool must not be mounted for writing meanwhile.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CheckCommand {
    /// Read all data that has checksums, every copy of it, and name the files of bad copies
    #[arg(long)]
    check_data_csum: bool,
    /// Read every copy of every tree block, not only one that is good
    #[arg(long)]
    all_copies: bool,
    /// Show how far it has come (on a terminal, which is where it is shown unasked)
    #[arg(short, long)]
    progress: bool,
    /// Trust this copy of the superblock: 0, 1 or 2
    #[arg(short = 's', long = "super", value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    mirror: Option<u8>,
    /// Check an older commit if the root tree of the last one can't be read: -o rescue=usebackuproot
    #[arg(short, long, conflicts_with = "repair")]
    backup: bool,
    /// Write nothing, as is done without --repair anyway
    #[arg(long, conflicts_with = "repair")]
    readonly: bool,
    /// Examine a pool that is in use, as is done anyway; what is written meanwhile may look like damage
    #[arg(long, conflicts_with = "repair")]
    force: bool,
    /// Taken as btrfs takes it, without effect: little memory is needed in any case
    #[arg(long, value_name = "original|lowmem", value_parser = ["original", "lowmem"])]
    mode: Option<String>,
    /// Number of findings of each pass, and of damaged files, to show; all are counted
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_findings: usize,
    /// Number of threads [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// degraded: do not count missing devices as an error (degraded=named: all that are not named are missing); rescue=usebackuproot: check the newest older commit whose
    /// root tree begins, if that of the last one doesn't; rescue=chunks: make a chunk tree that can't be read anew in memory
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Repair what can be proved: counts, free space, superblock copies, the UUID tree
    ///
    /// The repair is made in memory and examined there, and shown with the finding that each change answers. It is written as one
    /// transaction, behind an undo file (`brindle rescue undo`). What can't be repaired is named and left.
    ///
    /// A log of fsyncs after the last commit would end with that transaction. It stays, and with it everything but superblock copies is
    /// left: mount the pool once, which replays the log, or give it up by `brindle rescue zero-log`.
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    consent: ConsentOptions,
    #[command(flatten)]
    damaged: DamagedFilesOption,
    #[command(flatten)]
    json: JsonOption,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &CheckCommand) -> Result<ExitCode> {
    let options = options_of(command)?;
    let mut check = CheckOptions {
        all_copies: command.all_copies,
        check_data_csum: command.check_data_csum,
        threads: command.threads.map(usize::from),
        max_findings: command.max_findings,
        // The list has all files, and so must the findings.
        max_data_findings: if command.damaged.is_wanted() { usize::MAX } else { files::PLACES_KEPT },
        ..CheckOptions::default()
    };
    check.volume.degraded = options.degraded;
    check.volume.rescue = options.rescue;
    check.volume.superblock_mirror = command.mirror.map(usize::from);
    let named = all_named(&command.devices, &options)?;
    let paths: Vec<&Path> = named.iter().map(PathBuf::as_path).collect();
    if command.repair {
        if options.degraded || options.is_rescue() || command.mirror.is_some() {
            return wrong_usage(
                "a repair takes all devices and the last commit: no -o, and no -s".to_owned(),
            );
        }
        return repair::run(command, &check, &paths);
    }
    let bar = Bar::new(command.progress || !command.json.json);
    let mut report = brindle_check::check(open(&paths, &options)?, &check, &bar)
        .map_err(|error| explain_missing(&error, &paths).unwrap_or_else(|| without_pool(error)))?;
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    warn_if_used(&report.fsid, &names);
    warn_of_leases(&names);
    bar.clear();
    let files = files::named(&report, &paths, &command.options);
    let files = files.unwrap_or_else(|error| {
        tracing::warn!("files with bad data can't be named: {error}");
        Vec::new()
    });
    damage::note_report(&report);
    let are_all = files::are_all_kept(&report);
    for pass in &mut report.passes {
        pass.errors.list.truncate(command.max_findings);
    }
    let files = Named { files, are_all, most: command.max_findings };
    command.damaged.write(files.lost().map(|file| &file.path[..]))?;
    if command.json.json {
        let mut value = report_json(&report);
        value["files"] = files.json();
        value["files_complete"] = are_all.into();
        output::print_json(&value)?;
    } else {
        let mut out = output::stdout();
        print_report(&mut out, &report, &files)?;
        out.flush()?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Opens devices; a pool that is named by its mount is examined by a scrub.
fn open(paths: &[&Path], options: &MountOptions) -> Result<Vec<Arc<dyn Device>>> {
    let is_place = paths.iter().any(|path| path.is_dir());
    open_to_look(paths, options).map_err(|error| match is_place {
        true => anyhow!("{error}; `brindle scrub start` reads and verifies all of a mounted pool"),
        false => error,
    })
}

/// Options of the pool, those that check takes.
fn options_of(command: &CheckCommand) -> Result<MountOptions> {
    let mut options = MountOptions::parse(&command.options)?;
    options.rescue.backup_roots |= command.backup;
    if let Some(option) = options.first_of_mount() {
        return wrong_usage(format!(
            "unknown option '{option}': here -o takes degraded, rescue=usebackuproot, rescue=chunks and device=PATH"
        ));
    }
    if options.subvol.is_some() || options.subvolid.is_some() {
        return wrong_usage(
            "a pool is checked as a whole: here -o takes degraded and device=PATH, and not subvol or subvolid"
                .to_owned(),
        );
    }
    let by_backup = Rescue { backup_roots: true, ..Rescue::default() };
    if options.rescue.is_any() && options.rescue != by_backup {
        return wrong_usage(
            "checksums and roots are what is checked: of rescue= check takes usebackuproot and chunks"
                .to_owned(),
        );
    }
    if command.damaged.is_wanted() && (!command.check_data_csum || command.repair) {
        return wrong_usage(
            "--damaged-files names what --check-data-csum finds: give that as well".to_owned(),
        );
    }
    Ok(options)
}

fn print_report(out: &mut dyn Write, report: &Report, files: &Named) -> io::Result<()> {
    writeln!(out, "UUID: {}", report.fsid)?;
    writeln!(out, "generation: {}", report.generation)?;
    if report.has_log {
        writeln!(out, "log: has what was fsynced after that, and is replayed by the next mount")?;
    }
    let total = PASSES.len();
    for (index, pass) in report.passes.iter().enumerate() {
        writeln!(out, "[{}/{total}] {}: {}", index + 1, pass.name, verdict(pass))?;
        for finding in &pass.errors.list {
            writeln!(out, "  {finding}")?;
        }
        let left_out =
            pass.errors.count - brindle_ondisk::to_u64(pass.errors.list.len()).min(pass.errors.count);
        if left_out > 0 {
            writeln!(out, "  and {left_out} more")?;
        }
        for note in &pass.notes {
            writeln!(out, "  note: {note}")?;
        }
    }
    files.print(out)?;
    writeln!(out, "{}", conclusion(report, files.lost().count()))
}

/// The last line: errors, and what is lost beyond redundancy.
fn conclusion(report: &Report, lost_files: usize) -> String {
    let mut line = match report.error_count() {
        0 => "no errors found".to_owned(),
        1 => "1 error found".to_owned(),
        count => format!("{count} errors found"),
    };
    match lost_files {
        0 => {}
        1 => line += "; 1 file has lost data",
        count => line += &format!("; {count} files have lost data"),
    }
    match report.lost_chunks {
        0 => {}
        1 => line += "; 1 chunk can't be read whole without the missing devices",
        count => line += &format!("; {count} chunks can't be read whole without the missing devices"),
    }
    line
}

fn verdict(pass: &PassReport) -> String {
    if let Some(reason) = &pass.skipped {
        return format!("skipped: {reason}");
    }
    let result = match pass.errors.count {
        0 => "ok".to_owned(),
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    let mut parts = Vec::new();
    if pass.statistics.blocks > 0 {
        parts.push(format!("{} tree blocks", pass.statistics.blocks));
    }
    if pass.statistics.items > 0 {
        parts.push(format!("{} items", pass.statistics.items));
    }
    if pass.statistics.bytes > 0 {
        parts.push(UnitMode::DEFAULT.format(pass.statistics.bytes));
    }
    if parts.is_empty() { result } else { format!("{result} ({})", parts.join(", ")) }
}

fn report_json(report: &Report) -> Value {
    let pass = |pass: &PassReport| {
        json!({
            "name": pass.name,
            "about": pass.about,
            "skipped": pass.skipped,
            "error_count": pass.errors.count,
            "errors": pass.errors.list.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "notes": pass.notes,
            "blocks": pass.statistics.blocks,
            "bytes": pass.statistics.bytes,
            "items": pass.statistics.items,
            "seconds": pass.elapsed.as_secs_f64(),
        })
    };
    json!({
        "uuid": report.fsid.to_string(),
        "generation": report.generation.get(),
        "has_log": report.has_log,
        "clean": report.is_clean(),
        "error_count": report.error_count(),
        "lost_chunks": report.lost_chunks,
        "passes": report.passes.iter().map(pass).collect::<Vec<_>>(),
    })
}
