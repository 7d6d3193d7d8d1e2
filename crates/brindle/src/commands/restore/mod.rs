//! `brindle restore`, also called `cp`: files out of a pool.
//!
//! One thread walks the tree ([`walk`]), makes directories and hands each file to a pool of threads
//! ([`copy`]) through a bounded queue; big files go out in segments, so that no single one keeps the others
//! waiting. What a directory is to look like in the end (owner, mode, times) is set when the last piece of work
//! below it is done, which is when the last reference to it goes ([`target::Directory`]).
//!
//! A file gets its name when it is whole ([`unfinished`]); a signal ([`stop`]) ends the work between two reads, and
//! leaves whole files only.
//!
//! Everything in the destination is reached by descriptor and name, never by path, and without following
//! symbolic links: a hostile pool cannot write outside it.

mod copy;
mod metadata;
mod output_file;
mod report;
mod target;
mod unfinished;
mod walk;

use crate::cli::JsonOption;
use crate::commands::operands::Operands;
use crate::commands::path::PathOption;
use crate::commands::pool::PoolOptions;
use crate::commands::stop::Stop;
use crate::output;
use anyhow::{Context as _, Result, bail};
use brindle_fs::{FileType, Filesystem};
use clap::Args;
use copy::Batch;
use report::Report;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use target::Directory;
use walk::Walk;

const EXAMPLES: &str = "\
EXAMPLES
  One directory of a pool of two devices:
    brindle restore a.img b.img --path home/me ./me

  Everything that can be had from a raid1 that lost a disk, top level and all subvolumes:
    brindle restore -o degraded --subvolid 5 /dev/sdb /mnt/rescue

  One file:
    brindle cp pool.img --path etc/fstab ./fstab

EXIT STATUS
  0  everything was restored
  1  something was not: each failure has its line on standard error, and the rest was restored
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
/// unfinished files are removed.
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
    /// Leave out the subvolumes below
    #[arg(short = 'x', long)]
    one_subvolume: bool,
    /// Number of copying threads [default: the number of processors, at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    pool: PoolOptions,
    #[command(flatten)]
    operands: Operands,
}

/// State shared by all threads.
struct Context {
    filesystem: Filesystem,
    report: Report,
    overwrite: bool,
    one_subvolume: bool,
    is_root: bool,
    /// True if files can do without a name until they are whole.
    unnamed_files: AtomicBool,
    stop: Stop,
}

/// Batches of jobs that wait at the most; each job may keep a directory open.
const QUEUE_BATCHES: usize = 8;
const THREADS_MIN: usize = 4;

/// Runs the command.
pub(crate) fn run(command: &RestoreCommand, quiet: bool) -> Result<ExitCode> {
    command.operands.require("restore");
    let start = Instant::now();
    let mut context = Context {
        filesystem: command.pool.open(command.operands.devices())?,
        report: Report::new(!command.json.json),
        overwrite: command.overwrite,
        one_subvolume: command.one_subvolume,
        is_root: rustix::process::geteuid().is_root(),
        unnamed_files: AtomicBool::new(false),
        stop: Stop::default(),
    };
    allow_many_files();
    if !context.is_root {
        context.report.note("not root: files are restored as yours, their owners are left out");
    }
    context.stop = Stop::on_signals()?;
    let result = restore(&context, command);
    context.report.finish();
    result?;
    if let Some((signal, code)) = context.stop.name_and_code() {
        let files = context.report.files.load(Ordering::Relaxed);
        output::complain_line(&format!(
            "interrupted: {signal}; {files} files were restored whole, unfinished ones are removed"
        ));
        return Ok(ExitCode::from(code));
    }
    if command.json.json {
        output::print_json(&context.report.json(start.elapsed()))?;
    } else if !quiet {
        let mut out = output::stdout();
        writeln!(out, "{}", context.report.summary(start.elapsed()))?;
        out.flush()?;
    }
    let failed = context.report.failures() > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn restore(context: &Context, command: &RestoreCommand) -> Result<()> {
    let inode = command.path.resolve(&context.filesystem)?;
    let attributes = context.filesystem.attributes(inode)?;
    let is_directory = attributes.kind == FileType::Directory;
    let (target, name) = if is_directory {
        (Directory::open_destination(context, command.operands.last(), &attributes)?, Vec::new())
    } else {
        file_destination(context, command)?
    };
    let is_unnamed = unfinished::supports_unnamed(&target);
    context.unnamed_files.store(is_unnamed, Ordering::Relaxed);
    let target = Arc::new(target);
    let (queue, jobs) = sync_channel::<Batch<'_>>(QUEUE_BATCHES);
    let jobs = Mutex::new(jobs);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = command.threads.map_or(cores.max(THREADS_MIN), usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| copy::work(context, &jobs));
        }
        let mut walk = Walk::new(context, queue);
        if is_directory {
            walk.tree(inode, target);
        } else {
            walk.single(target, &name, attributes);
        }
    });
    Ok(())
}

/// The directory and the name that a single file goes to.
fn file_destination<'c>(context: &'c Context, command: &RestoreCommand) -> Result<(Directory<'c>, Vec<u8>)> {
    let destination = command.operands.last();
    if destination.is_dir() {
        let name = command.path.file_name().context("the path has no last name to call the file by")?;
        return Ok((Directory::open_existing(context, destination)?, name.to_vec()));
    }
    let Some(name) = destination.file_name() else {
        bail!("{}: cannot make a file of this name", destination.display());
    };
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = Directory::open_existing(context, parent.unwrap_or(Path::new(".")))?;
    Ok((parent, name.as_bytes().to_vec()))
}

/// Deep trees keep a directory open for each level, which may be more than are allowed unasked.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it, very deep trees fail with a message that says why.
    let _ = setrlimit(Resource::Nofile, limit);
}
