//! `brindle restore`, also called `cp`: files out of a pool, by [`brindle_care::extract`].

mod report;

use crate::commands::damaged_list::DamagedFilesOption;
use crate::commands::operands::Operands;
use crate::commands::path::PathOption;
use crate::commands::pool::PoolOptions;
use crate::commands::stop::Stop;
use crate::format::UnitMode;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_care::extract::{ExtractOptions, Extracted, extract, survey};
use brindle_fs::Filesystem;
use clap::{Args, Command};
use report::Report;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const EXAMPLES: &str = "\
EXAMPLES
  One directory of a pool of two devices:
    brindle restore a.img b.img --path home/me ./me

  Everything that can be had from a raid1 that lost a disk, top level and all
  subvolumes:
    brindle restore -o degraded --subvolid 5 /dev/sdb /mnt/rescue

  One file:
    brindle cp pool.img --path etc/fstab ./fstab

  What would be copied, and what can't be; then all of it, and again after an
  interruption:
    brindle cp --dry-run /dev/sdb /mnt/rescue
    brindle cp /dev/sdb /mnt/rescue
    brindle cp --resume /dev/sdb /mnt/rescue

EXIT STATUS
  0  everything was restored, and is on the disk
  1  something was not: each failure has its line on standard error, and the
     rest was restored
  2  wrong usage
  130, 143, 129  interrupted by SIGINT, SIGTERM, SIGHUP";

/// Restore files from a pool, without mounting it
///
/// A directory is restored with everything below it, subvolumes included, into the directory DEST, which is
/// made if it is not there. A single file is restored as DEST, or into it if DEST is a directory.
///
/// Owners, modes, times, extended attributes, ACLs, hard links, holes and special files are kept. An ordinary
/// user can't give files away: owners and other things that need root are then left out, with a note.
///
/// Every sector is verified against its checksum. Where no copy is right, the bad part of the file is left a
/// hole, the file is reported, and the rest goes on.
///
/// A file appears under its name when it is whole. When something stops the work, such as a full disk or Ctrl-C,
/// unfinished files are removed. It gets its time of modification when its contents are on the disk, by a sync
/// of the destination after each GiB and at the end; until then it has the time of the copy.
#[derive(Args, Debug)]
#[command(
    visible_alias = "cp",
    override_usage = "brindle restore [OPTIONS] <DEVICE>... <DEST>",
    after_long_help = EXAMPLES
)]
pub(crate) struct RestoreCommand {
    /// Replace files that exist; without it they are failures, and stay as they are
    #[arg(long)]
    overwrite: bool,
    /// Go on with a copy that was interrupted: files that are whole in DEST stay
    ///
    /// A file is whole if its size and its time of modification are those of the pool. A copy sets that time last, when
    /// the contents are on the disk: neither a crash nor the loss of power leaves a file that only looks whole, and a file of
    /// which something could not be read has a time two seconds early. What differs is copied anew. Something of another kind
    /// (a directory in place of a file) is a failure, and stays; with --overwrite too it is replaced, unless it is a directory.
    /// Unfinished files of a copy that was killed are removed; files that only DEST has stay. Owner and mode of files that
    /// stay are those of the pool; their extended attributes are not compared.
    #[arg(long)]
    resume: bool,
    /// Tell the files, the bytes at most and the failures that can be foreseen; write nothing
    ///
    /// Directories and inodes are read, contents are not: damage of contents is known only where a missing device takes their
    /// chunks away. `brindle check --check-data-csum --damaged-files` reads everything.
    #[arg(short = 'D', long)]
    dry_run: bool,
    /// Leave out the subvolumes below
    #[arg(short = 'x', long)]
    one_subvolume: bool,
    /// Taken as btrfs takes them, without effect: a failure ends nothing, and metadata, symbolic links, extended
    /// attributes and snapshots are restored
    #[arg(short = 'i', long = "ignore-errors", short_aliases = ['m', 'S', 's'],
          aliases = ["metadata", "symlink", "xattr", "snapshots"], action = clap::ArgAction::Count)]
    as_ever: u8,
    /// Number of copying threads [default: the number of processors, at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    damaged: DamagedFilesOption,
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    pool: PoolOptions,
    #[command(flatten)]
    operands: Operands,
}

/// Runs the command.
pub(crate) fn run(command: &RestoreCommand, quiet: bool, tree: &Command) -> Result<ExitCode> {
    command.operands.require("restore", tree);
    let start = Instant::now();
    let filesystem = command.pool.open(command.operands.devices())?;
    let is_root = rustix::process::geteuid().is_root();
    allow_many_files();
    let report = Report::new(!command.json.json, command.dry_run, Stop::on_signals()?);
    if !is_root {
        report.note("not root: files are restored as yours, their owners are left out");
    }
    let options = ExtractOptions {
        overwrite: command.overwrite,
        resume: command.resume,
        one_subvolume: command.one_subvolume,
        is_root,
        threads: command.threads.map(usize::from),
    };
    let restored = restore(&filesystem, command, options, &report);
    report.finish();
    let restored = restored?;
    command.damaged.write(report.damaged().iter().map(Vec::as_slice))?;
    if let Some((signal, code)) = report.stop().name_and_code() {
        let files = restored.files;
        if command.dry_run {
            output::complain_line(&format!("interrupted: {signal}"));
            return Ok(ExitCode::from(code));
        }
        output::complain_line(&format!(
            "interrupted: {signal}; {files} files were restored whole, unfinished ones are removed; --resume goes on"
        ));
        return Ok(ExitCode::from(code));
    }
    if command.json.json {
        output::print_json(&report.json(&restored, start.elapsed()))?;
    } else if !quiet {
        let mut out = output::stdout();
        writeln!(out, "{}", report.summary(&restored, start.elapsed()))?;
        out.flush()?;
    }
    let failed = report.failures() > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn restore(
    filesystem: &Filesystem,
    command: &RestoreCommand,
    options: ExtractOptions,
    report: &Report,
) -> Result<Extracted> {
    let inode = command.path.resolve(filesystem)?;
    let name = command.path.file_name();
    let destination = command.operands.last();
    if !command.dry_run {
        return Ok(extract(filesystem, inode, name, destination, options, report)?);
    }
    let found = survey(filesystem, inode, name, destination, options, report)?;
    let available = available_bytes(destination);
    if let Some(available) = available.filter(|available| *available < found.bytes) {
        let available = UnitMode::DEFAULT.format(available);
        report.note(&format!("{}: {available} are available there", destination.display()));
    }
    Ok(found)
}

/// Bytes that are available where a destination is, or would be made.
fn available_bytes(destination: &Path) -> Option<u64> {
    let absolute = std::path::absolute(destination).ok()?;
    let found = absolute.ancestors().find_map(|place| rustix::fs::statvfs(place).ok())?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Deep trees keep a directory open for each level, which may be more than are allowed unasked.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it, very deep trees fail with a message that says why.
    let _ = setrlimit(Resource::Nofile, limit);
}
